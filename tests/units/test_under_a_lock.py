"""A unit under a lock is committed only while the lock is held with that very fencing token."""

import pytest
from kit.units import Books, Key, Party, UnitsWorld, some_name

from ticketlock import Lease, LockClient
from ticketlock.errors import LockLost, UnitConflict
from ticketlock.units import Unit

pytestmark = pytest.mark.shows("unit under a lock")

TAKE, TEN = "SET balance = balance - :n", {":n": 10}


@pytest.fixture
def locks(units_world: UnitsWorld) -> LockClient:
    return units_world.locks()


@pytest.fixture
def lease(locks: LockClient) -> Lease:
    return locks.acquire(some_name())


@pytest.fixture
def unit(ann: Party, lease: Lease, account: Key) -> Unit:
    """Under the lease; it takes ten from the account."""
    unit = ann.begin(under=lease)
    unit.update(ann.accounts, account, TAKE, TEN)
    return unit


def test_it_is_committed_while_the_lock_is_held(books: Books, unit: Unit, account: Key) -> None:
    unit.commit()
    assert books.balance(account) == 90


def test_nothing_is_written_after_the_lock_was_released_by_force(
    books: Books, units_world: UnitsWorld, lease: Lease, unit: Unit, account: Key
) -> None:
    units_world.take_away(lease)
    with pytest.raises(LockLost):
        unit.commit()
    assert books.balance(account) == 100


def test_nor_when_another_owner_holds_it_since(
    books: Books, units_world: UnitsWorld, lease: Lease, unit: Unit, account: Key
) -> None:
    units_world.take_away(lease)
    with units_world.locks().acquire(lease.entity):
        with pytest.raises(LockLost):
            unit.commit()
        assert books.balance(account) == 100


def test_a_lost_lock_is_reported_before_a_conflict(
    books: Books, ben: Party, lease: Lease, unit: Unit, account: Key
) -> None:
    ben.changes(account, 55)
    lease.release()
    with pytest.raises(LockLost):
        unit.commit()
    assert books.balance(account) == 55


def test_a_conflict_is_reported_while_it_is_held(books: Books, ben: Party, unit: Unit, account: Key) -> None:
    ben.changes(account, 55)
    with pytest.raises(UnitConflict):
        unit.commit()
    assert books.balance(account) == 55


def test_a_unit_that_only_reads_commits_under_it_too(ann: Party, lease: Lease, account: Key) -> None:
    unit = ann.begin(under=lease)
    unit.get(ann.accounts, account)
    lease.release()
    with pytest.raises(LockLost):
        unit.commit()


def test_a_name_is_not_used_up_by_a_unit_whose_lock_was_lost(
    books: Books, ann: Party, locks: LockClient, lease: Lease, account: Key
) -> None:
    name = some_name()
    unit = ann.begin(under=lease, name=name)
    unit.update(ann.accounts, account, TAKE, TEN)
    lease.release()
    with pytest.raises(LockLost):
        unit.commit()
    assert books.receipt(name) is None
    with locks.acquire(lease.entity) as again, ann.begin(under=again, name=name) as unit:
        unit.update(ann.accounts, account, TAKE, TEN)
    assert books.balance(account) == 90
