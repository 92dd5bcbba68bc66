"""How a unit ends: committed, or rolled back without a trace; and that it is over then."""

from collections.abc import Callable

import pytest
from kit.units import Books, Key, Party, some_account

from ticketlock.errors import UnitConflict, UnitFinished
from ticketlock.units import Unit

pytestmark = pytest.mark.shows("atomicity")

TAKE = "SET balance = balance - :n"
TEN = {":n": 10}


def test_the_end_of_the_block_commits(books: Books, ann: Party, account: Key, other: Key) -> None:
    with ann.begin() as unit:
        unit.update(ann.accounts, account, TAKE, TEN)
        unit.update(ann.accounts, other, "SET balance = balance + :n", TEN)
    assert (books.balance(account), books.balance(other)) == (90, 60)
    assert books.version(account) == books.version(other) == unit.id


def test_a_unit_without_a_block_is_committed_by_commit(books: Books, ann: Party, account: Key) -> None:
    unit = ann.begin()
    unit.update(ann.accounts, account, TAKE, TEN)
    assert books.balance(account) == 100
    unit.commit()
    assert books.balance(account) == 90


def test_an_exception_in_the_block_rolls_back_and_is_raised(books: Books, ann: Party, account: Key) -> None:
    before = books.everything()
    raised = RuntimeError("of the caller's")

    def fail_in_the_block() -> None:
        with ann.begin() as unit:
            unit.update(ann.accounts, account, TAKE, TEN)
            raise raised

    with pytest.raises(RuntimeError) as caught:
        fail_in_the_block()
    assert caught.value is raised
    assert books.everything() == before
    assert "TransactWriteItems" not in ann.line.operations


def test_a_rollback_writes_nothing_and_asks_nothing(books: Books, ann: Party, account: Key) -> None:
    before = books.everything()
    unit = ann.begin()
    unit.update(ann.accounts, account, TAKE, TEN)
    unit.put(ann.accounts, some_account())
    unit.delete(ann.accounts, account)
    assert ann.sends(unit.rollback) == []
    assert books.everything() == before


def test_a_block_may_roll_back_by_itself(books: Books, ann: Party, account: Key) -> None:
    with ann.begin() as unit:
        unit.update(ann.accounts, account, TAKE, TEN)
        unit.rollback()
    assert books.balance(account) == 100


def test_a_second_commit_does_nothing(books: Books, ann: Party, account: Key) -> None:
    with ann.begin() as unit:
        unit.update(ann.accounts, account, TAKE, TEN)
        unit.commit()
        assert ann.sends(unit.commit) == []
    assert books.balance(account) == 90


def test_a_block_ends_silently_whose_commit_by_hand_has_failed_and_said_so(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    with ann.begin() as unit:
        unit.update(ann.accounts, account, TAKE, TEN)
        ben.changes(account, 1)
        with pytest.raises(UnitConflict):
            unit.commit()
    assert books.balance(account) == 1


def test_a_second_rollback_does_nothing(ann: Party) -> None:
    unit = ann.begin()
    unit.rollback()
    assert ann.sends(unit.rollback) == []


USES: dict[str, Callable[[Party, Unit, Key], object]] = {
    "get": lambda ann, unit, key: unit.get(ann.accounts, key),
    "get_all": lambda ann, unit, key: unit.get_all([(ann.accounts, key)]),
    "put": lambda ann, unit, key: unit.put(ann.accounts, key),
    "update": lambda ann, unit, key: unit.update(ann.accounts, key, TAKE, TEN),
    "a blind update": lambda ann, unit, key: unit.update(ann.accounts, key, TAKE, TEN, blind=True),
    "delete": lambda ann, unit, key: unit.delete(ann.accounts, key),
    "check": lambda ann, unit, key: unit.check(ann.accounts, key, "attribute_exists(id)"),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
class TestAfterItsEnd:
    def test_a_committed_unit_is_finished(
        self, ann: Party, account: Key, use: Callable[[Party, Unit, Key], object]
    ) -> None:
        with ann.begin() as unit:
            pass
        with pytest.raises(UnitFinished, match="committed"):
            use(ann, unit, account)

    def test_one_that_was_rolled_back_is_finished(
        self, ann: Party, account: Key, use: Callable[[Party, Unit, Key], object]
    ) -> None:
        unit = ann.begin()
        unit.rollback()
        with pytest.raises(UnitFinished, match="rolled back"):
            use(ann, unit, account)
        with pytest.raises(UnitFinished):
            unit.commit()


def test_a_committed_unit_is_not_rolled_back(books: Books, ann: Party, account: Key) -> None:
    with ann.begin() as unit:
        unit.update(ann.accounts, account, TAKE, TEN)
    with pytest.raises(UnitFinished):
        unit.rollback()
    assert books.balance(account) == 90
