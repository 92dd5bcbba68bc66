"""Without a heartbeat: work that always ends within its lease needs no renewal, and is stopped otherwise."""

import time
from typing import Any

import pytest
from aws_cdk import Duration
from kit.interpreter.harness import Work
from kit.interpreter.lambda_server import ServiceError
from kit.interpreter.stage import CHILD_ARN, LEASE_S
from ticketlock_cdk.lock.settings import HandOver, LockSettings
from workflow.interpreted.conftest import Open, OpenUser

pytestmark = [
    pytest.mark.shows("no heartbeat"),
    pytest.mark.verify("moto's interpreter waits in real time; `make test` asks the ways that most executions take"),
]

ENTITY = "order-42"
WORK_TIMEOUT_S = LEASE_S - 5
FIXED = {"heartbeat": False, "work_timeout_s": WORK_TIMEOUT_S}


def test_an_uncontended_execution_makes_4_transitions_beside_the_works_own_and_3_writes(open_stage: Open) -> None:
    stage = open_stage(**FIXED)
    arn = stage.start(ENTITY)
    assert stage.machine.wait(arn).output == "done"
    entered = stage.machine.entered(arn)
    assert entered.pop("InvokeFunction") == 1
    assert entered == {"TakeTicket": 1, "MyTurn?": 1, "ChooseWork": 1, "Release": 1}
    # Acquire; record that the work has ended; release.
    assert stage.requests.count("UpdateItem") == 3
    assert stage.engine.invocations_of("Heartbeat") == []
    assert stage.is_free(ENTITY)


def test_a_fragment_makes_4_transitions_beside_the_works_own(open_user: OpenUser) -> None:
    work = Work()
    user = open_user("fixed_function", work, **FIXED)
    arn = user.start({"order": 42})
    assert user.machine.wait(arn).output == "done"
    entered = user.machine.entered(arn)
    assert entered.pop("Locked.InvokeFunction") == 1
    own = {"Locked.TellLock": 1, "After": 1}
    assert entered == {"Locked.Enter": 1, "Locked.TakeTicket": 1, "Locked.MyTurn?": 1, "Locked.Release": 1, **own}
    assert work.runs[0].event["lock"]["entity"] == ENTITY
    assert user.stage.is_free(ENTITY)


def test_a_fragment_runs_a_nested_execution(open_user: OpenUser) -> None:
    user = open_user("fixed_execution", **FIXED)
    user.stage.engine.machine("child", {"StartAt": "Done", "States": {"Done": {"Type": "Pass", "End": True}}})
    assert user.run({"order": 42}).output == {"order": 42}
    assert user.stage.is_free(ENTITY)


@pytest.mark.parametrize("hand_over", HandOver)
def test_executions_run_one_at_a_time_in_ticket_order(open_stage: Open, hand_over: HandOver) -> None:
    work = Work(seconds=0.3)
    stage = open_stage(work, hand_over=hand_over, **FIXED)
    arns = [stage.start(ENTITY) for _ in range(4)]
    assert {stage.machine.wait(arn, 60).status for arn in arns} == {"SUCCEEDED"}
    assert work.overlaps() == []
    served = [invocation.event["turn"]["grant"]["ticket"] for invocation in stage.engine.invocations_of("Release")]
    assert served == sorted(set(served))
    assert len(served) == 4
    assert stage.is_free(ENTITY)


def test_fragments_run_one_at_a_time(open_user: OpenUser) -> None:
    work = Work(seconds=0.3)
    user = open_user("fixed_function", work, **FIXED)
    arns = [user.start({}) for _ in range(3)]
    assert {user.machine.wait(arn, 60).status for arn in arns} == {"SUCCEEDED"}
    assert work.overlaps() == []
    assert len(work.runs) == 3


def test_work_past_its_time_out_fails_and_keeps_the_lock_until_its_lease_ends(open_stage: Open) -> None:
    work, after = Work(seconds=60), Work()
    stage = open_stage({"work": work, "after": after}, **FIXED)
    began = time.monotonic()
    outcome = stage.run(ENTITY)
    assert (outcome.status, outcome.error) == ("FAILED", "Work.Timeout")
    assert time.monotonic() - began < LEASE_S
    assert not stage.is_free(ENTITY)
    assert stage.run(ENTITY, function="after", recordWaitSeconds=0).error == "RecordWaitExceeded"
    assert stage.run(ENTITY, function="after", timeout=LEASE_S + 10).status == "SUCCEEDED"
    # The function itself cannot be stopped: its own time-out must not be longer.
    assert after.runs[0].started - began >= LEASE_S
    work.finish.set()


