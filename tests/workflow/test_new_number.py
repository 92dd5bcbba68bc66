"""A deployment with another number of permits: every lock takes it over, and no execution fails."""

from typing import Any

import pytest
from kit.events import execution_arn, started_at, step_event, ticket_event, turn_of
from kit.world import Process

from ticketlock import LockName
from ticketlock.workflow import Workflow

CHILD = "arn:aws:states:us-east-1:123456789012:stateMachine:child"
OLD, NEW = 1_000_000, 2_000_000
"""When the first executions of two deployments started."""


def take(workflow: Workflow, lock: LockName, deployed: int, order: int, **asked: Any) -> Any:
    """The turn of an execution of a deployment; ``order`` says when it started."""
    request = {"entity": lock.entity, "task": {"stateMachineArn": CHILD}, **asked}
    more = {"targets": [CHILD], "defaultPermits": deployed, "started": started_at(order)}
    return turn_of(workflow, execution_arn(), request, **more)


def poll(workflow: Workflow, turn: Any) -> Any:
    return workflow.check_position(step_event("CheckPosition", turn)).reply


def number(process: Process, lock: LockName) -> int:
    item = process.table.inspect(lock).item
    assert item is not None
    return item.permits


def test_a_higher_number_counts_from_the_first_execution_on(workflow: Workflow, alice: Process, lock: LockName) -> None:
    holder = take(workflow, lock, 1, OLD)
    waiter = take(workflow, lock, 1, OLD + 1)
    newcomers = [take(workflow, lock, 3, NEW + each) for each in range(2)]
    assert [turn["status"] for turn in (holder, waiter, *newcomers)] == ["granted", "parked", "parked", "parked"]
    polled = [poll(workflow, turn) for turn in (waiter, *newcomers)]
    assert [turn["status"] for turn in polled] == ["granted", "granted", "parked"]
    assert number(alice, lock) == 3


def test_a_lower_number_ends_no_grant_and_lets_none_beside_it(
    workflow: Workflow, alice: Process, lock: LockName
) -> None:
    holders = [take(workflow, lock, 3, OLD + each) for each in range(2)]
    late = take(workflow, lock, 1, NEW)
    assert [turn["status"] for turn in (*holders, late)] == ["granted", "granted", "parked"]
    for holder in holders:
        assert poll(workflow, late)["status"] == "parked"
        workflow.heartbeat(step_event("Heartbeat", holder, "beat"))
        workflow.release({"turn": holder})
    assert poll(workflow, late)["status"] == "granted"
    assert number(alice, lock) == 1


@pytest.mark.parametrize(("then", "now"), [(1, 3), (3, 1)], ids=["raised", "lowered"])
def test_an_execution_of_the_earlier_deployment_that_comes_late_neither_fails_nor_changes_the_number(
    workflow: Workflow, alice: Process, lock: LockName, then: int, now: int
) -> None:
    take(workflow, lock, now, NEW)
    late = [take(workflow, lock, then, OLD + each) for each in range(3)]
    assert [turn["status"] for turn in late] == ["granted"] * (now - 1) + ["parked"] * (4 - now)
    assert number(alice, lock) == now
    assert poll(workflow, late[-1])["status"] == "parked"


def test_a_deployment_that_is_rolled_back_has_its_number_again(
    workflow: Workflow, alice: Process, lock: LockName
) -> None:
    numbers = []
    for order, deployed in enumerate((1, 3, 1)):
        workflow.release({"turn": take(workflow, lock, deployed, OLD + order)})
        numbers.append(number(alice, lock))
    take(workflow, lock, 3, OLD + 1)
    assert [*numbers, number(alice, lock)] == [1, 3, 1, 1]


def test_beneath_an_operators_limit_the_later_number_is_kept_until_the_limit_is_unset(
    workflow: Workflow, alice: Process, lock: LockName
) -> None:
    take(workflow, lock, 3, OLD)
    alice.table.set_limit(lock, 2)
    turns = [take(workflow, lock, 1, NEW), take(workflow, lock, 3, OLD + 1)]
    assert [turn["status"] for turn in turns] == ["granted", "parked"]
    assert number(alice, lock) == 2
    alice.table.unset_limit(lock)
    assert number(alice, lock) == 1
    assert poll(workflow, turns[1])["status"] == "parked"


def test_a_lock_that_was_closed_before_its_first_use_needs_no_number_to_be_opened(
    workflow: Workflow, alice: Process, lock: LockName
) -> None:
    alice.table.set_limit(lock, 0)
    waiter = take(workflow, lock, 2, OLD)
    alice.table.unset_limit(lock)
    assert (poll(workflow, waiter)["status"], number(alice, lock)) == ("granted", 2)


def test_readers_have_no_number_of_their_own(workflow: Workflow, alice: Process, lock: LockName) -> None:
    readers = [take(workflow, lock, 1, OLD, shared=True)]
    writer = take(workflow, lock, 3, NEW)
    readers.append(take(workflow, lock, 3, NEW + 1, shared=True))
    for turn in readers:
        workflow.release({"turn": turn if turn["status"] == "granted" else poll(workflow, turn)})
        writer = poll(workflow, writer) if writer["status"] == "parked" else writer
        if writer["status"] == "granted" and turn is readers[0]:
            workflow.release({"turn": writer})
    assert number(alice, lock) == 3


def test_a_number_in_the_input_is_refused_as_before_and_so_is_a_deployments_beside_it(
    workflow: Workflow, alice: Process, lock: LockName
) -> None:
    take(workflow, lock, 1, OLD, permits=2)
    assert take(workflow, lock, 3, NEW)["status"] == "PermitsMismatch"
    assert take(workflow, lock, 3, NEW, permits=3)["status"] == "PermitsMismatch"
    assert number(alice, lock) == 2


def test_executions_of_a_definition_that_does_not_say_when_they_started_take_any_number(
    workflow: Workflow, alice: Process, lock: LockName
) -> None:
    def take_as_before(deployed: int) -> Any:
        request = {"entity": lock.entity, "task": {"stateMachineArn": CHILD}}
        event = ticket_event(execution_arn(), request, targets=[CHILD], defaultPermits=deployed)
        del event["started"]
        return workflow.take_ticket(event).reply["lock"]["turn"]

    first = take_as_before(1)
    waiter = take_as_before(1)
    del waiter["claim"]["permitsSinceMs"]
    take(workflow, lock, 2, NEW)
    assert poll(workflow, waiter)["status"] == "granted"
    assert (take_as_before(1)["status"], number(alice, lock)) == ("parked", 2)
    workflow.release({"turn": first})
