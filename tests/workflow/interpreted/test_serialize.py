"""The serialised workflow, executed: its definition is interpreted, with real handlers and a real table."""

import threading
from typing import Any

import pytest
from kit.interpreter.harness import Work
from kit.interpreter.lambda_server import ServiceError, function_arn
from kit.interpreter.stage import CHILD_ARN, LEASE_S
from workflow.interpreted.conftest import ENTITY, Open, unreachable

pytestmark = pytest.mark.verify(
    "moto's interpreter waits in real time; `make test` asks the ways that most executions take"
)


def test_executions_on_different_entities_do_not_wait_for_each_other(open_stage: Open) -> None:
    work = Work(seconds=20)
    stage = open_stage(work)
    arns = [stage.start(entity) for entity in ("order-1", "order-2")]
    for arn in arns:
        stage.machine.wait_until_entered(arn, "InvokeFunction")
    work.finish.set()
    assert {stage.machine.wait(arn).status for arn in arns} == {"SUCCEEDED"}


@pytest.mark.always("the way that most executions take")
def test_the_work_gets_its_input_and_the_lock_and_nothing_else(open_stage: Open) -> None:
    work = Work()
    stage = open_stage(work)
    arn = stage.start(ENTITY, namespace="billing")
    stage.machine.wait(arn)
    (run,) = work.runs
    token = run.event["lock"]["fencingToken"]
    assert run.event == {
        "order": 42,
        "lock": {"entity": ENTITY, "namespace": "billing", "owner": arn, "fencingToken": token},
    }


def test_the_output_of_the_work_is_the_output_of_the_execution(open_stage: Open) -> None:
    work = Work()
    stage = open_stage(work)
    for work.result in ({"total": 7, "lock": "kept"}, [1, 2], "text", 0, None, True):
        outcome = stage.run(ENTITY)
        assert (outcome.status, outcome.output) == ("SUCCEEDED", work.result)


@pytest.mark.parametrize(("asked", "settings"), [({"recordWaitSeconds": 0}, {}), ({}, {"default_record_wait": 0})])
def test_a_record_wait_of_0_of_the_input_or_else_the_default_fails_while_the_lock_is_held(
    open_stage: Open, work: Work, asked: dict[str, Any], settings: dict[str, Any]
) -> None:
    stage = open_stage(work, **settings)
    first = stage.hold(ENTITY)
    outcome = stage.run(ENTITY, **asked)
    assert (outcome.status, outcome.error) == ("FAILED", "RecordWaitExceeded")
    work.finish.set()
    assert stage.machine.wait(first).status == "SUCCEEDED"
    assert stage.is_free(ENTITY)


@pytest.mark.always("the way that most executions take")
def test_a_record_wait_of_2_fails_after_about_2_seconds_and_leaves_the_queue(open_stage: Open, work: Work) -> None:
    stage = open_stage(work)
    first = stage.hold(ENTITY)
    arn = stage.start(ENTITY, recordWaitSeconds=2)
    outcome = stage.machine.wait(arn)
    assert (outcome.status, outcome.error) == ("FAILED", "RecordWaitExceeded")
    assert stage.machine.entered(arn)["CheckPosition"] >= 2
    assert stage.lock(ENTITY).rows == ()
    work.finish.set()
    assert stage.machine.wait(first).status == "SUCCEEDED"


@pytest.mark.always("bad input, as the definition routes it")
def test_bad_input_fails_by_name_says_the_field_and_writes_nothing(open_stage: Open) -> None:
    """Which inputs are bad: test_lock_request.py."""
    stage = open_stage()
    work, other = ({"functionArn": function_arn(name)} for name in ("work", "other"))
    for given, error, field in (
        (["no object"], "InvalidLockRequest", "the input"),
        ({"entity": 7.5, "task": work}, "InvalidLockRequest", "entity"),
        ({"entity": "e", "shared": True, "permits": 2, "task": work}, "InvalidLockRequest", "permits"),
        ({"entity": "e", "task": other}, "TaskNotAllowed", "task.functionArn"),
    ):
        outcome = stage.machine.run(f"bad-{field}", given)
        assert (outcome.error, (outcome.cause or "").partition(" is ")[0]) == (error, field)
    assert (stage.items(), stage.requests) == ([], [])


