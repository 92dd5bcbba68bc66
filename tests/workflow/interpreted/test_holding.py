"""Executions that hold the lock: heartbeats, lost leases, stops, duplicates, nested executions."""

import json
import threading
from typing import Any

import pytest
from kit.interpreter.harness import Work
from kit.interpreter.lambda_server import ServiceError, Twice
from kit.interpreter.stage import CHILD_ARN, HALF_LIFE_S, LEASE_S
from workflow.interpreted.conftest import Open

from ticketlock.workflow import _turn as budget

pytestmark = [
    pytest.mark.shows("liveness", "lost lease", "unreachable functions"),
    pytest.mark.verify("moto's interpreter waits in real time; `make test` asks the ways that most executions take"),
]


@pytest.mark.always("the way that most executions take")
def test_work_longer_than_the_lease_keeps_the_lock(open_stage: Open) -> None:
    work = Work(seconds=LEASE_S + 3)
    stage = open_stage({"work": work, "next": Work()})
    first = stage.start("order-42")
    assert work.started.wait(10)
    second = stage.start("order-42", function="next")
    assert stage.machine.wait(first, 60).status == "SUCCEEDED"
    assert stage.machine.wait(second, 60).status == "SUCCEEDED"
    (held,), (after,) = stage.engine.invocations_of("work"), stage.engine.invocations_of("next")
    assert held.ended <= after.started
    assert len(stage.engine.invocations_of("Heartbeat")) >= 3


@pytest.mark.always("the way that most executions take")
def test_a_lost_lease_stops_the_work_within_one_heartbeat(open_stage: Open) -> None:
    work = Work(seconds=60)
    stage = open_stage(work)
    arn = stage.start("order-42")
    assert work.started.wait(10)
    stage.take_away("order-42")
    beats = len(stage.engine.invocations_of("Heartbeat"))
    outcome = stage.machine.wait(arn, LEASE_S + 20)
    assert (outcome.status, outcome.error) == ("FAILED", "LockLost")
    assert "not held with fencing token" in (outcome.cause or "")
    # The first beat may be in progress when the lock is freed by force: it only stores its token.
    assert len(stage.engine.invocations_of("Heartbeat")) <= max(1, beats) + 1
    work.finish.set()


def test_work_that_ends_after_the_lock_was_lost_fails(open_stage: Open) -> None:
    work = Work(seconds=60)
    stage = open_stage(work)
    # The heartbeat's function hangs, so that the release notices the loss first.
    beats = threading.Event()

    def hang(_event: object) -> None:
        beats.wait(30)

    stage.function("Heartbeat").before = hang
    arn = stage.start("order-42")
    assert work.started.wait(10)
    stage.take_away("order-42")
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
    arn = stage.start("order-42")
    assert stage.machine.wait(arn).status == "SUCCEEDED"
    assert len(stage.engine.invocations_of("Heartbeat")) == 1


def test_a_heartbeat_that_keeps_failing_stops_the_work_when_its_lease_ends(open_stage: Open) -> None:
    work = Work(seconds=60)
    stage = open_stage(work)

    def unreachable(_event: object) -> None:
        raise ServiceError("ServiceException", 500)

    stage.function("Heartbeat").before = unreachable
    arn = stage.start("order-42")
    outcome = stage.machine.wait(arn, 2 * LEASE_S + 20)
    assert (outcome.status, outcome.error) == ("FAILED", "Lambda.ServiceException")
    work.finish.set()


@pytest.mark.parametrize("mode", ["second reply", "first reply"])
def test_every_function_may_run_twice(open_stage: Open, mode: Twice) -> None:
    work = Work(seconds=0.3)
    stage = open_stage(work)
    for name in ("TakeTicket", "CheckPosition", "Heartbeat", "Release"):
        stage.function(name).twice = mode
    arns = [stage.start("order-42") for _ in range(4)]
    assert {stage.machine.wait(arn, 90).status for arn in arns} == {"SUCCEEDED"}
    assert work.overlaps() == []
    assert len(work.runs) == 4
    # A copy that starts after its execution has ended may take the lock, or join the queue, once more for one lease.
    stage.wait_until_free("order-42")


@pytest.mark.parametrize("function", ["TakeTicket", "CheckPosition", "Release"])
def test_a_lost_reply_does_no_harm(open_stage: Open, function: str) -> None:
    work = Work(seconds=0.3)
    stage = open_stage(work)
    lost: set[str] = set()

    def lose_once(event: dict[str, Any]) -> None:
        key = event.get("execution") or event["turn"]["claim"]["owner"]
        if key not in lost:
            lost.add(key)
            raise ServiceError("ServiceException", 500)

    stage.function(function).after = lose_once
    arns = [stage.start("order-42") for _ in range(3)]
    assert {stage.machine.wait(arn, 90).status for arn in arns} == {"SUCCEEDED"}
    assert lost
    assert work.overlaps() == []
    assert stage.is_free("order-42")


def test_a_stopped_waiter_delays_the_others_by_at_most_its_rows_lease(open_stage: Open) -> None:
    work = Work(seconds=60)
    stage = open_stage({"work": work, "next": Work()})
    first = stage.start("order-42")
    assert work.started.wait(10)
    stopped = stage.start("order-42", function="next")
    stage.machine.wait_until_entered(stopped, "WaitForTurn")
    third = stage.start("order-42", function="next")
    stage.machine.wait_until_entered(third, "WaitForTurn")
    stage.machine.stop(stopped)
    work.finish.set()
    assert stage.machine.wait(first).status == "SUCCEEDED"
    assert stage.machine.wait(third, LEASE_S + 30).status == "SUCCEEDED"
    assert stage.is_free("order-42")


