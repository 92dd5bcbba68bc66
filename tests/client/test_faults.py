"""Lost replies and lost requests: no lock is taken early, none is granted twice, and no row is left."""

import math
from typing import Any

import pytest
from kit.places import Moved, Wire, meanwhile, outcome, until
from kit.sent import is_release, is_renewal

from ticketlock import Claim, Grant, LockName, Position
from ticketlock.testing import Fault, Sent

pytestmark = pytest.mark.shows("lost requests")

PASSING = [Fault.REQUEST_LOST, Fault.REPLY_LOST, Fault.THROTTLED, Fault.CONFLICT]


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("requests_before", range(2))
def test_a_fault_while_a_free_lock_is_acquired_grants_it_once(
    moved: Moved, entity: str, fault: Fault, requests_before: int
) -> None:
    locks = moved.client()
    moved.memory.faults.extend([*[None] * requests_before, fault])
    lease = locks.acquire(entity)
    item = moved.table.inspect(LockName(entity)).item
    assert item is not None
    assert (item.held, len(item.holders), item.fencing_token) == (1, 1, lease.fencing_token)
    assert lease.remaining_s > 45
    lease.release()
    assert moved.is_free(entity)


def test_a_lost_reply_to_an_acquisition_never_replaces_another_holder(moved: Moved, entity: str) -> None:
    locks = moved.client()
    locks.acquire(f"{entity}, before").release()
    moved.memory.faults.append(Fault.REPLY_LOST)
    lease = locks.acquire(entity, record_wait=0)
    assert lease.is_held()
    assert moved.holders_of(entity) == 1


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("requests_before", range(1, 5))
def test_a_fault_while_a_waiter_joins_the_queue_leaves_one_row_at_most(
    moved: Moved, entity: str, fault: Fault, requests_before: int
) -> None:
    holder = moved.client().acquire(entity)
    polls: list[Position] = []
    locks = moved.client()
    moved.memory.faults.extend([*[None] * requests_before, fault])
    waiting = meanwhile(lambda: locks.acquire(entity, on_wait=polls.append))
    until(lambda: len(polls) > 1)
    until(lambda: moved.queue_of(entity) == 1)
    holder.release()
    lease = outcome(waiting)
    assert (lease.is_held(), moved.holders_of(entity), moved.queue_of(entity)) == (True, 1, 0)


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_in_the_grant_of_a_turn_grants_it_once(moved: Moved, entity: str, fault: Fault) -> None:
    elsewhere = Claim(LockName(entity), "another process", 60_000)
    held = moved.table.take_ticket(elsewhere, 0)
    assert isinstance(held, Grant)
    wire = Wire()
    locks = moved.client(wire=wire)
    with wire.held_back(lambda sent: sent.operation == "TransactWriteItems") as turn:
        waiting = meanwhile(lambda: locks.acquire(entity))
        until(lambda: moved.queue_of(entity) == 1)
        moved.table.release(elsewhere, held)
        assert turn.reached.wait(30)
        moved.memory.faults.append(fault)
    lease = outcome(waiting)
    item = moved.table.inspect(LockName(entity)).item
    assert item is not None
    assert (item.held, item.waiting, item.fencing_token) == (1, 0, lease.fencing_token)
    assert lease.fencing_token == held.fencing_token + 1


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_in_a_release_that_grants_the_lock_to_the_next_grants_it_once(
    moved: Moved, entity: str, fault: Fault
) -> None:
    wire = Wire()
    holder = moved.client(wire=wire).acquire(entity)
    seen: list[Position] = []
    waiting = meanwhile(lambda: moved.client(check_every=(0.05, 60)).acquire(entity, on_wait=seen.append))
    until(lambda: any(each.is_next for each in seen))
    with wire.held_back(lambda sent: sent.operation in ("TransactWriteItems", "UpdateItem")) as turn:
        releasing = meanwhile(holder.release)
        assert turn.reached.wait(30)
        moved.memory.faults.append(fault)
    outcome(releasing)
    lease = outcome(waiting)
    item = moved.table.inspect(LockName(entity)).item
    assert item is not None
    assert (item.held, item.waiting, item.fencing_token) == (1, 0, lease.fencing_token)
    assert lease.fencing_token == holder.fencing_token + 1


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_in_a_renewal_by_hand_keeps_the_lock(moved: Moved, entity: str, fault: Fault) -> None:
    lease = moved.client(heartbeat=False).acquire(entity)
    moved.clock.advance(40)
    moved.memory.faults.append(fault)
    lease.renew()
    assert lease.remaining_s > 45


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_in_a_heartbeat_keeps_the_lock(moved: Moved, entity: str, fault: Fault) -> None:
    told: list[object] = []
    lease = moved.client(lease=4).acquire(entity, on_lost=told.append)
    moved.memory.faults.append(fault)
    moved.clock.advance(2.1)
    until(lambda: lease.remaining_s > 3)
    assert lease.is_held()
    assert told == []


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_in_a_release_is_not_reported_as_a_loss(moved: Moved, entity: str, fault: Fault) -> None:
    lease = moved.client().acquire(entity)
    moved.memory.faults.append(fault)
    lease.release()
    assert moved.is_free(entity)


