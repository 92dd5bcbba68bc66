"""What a stolen task token allows a principal that may answer tasks: to delay others, never to get a lock."""

import json
from typing import Any

import pytest
from kit.pages import ROOT
from security.workflows import LEASE_S, Table

from ticketlock import LockLost
from ticketlock.wire._step_functions import TaskAnswer


def test_a_parked_waiter_that_is_woken_without_reason_gets_nothing_and_keeps_its_place(table: Table) -> None:
    table.execution("holder").asks("order-42")
    first = table.execution("first").asks("order-42").parks("its token")
    second = table.execution("second").asks("order-42").parks("another")
    for waiter in (second, first, second):
        # Its task was answered by a stranger: it polls next.
        polled = table.workflow.check_position(waiter.event("CheckPosition")).reply
        assert polled["status"] == "parked"
        assert polled["place"]["ticket"] == waiter.turn["place"]["ticket"]


def test_a_heartbeat_that_is_ended_by_a_stranger_costs_the_holder_its_lease(table: Table) -> None:
    holder = table.execution("holder").asks("order-42")
    holder.beats("a token that a stranger answers with success")
    # So its heartbeat stops, and its work continues.
    table.clock.advance(2 * LEASE_S)
    next_one = table.execution("next").asks("order-42")
    assert next_one.turn["status"] == "granted"
    assert next_one.turn["grant"]["fencingToken"] > holder.turn["grant"]["fencingToken"]
    with pytest.raises(LockLost):
        holder.finishes()


def test_the_end_of_the_work_answers_the_newest_token_of_the_heartbeat_and_no_other(table: Table) -> None:
    """A retry of a task brings a new token; only the newest is left in the session."""
    holder = table.execution("holder").asks("order-42")
    for retry, token in enumerate(("old", "new")):
        holder.beats(token, retry)
    holder.finishes()
    assert table.tasks.answers == [TaskAnswer("new")]


def states() -> Any:
    return json.loads((ROOT / "statemachines/serialize.asl.json").read_text())["States"]


def test_a_stranger_who_fails_the_task_of_a_heartbeat_stops_the_work() -> None:
    hold = states()["Hold"]
    (beat,) = (branch["States"]["Heartbeat"] for branch in hold["Branches"] if "Heartbeat" in branch["States"])

    def retries(error: str) -> int:
        rule = next(each for each in beat["Retry"] if {error, "States.ALL"} & set(each["ErrorEquals"]))
        attempts: int = rule["MaxAttempts"]
        return attempts

    assert (retries("LockLost"), retries("Anything")) == (0, 6)
    # Nothing else is caught, so the branch fails, and with it the others.
    assert [error for each in beat["Catch"] for error in each["ErrorEquals"]] == ["ContinueHolding"]


def test_a_stranger_who_fails_the_task_of_a_parked_waiter_makes_it_poll() -> None:
    for parked in ("WaitForWakeUp", "WaitForWakeUpBriefly"):
        assert {each["Next"] for each in states()[parked]["Catch"]} <= {"CheckPosition", "WaitForTurn"}
    assert states()["WaitForTurn"]["Next"] == "CheckPosition"
