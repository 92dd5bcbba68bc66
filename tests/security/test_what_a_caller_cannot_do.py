"""A principal that may start executions, and nothing else: what its input cannot change."""

from typing import Any

import pytest
from kit.events import CONTINUE_MACHINE
from security.workflows import ARN, FUNCTION, Execution, Table

TASK = {"functionArn": FUNCTION}
OTHER_EXECUTION = f"{ARN}:execution:serialize:other"


@pytest.fixture
def execution(table: Table) -> Execution:
    return table.execution("mine")


def status(execution: Execution, request: Any) -> str:
    reply = execution.table.workflow.take_ticket(execution.ticket_event(request)).reply
    return str(reply["lock"]["turn"]["status"])


@pytest.mark.parametrize(
    "more",
    [
        {"owner": OTHER_EXECUTION},
        {"execution": OTHER_EXECUTION},
        {"session": {"execution": OTHER_EXECUTION, "place": "serialize"}},
        {"turn": {"status": "granted"}},
        {"lock": {"turn": {"status": "granted"}}},
        {"place": "serialize"},
        {"leaseSeconds": 10**9},
        {"targets": ["*"]},
        {"taskToken": "stolen"},
        {"task": {**TASK, "input": {"lock": {"owner": OTHER_EXECUTION, "fencingToken": 10**12}}}},
        {"task": {**TASK, "kind": "execution"}},
        {"task": [TASK]},
    ],
    ids=str,
)
def test_an_input_with_unknown_fields_is_refused_and_nothing_is_written(
    more: dict[str, Any], execution: Execution
) -> None:
    assert status(execution, {"entity": "order-42", "task": TASK, **more}) == "InvalidLockRequest"
    assert execution.table.memory.items() == []


@pytest.mark.parametrize(
    "arn",
    [
        FUNCTION + ":1",
        FUNCTION.upper(),
        FUNCTION[:-1] + "*",
        "arn:aws:lambda:us-east-1:123456789012:function:take_ticket",
        CONTINUE_MACHINE,
    ],
)
def test_work_that_is_not_exactly_a_target_is_not_run(arn: str, execution: Execution) -> None:
    field = "functionArn" if ":function:" in arn.lower() else "stateMachineArn"
    assert status(execution, {"entity": "order-42", "task": {field: arn}}) == "TaskNotAllowed"
    assert execution.table.memory.items() == []


def test_the_owner_is_the_execution_that_step_functions_names(execution: Execution) -> None:
    turn = execution.asks("order-42").turn
    assert turn["claim"]["owner"] == execution.arn
    assert turn["work"]["lock"]["owner"] == execution.arn


def test_the_work_gets_the_locks_own_owner_and_token(execution: Execution) -> None:
    """The definition merges this over the input, which must have no `lock` of its own."""
    told = {**execution.asks("order-42", {**TASK, "input": {"sku": "tea"}}).turn["work"]}
    assert told == {
        "lock": {
            "entity": "order-42",
            "namespace": "default",
            "owner": execution.arn,
            "fencingToken": execution.turn["grant"]["fencingToken"],
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
