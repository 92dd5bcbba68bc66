"""Items that do not exist: to read or delete one leaves nothing behind, however the unit ends."""

import pytest
from kit.units import Books, Key, Party, some_account

from ticketlock.errors import UnitConflict

WAY = pytest.mark.parametrize("way", ["native", "marked"])
SET, ONE = "SET balance = :n", {":n": 1}


@WAY
def test_one_that_is_read_is_none_each_time_and_not_there_after_the_commit(
    books: Books, ann: Party, account: Key, way: str
) -> None:
    absent = some_account()
    with ann.begin(engine=way) as unit:
        for _ in range(2):
            assert unit.get(ann.accounts, absent) is None
            assert unit.get_all([(ann.accounts, absent), (ann.accounts, account)])[0] is None
        unit.update(ann.accounts, account, SET, ONE)
    assert (books.raw("accounts", absent), books.balance(account)) == (None, 1)


@WAY
def test_one_that_is_deleted_is_not_there_after_the_commit(books: Books, ann: Party, account: Key, way: str) -> None:
    absent = some_account()
    with ann.begin(engine=way) as unit:
        assert unit.delete(ann.accounts, absent) is None
        unit.update(ann.accounts, account, SET, ONE)
    assert (books.raw("accounts", absent), books.balance(account)) == (None, 1)


@WAY
def test_one_that_is_deleted_or_made_is_not_there_after_a_conflict_of_the_commit(
    books: Books, ann: Party, ben: Party, account: Key, way: str
) -> None:
    deleted, made = some_account(), some_account()
    unit = ann.begin(engine=way)
    unit.delete(ann.accounts, deleted)
    unit.put(ann.accounts, {**made, "balance": 1})
    unit.update(ann.accounts, account, SET, ONE)
    ben.changes(account, 7)
    with pytest.raises(UnitConflict):
        unit.commit()
    assert [books.raw("accounts", key) for key in (deleted, made)] == [None, None]
    assert books.balance(account) == 7
