"""What a read may see, and what the commit checks, at each level."""

import pytest
from kit.units import Books, Key, Party, some_account

from ticketlock.errors import UnitConflict, UnitFinished
from ticketlock.units import COMMITTED, SERIALIZABLE, UNCOMMITTED, Isolation

pytestmark = pytest.mark.shows("unchanged items", "committed reads", "no dirty read")

LOWER = [UNCOMMITTED, COMMITTED]
ADD, TEN = "SET balance = balance + :n", {":n": 10}


@pytest.mark.parametrize("level", LOWER, ids=lambda level: level.name)
class TestBelowSerializable:
    def test_what_was_only_read_may_change_before_the_commit(
        self, books: Books, ann: Party, ben: Party, account: Key, other: Key, level: Isolation
    ) -> None:
        with ann.begin(isolation=level) as unit:
            unit.get(ann.accounts, account)
            unit.update(ann.accounts, other, ADD, TEN)
            ben.changes(account, 1)
        assert books.balance(other) == 60

    def test_what_it_writes_is_as_it_was_read_all_the_same(
        self, books: Books, ann: Party, ben: Party, account: Key, level: Isolation
    ) -> None:
        unit = ann.begin(isolation=level)
        unit.update(ann.accounts, account, ADD, TEN)
        ben.changes(account, 1)
        with pytest.raises(UnitConflict):
            unit.commit()
        assert books.balance(account) == 1

    @pytest.mark.parametrize("way", ["native", "marked"])
    def test_what_it_writes_is_as_an_earlier_read_saw_it(
        self, books: Books, ann: Party, ben: Party, account: Key, level: Isolation, way: str
    ) -> None:
        unit = ann.begin(isolation=level, engine=way)
        seen = unit.get(ann.accounts, account)
        assert seen is not None
        ben.changes(account, 500)
        with pytest.raises(UnitConflict) as refused:
            unit.put(ann.accounts, {**account, "balance": seen["balance"] + 1})
        assert refused.value.keys == ((books.tables["accounts"], account),)
        with pytest.raises(UnitFinished, match="rolled back"):
            unit.commit()
        assert books.balance(account) == 500

    def test_what_it_makes_is_still_not_there(self, books: Books, ann: Party, level: Isolation) -> None:
        key = some_account()
        unit = ann.begin(isolation=level)
        assert unit.get(ann.accounts, key) is None
        books.write("accounts", {**key, "balance": 500})
        with pytest.raises(UnitConflict):
            unit.put(ann.accounts, {**key, "balance": 1})
        assert books.balance(key) == 500

    @pytest.mark.parametrize("again", [None, SERIALIZABLE], ids=["at the same level", "at SERIALIZABLE"])
    def test_what_it_writes_may_be_read_anew_before(
        self, books: Books, ann: Party, ben: Party, account: Key, level: Isolation, again: Isolation | None
    ) -> None:
        with ann.begin(isolation=level) as unit:
            unit.get(ann.accounts, account)
            ben.changes(account, 500)
            seen = unit.get(ann.accounts, account, isolation=again)
            assert seen is not None
            unit.put(ann.accounts, {**account, "balance": seen["balance"] + 1})
        assert books.balance(account) == 501

    def test_a_second_read_sees_what_was_committed_between(
        self, ann: Party, ben: Party, account: Key, level: Isolation
    ) -> None:
        unit = ann.begin(isolation=level)
        unit.get(ann.accounts, account)
        ben.changes(account, 1)
        assert unit.get(ann.accounts, account) == {**account, "balance": 1}

    def test_its_own_writes_are_read(self, ann: Party, account: Key, level: Isolation) -> None:
        with ann.begin(isolation=level) as unit:
            unit.update(ann.accounts, account, ADD, TEN)
            assert unit.get(ann.accounts, account) == {**account, "balance": 110}

    def test_and_its_own_blind_ones(self, ann: Party, account: Key, level: Isolation) -> None:
        with ann.begin(isolation=level) as unit:
            unit.update(ann.accounts, account, ADD, TEN, blind=True)
            assert unit.get(ann.accounts, account) == {**account, "balance": 110}

    def test_one_key_may_be_asked_for_twice(self, ann: Party, account: Key, level: Isolation) -> None:
        found = ann.units.get_all([(ann.accounts, account)] * 2, isolation=level)
        assert found == [{**account, "balance": 100}] * 2

    def test_of_a_pending_unit_nothing_is_seen(self, ann: Party, ben: Party, account: Key, level: Isolation) -> None:
        unit = ben.begin()
        unit.update(ben.accounts, account, ADD, TEN)
        assert ann.units.get(ann.accounts, account, isolation=level) == {**account, "balance": 100}
        unit.commit()
        assert ann.units.get(ann.accounts, account, isolation=level) == {**account, "balance": 110}


