"""Waits that end without the lock: what their error says."""

import pytest
from kit.places import Moved, meanwhile, outcome, until

from ticketlock import LockName, PermitsMismatch, Position, RecordWaitExceeded


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
