"""A holder that asks for its lock again."""

import pytest
from kit.places import Emulated, meanwhile, outcome, until

from ticketlock import AlreadyHeld, LockClient, RecordWaitExceeded


def test_a_second_acquisition_is_refused_at_once_instead_of_waiting_for_itself(
    place: Emulated, locks: LockClient, entity: str
) -> None:
    lease = locks.acquire(entity)
    with pytest.raises(AlreadyHeld):
        locks.acquire(entity)
    assert lease.is_held()
    assert place.queue_of(entity) == 0


def test_another_thread_or_task_of_the_same_client_waits(place: Emulated, locks: LockClient, entity: str) -> None:
    lease = locks.acquire(entity)
    waiting = meanwhile(lambda: locks.acquire(entity))
    until(lambda: place.queue_of(entity) == 1)
    lease.release()
    assert outcome(waiting).is_held()


def test_the_lock_may_be_acquired_again_after_its_release(locks: LockClient, entity: str) -> None:
    locks.acquire(entity).release()
    assert locks.acquire(entity).is_held()


def test_a_lock_that_is_held_twice_is_freed_by_the_second_release(
    place: Emulated, locks: LockClient, entity: str
) -> None:
    with locks.acquire(entity, reentrant=True) as outer:
        with locks.acquire(entity, reentrant=True) as inner:
            assert inner == outer
        assert outer.is_held()
        assert place.holders_of(entity) == 1
    assert not outer.is_held()
    assert place.is_free(entity)


def test_holding_it_again_sends_nothing(place: Emulated, entity: str) -> None:
    from kit.places import Wire

    wire = Wire()
    locks = place.client(wire=wire)
    locks.acquire(entity, reentrant=True)
    before = len(wire.sent)
    locks.acquire(entity, reentrant=True)
    assert len(wire.sent) == before


def test_a_shared_lock_is_not_held_again_exclusively(locks: LockClient, entity: str) -> None:
    locks.acquire(entity, shared=True)
    with pytest.raises(AlreadyHeld):
        locks.acquire(entity, reentrant=True)


def test_a_lease_that_was_lost_is_not_held_again(place: Emulated, locks: LockClient, entity: str) -> None:
    lease = locks.acquire(entity, reentrant=True)
    place.lose(entity)
    with pytest.raises(Exception, match="is not held"):
        lease.renew()
    again = locks.acquire(entity, reentrant=True)
    assert again.fencing_token > lease.fencing_token


def test_try_acquire_by_its_holder_says_so(locks: LockClient, entity: str) -> None:
    locks.acquire(entity)
    with pytest.raises(AlreadyHeld):
        locks.try_acquire(entity)


def test_another_client_of_the_same_thread_is_another_holder(
    locks: LockClient, others: LockClient, entity: str
) -> None:
    locks.acquire(entity)
    with pytest.raises(RecordWaitExceeded):
        others.acquire(entity, record_wait=0)