def test_a_serializable_unit_sees_an_item_as_it_saw_it_first(ann: Party, ben: Party, account: Key) -> None:
    unit = ann.begin()
    unit.get(ann.accounts, account)
    ben.changes(account, 1)
    assert unit.get(ann.accounts, account) == {**account, "balance": 100}


def test_one_read_may_be_of_another_level_than_its_unit(
    books: Books, ann: Party, ben: Party, account: Key, other: Key
) -> None:
    with ann.begin() as unit:
        unit.get(ann.accounts, account, isolation=COMMITTED)
        unit.update(ann.accounts, other, ADD, TEN)
        ben.changes(account, 1)
    unit = ann.begin(isolation=COMMITTED)
    unit.get(ann.accounts, account, isolation=SERIALIZABLE)
    unit.update(ann.accounts, other, ADD, TEN)
    ben.changes(account, 2)
    with pytest.raises(UnitConflict):
        unit.commit()
    assert books.balance(other) == 60


def test_a_block_in_which_the_conflict_of_a_statement_was_caught_does_not_end_as_if_it_were_committed(
    books: Books, ann: Party, ben: Party, account: Key, other: Key
) -> None:
    def work() -> None:
        with ann.begin() as unit:
            unit.put(ann.accounts, {**other, "balance": 1})
            unit.get(ann.accounts, account, isolation=COMMITTED)
            ben.changes(account, 55)
            with pytest.raises(UnitConflict):
                unit.put(ann.accounts, {**account, "balance": 2})

    with pytest.raises(UnitFinished, match="a conflict"):
        work()
    assert (books.balance(account), books.balance(other)) == (55, 50)


def test_a_cut_may_be_asked_one_key_twice(ann: Party, account: Key, other: Key) -> None:
    with ann.begin() as unit:
        found = unit.get_all([(ann.accounts, account), (ann.accounts, other), (ann.accounts, account)])
    assert [each and each["balance"] for each in found] == [100, 50, 100]


@pytest.mark.parametrize(
    ("level", "consistent"), [(UNCOMMITTED, False), (COMMITTED, True), (SERIALIZABLE, True)], ids=lambda each: str(each)
)
def test_only_an_uncommitted_read_is_of_half_the_price(
    ann: Party, account: Key, level: Isolation, consistent: bool
) -> None:
    ann.units.get(ann.accounts, account, isolation=level)
    (sent,) = ann.line.sent
    assert (sent.operation, sent.parameters["ConsistentRead"]) == ("GetItem", consistent)


@pytest.mark.parametrize("level", [COMMITTED, SERIALIZABLE], ids=lambda level: level.name)
def test_a_cut_is_one_request(ann: Party, account: Key, other: Key, level: Isolation) -> None:
    wanted = [(ann.accounts, account), (ann.accounts, other), (ann.accounts, some_account())]
    assert ann.units.get_all(wanted, isolation=level)[2] is None
    assert ann.line.operations == ["TransactGetItems"]
