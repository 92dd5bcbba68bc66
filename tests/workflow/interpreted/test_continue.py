"""Unlimited waits and holds: each continues in executions of its own, and the first execution completes it."""

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from kit.interpreter.harness import PATIENCE_S, Work, until
from kit.interpreter.stage import LEASE_S, Stage
from ticketlock_cdk.lock.settings import HandOver
from workflow.interpreted.conftest import ENTITY, Open, held_and_waited_for

from ticketlock.workflow import _turn as budget

pytestmark = [
    pytest.mark.shows("long waits and holds"),
    pytest.mark.verify("moto's interpreter waits in real time; `make test` asks the ways that most executions take"),
]

EVENTS_PER_POLL = {True: budget.EVENTS_PER_PARKED_POLL, False: budget.EVENTS_PER_POLL}
"""The events of a poll, of a waiter that parks and of one that polls."""


def test_a_wait_keeps_its_position_over_continuations(open_stage: Open, work: Work) -> None:
    stage = open_stage({"work": work, "next": Work(), "last": Work()}, polls_an_execution=3)
    holder = stage.hold(ENTITY)
    waiter = stage.start(ENTITY, function="next")
    stage.machine.wait_until_entered(waiter, "WaitForTurn")
    behind = stage.start(ENTITY, function="last", recordWaitSeconds="Infinity")
    ticket = stage.lock(ENTITY).rows[0].ticket
    stage.machine.wait_until_entered(waiter, "ContinueWaiting", more_than=2)
    assert stage.lock(ENTITY).rows[0].ticket == ticket
    work.finish.set()
    assert stage.machine.wait(holder).status == "SUCCEEDED"
    assert stage.machine.wait(waiter).status == "SUCCEEDED"
    assert stage.machine.wait(behind).status == "SUCCEEDED"
    (first,), (second,) = stage.engine.invocations_of("next"), stage.engine.invocations_of("last")
    assert first.ended <= second.started
    assert first.event["lock"]["owner"] == waiter
    assert stage.is_free(ENTITY)


@pytest.mark.always("the way that most executions take")
def test_a_parked_wait_continues_in_a_continuation(open_stage: Open, work: Work) -> None:
    stage, holder, (waiter,) = held_and_waited_for(
        open_stage, work, polls_an_execution=2, parks=1, hand_over=HandOver.CALLBACK
    )
    stage.machine.wait_until_entered(waiter, "ContinueWaiting")
    (child,) = until(lambda: stage.continuations("wait-"), PATIENCE_S, lambda: "a continuation")
    stage.continues.wait_until_entered(child, "WaitForWakeUp")
    work.finish.set()
    assert stage.machine.wait(holder).status == "SUCCEEDED"
    assert stage.machine.wait(waiter).status == "SUCCEEDED"


def test_a_record_wait_ends_across_a_continuation(open_stage: Open, work: Work) -> None:
    stage = open_stage(work, polls_an_execution=2)
    holder = stage.hold(ENTITY)
    ended = stage.run(ENTITY, recordWaitSeconds=5)
    assert ended.error == "RecordWaitExceeded"
    assert stage.continuations("wait-")
    assert stage.lock(ENTITY).rows == ()
    work.finish.set()
    stage.machine.wait(holder)


def test_a_wait_whose_continuation_is_stopped_continues_by_itself(open_stage: Open, work: Work) -> None:
    stage, holder, (waiter,) = held_and_waited_for(open_stage, work, polls_an_execution=2)
    stage.machine.wait_until_entered(waiter, "ContinueWaiting")
    child = until(lambda: stage.continuations("wait-"), PATIENCE_S, lambda: "a continuation")[0]
    stage.continues.wait_until_entered(child, "CheckPosition")
    stage.continues.stop(child)
    stage.machine.wait_until_entered(waiter, "ContinueWaiting", more_than=1)
    work.finish.set()
    assert stage.machine.wait(holder).status == "SUCCEEDED"
    assert stage.machine.wait(waiter).status == "SUCCEEDED"


def test_a_hold_keeps_the_lock_over_continuations(open_stage: Open, work: Work) -> None:
    stage = open_stage({"work": work, "next": Work()}, beats_an_execution=2)
    holder = stage.hold(ENTITY)
    token = fencing_token(stage)
    until(lambda: len(stage.continuations("hold-")) >= 2, PATIENCE_S, lambda: "the second continuation")
    assert fencing_token(stage) == token
    work.finish.set()
    outcome = stage.machine.wait(holder)
    assert (outcome.status, outcome.output) == ("SUCCEEDED", "done")
    assert stage.is_free(ENTITY)
    assert {stage.continues.wait(arn).status for arn in stage.continuations("hold-")} == {"SUCCEEDED"}


def fencing_token(stage: Stage) -> int:
    """The token of the one holder."""
    item = stage.lock(ENTITY).item
    assert item is not None
    (holder,) = item.holders
    return holder.fencing_token


def test_a_hold_that_is_lost_across_a_continuation_stops_the_work_by_name(open_stage: Open, work: Work) -> None:
    stage = open_stage(work, beats_an_execution=2)
    holder = stage.hold(ENTITY)
    until(lambda: stage.continuations("hold-"), PATIENCE_S, lambda: "a continuation")
    stage.take_away(ENTITY)
    outcome = stage.machine.wait(holder)
    assert (outcome.status, outcome.error) == ("FAILED", "LockLost")
    assert "not held with fencing token" in (outcome.cause or "")


