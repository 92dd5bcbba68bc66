"""What is true of acquiring and releasing a lock, with and without fault injection."""

from datetime import timedelta

import pytest
from kit.places import Emulated, meanwhile, outcome, until

from ticketlock import LockClient, LockName, PermitsMismatch, RecordWaitExceeded, TicketLockError


def test_a_lock_that_is_acquired_is_held(place: Emulated, locks: LockClient, entity: str) -> None:
    lease = locks.acquire(entity)
    assert lease.is_held()
    assert place.holders_of(entity) == 1


def test_a_lock_that_is_released_is_free(place: Emulated, locks: LockClient, entity: str) -> None:
    lease = locks.acquire(entity)
    lease.release()
    assert not lease.is_held()
    assert place.is_free(entity)


def test_the_end_of_with_frees_the_lock(place: Emulated, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity) as lease:
        assert lease.is_held()
    assert not lease.is_held()
    assert place.is_free(entity)


def test_a_second_release_does_nothing(place: Emulated, locks: LockClient, others: LockClient, entity: str) -> None:
    lease = locks.acquire(entity)
    lease.release()
    others.acquire(entity)
    lease.release()
    assert place.holders_of(entity) == 1


@pytest.mark.parametrize("error", [ValueError("in the block"), KeyboardInterrupt(), SystemExit(3)])
def test_what_is_raised_in_the_block_passes_through_and_the_lock_is_freed(
    place: Emulated, locks: LockClient, entity: str, error: BaseException
) -> None:
    with pytest.raises(type(error)) as raised, locks.acquire(entity):
        raise error
    assert raised.value is error
    assert place.is_free(entity)


def test_try_acquire_takes_a_free_lock(locks: LockClient, entity: str) -> None:
    lease = locks.try_acquire(entity)
    assert lease is not None
    assert lease.is_held()


def test_try_acquire_of_a_lock_that_is_taken_is_none_and_leaves_nothing_behind(
    place: Emulated, locks: LockClient, others: LockClient, entity: str
) -> None:
    others.acquire(entity)
    assert locks.try_acquire(entity) is None
    assert place.queue_of(entity) == 0


def test_try_acquire_does_not_overtake_those_who_wait(place: Emulated, entity: str) -> None:
    holder, waiter, third = (place.client() for _ in range(3))
    lease = holder.acquire(entity)
    waiting = meanwhile(lambda: waiter.acquire(entity))
    until(lambda: place.queue_of(entity) == 1)
    lease.release()
    assert third.try_acquire(entity) is None or waiting.done()
    outcome(waiting)


def test_a_record_wait_of_zero_fails_at_once(
    place: Emulated, locks: LockClient, others: LockClient, entity: str
) -> None:
    others.acquire(entity)
    with pytest.raises(RecordWaitExceeded):
        locks.acquire(entity, record_wait=0)
    assert place.queue_of(entity) == 0


@pytest.mark.parametrize("record_wait", [0.05, timedelta(milliseconds=50)])
def test_a_record_wait_that_is_over_leaves_the_queue(
    place: Emulated, locks: LockClient, others: LockClient, entity: str, record_wait: float | timedelta
) -> None:
    lease = others.acquire(entity)
    with pytest.raises(RecordWaitExceeded):
        locks.acquire(entity, record_wait=record_wait)
    lease.release()
    assert place.is_free(entity)


def test_the_clients_record_wait_is_that_of_its_acquisitions(place: Emulated, others: LockClient, entity: str) -> None:
    others.acquire(entity)
    with pytest.raises(RecordWaitExceeded):
        place.client(record_wait=0.05).acquire(entity)


def test_a_timeout_error_is_what_a_record_wait_ends_with(locks: LockClient, others: LockClient, entity: str) -> None:
    others.acquire(entity)
    with pytest.raises(TimeoutError):
        locks.acquire(entity, record_wait=0)


def test_every_error_has_the_same_root(locks: LockClient, others: LockClient, entity: str) -> None:
    others.acquire(entity)
    with pytest.raises(TicketLockError):
        locks.acquire(entity, record_wait=0)


def test_entities_and_namespaces_are_locks_of_their_own(locks: LockClient, entity: str) -> None:
    leases = [locks.acquire(entity), locks.acquire(entity + "x"), locks.acquire(entity, namespace="other")]
    assert all(lease.is_held() for lease in leases)


def test_a_lock_may_be_named_by_its_name(place: Emulated, locks: LockClient, entity: str) -> None:
    lease = locks.acquire(LockName(entity, "other"))
    assert (lease.entity, lease.namespace) == (entity, "other")
    assert lease.lock == LockName(entity, "other")
    assert place.is_free(entity)


def test_a_client_has_a_namespace_of_its_own(place: Emulated, entity: str) -> None:
    assert place.client(namespace="billing").acquire(entity).namespace == "billing"


def test_the_fencing_token_rises_from_grant_to_grant(locks: LockClient, others: LockClient, entity: str) -> None:
    tokens = []
    for client in (locks, others, locks, others):
        with client.acquire(entity) as lease:
            tokens.append(lease.fencing_token)
    assert tokens == sorted(set(tokens))


def test_as_many_hold_the_lock_as_it_has_permits(place: Emulated, entity: str) -> None:
    clients = [place.client() for _ in range(3)]
    held = [client.try_acquire(entity, permits=2) for client in clients]
    assert [lease is not None for lease in held] == [True, True, False]


def test_one_thread_or_task_may_take_several_permits(locks: LockClient, entity: str) -> None:
    first, second = (locks.acquire(entity, permits=2) for _ in range(2))
    assert first.is_held()
    assert second.is_held()
    assert first.fencing_token < second.fencing_token


def test_all_users_of_a_lock_must_agree_on_its_permits(locks: LockClient, others: LockClient, entity: str) -> None:
    others.acquire(entity, permits=2).release()
    with pytest.raises(PermitsMismatch) as raised:
        locks.acquire(entity, permits=3)
    assert (raised.value.asked, raised.value.stored) == (3, 2)


def test_those_who_share_hold_the_lock_together(place: Emulated, entity: str) -> None:
    leases = [place.client().acquire(entity, shared=True) for _ in range(3)]
    assert all(lease.is_held() and lease.shared for lease in leases)
    assert place.client().try_acquire(entity) is None


def test_the_same_owner_gets_the_same_grant_again(locks: LockClient, others: LockClient, entity: str) -> None:
    first = locks.acquire(entity, owner="invoice-7")
    again = others.acquire(entity, owner="invoice-7")
    assert again.fencing_token == first.fencing_token
    assert again.owner == first.owner == "invoice-7"


def test_the_owner_names_the_process_unless_told_otherwise(place: Emulated, entity: str) -> None:
    lease = place.client(owner_name="nightly-report").acquire(entity)
    assert lease.owner.startswith("nightly-report/")
