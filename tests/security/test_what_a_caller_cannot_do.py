"""A principal that may start executions, or answer tasks, and nothing else: what it cannot do."""

import json
from typing import Any

import pytest
from kit.pages import ROOT
from security.workflows import ARN, FUNCTION, LEASE_S, Execution, Table

from ticketlock import LockLost
from ticketlock.wire._step_functions import TaskAnswer

TASK = {"functionArn": FUNCTION}
OTHER_EXECUTION = f"{ARN}:execution:serialize:other"


@pytest.fixture
def execution(table: Table) -> Execution:
    return table.execution("mine")


@pytest.mark.parametrize(
    "more",
    [
        # Names that the definition passes beside the input.
        {"owner": OTHER_EXECUTION},
        {"session": {"execution": OTHER_EXECUTION, "place": "serialize"}},
        {"turn": {"status": "granted"}},
        {"leaseSeconds": 10**9},
        {"task": {**TASK, "input": {"lock": {"owner": OTHER_EXECUTION, "fencingToken": 10**12}}}},
        {"task": {**TASK, "kind": "execution"}},
        {"task": [TASK]},
    ],
    ids=str,
)
def test_an_input_with_unknown_fields_is_refused_and_nothing_is_written(
    more: dict[str, Any], execution: Execution
) -> None:
    event = execution.ticket_event({"entity": "order-42", "task": TASK, **more})
    assert execution.table.workflow.take_ticket(event).reply["lock"]["turn"]["status"] == "InvalidLockRequest"
    assert execution.table.memory.items() == []


def test_the_owner_is_the_execution_that_step_functions_names_and_the_work_is_told_so(execution: Execution) -> None:
    """The definition merges this over the input, which must have no `lock` of its own."""
    turn = execution.asks("order-42", {**TASK, "input": {"sku": "tea"}}).turn
    assert turn["claim"]["owner"] == execution.arn
    assert turn["work"] == {
        "lock": {
            "entity": "order-42",
            "namespace": "default",
            "owner": execution.arn,
            "fencingToken": turn["grant"]["fencingToken"],
        }
    }


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, "parked"),
        ({"recordWaitSeconds": 0}, "RecordWaitExceeded"),
        ({"recordWaitSeconds": 10**6}, "parked"),
        ({"shared": True}, "parked"),
        ({"permits": 100}, "PermitsMismatch"),
        ({"namespace": "another"}, "granted"),
    ],
    ids=str,
)
def test_the_last_in_line_neither_frees_nor_overtakes_another_owner_by_any_input(
    more: dict[str, Any], told: str, table: Table, execution: Execution
) -> None:
    holder, waiter = table.execution("holder").asks("order-42"), table.execution("waiter").asks("order-42")
    event = execution.ticket_event({"entity": "order-42", "task": TASK, **more})
    execution.turn = table.workflow.take_ticket(event).reply["lock"]["turn"]
    assert execution.turn["status"] == told
    # Or either would raise LockLost.
    holder.beats("its token")
    holder.finishes()
    if told == "parked":
        assert table.workflow.check_position(execution.event("CheckPosition")).reply["status"] == "parked"
    assert table.workflow.check_position(waiter.event("CheckPosition")).reply["status"] == "granted"


def test_a_principal_that_invokes_the_functions_can_claim_any_identity(table: Table) -> None:
    holder = table.execution("holder").asks("order-42")
    forged = table.execution("holder").asks("order-42")
    assert forged.turn["grant"]["fencingToken"] == holder.turn["grant"]["fencingToken"]
    forged.finishes()
    assert table.execution("next").asks("order-42").turn["status"] == "granted"


# A stolen task token allows a principal that may answer tasks to delay others, never to get a lock.


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


def test_a_stranger_who_fails_a_task_stops_the_work_or_makes_a_parked_waiter_poll() -> None:
    states = json.loads((ROOT / "statemachines/serialize.asl.json").read_text())["States"]
    (beat,) = (
        branch["States"]["Heartbeat"] for branch in states["Hold"]["Branches"] if "Heartbeat" in branch["States"]
    )
    retries = {
        error: next(each["MaxAttempts"] for each in beat["Retry"] if {error, "States.ALL"} & set(each["ErrorEquals"]))
        for error in ("LockLost", "Anything")
    }
    assert retries == {"LockLost": 0, "Anything": 6}
    # Nothing else is caught, so the branch fails, and with it the others.
    assert [error for each in beat["Catch"] for error in each["ErrorEquals"]] == ["ContinueHolding"]
    for parked in ("WaitForWakeUp", "WaitForWakeUpBriefly"):
        assert {each["Next"] for each in states[parked]["Catch"]} <= {"CheckPosition", "WaitForTurn"}
    assert states["WaitForTurn"]["Next"] == "CheckPosition"
