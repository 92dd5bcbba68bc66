"""Waits that end without the lock: what their error says."""

import pytest
from kit.places import Moved, meanwhile, outcome, until

from ticketlock import Claim, Grant, LockName, LockTable, PermitsMismatch, Position, RecordWaitExceeded
from ticketlock.client._acquire import _next_poll
from ticketlock.locks._handing import Next, release_to
from ticketlock.testing import ManualClock, MemoryDynamoDB


@pytest.mark.parametrize("record_wait", [0, 2])
def test_the_error_names_the_holder(moved: Moved, entity: str, record_wait: float) -> None:
    moved.client().acquire(entity, owner="build-7")
    with moved.time_flies(), pytest.raises(RecordWaitExceeded, match='held by "build-7" since 20') as in_vain:
        moved.client().acquire(entity, record_wait=record_wait)
    ((owner, since, until),) = in_vain.value.holders
    assert (owner, 0 < (until - since).total_seconds() <= 65) == ("build-7", True)


def test_the_error_says_that_the_lock_is_closed(moved: Moved, entity: str) -> None:
    moved.table.set_limit(LockName(entity), 0)
    with moved.time_flies(), pytest.raises(RecordWaitExceeded, match="closed: an operator has set") as in_vain:
        moved.client().acquire(entity, record_wait=2)
    assert in_vain.value.is_closed


def test_on_wait_gets_the_holders_and_whether_the_lock_is_closed(moved: Moved, entity: str) -> None:
    seen: list[Position] = []
    lease = moved.client().acquire(entity, owner="build-7")
    waiting = meanwhile(lambda: moved.client().acquire(entity, on_wait=seen.append))
    until(lambda: seen, "a poll")
    assert [holder.owner for holder in seen[-1].holders] == ["build-7"]
    assert not seen[-1].is_closed
    moved.table.set_limit(LockName(entity), 0)
    lease.release()
    with moved.time_flies():
        until(lambda: seen[-1].is_closed, "a poll of a closed lock")
        moved.table.unset_limit(LockName(entity))
        outcome(waiting).release()


def test_a_waiter_that_an_operator_removed_joins_again_and_learns_of_it(moved: Moved, entity: str) -> None:
    seen: list[Position] = []
    lease = moved.client().acquire(entity)
    waiting = meanwhile(lambda: moved.client().acquire(entity, on_wait=seen.append))
    until(lambda: seen, "a poll")
    removed = moved.client().remove_waiter(entity, seen[0].place.ticket)
    assert removed is not None
    with moved.time_flies():
        until(lambda: seen[-1].place_lost, "another position")
        lease.release()
        outcome(waiting).release()


def test_a_waiter_leaves_the_queue_if_the_users_permits_differ_from_its_own_once_a_limit_is_unset(
    moved: Moved, entity: str
) -> None:
    moved.client().acquire(entity)
    moved.table.set_limit(LockName(entity), 1)
    waiting = meanwhile(lambda: moved.client().acquire(entity, permits=3))
    until(lambda: moved.queue_of(entity) == 1, "a waiter")
    moved.table.unset_limit(LockName(entity))
    with moved.time_flies(), pytest.raises(PermitsMismatch):
        outcome(waiting)
    assert moved.queue_of(entity) == 0


def test_a_reader_that_a_release_grants_a_lock_whose_limit_is_unset_then_gives_it_back(
    memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    lock, table = LockName("order-42"), LockTable("locks", client=memory.client, clocks=clock)
    held, waiting = Claim(lock, "alice", 60_000), Claim(lock, "bob", 60_000, shared=True)
    table.set_limit(lock, 2)
    grant, joined = table.take_ticket(held, None), table.take_ticket(waiting, None)
    assert isinstance(grant, Grant)
    assert isinstance(joined, Position)
    seen = table.check_turn(waiting, joined.place, None)
    assert isinstance(seen, Position)
    assert table.contend(held, lambda me: release_to(me, grant, Next(waiting, seen))).handed is not None
    table.unset_limit(lock, 3)
    with pytest.raises(PermitsMismatch):
        table.contend(waiting, lambda me: _next_poll(me, seen, None, 0, None, 0))
    state = table.inspect(lock)
    assert state.item is not None
    assert (state.item.holders, state.rows) == ((), ())