def test_a_stopped_holder_delays_the_others_by_at_most_its_lease(open_stage: Open) -> None:
    work = Work(seconds=60)
    stage = open_stage({"work": work, "next": Work()})
    first = stage.start("order-42")
    assert work.started.wait(10)
    second = stage.start("order-42", function="next")
    stage.machine.wait_until_entered(second, "WaitForTurn")
    stage.machine.stop(first)
    assert stage.machine.wait(second, LEASE_S + HALF_LIFE_S + 30).status == "SUCCEEDED"
    work.finish.set()


def test_work_that_may_still_be_running_keeps_the_lock_until_its_lease_ends(open_stage: Open) -> None:
    work = Work(seconds=60)
    stage = open_stage({"work": work, "next": Work()}, change={"Hold/0/InvokeFunction/TimeoutSeconds": 1})
    outcome = stage.run("order-42")
    assert (outcome.status, outcome.error) == ("FAILED", "Work.Timeout")
    assert not stage.is_free("order-42")
    assert stage.run("order-42", function="next", recordWaitSeconds=0).error == "RecordWaitExceeded"
    assert stage.run("order-42", function="next", timeout=LEASE_S + 30).status == "SUCCEEDED"
    work.finish.set()


def test_a_failed_release_keeps_the_output_and_leaves_the_lock_to_the_heartbeat(open_stage: Open) -> None:
    stage = open_stage(Work(result="kept"), change={"Hold/0/Release/Retry": []})

    def unreachable(_event: object) -> None:
        raise ServiceError("ServiceException", 500)

    stage.function("Release").before = unreachable
    outcome = stage.run("order-42", timeout=HALF_LIFE_S + 30)
    assert (outcome.status, outcome.output) == ("SUCCEEDED", "kept")
    assert stage.is_free("order-42")


@pytest.mark.always("the way that most executions take")
def test_a_nested_execution_is_the_work(open_stage: Open) -> None:
    stage = open_stage()
    child = stage.engine.machine("child", {"StartAt": "Done", "States": {"Done": {"Type": "Pass", "End": True}}})
    assert child.arn == CHILD_ARN
    arn = stage.machine.start("parent", {"entity": "e", "task": {"stateMachineArn": child.arn, "input": {"a": 1}}})
    outcome = stage.machine.wait(arn)
    assert outcome.status == "SUCCEEDED"
    assert outcome.output["a"] == 1
    assert outcome.output["lock"]["owner"] == arn
    assert stage.is_free("e")


def test_a_failed_nested_execution_fails_with_its_own_error_and_cause(open_stage: Open) -> None:
    stage = open_stage()
    fail = {"Type": "Fail", "Error": "StockMissing", "Cause": "no tea"}
    child = stage.engine.machine("child", {"StartAt": "No", "States": {"No": fail}})
    arn = stage.machine.start("parent", {"entity": "e", "task": {"stateMachineArn": child.arn, "input": {}}})
    outcome = stage.machine.wait(arn)
    assert (outcome.status, outcome.error, outcome.cause) == ("FAILED", "StockMissing", "no tea")
    assert stage.is_free("e")


def test_a_result_too_large_fails_by_name_and_frees_the_lock(open_stage: Open) -> None:
    stage = open_stage(Work(result="x" * 300_000))
    outcome = stage.run("order-42")
    assert (outcome.status, outcome.error) == ("FAILED", "Work.DataLimitExceeded")
    assert stage.is_free("order-42")


def test_a_wait_near_the_event_limit_fails_by_name_and_leaves_the_queue(
    open_stage: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "WAITING_EVENTS", 0)
    work = Work(seconds=60)
    stage = open_stage(work, polls_an_execution=2)
    first = stage.start("order-42")
    assert work.started.wait(10)
    assert stage.run("order-42").error == "EventBudgetExceeded"
    assert stage.lock("order-42").rows == ()
    work.finish.set()
    stage.machine.wait(first)


def test_a_hold_near_the_event_limit_fails_by_name(open_stage: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_EVENTS", 0)
    work = Work(seconds=60)
    stage = open_stage(work, beats_an_execution=2)
    arn = stage.start("order-42")
    assert stage.machine.wait(arn, LEASE_S + 30).error == "EventBudgetExceeded"
    work.finish.set()


def test_a_poll_and_a_beat_cost_the_events_that_the_budget_counts(open_stage: Open) -> None:
    work = Work(seconds=60)
    stage = open_stage({"work": work, "next": Work()})
    first = stage.start("order-42")
    assert work.started.wait(10)
    second = stage.start("order-42", function="next")
    stage.machine.wait_until_entered(second, "WaitForTurn")
    deadline = threading.Event()
    while stage.machine.entered(second)["CheckPosition"] < 3 or len(stage.engine.invocations_of("Heartbeat")) < 3:
        deadline.wait(0.1)
    waiting, holding = stage.machine.history(second), stage.machine.history(first)
    work.finish.set()
    stage.machine.wait(first)
    stage.machine.wait(second)
    names = [event.get("stateEnteredEventDetails", {}).get("name") for event in waiting]
    polls = [index for index, name in enumerate(names) if name == "MyTurn?"]
    assert polls[1] - polls[0] == budget.EVENTS_PER_POLL
    assert events_between_beats(holding) == budget.EVENTS_PER_BEAT


def events_between_beats(history: list[dict[str, Any]]) -> int:
    """The events from one scheduling of the heartbeat's task to the next, without the work's own."""
    beat_types = {"TaskScheduled", "TaskStarted", "TaskSubmitted", "TaskTimedOut"}
    beats = [
        event["type"]
        for event in history
        if event["type"] in beat_types and "InvokeFunction" not in json.dumps(event, default=str)
    ]
    first = beats.index("TaskTimedOut")
    second = beats.index("TaskTimedOut", first + 1)
    return second - first