def test_a_release_whose_reply_is_lost_succeeds_though_another_owner_has_the_lock_by_then(
    moved: Moved, entity: str
) -> None:
    wire, repeats = Wire(), Repeats(is_release)
    lease = moved.client(wire=wire).acquire(entity)
    moved.memory.faults.append(Fault.REPLY_LOST)
    with wire.held_back(repeats) as second_try:
        releasing = meanwhile(lease.release)
        assert second_try.reached.wait(30)
        other = moved.client().acquire(entity, record_wait=0)
    outcome(releasing)
    assert other.is_held()
    assert moved.holders_of(entity) == 1


def test_a_renewal_whose_reply_is_lost_keeps_the_lock_if_its_retry_is_refused(moved: Moved, entity: str) -> None:
    wire, repeats = Wire(), Repeats(is_renewal)
    lease = moved.client(wire=wire, heartbeat=False).acquire(entity)
    moved.clock.advance(30)
    repeats.seen = 0
    moved.memory.faults.append(Fault.REPLY_LOST)
    with wire.held_back(repeats) as second_try:
        renewing = meanwhile(lease.renew)
        assert second_try.reached.wait(30)
    outcome(renewing)
    assert lease.remaining_s > 45


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_while_a_waiter_gives_up_leaves_no_row(moved: Moved, entity: str, fault: Fault) -> None:
    holder = moved.client(lease=600).acquire(entity)
    wire = Wire()
    locks = moved.client(wire=wire)
    with wire.held_back(lambda sent: sent.operation == "TransactWriteItems") as leaving:
        waiting = meanwhile(lambda: locks.acquire(entity, record_wait=20))
        until(lambda: moved.queue_of(entity) == 1)
        moved.clock.advance(21)
        assert leaving.reached.wait(30)
        moved.memory.faults.append(fault)
    with pytest.raises(TimeoutError):
        outcome(waiting)
    assert moved.queue_of(entity) == 0
    holder.release()
    assert moved.is_free(entity)


@pytest.mark.parametrize("seed", range(3))
def test_with_every_third_request_lost_a_counter_loses_nothing(moved: Moved, entity: str, seed: int) -> None:
    faults: list[Any] = [Fault.REPLY_LOST, None, None, Fault.REQUEST_LOST, None, None, Fault.CONFLICT, None, None]
    moved.memory.faults.extend((faults[seed:] + faults[:seed]) * 40)

    def count() -> None:
        locks = moved.client(lease=3_600, record_wait=math.inf)
        for _ in range(3):
            lease = locks.acquire(entity)
            lease.release(data_left=str(int(lease.data_left or 0) + 1))

    with moved.time_flies(times=1):
        for done in [meanwhile(count) for _ in range(3)]:
            outcome(done)
    moved.memory.faults.clear()
    assert moved.client().acquire(entity).data_left == "9"
    assert moved.queue_of(entity) == 0


class Repeats:
    """Whether a request is not the first one of its kind."""

    def __init__(self, is_meant: Any) -> None:
        self._is_meant = is_meant
        self.seen = 0

    def __call__(self, sent: Sent) -> bool:
        self.seen += bool(self._is_meant(sent))
        return bool(self._is_meant(sent)) and self.seen > 1
