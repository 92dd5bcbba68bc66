"""Statements on many items in one call, and reads ahead of statements: what they read, return, refuse and check."""

from collections.abc import Callable
from typing import Any

import pytest
from kit.engines import engine_names_but_moto, first_on
from kit.units import MARK, Books, Key, Party, UnitsWorld, some_account, some_name

from ticketlock.errors import ConditionFailed, InvalidUnitRequest, ItemTooLarge, UnitConflict
from ticketlock.units import READ_LOCK, Unit

pytestmark = pytest.mark.shows("cost of units", "DynamoDB's statements", "unchanged items", "bad input")

IN_HUNDREDS = pytest.mark.parametrize(
    "units_engine", first_on("memory", engine_names_but_moto()), indirect=True, scope="module"
)
ADD, TEN = "SET balance = balance + :n", {":n": 10}

READING: dict[str, Callable[[Unit, Party, list[Key]], object]] = {
    "put_all": lambda unit, ann, keys: unit.put_all(ann.accounts, ({**key, "balance": 1} for key in keys)),
    "update_all": lambda unit, ann, keys: unit.update_all(ann.accounts, keys, "SET balance = :n", TEN),
    "put_all of pairs": lambda unit, ann, keys: unit.put_all((ann.accounts, {**key, "balance": 1}) for key in keys),
    "delete_all": lambda unit, ann, keys: unit.delete_all(ann.accounts, keys),
    "delete_all of pairs": lambda unit, ann, keys: unit.delete_all([(ann.accounts, key) for key in keys]),
    "prefetch": lambda unit, ann, keys: unit.prefetch(ann.accounts, keys),
    "prefetch of pairs": lambda unit, ann, keys: unit.prefetch((ann.accounts, key) for key in keys),
}
ALL = pytest.mark.parametrize("states", READING.values(), ids=READING)
STATING = pytest.mark.parametrize("states", [READING[name] for name in READING if "prefetch" not in name])


@pytest.fixture
def two(account: Key, other: Key) -> list[Key]:
    """Accounts with 100 and 50."""
    return [account, other]


@IN_HUNDREDS
@pytest.mark.parametrize(("count", "batches", "single"), [(99, 1, 0), (100, 1, 0), (101, 1, 1), (250, 3, 0)])
@ALL
def test_a_call_reads_a_hundred_items_in_a_request(
    ann: Party, states: Callable[..., object], count: int, batches: int, single: int
) -> None:
    unit, keys = ann.begin(), [some_account() for _ in range(count)]
    sent = ann.sends(lambda: states(unit, ann, keys))
    assert sorted(sent) == ["BatchGetItem"] * batches + ["GetItem"] * single
    assert ann.sends(lambda: states(unit, ann, keys)) == []
    unit.rollback()


@IN_HUNDREDS
def test_an_import_of_250_items_is_one_unit(books: Books, ann: Party) -> None:
    keys = [some_account() for _ in range(250)]
    with ann.begin() as unit:
        unit.put_all(ann.accounts, [{**key, "balance": at} for at, key in enumerate(keys)])
    assert {books.version(key) for key in keys} == {unit.id}
    assert books.balances(keys) == list(range(250))


@ALL
def test_a_call_for_no_items_sends_nothing(ann: Party, states: Callable[..., object]) -> None:
    with ann.begin() as unit:
        assert not states(unit, ann, [])
    assert ann.line.operations == []


def test_statements_on_many_items_return_for_each_what_one_statement_returns(
    books: Books, ann: Party, two: list[Key]
) -> None:
    first, second = two
    new = some_account()
    with ann.begin() as unit:
        unit.update(ann.accounts, second, ADD, TEN, blind=True)
        assert unit.update_all(ann.accounts, two, ADD, TEN) == [{**first, "balance": 110}, {**second, "balance": 70}]
        assert unit.put_all(ann.accounts, [{**new, "balance": 1}, {**first, "balance": 2}]) == [
            None,
            {**first, "balance": 110},
        ]
        assert unit.delete_all(ann.accounts, [second, some_account()]) == [{**second, "balance": 70}, None]
    assert books.balances([first, second, new]) == [2, None, 1]


def test_statements_on_one_key_in_one_call_take_effect_in_their_order(books: Books, ann: Party, two: list[Key]) -> None:
    first, second = two
    with ann.begin() as unit:
        assert unit.put_all(ann.accounts, [{**first, "balance": 1}, {**first, "balance": 2}]) == [
            {**first, "balance": 100},
            {**first, "balance": 1},
        ]
        assert unit.update_all(ann.accounts, [second, second], ADD, TEN) == [
            {**second, "balance": 60},
            {**second, "balance": 70},
        ]
    assert books.balances(two) == [2, 70]


