"""A unit commits only if what it has read is unchanged, at its level; nothing else prevents it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key as KeyOf
from kit.engines import first_on, roomy_engine_names
from kit.units import THREADS_ONLY, VERSION, Books, Key, Party, dumped, new_version, some_account, some_line

from ticketlock.errors import ConditionFailed, UnitConflict, UnitFinished, UnitRolledBack
from ticketlock.units import COMMITTED, READ_LOCK, SERIALIZABLE, UNCOMMITTED, Isolation, Unit

pytestmark = pytest.mark.shows("strict serialisability", "unchanged items", "committed reads", "no dirty read")

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


# Who changes it meanwhile, and whether a unit has written it before.
CHANGES: dict[str, tuple[bool, Callable[[Books, Party, Key], object]]] = {
    "another unit": (True, lambda _, ben, key: ben.changes(key, 55)),
    "the first unit": (False, lambda _, ben, key: ben.changes(key, 55)),
    "a plain writer": (True, lambda books, _, key: books.write("accounts", {**key, "n": 5, VERSION: new_version()})),
    "a plain delete": (
        True,
        lambda books, ben, key: books.plain_client.delete_item(TableName=ben.accounts.name, Key=dumped(key)),
    ),
}


@pytest.mark.parametrize("rests_on_it", RESTS_ON_IT.values(), ids=RESTS_ON_IT)
@pytest.mark.parametrize("by", CHANGES)
def test_a_unit_is_refused_whose_item_was_changed_and_writes_nothing(
    books: Books, ann: Party, ben: Party, by: str, rests_on_it: Callable[[Party, Unit, Key], object]
) -> None:
    has_version, changes = CHANGES[by]
    key = books.account() if has_version else books.plain_account()
    line, unit = some_line(), ann.begin()
    rests_on_it(ann, unit, key)
    changes(books, ben, key)
    changed = books.raw("accounts", key)
    unit.put(ann.lines, {**line, "amount": 1})
    with pytest.raises(UnitConflict) as conflict:
        unit.commit()
    assert conflict.value.keys == ((ann.accounts.name, key),)
    assert (books.raw("lines", line), books.raw("accounts", key)) == (None, changed)


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


def test_an_item_that_is_not_there_is_made_by_one_of_two_units(books: Books, ann: Party, ben: Party) -> None:
    key = some_account()
    mine, theirs = ann.begin(), ben.begin()
    mine.put(ann.accounts, {**key, "by": "ann"})
    theirs.put(ben.accounts, {**key, "by": "ben"})
    theirs.commit()
    with pytest.raises(UnitConflict):
        mine.commit()
    assert books.item("accounts", key) == {**key, "by": "ben"}


def test_an_item_that_is_not_there_is_not_there_when_the_unit_commits_that_has_looked_for_it(
    books: Books, ann: Party, account: Key
) -> None:
    key = some_account()
    unit = ann.begin()
    assert unit.get(ann.accounts, key) is None
    unit.update(ann.accounts, account, TAKE, TEN)
    books.write("accounts", {**key, "balance": 1})
    with pytest.raises(UnitConflict):
        unit.commit()
    assert books.balance(account) == 100


def test_a_delete_of_an_item_that_is_not_there_is_a_read_of_it(books: Books, ann: Party, account: Key) -> None:
    key = some_account()
    unit = ann.begin()
    unit.delete(ann.accounts, key)
    unit.update(ann.accounts, account, TAKE, TEN)
    books.write("accounts", {**key, "balance": 1})
    with pytest.raises(UnitConflict):
        unit.commit()
    assert books.balance(key) == 1


def test_a_unit_that_has_read_one_item_or_several_of_one_instant_asks_nothing_further(
    ann: Party, ben: Party, account: Key, other: Key
) -> None:
    single, together = ann.begin(), ann.begin()
    single.get(ann.accounts, account)
    together.get_all([(ann.accounts, account), (ann.accounts, other)])
    ben.changes(account, 1)
    assert ann.sends(single.commit) + ann.sends(together.commit) == []


def test_a_unit_that_only_reads_two_items_one_by_one_makes_sure_of_them_in_one_request(
    ann: Party, account: Key, other: Key
) -> None:
    unit = ann.begin()
    unit.get(ann.accounts, account)
    unit.get(ann.accounts, other)
    assert ann.sends(unit.commit) == ["TransactGetItems"]


def test_a_unit_that_only_reads_two_items_one_by_one_notices_that_one_has_changed_since(
    ann: Party, ben: Party, account: Key, other: Key
) -> None:
    unit = ann.begin()
    unit.get(ann.accounts, account)
    ben.changes(account, 1)
    unit.get(ann.accounts, other)
    with pytest.raises(UnitConflict) as conflict:
        unit.commit()
    assert conflict.value.keys == ((ann.accounts.name, account),)


def test_a_unit_that_only_reads_notices_plain_writers_too_who_write_no_version(
    books: Books, ann: Party, other: Key
) -> None:
    key = books.plain_account()
    unit = ann.begin()
    unit.get(ann.accounts, key)
    books.write("accounts", {**key, "balance": 1})
    unit.get(ann.accounts, other)
    with pytest.raises(UnitConflict):
        unit.commit()


def test_a_unit_that_only_reads_and_checks_writes_nothing(books: Books, ann: Party, account: Key) -> None:
    before = books.everything()
    with ann.begin() as unit:
        unit.check(ann.accounts, account, "balance >= :n", TEN)
    assert books.everything() == before
    assert "TransactWriteItems" not in ann.line.operations


class TestABlindUpdate:
    def test_a_blind_update_of_one_unit_does_not_conflict_with_that_of_another(
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

    def test_a_blind_update_fails_at_the_commit_if_its_condition_does_not_hold(
        self, books: Books, ann: Party, account: Key, other: Key
    ) -> None:
        unit = ann.begin()
        unit.update(ann.accounts, other, ADD, TEN)
        unit.update(ann.accounts, account, TAKE, {":n": 500}, condition="balance >= :n", blind=True)
        with pytest.raises(ConditionFailed) as refused:
            unit.commit()
        assert (refused.value.table, refused.value.key) == (ann.accounts.name, account)
        assert (books.balance(account), books.balance(other)) == (100, 50)

    def test_a_blind_update_cannot_be_left_behind_when_a_later_read_finds_that_its_condition_does_not_hold(
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

    def test_a_blind_update_makes_an_item_that_is_not_there(self, books: Books, ann: Party) -> None:
        key = some_account()
        with ann.begin() as unit:
            unit.update(ann.accounts, key, "SET balance = if_not_exists(balance, :n)", TEN, blind=True)
        assert books.item("accounts", key) == {**key, "balance": 10}

    def test_a_blind_update_may_only_remove(self, books: Books, ann: Party, account: Key) -> None:
        with ann.begin() as unit:
            unit.update(ann.accounts, account, "REMOVE balance", blind=True)
        assert books.raw("accounts", account) == {**account, VERSION: unit.id}

    def test_a_blind_update_conflicts_with_units_that_have_read_the_item(
        self, books: Books, ann: Party, ben: Party, account: Key
    ) -> None:
        unit = ann.begin()
        unit.update(ann.accounts, account, TAKE, TEN)
        with ben.begin() as counting:
            counting.update(ben.accounts, account, ADD, TEN, blind=True)
        with pytest.raises(UnitConflict):
            unit.commit()
        assert books.balance(account) == 110

    def test_a_blind_update_of_an_item_that_the_unit_has_read_is_none(
        self, books: Books, ann: Party, ben: Party, account: Key
    ) -> None:
        unit = ann.begin()
        unit.get(ann.accounts, account)
        assert unit.update(ann.accounts, account, ADD, TEN, blind=True) == {**account, "balance": 110}
        ben.changes(account, 1)
        with pytest.raises(UnitConflict):
            unit.commit()
        assert books.balance(account) == 1

    def test_a_blind_update_twice_counts_twice(self, books: Books, ann: Party, account: Key) -> None:
        with ann.begin() as unit:
            for _ in range(2):
                unit.update(ann.accounts, account, ADD, TEN, blind=True)
        assert books.balance(account) == 120


LOWER = [UNCOMMITTED, COMMITTED]


@pytest.mark.parametrize("level", LOWER, ids=lambda level: level.name)
def test_below_serializable_what_was_only_read_may_change_before_the_commit(
    books: Books, ann: Party, ben: Party, account: Key, other: Key, level: Isolation
) -> None:
    with ann.begin(isolation=level) as unit:
        unit.get(ann.accounts, account)
        unit.update(ann.accounts, other, ADD, TEN)
        ben.changes(account, 1)
    assert books.balance(other) == 60


@pytest.mark.parametrize("level", LOWER, ids=lambda level: level.name)
def test_below_serializable_what_it_writes_is_as_it_was_read_all_the_same(
    books: Books, ann: Party, ben: Party, account: Key, level: Isolation
) -> None:
    unit = ann.begin(isolation=level)
    unit.update(ann.accounts, account, ADD, TEN)
    ben.changes(account, 1)
    with pytest.raises(UnitConflict):
        unit.commit()
    assert books.balance(account) == 1


@pytest.mark.parametrize("level", LOWER, ids=lambda level: level.name)
@pytest.mark.parametrize("way", ["native", "marked"])
def test_below_serializable_what_it_writes_is_as_an_earlier_read_saw_it(
    books: Books, ann: Party, ben: Party, account: Key, level: Isolation, way: str
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


@pytest.mark.parametrize("level", LOWER, ids=lambda level: level.name)
def test_below_serializable_what_it_makes_is_still_not_there(books: Books, ann: Party, level: Isolation) -> None:
    key = some_account()
    unit = ann.begin(isolation=level)
    assert unit.get(ann.accounts, key) is None
    books.write("accounts", {**key, "balance": 500})
    with pytest.raises(UnitConflict):
        unit.put(ann.accounts, {**key, "balance": 1})
    assert books.balance(key) == 500


@pytest.mark.parametrize("level", LOWER, ids=lambda level: level.name)
@pytest.mark.parametrize("again", [None, SERIALIZABLE], ids=["at the same level", "at SERIALIZABLE"])
def test_below_serializable_what_it_writes_may_be_read_anew_before(
    books: Books, ann: Party, ben: Party, account: Key, level: Isolation, again: Isolation | None
) -> None:
    with ann.begin(isolation=level) as unit:
        unit.get(ann.accounts, account)
        ben.changes(account, 500)
        seen = unit.get(ann.accounts, account, isolation=again)
        assert seen is not None
        unit.put(ann.accounts, {**account, "balance": seen["balance"] + 1})
    assert books.balance(account) == 501


@pytest.mark.parametrize("level", LOWER, ids=lambda level: level.name)
@pytest.mark.parametrize("blind", [False, True])
def test_below_serializable_its_own_writes_are_read(ann: Party, account: Key, level: Isolation, blind: bool) -> None:
    with ann.begin(isolation=level) as unit:
        unit.update(ann.accounts, account, ADD, TEN, blind=blind)
        assert unit.get(ann.accounts, account) == {**account, "balance": 110}


@pytest.mark.parametrize("level", LOWER, ids=lambda level: level.name)
def test_below_serializable_one_key_may_be_asked_for_twice(ann: Party, account: Key, level: Isolation) -> None:
    found = ann.units.get_all([(ann.accounts, account)] * 2, isolation=level)
    assert found == [{**account, "balance": 100}] * 2


@pytest.mark.parametrize("level", LOWER, ids=lambda level: level.name)
def test_below_serializable_nothing_of_a_pending_unit_is_seen(
    ann: Party, ben: Party, account: Key, level: Isolation
) -> None:
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


def moves_ten(party: Party, giver: Key, taker: Key) -> None:
    """One unit that keeps the sum of both."""
    with party.begin() as unit:
        unit.update(party.accounts, giver, "SET balance = balance - :n", TEN)
        unit.update(party.accounts, taker, ADD, TEN)


def both(party: Party, account: Key, other: Key) -> list[tuple[Any, Key]]:
    return [(party.accounts, account), (party.accounts, other)]


@pytest.mark.parametrize("level", [SERIALIZABLE, COMMITTED], ids=lambda level: level.name)
def test_items_that_were_read_before_are_of_the_same_instant_as_the_others_of_one_get_all(
    ann: Party, ben: Party, account: Key, other: Key, level: Isolation
) -> None:
    unit = ann.begin()
    unit.get(ann.accounts, account)
    moves_ten(ben, account, other)
    if level is COMMITTED:
        found = unit.get_all(both(ann, account, other), isolation=level)
        assert [each and each["balance"] for each in found] == [90, 60]
        return
    with pytest.raises(UnitConflict) as conflict:
        unit.get_all(both(ann, account, other), isolation=level)
    assert conflict.value.keys == ((ann.accounts.name, account),)
    with pytest.raises(UnitFinished, match="rolled back"):
        unit.commit()


def test_items_that_were_each_read_by_itself_are_of_one_instant_in_one_get_all(
    ann: Party, ben: Party, account: Key, other: Key
) -> None:
    unit = ann.begin()
    unit.get(ann.accounts, account)
    moves_ten(ben, account, other)
    unit.get(ann.accounts, other)
    with pytest.raises(UnitConflict):
        unit.get_all(both(ann, account, other))


@pytest.mark.parametrize("level", [SERIALIZABLE, COMMITTED], ids=lambda level: level.name)
def test_an_item_that_the_unit_has_written_is_of_the_same_instant_as_the_others_of_one_get_all(
    ann: Party, ben: Party, account: Key, other: Key, level: Isolation
) -> None:
    unit = ann.begin()
    unit.update(ann.accounts, account, ADD, TEN)
    moves_ten(ben, account, other)
    with pytest.raises(UnitConflict):
        unit.get_all(both(ann, account, other), isolation=level)


def test_items_that_were_read_before_are_of_one_instant_through_the_low_level_client_too(
    ann: Party, ben: Party, account: Key, other: Key
) -> None:
    unit = ann.begin()
    unit.get(ann.accounts, account)
    moves_ten(ben, account, other)
    gets = [{"Get": {"TableName": ann.accounts.name, "Key": {"id": {"S": key["id"]}}}} for key in (account, other)]
    with pytest.raises(UnitConflict):
        unit.client.transact_get_items(TransactItems=gets)


def test_items_that_were_read_before_are_not_read_again_if_one_read_has_returned_all(
    ann: Party, account: Key, other: Key
) -> None:
    with ann.begin() as unit:
        for _ in range(2):
            unit.get_all(both(ann, account, other))
    assert ann.line.operations == ["TransactGetItems"]


def test_items_that_were_read_before_that_are_unchanged_are_read_once_more_and_need_no_check_at_the_end(
    ann: Party, account: Key, other: Key
) -> None:
    with ann.begin() as unit:
        unit.get(ann.accounts, account)
        found = unit.get_all(both(ann, account, other))
    assert [each and each["balance"] for each in found] == [100, 50]
    assert ann.line.operations == ["GetItem", "TransactGetItems"]


def test_items_that_were_read_before_come_with_the_units_own_writes(
    books: Books, ann: Party, account: Key, other: Key
) -> None:
    with ann.begin() as unit:
        unit.update(ann.accounts, account, ADD, TEN)
        for level in (SERIALIZABLE, COMMITTED, UNCOMMITTED):
            found = unit.get_all(both(ann, account, other), isolation=level)
            assert [each and each["balance"] for each in found] == [110, 50]
    assert books.balance(account) == 110


@THREADS_ONLY
def test_items_that_were_read_before_under_a_read_lock_that_was_taken_away_are_not_returned(
    ann: Party, ben: Party, account: Key, other: Key
) -> None:
    unit = ann.begin(isolation=READ_LOCK)
    unit.get(ann.accounts, account)

    def meanwhile() -> None:
        # Its keys are in its record, and it is about to read the second item.
        ben.units.rollback(unit.id)
        moves_ten(ben, account, other)

    ann.line.between["GetItem"] = meanwhile
    with pytest.raises(UnitRolledBack):
        unit.get_all(both(ann, account, other))


@pytest.mark.parametrize("level", [COMMITTED, UNCOMMITTED], ids=lambda level: level.name)
@pytest.mark.parametrize("own", [SERIALIZABLE, COMMITTED], ids=lambda level: f"unit at {level.name}")
def test_a_flag_that_the_unit_has_read_before_is_seen_to_change(
    ann: Party, ben: Party, account: Key, level: Isolation, own: Isolation
) -> None:
    unit = ann.begin(isolation=own)
    unit.get(ann.accounts, account, isolation=SERIALIZABLE)
    ben.changes(account, 1)
    assert unit.get(ann.accounts, account, isolation=level) == {**account, "balance": 1}


def test_a_query_below_serializable_sees_an_item_change_that_its_unit_has_read_before(
    books: Books, ann: Party, ben: Party
) -> None:
    line = some_line()
    books.write("lines", {**line, "amount": 1, VERSION: new_version()})
    unit = ann.begin()
    unit.get(ann.lines, line)
    with ben.begin() as bens:
        bens.update(ben.lines, line, "SET amount = :n", {":n": 2})
    (found,) = unit.query(ann.lines, KeyOf("pk").eq(line["pk"]), isolation=COMMITTED)
    assert found["amount"] == 2


def test_what_a_unit_writes_after_it_has_seen_a_change_conflicts_at_once(ann: Party, ben: Party, account: Key) -> None:
    unit = ann.begin()
    unit.get(ann.accounts, account)
    ben.changes(account, 1)
    unit.get(ann.accounts, account, isolation=COMMITTED)
    with pytest.raises(UnitConflict):
        unit.put(ann.accounts, {**account, "balance": 2})


@pytest.mark.parametrize("own", [SERIALIZABLE, COMMITTED], ids=lambda level: level.name)
def test_a_check_in_a_unit_that_only_reads_holds_at_the_commit(
    ann: Party, ben: Party, account: Key, own: Isolation
) -> None:
    unit = ann.begin(isolation=own)
    unit.check(ann.accounts, account, "balance >= :n", TEN)
    ben.changes(account, 1)
    with pytest.raises(UnitConflict) as conflict:
        unit.commit()
    assert conflict.value.keys == ((ann.accounts.name, account),)


def test_a_check_costs_one_transaction_that_only_reads(ann: Party, account: Key) -> None:
    with ann.begin() as unit:
        unit.check(ann.accounts, account, "balance >= :n", TEN)
    # A plain read might still see the item as it was before a transaction that is decided.
    assert ann.line.operations == ["GetItem", "TransactGetItems"]


@THREADS_ONLY
@pytest.mark.parametrize("units_engine", first_on("memory", roomy_engine_names()), indirect=True)
def test_more_items_than_one_request_reads_are_of_one_instant_outside_of_units(
    books: Books, ann: Party, ben: Party, account: Key, other: Key
) -> None:
    wanted = [(ann.accounts, account), *((ann.accounts, some_account()) for _ in range(100)), (ann.accounts, other)]
    ann.line.between["TransactGetItems"] = lambda: ann.line.between.update(
        TransactGetItems=lambda: moves_ten(ben, account, other)
    )
    # After the first hundred, before the rest.
    with pytest.raises(UnitConflict):
        ann.units.get_all(wanted, isolation=SERIALIZABLE)
    assert (books.balance(account), books.balance(other)) == (90, 60)
