"""A unit commits only if what it has read is unchanged, at its level; nothing else prevents it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key as KeyOf
from kit.units import VERSION, Books, Key, Party, dumped, new_version, some_account, some_line

from ticketlock.errors import ConditionFailed, UnitConflict, UnitFinished
from ticketlock.units import COMMITTED, SERIALIZABLE, UNCOMMITTED, Isolation, Unit, UnitTable

pytestmark = pytest.mark.shows("strict serialisability", "unchanged items", "committed reads", "no dirty read")

LEVELS = (UNCOMMITTED, COMMITTED, SERIALIZABLE)
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


def adds_blindly(party: Party, key: Key) -> None:
    with party.begin() as unit:
        unit.update(party.accounts, key, ADD, TEN, blind=True)


def deletes_plainly(books: Books, key: Key) -> None:
    books.plain_client.delete_item(TableName=books.tables["accounts"], Key=dumped(key))


# Who changes it meanwhile, and whether a unit has written it before.
CHANGES: dict[str, tuple[bool, Callable[[Books, Party, Key], object]]] = {
    "another unit": (True, lambda _, ben, key: ben.changes(key, 55)),
    "the first unit": (False, lambda _, ben, key: ben.changes(key, 55)),
    "a blind update": (True, lambda _, ben, key: adds_blindly(ben, key)),
    "a plain writer": (True, lambda books, _, key: books.write("accounts", {**key, "n": 5, VERSION: new_version()})),
    "a plain delete": (True, lambda books, _, key: deletes_plainly(books, key)),
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


@pytest.mark.parametrize("rests_on_it", ["reads it", "reads it in a cut", "puts it", "deletes it"])
@pytest.mark.parametrize("by", ["another unit", "a plain writer"])
def test_a_unit_that_has_found_no_item_is_refused_if_the_item_is_made_before_it_commits(
    books: Books, ann: Party, ben: Party, account: Key, by: str, rests_on_it: str
) -> None:
    key, unit = some_account(), ann.begin()
    RESTS_ON_IT[rests_on_it](ann, unit, key)
    unit.update(ann.accounts, account, TAKE, TEN)
    if by == "another unit":
        ben.changes(key, 55)
    else:
        books.write("accounts", {**key, "balance": 55})
    with pytest.raises(UnitConflict):
        unit.commit()
    assert (books.balance(key), books.balance(account)) == (55, 100)


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
    books: Books, ann: Party, ben: Party, other: Key
) -> None:
    """Also if no unit has written what it writes."""
    key = books.plain_account()
    with ann.begin() as unit:
        unit.update(ann.accounts, key, TAKE, TEN)
        ben.changes(other, 1)
    assert (books.balance(key), books.version(key), books.balance(other)) == (90, unit.id, 1)


def test_write_skew_is_refused(books: Books, ann: Party, ben: Party, account: Key, other: Key) -> None:
    """Each reads both and writes one: together they would violate what each has checked."""
    first, second = ann.begin(), ben.begin()
    for unit, party, key in ((first, ann, account), (second, ben, other)):
        assert balances(unit.get_all(both(party, account, other))) == [100, 50]
        unit.update(party.accounts, key, "SET balance = :none", {":none": 0})
    first.commit()
    with pytest.raises(UnitConflict):
        second.commit()
    assert (books.balance(account), books.balance(other)) == (0, 50)


def both(party: Party, account: Key, other: Key) -> list[tuple[UnitTable, Key]]:
    return [(party.accounts, account), (party.accounts, other)]


def balances(found: Sequence[Mapping[str, Any] | None]) -> list[Any]:
    return [item and item["balance"] for item in found]


def test_a_unit_that_has_read_one_item_or_several_of_one_instant_sends_nothing_at_its_commit(
    ann: Party, ben: Party, account: Key, other: Key
) -> None:
    single, together = ann.begin(), ann.begin()
    single.get(ann.accounts, account)
    together.get_all(both(ann, account, other))
    ben.changes(account, 1)
    assert ann.sends(single.commit) == ann.sends(together.commit) == []


def test_a_unit_that_only_reads_two_items_one_by_one_makes_sure_of_them_in_one_request(
    ann: Party, account: Key, other: Key
) -> None:
    unit = ann.begin()
    unit.get(ann.accounts, account)
    unit.get(ann.accounts, other)
    assert ann.sends(unit.commit) == ["TransactGetItems"]


@pytest.mark.parametrize("by", ["a unit", "a plain writer"])
def test_a_unit_that_only_reads_two_items_one_by_one_notices_that_one_has_changed_since(
    books: Books, ann: Party, ben: Party, other: Key, by: str
) -> None:
    key = books.account() if by == "a unit" else books.plain_account()
    unit = ann.begin()
    unit.get(ann.accounts, key)
    if by == "a unit":
        ben.changes(key, 1)
    else:
        # It writes no version.
        books.write("accounts", {**key, "balance": 1})
    unit.get(ann.accounts, other)
    with pytest.raises(UnitConflict) as conflict:
        unit.commit()
    assert conflict.value.keys == ((ann.accounts.name, key),)


# Blind updates.


def test_blind_updates_of_two_units_read_nothing_and_do_not_conflict(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    first, second = ann.begin(), ben.begin()
    assert first.update(ann.accounts, account, ADD, TEN, blind=True) is None
    assert second.update(ben.accounts, account, ADD, TEN, blind=True) is None
    assert ann.line.sent == ben.line.sent == []
    first.commit()
    second.commit()
    assert (books.balance(account), books.version(account)) == (120, second.id)


def test_two_blind_updates_of_one_unit_count_twice(books: Books, ann: Party, account: Key) -> None:
    with ann.begin() as unit:
        for _ in range(2):
            unit.update(ann.accounts, account, ADD, TEN, blind=True)
    assert books.balance(account) == 120


@pytest.mark.parametrize("is_read_later", [False, True], ids=["at the commit", "at a later read, and at the commit"])
def test_a_blind_update_whose_condition_does_not_hold_fails_and_cannot_be_left_behind(
    books: Books, ann: Party, account: Key, other: Key, is_read_later: bool
) -> None:
    unit = ann.begin()
    unit.update(ann.accounts, other, ADD, {":n": 500})
    unit.update(ann.accounts, account, TAKE, {":n": 500}, condition="balance >= :n", blind=True)
    if is_read_later:
        with pytest.raises(ConditionFailed):
            unit.get(ann.accounts, account)
    with pytest.raises(ConditionFailed) as refused:
        unit.commit()
    assert (refused.value.table, refused.value.key) == (ann.accounts.name, account)
    assert refused.value.item == {**account, "balance": 100}
    assert "'balance >= 500'" in str(refused.value)
    assert (books.balance(account), books.balance(other)) == (100, 50)


def test_a_blind_update_makes_an_item_that_is_not_there(books: Books, ann: Party) -> None:
    key = some_account()
    with ann.begin() as unit:
        unit.update(ann.accounts, key, "SET balance = if_not_exists(balance, :n)", TEN, blind=True)
    assert books.item("accounts", key) == {**key, "balance": 10}


def test_a_blind_update_of_an_item_that_the_unit_has_read_is_not_blind(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    unit = ann.begin()
    unit.get(ann.accounts, account)
    unit.update(ann.accounts, account, ADD, TEN, blind=True)
    assert unit.get(ann.accounts, account) == {**account, "balance": 110}
    ben.changes(account, 1)
    with pytest.raises(UnitConflict):
        unit.commit()
    assert books.balance(account) == 1


# Levels.

LOWER_LEVELS = pytest.mark.parametrize("level", [UNCOMMITTED, COMMITTED], ids=repr)


@LOWER_LEVELS
def test_below_serializable_what_was_only_read_may_change_before_the_commit(
    books: Books, ann: Party, ben: Party, account: Key, other: Key, level: Isolation
) -> None:
    with ann.begin(isolation=level) as unit:
        unit.get(ann.accounts, account)
        unit.update(ann.accounts, other, ADD, TEN)
        ben.changes(account, 1)
    assert books.balance(other) == 60


@LOWER_LEVELS
def test_below_serializable_what_a_unit_writes_conflicts_if_it_has_changed_since(
    books: Books, ann: Party, ben: Party, account: Key, level: Isolation
) -> None:
    unit = ann.begin(isolation=level)
    unit.update(ann.accounts, account, ADD, TEN)
    ben.changes(account, 1)
    with pytest.raises(UnitConflict):
        unit.commit()
    assert books.balance(account) == 1


@LOWER_LEVELS
@pytest.mark.parametrize("way", ["native", "marked"])
@pytest.mark.parametrize("is_there", [True, False], ids=["there", "not there"])
def test_below_serializable_a_put_conflicts_at_once_if_the_item_has_changed_since_an_earlier_read(
    books: Books, ann: Party, ben: Party, level: Isolation, way: str, is_there: bool
) -> None:
    key = books.account() if is_there else some_account()
    unit = ann.begin(isolation=level, engine=way)
    assert unit.get(ann.accounts, key) == ({**key, "balance": 100} if is_there else None)
    with ben.begin() as bens:
        bens.put(ben.accounts, {**key, "balance": 500})
    with pytest.raises(UnitConflict) as refused:
        unit.put(ann.accounts, {**key, "balance": 101})
    assert refused.value.keys == ((books.tables["accounts"], key),)
    with pytest.raises(UnitFinished, match="rolled back"):
        unit.commit()
    assert books.balance(key) == 500


@LOWER_LEVELS
@pytest.mark.parametrize("again", [None, SERIALIZABLE], ids=["at the same level", "at SERIALIZABLE"])
def test_below_serializable_a_unit_writes_an_item_that_has_changed_if_it_reads_the_item_anew(
    books: Books, ann: Party, ben: Party, account: Key, level: Isolation, again: Isolation | None
) -> None:
    with ann.begin(isolation=level) as unit:
        unit.get(ann.accounts, account)
        ben.changes(account, 500)
        seen = unit.get(ann.accounts, account, isolation=again)
        assert seen is not None
        unit.put(ann.accounts, {**account, "balance": seen["balance"] + 1})
    assert books.balance(account) == 501


@LOWER_LEVELS
@pytest.mark.parametrize("blind", [False, True])
def test_below_serializable_its_own_writes_are_read(ann: Party, account: Key, level: Isolation, blind: bool) -> None:
    with ann.begin(isolation=level) as unit:
        unit.update(ann.accounts, account, ADD, TEN, blind=blind)
        assert unit.get(ann.accounts, account) == {**account, "balance": 110}


@pytest.mark.parametrize(
    ("own", "level", "seen"),
    [
        (SERIALIZABLE, SERIALIZABLE, 100),
        *((own, level, 1) for own in (SERIALIZABLE, COMMITTED) for level in (COMMITTED, UNCOMMITTED)),
    ],
    ids=repr,
)
def test_an_item_is_seen_to_change_by_a_read_below_serializable_alone(
    ann: Party, ben: Party, account: Key, own: Isolation, level: Isolation, seen: int
) -> None:
    unit = ann.begin(isolation=own)
    unit.get(ann.accounts, account, isolation=SERIALIZABLE)
    ben.changes(account, 1)
    assert unit.get(ann.accounts, account, isolation=level) == {**account, "balance": seen}


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


def test_a_block_in_which_the_conflict_of_its_commit_was_caught_does_not_end_as_if_it_were_committed(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    def work() -> None:
        with ann.begin() as unit:
            unit.update(ann.accounts, account, ADD, TEN)
            ben.changes(account, 55)
            with pytest.raises(UnitConflict):
                unit.commit()

    with pytest.raises(UnitFinished, match=r"a conflict.* was caught in the block: catch it around the block"):
        work()
    assert books.balance(account) == 55


def test_statements_before_a_condition_that_was_caught_are_committed_unless_the_unit_is_rolled_back(
    books: Books, ann: Party, account: Key, other: Key
) -> None:
    for is_rolled_back, balance in ((True, 50), (False, 60)):
        with ann.begin() as unit:
            unit.update(ann.accounts, other, ADD, TEN)
            with pytest.raises(ConditionFailed):
                unit.update(ann.accounts, account, TAKE, {":n": 500}, condition="balance >= :n")
            if is_rolled_back:
                unit.rollback()
        assert (books.balance(account), books.balance(other)) == (100, balance)


@pytest.mark.parametrize(("own", "level"), [(SERIALIZABLE, COMMITTED), (COMMITTED, SERIALIZABLE)], ids=repr)
def test_the_level_of_a_read_and_not_that_of_its_unit_decides_whether_a_change_conflicts(
    books: Books, ann: Party, ben: Party, account: Key, other: Key, own: Isolation, level: Isolation
) -> None:
    unit = ann.begin(isolation=own)
    unit.get(ann.accounts, account, isolation=level)
    unit.update(ann.accounts, other, ADD, TEN)
    ben.changes(account, 1)
    with pytest.raises(UnitConflict) if level is SERIALIZABLE else nullcontext():
        unit.commit()
    assert books.balance(other) == (50 if level is SERIALIZABLE else 60)


@pytest.mark.parametrize("own", [SERIALIZABLE, COMMITTED], ids=repr)
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


@pytest.mark.parametrize(
    ("level", "consistent"), [(UNCOMMITTED, False), (COMMITTED, True), (SERIALIZABLE, True)], ids=repr
)
def test_only_an_uncommitted_read_is_eventually_consistent_and_costs_half(
    ann: Party, account: Key, level: Isolation, consistent: bool
) -> None:
    ann.units.get(ann.accounts, account, isolation=level)
    (sent,) = ann.line.sent
    assert (sent.operation, sent.parameters["ConsistentRead"]) == ("GetItem", consistent)


# Cuts: items of one instant.


@pytest.mark.parametrize("level", LEVELS, ids=repr)
def test_a_cut_may_have_one_key_twice(ann: Party, account: Key, other: Key, level: Isolation) -> None:
    with ann.begin() as unit:
        found = unit.get_all([*both(ann, account, other), (ann.accounts, account)], isolation=level)
    assert balances(found) == [100, 50, 100]


@pytest.mark.parametrize("level", [COMMITTED, SERIALIZABLE], ids=repr)
def test_a_cut_is_one_request(ann: Party, account: Key, other: Key, level: Isolation) -> None:
    wanted = [*both(ann, account, other), (ann.accounts, some_account())]
    assert ann.units.get_all(wanted, isolation=level)[2] is None
    assert ann.line.operations == ["TransactGetItems"]


def moves_ten(party: Party, giver: Key, taker: Key) -> None:
    """One unit that keeps the sum of both."""
    with party.begin() as unit:
        unit.update(party.accounts, giver, TAKE, TEN)
        unit.update(party.accounts, taker, ADD, TEN)


def gets_low_level(unit: Unit, table: str, keys: list[Key]) -> Any:
    gets = [{"Get": {"TableName": table, "Key": dumped(key)}} for key in keys]
    return unit.client.transact_get_items(TransactItems=gets)


CUTS: dict[str, Callable[[Party, Unit, Key, Key], Any]] = {
    "get_all": lambda ann, unit, account, other: unit.get_all(both(ann, account, other)),
    "get_all at COMMITTED": lambda ann, unit, account, other: unit.get_all(
        both(ann, account, other), isolation=COMMITTED
    ),
    "the low-level API": lambda ann, unit, account, other: gets_low_level(unit, ann.accounts.name, [account, other]),
}


# What the unit has done with one item before, whether it reads the other one since, and how it asks for both.
@pytest.mark.parametrize(
    ("before", "reads_the_other", "cut"),
    [
        ("reads it", False, "get_all"),
        ("reads it", False, "the low-level API"),
        ("reads it", True, "get_all"),
        ("updates it", False, "get_all"),
        ("updates it", False, "get_all at COMMITTED"),
    ],
)
def test_what_the_unit_has_read_or_written_is_of_the_same_instant_as_the_others_of_a_cut(
    ann: Party, ben: Party, account: Key, other: Key, before: str, reads_the_other: bool, cut: str
) -> None:
    unit = ann.begin()
    RESTS_ON_IT[before](ann, unit, account)
    moves_ten(ben, account, other)
    if reads_the_other:
        unit.get(ann.accounts, other)
    with pytest.raises(UnitConflict) as conflict:
        CUTS[cut](ann, unit, account, other)
    assert conflict.value.keys == ((ann.accounts.name, account),)
    with pytest.raises(UnitFinished, match="rolled back"):
        unit.commit()


def test_a_cut_at_committed_shows_what_has_changed_since_the_unit_has_read_it(
    ann: Party, ben: Party, account: Key, other: Key
) -> None:
    unit = ann.begin()
    unit.get(ann.accounts, account)
    moves_ten(ben, account, other)
    found = CUTS["get_all at COMMITTED"](ann, unit, account, other)
    assert balances(found) == [90, 60]


def test_a_cut_is_not_read_again_if_one_read_has_returned_all(ann: Party, account: Key, other: Key) -> None:
    with ann.begin() as unit:
        for _ in range(2):
            unit.get_all(both(ann, account, other))
    assert ann.line.operations == ["TransactGetItems"]


def test_a_cut_with_an_unchanged_item_that_was_read_before_reads_it_once_more_and_needs_no_check_at_the_end(
    ann: Party, account: Key, other: Key
) -> None:
    with ann.begin() as unit:
        unit.get(ann.accounts, account)
        found = unit.get_all(both(ann, account, other))
    assert balances(found) == [100, 50]
    assert ann.line.operations == ["GetItem", "TransactGetItems"]


@pytest.mark.parametrize("level", LEVELS, ids=repr)
def test_a_cut_comes_with_the_units_own_writes(ann: Party, account: Key, other: Key, level: Isolation) -> None:
    with ann.begin() as unit:
        unit.update(ann.accounts, account, ADD, TEN)
        found = unit.get_all(both(ann, account, other), isolation=level)
    assert balances(found) == [110, 50]