@pytest.mark.shows("lost lease")
def test_work_that_ends_after_the_lock_was_lost_fails(open_stage: Open, work: Work) -> None:
    stage = open_stage(work)
    # The heartbeat's function hangs, so that the release notices the loss first.
    beats = threading.Event()

    def hang(_event: object) -> None:
        beats.wait(30)

    stage.function("Heartbeat").before = hang
    arn = stage.hold(ENTITY)
    stage.take_away(ENTITY)
    stage.function("Release").before = age_the_lease
    work.finish.set()
    outcome = stage.machine.wait(arn)
    beats.set()
    assert (outcome.status, outcome.error) == ("FAILED", "LockLost")


def age_the_lease(event: dict[str, Any]) -> None:
    """The grant is as old as if the work had outlived its lease."""
    event["turn"]["grant"]["leaseUntilMs"] -= 10 * LEASE_S * 1_000


def test_work_shorter_than_a_cold_heartbeat_does_not_wait_for_the_next_beat(open_stage: Open) -> None:
    stage = open_stage(Work())
    stage.function("Heartbeat").delay_s = 1.0
    arn = stage.start(ENTITY)
    assert stage.machine.wait(arn).status == "SUCCEEDED"
    assert len(stage.engine.invocations_of("Heartbeat")) == 1


@pytest.mark.shows("unreachable functions")
def test_a_heartbeat_that_keeps_failing_stops_the_work_when_its_lease_ends(open_stage: Open, work: Work) -> None:
    stage = open_stage(work)
    stage.function("Heartbeat").before = unreachable
    arn = stage.start(ENTITY)
    outcome = stage.machine.wait(arn)
    assert (outcome.status, outcome.error) == ("FAILED", "Lambda.ServiceException")


@pytest.mark.shows("liveness")
@pytest.mark.parametrize("function", ["TakeTicket", "CheckPosition", "Release"])
def test_a_lost_reply_does_no_harm(open_stage: Open, work: Work, function: str) -> None:
    after = Work(seconds=0.3, runs=work.runs)
    stage = open_stage({"work": work, "next": after})
    lost: set[str] = set()

    def lose_once(event: dict[str, Any]) -> None:
        key = event.get("execution") or event["turn"]["claim"]["owner"]
        if key not in lost:
            lost.add(key)
            raise ServiceError("ServiceException", 500)

    stage.function(function).after = lose_once
    holder = stage.hold(ENTITY)
    waiters = [stage.start(ENTITY, function="next") for _ in range(2)]
    for waiter in waiters:
        stage.machine.wait_until_entered(waiter, "WaitForTurn")
    work.finish.set()
    assert {stage.machine.wait(arn).status for arn in (holder, *waiters)} == {"SUCCEEDED"}
    assert lost >= set(waiters)
    assert (len(work.runs), work.overlaps()) == (3, [])
    assert stage.is_free(ENTITY)


def test_a_result_too_large_fails_by_name_and_frees_the_lock(open_stage: Open) -> None:
    stage = open_stage(Work(result="x" * 300_000))
    outcome = stage.run(ENTITY)
    assert (outcome.status, outcome.error) == ("FAILED", "Work.DataLimitExceeded")
    assert stage.is_free(ENTITY)


@pytest.mark.shows("no heartbeat")
def test_a_nested_execution_past_its_time_out_is_stopped_and_the_lock_is_free(open_stage: Open) -> None:
    stage = open_stage(heartbeat=False, work_timeout_s=1)
    wait = {"Type": "Wait", "Seconds": 60, "End": True}
    child = stage.engine.machine("child", {"StartAt": "Wait", "States": {"Wait": wait}})
    assert child.arn == CHILD_ARN
    arn = stage.machine.start("parent", {"entity": ENTITY, "task": {"stateMachineArn": child.arn, "input": {}}})
    outcome = stage.machine.wait(arn)
    assert (outcome.status, outcome.error) == ("FAILED", "Work.Timeout")
    assert [execution["status"] for execution in child.executions()] == ["ABORTED"]
    assert stage.is_free(ENTITY)


@pytest.mark.shows("no heartbeat")
def test_work_that_is_released_only_after_its_lease_fails(open_stage: Open) -> None:
    lease_s = 8
    stage = open_stage(heartbeat=False, lease_s=lease_s, work_timeout_s=lease_s - 2)
    # Shorter than the state's own time-out.
    stage.function("Release").delay_s = lease_s + 2
    outcome = stage.run(ENTITY)
    assert (outcome.status, outcome.error) == ("FAILED", "LockLost")
    assert stage.is_free(ENTITY)
