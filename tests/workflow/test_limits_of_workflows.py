"""Several holders at once, and readers together, driven by the steps of the workflow."""

import json
from typing import Any

import pytest
from kit.events import MACHINE, execution_arn, step_event, turn_of
from kit.step_functions import TaskService
from kit.world import LEASE_MS, Process, World

from ticketlock import LockName
from ticketlock.locks._items import LockItem, lock_key
from ticketlock.workflow import Workflow

pytestmark = pytest.mark.shows("exclusion")

CHILD = "arn:aws:states:us-east-1:123456789012:stateMachine:child"


def take(workflow: Workflow, lock: LockName, default_permits: int = 1, place: str | None = None, **asked: Any) -> Any:
    """The turn of a new execution; with ``place``, of one with a fragment."""
    request = {"entity": lock.entity, **asked, **({} if place else {"task": {"stateMachineArn": CHILD}})}
    more = {"place": place, "workMachine": CHILD} if place else {}
    return turn_of(workflow, execution_arn(), request, targets=[CHILD], defaultPermits=default_permits, **more)


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
    turns = [take(workflow, lock, default_permits=2, **asked) for _ in range(3)]
    assert [turn["status"] for turn in turns] == ["granted", "granted", "parked"]
    assert poll(workflow, turns[2])["status"] == "parked"
    workflow.release({"turn": turns[0]})
    third = poll(workflow, turns[2])
    assert third["status"] == "granted"
    for turn in (turns[1], third):
        workflow.release({"turn": turn})
    item = item_of(alice, lock)
    assert (item.permits, item.held, item.holders) == (2, 0, ())


def test_readers_hold_together_until_the_last_has_released(workflow: Workflow, alice: Process, lock: LockName) -> None:
    readers = [take(workflow, lock, shared=True) for _ in range(2)]
    writer = take(workflow, lock)
    late = take(workflow, lock, shared=True)
    assert [turn["status"] for turn in (*readers, writer, late)] == ["granted", "granted", "parked", "parked"]
    for reader in readers:
        assert poll(workflow, writer)["status"] == "parked"
        assert poll(workflow, late)["status"] == "parked"
        workflow.release({"turn": reader})
    writer = poll(workflow, writer)
    assert writer["status"] == "granted"
    workflow.release({"turn": writer})
    late = poll(workflow, late)
    assert late["status"] == "granted"
    workflow.release({"turn": late})
    assert item_of(alice, lock).holders == ()


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


class TestAnotherNumberOfPermits:
    def test_it_is_refused_by_the_first_step_and_nothing_is_written(
        self, workflow: Workflow, alice: Process, lock: LockName
    ) -> None:
        take(workflow, lock, permits=2)
        before = stored(alice, lock)
        refused = take(workflow, lock, permits=3)
        assert refused == {
            "status": "PermitsMismatch",
            "cause": f"the lock on {lock.entity!r} has 2 permits, not 3: all its users must ask for the same number",
        }
        assert stored(alice, lock) == before

    def test_it_is_refused_during_the_wait_and_leaves_the_queue(
        self, workflow: Workflow, alice: Process, lock: LockName
    ) -> None:
        holder = take(workflow, lock)
        waiter, behind = take(workflow, lock), take(workflow, lock)
        write_permits(alice, lock, 2)
        refused = poll(workflow, waiter)
        assert (refused["status"], "2 permits, not 1" in refused["cause"]) == ("PermitsMismatch", True)
        state = alice.table.inspect(lock)
        assert [row.owner for row in state.rows] == [behind["claim"]["owner"]]
        assert item_of(alice, lock).waiting == 1
        assert [each.owner for each in item_of(alice, lock).holders] == [holder["claim"]["owner"]]
        # A step may run twice.
        assert poll(workflow, waiter) == refused
        assert item_of(alice, lock).waiting == 1

    def test_sharing_a_lock_with_several_permits_is_refused_too(
        self, workflow: Workflow, alice: Process, lock: LockName
    ) -> None:
        take(workflow, lock)
        reader = take(workflow, lock, shared=True)
        write_permits(alice, lock, 3)
        assert poll(workflow, reader)["status"] == "PermitsMismatch"
        assert alice.table.inspect(lock).rows == ()

    def test_an_execution_whose_earlier_try_got_the_lock_continues_with_its_grant(
        self, workflow: Workflow, alice: Process, lock: LockName
    ) -> None:
        holder = take(workflow, lock)
        waiter = take(workflow, lock)
        workflow.release({"turn": holder})
        won = poll(workflow, waiter)
        write_permits(alice, lock, 2)
        again = poll(workflow, waiter)
        assert (again["status"], again["grant"]["fencingToken"]) == ("granted", won["grant"]["fencingToken"])

    def test_an_operators_limit_applies_to_all(self, workflow: Workflow, alice: Process, lock: LockName) -> None:
        turns = [take(workflow, lock) for _ in range(2)]
        alice.table.set_limit(lock, 2)
        assert poll(workflow, turns[1])["status"] == "granted"
        assert take(workflow, lock, permits=7)["status"] == "parked"

    def test_there_is_nothing_to_clean_up_after(self, workflow: Workflow, alice: Process, lock: LockName) -> None:
        take(workflow, lock, permits=2)
        alice.sent.clear()
        event = ended(alice, execution_arn(), {"entity": lock.entity, "task": {"stateMachineArn": CHILD}})
        event["detail"] |= {"status": "FAILED", "error": "PermitsMismatch"}
        step = workflow.clean_up(event, state_machine=MACHINE, lease_ms=LEASE_MS)
        assert (step.keys["left"], alice.sent) == ("PermitsMismatch", [])


@pytest.mark.parametrize("place", [None, "first/1"], ids=["input", "fragment"])
@pytest.mark.parametrize("asked", [{"shared": True}, {"permits": 3}, {}], ids=["shared", "permits", "default"])
def test_a_stopped_holders_permit_is_freed_and_the_others_stay(
    workflow: Workflow, alice: Process, service: TaskService, lock: LockName, asked: Any, place: str | None
) -> None:
    default = 1 if "shared" in asked else 3
    stopped, other = (take(workflow, lock, default, place, **asked) for _ in range(2))
    execution = stopped["session"]["execution"]
    service.described[f"{CHILD.replace('stateMachine', 'execution')}:{stopped['workName']}"] = {"status": "RUNNING"}
    own = {"entity": lock.entity, "task": {"stateMachineArn": CHILD}, **asked}
    event = ended(alice, execution, own if place is None else None, MACHINE if place is None else "another")
    step = workflow.clean_up(event, state_machine=MACHINE, lease_ms=LEASE_MS)
    assert step.metrics == {"CleanedUpHolds": 1}
    assert [each.owner for each in item_of(alice, lock).holders] == [other["claim"]["owner"]]
    workflow.release({"turn": other})
    assert take(workflow, lock, default)["status"] == "granted"


def ended(process: Process, execution: str, asked: Any, machine: str = MACHINE) -> dict[str, Any]:
    detail = {"executionArn": execution, "stateMachineArn": machine, "status": "ABORTED"}
    return {"detail": {**detail, "stopDate": process.world.now_ms, "input": json.dumps(asked)}}