def test_a_fragments_work_past_its_time_out_fails_and_the_lock_stays(open_user: OpenUser) -> None:
    work = Work(seconds=60)
    user = open_user("fixed_timing_out", work, heartbeat=False, work_timeout_s=1)
    outcome = user.run({})
    assert (outcome.status, outcome.error) == ("FAILED", "Work.Timeout")
    assert not user.stage.is_free(ENTITY)
    work.finish.set()


def test_a_nested_execution_past_its_time_out_is_stopped_and_the_lock_is_free(open_stage: Open) -> None:
    stage = open_stage(heartbeat=False, work_timeout_s=1)
    wait = {"Type": "Wait", "Seconds": 60, "End": True}
    child = stage.engine.machine("child", {"StartAt": "Wait", "States": {"Wait": wait}})
    assert child.arn == CHILD_ARN
    arn = stage.machine.start("parent", {"entity": ENTITY, "task": {"stateMachineArn": child.arn, "input": {}}})
    outcome = stage.machine.wait(arn)
    assert (outcome.status, outcome.error) == ("FAILED", "Work.Timeout")
    found = stage.engine.client.list_executions(stateMachineArn=child.arn)["executions"]
    assert [execution["status"] for execution in found] == ["ABORTED"]
    assert stage.is_free(ENTITY)


class StockMissing(Exception):
    pass


@pytest.mark.always("the way that most executions take")
def test_failing_work_fails_the_execution_as_itself_and_frees_the_lock(open_stage: Open) -> None:
    stage = open_stage(Work(error=StockMissing("no tea")), **FIXED)
    outcome = stage.run(ENTITY)
    assert (outcome.status, outcome.error) == ("FAILED", "StockMissing")
    assert stage.is_free(ENTITY)


def test_work_that_is_released_only_after_its_lease_fails(open_stage: Open) -> None:
    stage = open_stage(**FIXED)
    stage.function("Release").delay_s = LEASE_S + 2
    outcome = stage.run(ENTITY)
    assert (outcome.status, outcome.error) == ("FAILED", "LockLost")
    assert stage.is_free(ENTITY)


def test_a_failed_release_keeps_the_output_and_leaves_the_lock_to_its_lease(open_stage: Open) -> None:
    stage = open_stage(Work(result="kept"), change={"Release/Retry": []}, **FIXED)

    def unreachable(_event: object) -> None:
        raise ServiceError("ServiceException", 500)

    stage.function("Release").before = unreachable
    outcome = stage.run(ENTITY)
    assert (outcome.status, outcome.output) == ("SUCCEEDED", "kept")
    assert not stage.is_free(ENTITY)
    stage.wait_until_free(ENTITY)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"heartbeat": False, "work_timeout": Duration.seconds(41)},
            "work_timeout is 41 seconds; allowed: whole seconds from 1 to 40, which is three quarters of the lease",
        ),
        ({"heartbeat": False, "work_timeout": Duration.seconds(0)}, "work_timeout is 0 seconds; allowed: whole"),
        ({"heartbeat": False, "work_timeout": Duration.millis(1_500)}, "work_timeout is 1.5 seconds; allowed: whole"),
        ({"work_timeout": Duration.seconds(30)}, "work_timeout is given; allowed: with heartbeat=False"),
    ],
)
def test_a_time_out_that_the_lease_does_not_bound_is_refused_at_synth(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="work_timeout") as refused:
        LockSettings.of(
            lease=Duration.seconds(60),
            poll=Duration.seconds(5),
            default_record_wait="Infinity",
            **settings,
        )
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(("lease_s", "longest_s"), [(10, 2), (60, 40)])
def test_work_may_take_three_quarters_of_the_lease_less_5_seconds_unless_less_is_asked_for(
    lease_s: int, longest_s: int
) -> None:
    settings = LockSettings.of(
        lease=Duration.seconds(lease_s), poll=Duration.seconds(5), default_record_wait="Infinity", heartbeat=False
    )
    assert settings.work_timeout_s == longest_s