def test_a_hold_whose_continuation_is_stopped_continues_by_itself(open_stage: Open, work: Work) -> None:
    stage = open_stage(work, beats_an_execution=2)
    holder = stage.hold(ENTITY)
    child = until(lambda: stage.continuations("hold-"), PATIENCE_S, lambda: "a continuation")[0]
    stage.continues.wait_until_entered(child, "Heartbeat")
    stage.continues.stop(child)
    until(lambda: len(stage.continuations("hold-")) >= 2, PATIENCE_S, lambda: "the next continuation")
    work.finish.set()
    assert stage.machine.wait(holder).status == "SUCCEEDED"


# The budget of events.


def test_a_wait_near_the_event_limit_fails_by_name_and_leaves_the_queue(
    open_stage: Open, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "WAITING_EVENTS", 0)
    stage, _, (waiter,) = held_and_waited_for(open_stage, work, polls_an_execution=2)
    assert stage.machine.wait(waiter).error == "EventBudgetExceeded"
    assert stage.lock(ENTITY).rows == ()


def test_a_hold_near_the_event_limit_fails_by_name(
    open_stage: Open, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "MAX_EVENTS", 0)
    stage = open_stage(work, beats_an_execution=2)
    assert stage.machine.wait(stage.hold(ENTITY), LEASE_S + 30).error == "EventBudgetExceeded"


@pytest.mark.parametrize(
    ("settings", "which", "state", "repeated", "expected"),
    [
        ({}, "waiter", "CheckPosition", "MyTurn?", budget.EVENTS_PER_POLL),
        # With one retry of as many as a parked poll may have.
        (
            {"hand_over": HandOver.CALLBACK, "parks": 2},
            "waiter",
            "CheckPosition",
            "MyTurn?",
            budget.EVENTS_PER_PARKED_POLL - (budget.PARKS_PER_POLL - 2) * budget.EVENTS_PER_PARK,
        ),
        (
            {"polls_an_execution": 2},
            "waiter",
            "ContinueWaiting",
            "ContinueWaiting",
            budget.EVENTS_PER_WAITING_CONTINUATION,
        ),
        (
            {"beats_an_execution": 2},
            "holder",
            "ContinueHolding",
            "ContinueHolding",
            budget.EVENTS_PER_HOLDING_CONTINUATION,
        ),
    ],
    ids=["a poll", "a parked poll", "a continuation of a wait", "a continuation of a hold"],
)
def test_each_loop_of_the_definition_costs_the_events_that_the_budget_counts(
    open_stage: Open, work: Work, settings: dict[str, Any], which: str, state: str, repeated: str, expected: int
) -> None:
    stage, holder, (waiter,) = held_and_waited_for(open_stage, work, **settings)
    execution = waiter if which == "waiter" else holder
    stage.machine.wait_until_entered(execution, state, more_than=2)
    assert round_of(stage.machine.history(execution), repeated) == expected


def test_a_beat_costs_the_events_that_the_budget_counts(open_stage: Open, work: Work) -> None:
    stage = open_stage(work)
    holder = stage.hold(ENTITY)
    until(lambda: len(stage.engine.invocations_of("Heartbeat")) >= 3, PATIENCE_S, lambda: "the third beat")
    of_beats = {"TaskScheduled", "TaskStarted", "TaskSubmitted", "TaskTimedOut"}
    beats = [
        event["type"]
        for event in stage.machine.history(holder)
        if event["type"] in of_beats and "InvokeFunction" not in json.dumps(event, default=str)
    ]
    first = beats.index("TaskTimedOut")
    assert beats.index("TaskTimedOut", first + 1) - first == budget.EVENTS_PER_BEAT


@pytest.mark.always("the way that most executions take")
def test_a_wait_and_a_hold_of_a_year_under_the_default_lease_stay_below_the_limit_of_events() -> None:
    year_s, lease_s, poll_s = 365 * 24 * 3_600, 60, 5
    beats = year_s / (lease_s / 2)
    # A poller's sleeps grow with a thousandth of the time that it has waited, up to half a lease.
    polls = {True: beats / budget.PARKS_PER_POLL, False: beats + 1_000 * (1 + lease_s / 2 / poll_s)}
    for woken, most in polls.items():
        first = budget.FIRST_POLLS * EVENTS_PER_POLL[woken]
        continuations = (budget.WAITING_EVENTS - first) / budget.EVENTS_PER_WAITING_CONTINUATION
        assert continuations * budget.most_polls_an_execution(woken=woken) > most
    left = budget.MAX_EVENTS - budget.WAITING_EVENTS - 2 * budget.FIRST_BEATS * budget.EVENTS_PER_BEAT
    assert left / budget.EVENTS_PER_HOLDING_CONTINUATION * budget.BEATS_AN_EXECUTION > beats


def test_the_polls_and_the_beats_of_one_execution_stay_below_the_limit_of_events() -> None:
    for woken in (True, False):
        spent = budget.most_polls_an_execution(woken=woken) * EVENTS_PER_POLL[woken]
        assert spent < budget.MAX_EVENTS
    assert budget.BEATS_AN_EXECUTION * budget.EVENTS_PER_BEAT < budget.MAX_EVENTS


def round_of(history: list[dict[str, Any]], state: str) -> int:
    """The events from one entry of a state to the next, without those of other branches."""
    branch = branch_of(history, state)
    entries = [
        index for index, event in enumerate(branch) if event.get("stateEnteredEventDetails", {}).get("name") == state
    ]
    rounds = Counter(later - earlier for earlier, later in pairwise(entries))
    return rounds.most_common(1)[0][0]


def branch_of(history: list[dict[str, Any]], state: str) -> list[dict[str, Any]]:
    """The events of one sequence of states: each event names the one before it."""
    by_id = {event["id"]: event for event in history}
    last = max(event["id"] for event in history if event.get("stateEnteredEventDetails", {}).get("name") == state)
    line = []
    while last in by_id:
        line.append(by_id[last])
        last = by_id[last]["previousEventId"]
    return line[::-1]
