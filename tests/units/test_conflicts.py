"""A unit commits only if all that it has read is unchanged; nothing else prevents it."""

from collections.abc import Callable
from functools import partial

import pytest
from kit.units import VERSION, Books, Key, Party, new_version, some_account, some_line

from ticketlock.errors import ConditionFailed, UnitConflict
from ticketlock.units import Unit

pytestmark = pytest.mark.shows("strict serialisability", "unchanged items")

TAKE = "SET balance = balance - :n"
ADD = "SET balance = balance + :n"
TEN = {":n": 10}

# What a unit may do with an item that another client changes before it commits; each depends on what it has read.
RESTS_ON_IT: dict[str, Callable[[Party, Unit, Key], object]] = {
    "reads it": lambda ann, unit, key: unit.get(ann.accounts, key),
    "reads it in a cut": lambda ann, unit, key: unit.get_all([(ann.accounts, key), (ann.accounts, some_account())]),
    "updates it": lambda ann, unit, key: unit.update(ann.accounts, key, TAKE, TEN),
    "puts it": lambda ann, unit, key: unit.put(ann.accounts, {**key, "balance": 1}),
    "deletes it": lambda ann, unit, key: unit.delete(ann.accounts, key),
    "checks it": lambda ann, unit, key: unit.check(ann.accounts, key, "balance >= :n", TEN),
}


@pytest.mark.parametrize("rests_on_it", RESTS_ON_IT.values(), ids=RESTS_ON_IT)
class TestAnItemThatHasChanged:
    def refused(self, books: Books, ann: Party, unit: Unit, key: Key) -> None:
        line = some_line()
        unit.put(ann.lines, {**line, "amount": 1})
        with pytest.raises(UnitConflict) as conflict:
            unit.commit()
        assert conflict.value.keys == ((ann.accounts.name, key),)
        assert books.raw("lines", line) is None

    def test_by_another_unit(
        self, books: Books, ann: Party, ben: Party, account: Key, rests_on_it: Callable[[Party, Unit, Key], object]
    ) -> None:
        unit = ann.begin()
        rests_on_it(ann, unit, account)
        ben.changes(account, 55)
        self.refused(books, ann, unit, account)
        assert books.balance(account) == 55

    def test_by_a_plain_writer_who_writes_a_new_version(
        self, books: Books, ann: Party, account: Key, rests_on_it: Callable[[Party, Unit, Key], object]
    ) -> None:
        unit = ann.begin()
        rests_on_it(ann, unit, account)
        books.write("accounts", {**account, "balance": 55, VERSION: new_version()})
        self.refused(books, ann, unit, account)
        assert books.balance(account) == 55

    def test_by_the_first_unit_that_writes_it(
        self, books: Books, ann: Party, ben: Party, rests_on_it: Callable[[Party, Unit, Key], object]
    ) -> None:
        key = books.plain_account()
        unit = ann.begin()
        rests_on_it(ann, unit, key)
        ben.changes(key, 55)
        self.refused(books, ann, unit, key)

    def test_by_a_client_that_has_deleted_it(
        self, books: Books, ann: Party, account: Key, rests_on_it: Callable[[Party, Unit, Key], object]
    ) -> None:
        unit = ann.begin()
        rests_on_it(ann, unit, account)
        books.plain_client.delete_item(TableName=ann.accounts.name, Key={"id": {"S": account["id"]}})
        self.refused(books, ann, unit, account)
        assert books.raw("accounts", account) is None


def test_all_items_that_have_changed_are_named(ann: Party, ben: Party, account: Key, other: Key) -> None:
    unit = ann.begin()
    unit.get(ann.accounts, account)
    unit.update(ann.accounts, other, TAKE, TEN)
    ben.changes(account, 1)
    ben.changes(other, 1)
    with pytest.raises(UnitConflict) as conflict:
        unit.commit()
    assert conflict.value.keys == ((ann.accounts.name, account), (ann.accounts.name, other))


def test_changes_of_items_that_it_has_not_read_are_no_conflict(
    books: Books, ann: Party, ben: Party, account: Key, other: Key
) -> None:
    with ann.begin() as unit:
        unit.update(ann.accounts, account, TAKE, TEN)
        ben.changes(other, 1)
    assert (books.balance(account), books.balance(other)) == (90, 1)


