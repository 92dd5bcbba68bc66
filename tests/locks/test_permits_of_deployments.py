"""A number of permits that carries when its execution started: the later one is in force, on every engine."""

import pytest
from botocore.exceptions import ClientError
from kit.world import LEASE_MS, Process, World

from ticketlock import Claim, Grant, LockName, PermitsMismatch, RecordWaitExceeded
from ticketlock.locks._items import LockItem

OLD, NEW = 1, 2


def asks(process: Process, lock: LockName, permits: int, since_ms: int, *, shared: bool = False) -> Claim:
    """The claim of an execution that started then."""
    claim = process.claim(lock, permits=permits, shared=shared)
    return Claim(lock, claim.owner, LEASE_MS, permits=permits, shared=shared, permits_since_ms=since_ms)


def item_of(process: Process, lock: LockName) -> LockItem:
    item = process.table.inspect(lock).item
    assert item is not None
    return item


def number(process: Process, lock: LockName) -> tuple[int, int | None]:
    """The number in force, and when its execution started."""
    return item_of(process, lock).permits, item_of(process, lock).permits_since_ms


def test_a_later_number_takes_a_free_lock_with_one_request(alice: Process, lock: LockName) -> None:
    alice.table.release(first := asks(alice, lock, 1, OLD), alice.granted(first))
    later = asks(alice, lock, 3, NEW)
    assert alice.operations(lambda: alice.granted(later)) == ["UpdateItem"]
    assert number(alice, lock) == (3, NEW)


def test_a_raised_number_lets_the_newcomer_in_beside_the_holder_and_a_lowered_one_does_not(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    alice.granted(asks(alice, lock, 1, OLD))
    bob.granted(asks(bob, lock, 2, NEW))
    with pytest.raises(RecordWaitExceeded):
        carol.take(asks(carol, lock, 2, NEW + 1), record_wait_ms=0)
    with pytest.raises(RecordWaitExceeded):
        carol.take(asks(carol, lock, 1, NEW + 1), record_wait_ms=0)
    assert number(alice, lock) == (2, NEW)


@pytest.mark.parametrize(("then", "now"), [(1, 2), (2, 1)], ids=["raised", "lowered"])
def test_an_earlier_number_is_judged_by_the_later_one(
    alice: Process, bob: Process, carol: Process, lock: LockName, then: int, now: int
) -> None:
    alice.granted(asks(alice, lock, now, NEW))
    late = asks(bob, lock, then, OLD)
    if now == 2:
        bob.granted(late)
    else:
        bob.queued(late)
    carol.queued(asks(carol, lock, then, OLD))
    assert number(alice, lock) == (now, NEW)


def test_a_late_copy_of_a_request_with_an_earlier_number_changes_nothing(
    alice: Process, bob: Process, lock: LockName
) -> None:
    claim = asks(alice, lock, 1, OLD)
    grant = None

    def takes() -> None:
        nonlocal grant
        grant = alice.granted(claim)

    alice.operations(takes)
    late = alice.sent[-1].parameters
    assert isinstance(grant, Grant)
    alice.table.release(claim, grant)
    bob.table.release(later := asks(bob, lock, 2, NEW), bob.granted(later))
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        bob.client.update_item(**late)
    assert number(bob, lock) == (2, NEW)


def test_an_expired_holder_is_removed_by_a_grant_with_a_later_number(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    alice.granted(asks(alice, lock, 2, OLD))
    world.advance(2 * LEASE_MS)
    assert bob.granted(asks(bob, lock, 1, NEW)).took_over == 1
    assert number(bob, lock) == (1, NEW)


def test_beneath_a_limit_the_latest_number_waits_for_its_end(alice: Process, bob: Process, lock: LockName) -> None:
    alice.granted(asks(alice, lock, 1, OLD))
    alice.table.set_limit(lock, 2)
    bob.granted(asks(bob, lock, 3, NEW))
    assert number(alice, lock) == (2, NEW)
    alice.table.unset_limit(lock, 5)
    assert number(alice, lock) == (3, NEW)


def test_a_number_of_the_callers_own_must_be_the_locks(alice: Process, bob: Process, lock: LockName) -> None:
    alice.granted(asks(alice, lock, 2, OLD))
    bob.granted(bob.claim(lock, permits=2))
    with pytest.raises(PermitsMismatch):
        bob.take(bob.claim(lock, permits=1))


def test_a_lock_whose_users_name_another_number_does_not_follow_a_deployment(
    alice: Process, bob: Process, lock: LockName
) -> None:
    alice.granted(alice.claim(lock, permits=2))
    with pytest.raises(PermitsMismatch):
        bob.take(asks(bob, lock, 1, NEW))
    bob.granted(asks(bob, lock, 2, NEW))
    assert number(bob, lock) == (2, NEW)


def test_a_lock_that_does_not_say_whose_number_it_has_follows_once_an_operator_has_set_the_new_one(
    alice: Process, bob: Process, lock: LockName
) -> None:
    # As an earlier version leaves the item.
    alice.table.release(first := alice.claim(lock, permits=1), alice.granted(first))
    alice.table.set_limit(lock, 3)
    alice.table.unset_limit(lock, 3)
    bob.granted(asks(bob, lock, 3, OLD))
    alice.granted(asks(alice, lock, 2, NEW))
    assert number(bob, lock) == (2, NEW)


def test_a_reader_accepts_any_deployments_number_and_changes_none(alice: Process, bob: Process, lock: LockName) -> None:
    alice.table.release(writer := asks(alice, lock, 3, NEW), alice.granted(writer))
    bob.granted(asks(bob, lock, 1, 0, shared=True))
    assert number(alice, lock) == (3, NEW)
