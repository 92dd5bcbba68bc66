"""Several holders at once, and readers together, by the steps of the workflow; `tests/locks` has the protocol."""

from typing import Any

import pytest
from kit.events import execution_arn, started_at, step_event, ticket_event, turn_of
from kit.newer import NEWER, raise_the_format
from kit.world import LEASE_MS, Process, World

from ticketlock import LockName, UnsupportedFormat
from ticketlock.locks._items import LockItem, lock_key
from ticketlock.workflow import Workflow

pytestmark = pytest.mark.shows("exclusion")

CHILD = "arn:aws:states:us-east-1:123456789012:stateMachine:child"
OLD, NEW = 1_000_000, 2_000_000
"""When the first executions of two deployments started."""


def take(workflow: Workflow, lock: LockName, deployed: int = 1, started: int | None = None, **asked: Any) -> Any:
    """The turn of an execution of a deployment with this number of permits; ``started`` says when, if it matters."""
    request = {"entity": lock.entity, "task": {"stateMachineArn": CHILD}, **asked}
    more = {} if started is None else {"started": started_at(started)}
    return turn_of(workflow, execution_arn(), request, targets=[CHILD], defaultPermits=deployed, **more)


def poll(workflow: Workflow, turn: Any) -> Any:
    return workflow.check_position(step_event("CheckPosition", turn)).reply


def item_of(process: Process, lock: LockName) -> LockItem:
    item = process.table.inspect(lock).item
    assert item is not None
    return item


def stored(process: Process, lock: LockName) -> Any:
    """The lock item and the queue, attribute by attribute."""
    return process.client.query(
        TableName=process.world.engine.table_name,
        KeyConditionExpression="pk = :pk",
        ExpressionAttributeValues={":pk": lock_key(lock)["pk"]},
        ConsistentRead=True,
    )["Items"]


def write_permits(process: Process, lock: LockName, permits: int) -> None:
    """What a waiter would find if users with another number of their own had created the lock again."""
    process.client.update_item(
        TableName=process.world.engine.table_name,
        Key=lock_key(lock),
        UpdateExpression="SET #permits = :permits REMOVE permitsSinceMs",
        ExpressionAttributeNames={"#permits": "permits"},
        ExpressionAttributeValues={":permits": {"N": str(permits)}},
    )


@pytest.mark.parametrize("asked", [{"permits": 2}, {}], ids=["by the input", "by the deployment"])
def test_as_many_hold_as_there_are_permits_and_the_next_comes_after_one_of_them(
    workflow: Workflow, alice: Process, lock: LockName, asked: Any
) -> None:
    turns = [take(workflow, lock, 2, **asked) for _ in range(3)]
    assert [turn["status"] for turn in turns] == ["granted", "granted", "parked"]
    assert poll(workflow, turns[2])["status"] == "parked"
    workflow.release({"turn": turns[0]})
    third = poll(workflow, turns[2])
    assert third["status"] == "granted"
    for turn in (turns[1], third):
        workflow.release({"turn": turn})
    item = item_of(alice, lock)
    assert (item.permits, item.held, item.holders) == (2, 0, ())