def test_items_that_no_unit_has_written_are_updated_by_the_first(books: Books, ann: Party) -> None:
    key = books.plain_account()
    with ann.begin() as unit:
        unit.update(ann.accounts, key, TAKE, TEN)
    assert (books.balance(key), books.version(key)) == (90, unit.id)


def test_of_two_units_that_count_in_one_item_one_is_refused_and_counts_when_it_is_run_again(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    mine, theirs = ann.begin(), ben.begin()
    for unit, party in ((mine, ann), (theirs, ben)):
        unit.update(party.accounts, account, ADD, TEN)
    mine.commit()
    with pytest.raises(UnitConflict):
        theirs.commit()
    with ben.begin() as again:
        again.update(ben.accounts, account, ADD, TEN)
    assert books.balance(account) == 120


def test_write_skew_is_refused(books: Books, ann: Party, ben: Party, account: Key, other: Key) -> None:
    """Each reads both and writes one: together they would violate what each has checked."""
    units = [(ann.begin(), ann, account), (ben.begin(), ben, other)]
    for unit, party, key in units:
        found = unit.get_all([(party.accounts, account), (party.accounts, other)])
        assert sum(each["balance"] for each in found if each) == 150
        unit.update(party.accounts, key, "SET balance = :none", {":none": 0})
    units[0][0].commit()
    with pytest.raises(UnitConflict):
        units[1][0].commit()
    assert (books.balance(account), books.balance(other)) == (0, 50)


class TestAnItemThatIsNotThere:
    def test_is_made_by_one_of_two_units(self, books: Books, ann: Party, ben: Party) -> None:
        key = some_account()
        mine, theirs = ann.begin(), ben.begin()
        mine.put(ann.accounts, {**key, "by": "ann"})
        theirs.put(ben.accounts, {**key, "by": "ben"})
        theirs.commit()
        with pytest.raises(UnitConflict):
            mine.commit()
        assert books.item("accounts", key) == {**key, "by": "ben"}

    def test_is_not_there_when_the_unit_commits_that_has_looked_for_it(
        self, books: Books, ann: Party, account: Key
    ) -> None:
        key = some_account()
        unit = ann.begin()
        assert unit.get(ann.accounts, key) is None
        unit.update(ann.accounts, account, TAKE, TEN)
        books.write("accounts", {**key, "balance": 1})
        with pytest.raises(UnitConflict):
            unit.commit()
        assert books.balance(account) == 100

    def test_a_delete_of_it_is_a_read_of_it(self, books: Books, ann: Party, account: Key) -> None:
        key = some_account()
        unit = ann.begin()
        unit.delete(ann.accounts, key)
        unit.update(ann.accounts, account, TAKE, TEN)
        books.write("accounts", {**key, "balance": 1})
        with pytest.raises(UnitConflict):
            unit.commit()
        assert books.balance(key) == 1


class TestAUnitThatOnlyReads:
    def test_one_item_and_asks_nothing_further(self, ann: Party, ben: Party, account: Key) -> None:
        unit = ann.begin()
        unit.get(ann.accounts, account)
        ben.changes(account, 1)
        assert ann.sends(unit.commit) == []

    def test_several_of_one_instant_and_asks_nothing_further(
        self, ann: Party, ben: Party, account: Key, other: Key
    ) -> None:
        unit = ann.begin()
        unit.get_all([(ann.accounts, account), (ann.accounts, other)])
        ben.changes(account, 1)
        assert ann.sends(unit.commit) == []

    def test_two_items_one_by_one_and_makes_sure_of_them_in_one_request(
        self, ann: Party, account: Key, other: Key
    ) -> None:
        unit = ann.begin()
        unit.get(ann.accounts, account)
        unit.get(ann.accounts, other)
        assert ann.sends(unit.commit) == ["TransactGetItems"]

    def test_two_items_one_by_one_and_one_has_changed_since(
        self, ann: Party, ben: Party, account: Key, other: Key
    ) -> None:
        unit = ann.begin()
        unit.get(ann.accounts, account)
        ben.changes(account, 1)
        unit.get(ann.accounts, other)
        with pytest.raises(UnitConflict) as conflict:
            unit.commit()
        assert conflict.value.keys == ((ann.accounts.name, account),)

    def test_of_plain_writers_too_who_write_no_version(self, books: Books, ann: Party, other: Key) -> None:
        key = books.plain_account()
        unit = ann.begin()
        unit.get(ann.accounts, key)
        books.write("accounts", {**key, "balance": 1})
        unit.get(ann.accounts, other)
        with pytest.raises(UnitConflict):
            unit.commit()

    def test_and_checks_writes_nothing(self, books: Books, ann: Party, account: Key) -> None:
        before = books.everything()
        with ann.begin() as unit:
            unit.check(ann.accounts, account, "balance >= :n", TEN)
        assert books.everything() == before
        assert "TransactWriteItems" not in ann.line.operations


class TestABlindUpdate:
    def test_of_one_unit_does_not_conflict_with_that_of_another(
        self, books: Books, ann: Party, ben: Party, account: Key
    ) -> None:
        units = [ann.begin(), ben.begin()]
        for unit, party in zip(units, (ann, ben), strict=True):
            assert party.sends(partial(self.count, unit, party, account)) == []
        for unit in units:
            unit.commit()
        assert (books.balance(account), books.version(account)) == (120, units[1].id)

    def count(self, unit: Unit, party: Party, key: Key) -> None:
        assert unit.update(party.accounts, key, ADD, TEN, blind=True) is None

    def test_fails_at_the_commit_if_its_condition_does_not_hold(
        self, books: Books, ann: Party, account: Key, other: Key
    ) -> None:
        unit = ann.begin()
        unit.update(ann.accounts, other, ADD, TEN)
        unit.update(ann.accounts, account, TAKE, {":n": 500}, condition="balance >= :n", blind=True)
        with pytest.raises(ConditionFailed) as refused:
            unit.commit()
        assert (refused.value.table, refused.value.key) == (ann.accounts.name, account)
        assert (books.balance(account), books.balance(other)) == (100, 50)

    def test_cannot_be_left_behind_when_a_later_read_finds_that_its_condition_does_not_hold(
        self, books: Books, ann: Party, account: Key, other: Key
    ) -> None:
        unit = ann.begin()
        unit.update(ann.accounts, account, TAKE, {":n": 500}, condition="balance >= :n", blind=True)
        unit.update(ann.accounts, other, ADD, {":n": 500})
        with pytest.raises(ConditionFailed):
            unit.get(ann.accounts, account)
        with pytest.raises(ConditionFailed):
            unit.commit()
        assert (books.balance(account), books.balance(other)) == (100, 50)

    def test_makes_an_item_that_is_not_there(self, books: Books, ann: Party) -> None:
        key = some_account()
        with ann.begin() as unit:
            unit.update(ann.accounts, key, "SET balance = if_not_exists(balance, :n)", TEN, blind=True)
        assert books.item("accounts", key) == {**key, "balance": 10}

    def test_may_only_remove(self, books: Books, ann: Party, account: Key) -> None:
        with ann.begin() as unit:
            unit.update(ann.accounts, account, "REMOVE balance", blind=True)
        assert books.raw("accounts", account) == {**account, VERSION: unit.id}

    def test_conflicts_with_units_that_have_read_the_item(
        self, books: Books, ann: Party, ben: Party, account: Key
    ) -> None:
        unit = ann.begin()
        unit.update(ann.accounts, account, TAKE, TEN)
        with ben.begin() as counting:
            counting.update(ben.accounts, account, ADD, TEN, blind=True)
        with pytest.raises(UnitConflict):
            unit.commit()
        assert books.balance(account) == 110

    def test_of_an_item_that_the_unit_has_read_is_none(
        self, books: Books, ann: Party, ben: Party, account: Key
    ) -> None:
        unit = ann.begin()
        unit.get(ann.accounts, account)
        assert unit.update(ann.accounts, account, ADD, TEN, blind=True) == {**account, "balance": 110}
        ben.changes(account, 1)
        with pytest.raises(UnitConflict):
            unit.commit()
        assert books.balance(account) == 1

    def test_twice_counts_twice(self, books: Books, ann: Party, account: Key) -> None:
        with ann.begin() as unit:
            for _ in range(2):
                unit.update(ann.accounts, account, ADD, TEN, blind=True)
        assert books.balance(account) == 120
