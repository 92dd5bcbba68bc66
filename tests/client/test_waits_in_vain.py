"""Waits that end without the lock: what their error says."""

import pytest
from kit.places import Moved, meanwhile, outcome, until

from ticketlock import Claim, ClientClosed, Grant, LockName, LockTable, PermitsMismatch, Position, RecordWaitExceeded
from ticketlock.client._acquire import _next_poll, leave
from ticketlock.locks._hand_over import Next, release_to
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


class GrantedUnderALimit:
    """A reader that a release grants a lock, whose limit is then unset; the lock's number is not the reader's."""

    def __init__(self, memory: MemoryDynamoDB, clock: ManualClock) -> None:
        self.lock, self.table = LockName("order-42"), LockTable("locks", client=memory.client, clocks=clock)
        held, self.waiting = Claim(self.lock, "alice", 60_000), Claim(self.lock, "bob", 60_000, shared=True)
        self.table.set_limit(self.lock, 2)
        grant, joined = self.table.take_ticket(held, None), self.table.take_ticket(self.waiting, None)
        assert isinstance(grant, Grant)
        assert isinstance(joined, Position)
        seen = self.table.check_turn(self.waiting, joined.place, None)
        assert isinstance(seen, Position)
        self.seen: Position = seen
        following = Next(self.waiting, seen)
        assert self.table.contend(held, lambda me: release_to(me, grant, following)).handed is not None
        self.table.unset_limit(self.lock, 3)

    def left(self) -> tuple[int, int]:
        """How many holders there are, and rows."""
        state = self.table.inspect(self.lock)
        assert state.item is not None
        return len(state.item.holders), len(state.rows)


def test_a_reader_that_a_release_grants_a_lock_whose_limit_is_unset_then_gives_it_back(
    memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    granted = GrantedUnderALimit(memory, clock)
    with pytest.raises(PermitsMismatch):
        granted.table.contend(granted.waiting, lambda me: _next_poll(me, granted.seen, None, 0, None, 0))
    assert granted.left() == (0, 0)


def test_it_also_gives_it_back_if_it_is_interrupted_before_its_next_poll(
    memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    granted = GrantedUnderALimit(memory, clock)
    granted.table.contend(granted.waiting, leave)
    assert granted.left() == (0, 0)


def test_a_waiter_that_is_interrupted_leaves_the_queue_of_a_lock_with_another_number(moved: Moved, entity: str) -> None:
    moved.client().acquire(entity)
    moved.table.set_limit(LockName(entity), 1)
    locks = moved.client(check_every=(100, 100), lease=600)
    waiting = meanwhile(lambda: locks.acquire(entity, permits=3))
    until(lambda: moved.queue_of(entity) == 1, "a waiter")
    moved.table.unset_limit(LockName(entity))
    locks.close()
    with pytest.raises(ClientClosed):
        outcome(waiting)
    assert moved.queue_of(entity) == 0