def test_a_reader_renews_and_releases_in_another_execution_as_what_it_is(
    workflow: Workflow, alice: Process, world: World, lock: LockName
) -> None:
    turn = take(workflow, lock, shared=True)
    world.advance(LEASE_MS // 2)
    workflow.heartbeat(step_event("Heartbeat", turn, "beat", execution=execution_arn()))
    [holder] = item_of(alice, lock).holders
    assert holder.shared
    assert holder.lease_until_ms >= world.now_ms + LEASE_MS
    workflow.release({"turn": turn, "failure": {"Error": "OutOfPaint", "Cause": "no more red"}, "kind": "chain"})
    assert item_of(alice, lock).holders == ()


def test_another_number_of_permits_is_refused_by_the_first_step_and_nothing_is_written(
    workflow: Workflow, alice: Process, lock: LockName
) -> None:
    take(workflow, lock, permits=2)
    before = stored(alice, lock)
    for asked in ({"permits": 3}, {"deployed": 3, "started": NEW}, {"deployed": 3, "started": NEW, "permits": 3}):
        refused = take(workflow, lock, **asked)
        assert refused == {
            "status": "PermitsMismatch",
            "cause": f"the lock on {lock.entity!r} has 2 permits, not 3: all its users must ask for the same number",
        }
    assert stored(alice, lock) == before


def test_another_number_of_permits_is_refused_during_the_wait_and_leaves_the_queue(
    workflow: Workflow, alice: Process, lock: LockName
) -> None:
    holder = take(workflow, lock)
    waiter, reader, behind = take(workflow, lock), take(workflow, lock, shared=True), take(workflow, lock)
    write_permits(alice, lock, 2)
    for turn in (waiter, reader):
        refused = poll(workflow, turn)
        assert refused["status"] == "PermitsMismatch"
        assert "2 permits, not 1" in refused["cause"]
        # A step may run twice.
        assert poll(workflow, turn) == refused
    assert [row.owner for row in alice.table.inspect(lock).rows] == [behind["claim"]["owner"]]
    assert item_of(alice, lock).waiting == 1
    assert [each.owner for each in item_of(alice, lock).holders] == [holder["claim"]["owner"]]


@NEWER
def test_who_waits_for_a_lock_that_a_newer_version_uses_leaves_the_queue_and_fails(
    workflow: Workflow, alice: Process, lock: LockName
) -> None:
    holder, waiter = take(workflow, lock), take(workflow, lock)
    raise_the_format(alice.client, alice.world.engine.table_name, lock)
    with pytest.raises(UnsupportedFormat):
        poll(workflow, waiter)
    workflow.release({"turn": holder})
    (left,) = stored(alice, lock)
    assert (left["sk"], left["waiting"], left["held"]) == (lock_key(lock)["sk"], {"N": "0"}, {"N": "0"})


def test_an_execution_whose_earlier_try_got_the_lock_continues_with_its_grant_whatever_the_number_is(
    workflow: Workflow, alice: Process, lock: LockName
) -> None:
    holder, waiter = take(workflow, lock), take(workflow, lock)
    workflow.release({"turn": holder})
    won = poll(workflow, waiter)
    write_permits(alice, lock, 2)
    again = poll(workflow, waiter)
    assert (again["status"], again["grant"]["fencingToken"]) == ("granted", won["grant"]["fencingToken"])


# A deployment with another number of permits: every lock takes it over, and no execution fails.


def test_a_higher_number_counts_from_the_first_execution_on(workflow: Workflow, alice: Process, lock: LockName) -> None:
    holder = take(workflow, lock, 1, OLD)
    waiter = take(workflow, lock, 1, OLD + 1)
    newcomers = [take(workflow, lock, 3, NEW + each) for each in range(2)]
    assert [turn["status"] for turn in (holder, waiter, *newcomers)] == ["granted", "parked", "parked", "parked"]
    polled = [poll(workflow, turn) for turn in (waiter, *newcomers)]
    assert [turn["status"] for turn in polled] == ["granted", "granted", "parked"]
    assert item_of(alice, lock).permits == 3


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
    assert item_of(alice, lock).permits == 1


@pytest.mark.parametrize(("then", "now"), [(1, 3), (3, 1)], ids=["raised", "lowered"])
def test_an_execution_of_the_earlier_deployment_that_comes_late_neither_fails_nor_changes_the_number(
    workflow: Workflow, alice: Process, lock: LockName, then: int, now: int
) -> None:
    take(workflow, lock, now, NEW)
    late = [take(workflow, lock, then, OLD + each) for each in range(3)]
    assert [turn["status"] for turn in late] == ["granted"] * (now - 1) + ["parked"] * (4 - now)
    assert item_of(alice, lock).permits == now
    assert poll(workflow, late[-1])["status"] == "parked"


def test_a_deployment_that_is_rolled_back_has_its_number_again(
    workflow: Workflow, alice: Process, lock: LockName
) -> None:
    numbers = []
    for order, deployed in enumerate((1, 3, 1)):
        workflow.release({"turn": take(workflow, lock, deployed, OLD + order)})
        numbers.append(item_of(alice, lock).permits)
    take(workflow, lock, 3, OLD + 1)
    assert [*numbers, item_of(alice, lock).permits] == [1, 3, 1, 1]


def test_a_lock_that_was_closed_before_its_first_use_needs_no_number_to_be_opened(
    workflow: Workflow, alice: Process, lock: LockName
) -> None:
    alice.table.set_limit(lock, 0)
    waiter = take(workflow, lock, 2, OLD)
    alice.table.unset_limit(lock)
    assert (poll(workflow, waiter)["status"], item_of(alice, lock).permits) == ("granted", 2)


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
    assert (take_as_before(1)["status"], item_of(alice, lock).permits) == ("parked", 2)
    workflow.release({"turn": first})