def test_if_the_condition_of_one_item_fails_none_is_in_the_unit_which_may_continue(
    books: Books, ann: Party, two: list[Key]
) -> None:
    first, second = two
    with ann.begin() as unit:
        with pytest.raises(ConditionFailed) as failure:
            unit.delete_all(ann.accounts, two, condition="balance > :n", values={":n": 60})
        assert (failure.value.at, failure.value.key) == (1, second)
        assert unit.get(ann.accounts, first) == {**first, "balance": 100}
        unit.update(ann.accounts, second, ADD, TEN)
    assert books.balances(two) == [100, 60]


def test_what_a_failed_condition_has_shown_is_checked_at_the_commit(
    books: Books, ann: Party, ben: Party, two: list[Key]
) -> None:
    (first, _), third = two, books.account()
    unit = ann.begin()
    with pytest.raises(ConditionFailed):
        unit.delete_all(ann.accounts, two, condition="balance > :n", values={":n": 60})
    unit.update(ann.accounts, third, ADD, TEN)
    ben.changes(first, 1)
    with pytest.raises(UnitConflict) as failure:
        unit.commit()
    assert [key for _, key in failure.value.keys] == [first]


@STATING
def test_a_bad_item_is_refused_by_its_position_before_any_is_read(
    ann: Party, account: Key, states: Callable[..., object]
) -> None:
    unit = ann.begin()
    with pytest.raises(InvalidUnitRequest) as failure:
        states(unit, ann, [account, some_account(), {"id": 5}])
    assert failure.value.field in ("items[2].id", "keys[2].id")
    assert ann.line.operations == []


def test_an_item_that_is_too_large_leaves_the_others_of_its_call_out_too(ann: Party, account: Key) -> None:
    large = {**some_account(), "text": "a" * 409_600}
    with ann.begin() as unit:
        with pytest.raises(ItemTooLarge, match=large["id"]):
            unit.put_all(ann.accounts, [{**account, "balance": 0}, large])
        assert unit.get(ann.accounts, account) == {**account, "balance": 100}


@pytest.mark.parametrize("given", [None, 5, "items", {"id": "a"}], ids=repr)
def test_something_else_than_a_list_is_refused(ann: Party, given: Any) -> None:
    unit = ann.begin()
    with pytest.raises(InvalidUnitRequest, match=r"items is .* allowed: a list of items"):
        unit.put_all(ann.accounts, given)
    with pytest.raises(InvalidUnitRequest, match=r"keys is .* allowed: a list of keys"):
        unit.delete_all(ann.accounts, given)


def test_the_commit_checks_only_those_items_read_ahead_that_the_unit_has_used(
    books: Books, ann: Party, ben: Party, two: list[Key]
) -> None:
    first, second = two
    unit = ann.begin()
    unit.prefetch([(ann.accounts, key) for key in two])
    assert ann.sends(lambda: unit.update(ann.accounts, first, ADD, TEN)) == []
    ben.changes(second, 1)
    unit.commit()
    assert books.balances(two) == [110, 1]


def test_an_item_read_ahead_that_has_changed_before_it_is_used_is_a_conflict(
    ann: Party, ben: Party, account: Key
) -> None:
    unit = ann.begin()
    unit.prefetch([(ann.accounts, account)])
    ben.changes(account, 1)
    assert unit.update(ann.accounts, account, ADD, TEN) == {**account, "balance": 110}
    with pytest.raises(UnitConflict):
        unit.commit()


def test_an_item_with_the_mark_of_a_unit_that_was_killed_after_its_decision_is_read_as_that_has_written_it(
    books: Books, ann: Party, units_world: UnitsWorld, two: list[Key]
) -> None:
    units_world.killed(two, is_committed=True)
    with ann.begin() as unit:
        found = unit.update_all(ann.accounts, two, ADD, TEN)
    assert books.balances(two) == [item and item["balance"] for item in found]
    assert books.marks(two) == 0


def test_a_unit_with_read_locks_marks_what_it_reads_ahead(books: Books, ann: Party, two: list[Key]) -> None:
    with ann.begin(isolation=READ_LOCK) as unit:
        unit.prefetch([(ann.accounts, key) for key in two])
        assert [MARK in (books.raw("accounts", key) or {}) for key in two] == [True, True]
        assert ann.sends(lambda: unit.update_all(ann.accounts, two, ADD, TEN)) == []
    assert books.balances(two) == [110, 60]


def test_a_repeated_unit_neither_reads_ahead_nor_states_anything(books: Books, ann: Party, two: list[Key]) -> None:
    name = some_name()
    with ann.begin(name=name):
        pass
    with ann.begin(name=name) as unit:
        assert ann.sends(lambda: unit.prefetch([(ann.accounts, key) for key in two])) == []
        assert unit.update_all(ann.accounts, two, ADD, TEN) == [{}, {}]
        assert unit.update(ann.accounts, two[0], ADD, TEN) == {}
    assert books.balances(two) == [100, 50]
