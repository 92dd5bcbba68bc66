"""Reads of more items than one transaction holds: they are of one instant, or refused, and write nothing."""

from collections.abc import Callable

import pytest
from kit.engines import engine_names_but_moto, first_on
from kit.units import THREADS_ONLY, Books, Key, Party, UnitsWorld, some_account, some_line

from ticketlock.errors import UnitConflict, UnitContended, UnitTooLarge
from ticketlock.units import SERIALIZABLE, Unit
from ticketlock.units._statements._snapshots import MOST_TRIES

pytestmark = [pytest.mark.shows("strict serialisability", "cost of units"), THREADS_ONLY]

IN_HUNDREDS = pytest.mark.parametrize(
    "units_engine", first_on("memory", engine_names_but_moto()), indirect=True, scope="module"
)
MOST = 100


def accounts_of(books: Books, count: int) -> list[Key]:
    return [books.account() for _ in range(count)]


def everything_of(party: Party, keys: list[Key]) -> Callable[[], object]:
    """Reads all of them outside of units."""
    return lambda: party.units.get_all([(party.accounts, key) for key in keys], isolation=SERIALIZABLE)


def reads(party: Party, keys: list[Key]) -> Unit:
    """A unit that has read all of them."""
    unit = party.begin()
    unit.get_all([(party.accounts, key) for key in keys])
    return unit


@IN_HUNDREDS
@pytest.mark.parametrize(("count", "transactions"), [(99, 0), (100, 0), (101, 2), (250, 3)])
def test_a_unit_that_only_reads_reads_more_than_a_hundred_items_once_more_at_its_commit(
    books: Books, ann: Party, count: int, transactions: int
) -> None:
    unit, before = reads(ann, accounts_of(books, count)), books.everything()
    assert ann.sends(unit.commit) == ["TransactGetItems"] * transactions
    assert books.everything() == before


@IN_HUNDREDS
@pytest.mark.parametrize(
    ("count", "sent"),
    [
        (100, ["TransactGetItems"]),
        (101, ["BatchGetItem", "GetItem"] + ["TransactGetItems"] * 2),
        (250, ["BatchGetItem"] * 3 + ["TransactGetItems"] * 3),
    ],
)
def test_outside_of_units_up_to_a_hundred_items_are_read_in_a_transaction_and_more_are_read_twice(
    books: Books, ann: Party, count: int, sent: list[str]
) -> None:
    assert ann.sends(everything_of(ann, accounts_of(books, count))) == sent


@IN_HUNDREDS
def test_items_of_more_bytes_than_a_transaction_has_are_read_again_in_several(books: Books, ann: Party) -> None:
    keys = [books.account(text="a" * 390_000) for _ in range(11)]
    unit = ann.begin()
    unit.prefetch([(ann.accounts, key) for key in keys])
    for key in keys:
        unit.get(ann.accounts, key)
    assert ann.sends(unit.commit) == ["TransactGetItems"] * 2


@IN_HUNDREDS
def test_a_unit_that_only_reads_conflicts_with_a_change_of_any_of_its_items(
    books: Books, ann: Party, ben: Party
) -> None:
    *_, last = keys = accounts_of(books, MOST + 1)
    unit = reads(ann, keys)
    ben.changes(last, 1)
    with pytest.raises(UnitConflict) as failure:
        unit.commit()
    assert [key for _, key in failure.value.keys] == [last]


@IN_HUNDREDS
def test_outside_of_units_items_that_have_changed_between_two_reads_are_read_again(
    books: Books, ann: Party, ben: Party
) -> None:
    first, *_, last = keys = accounts_of(books, MOST + 1)

    def change_both() -> None:
        with ben.begin() as unit:
            unit.update_all(ben.accounts, [first, last], "SET balance = :n", {":n": 0})

    ann.line.between["GetItem"] = change_both
    found = ann.units.get_all([(ann.accounts, key) for key in keys], isolation=SERIALIZABLE)
    assert [item and item["balance"] for item in found] == [0, *[100] * (MOST - 1), 0]


@IN_HUNDREDS
def test_outside_of_units_items_that_change_at_every_try_are_contended(books: Books, ann: Party, ben: Party) -> None:
    *_, last = keys = accounts_of(books, MOST + 1)

    def change_it_each_time() -> None:
        ben.changes(last, 1)
        ann.line.between["TransactGetItems"] = change_it_each_time

    ann.line.between["TransactGetItems"] = change_it_each_time
    with pytest.raises(UnitContended, match="10 tries"):
        everything_of(ann, keys)()
    assert ann.line.operations.count("BatchGetItem") == MOST_TRIES


@IN_HUNDREDS
def test_a_query_outside_of_units_reads_again_what_has_changed(books: Books, ann: Party, ben: Party) -> None:
    lines = [some_line(number) for number in (1, 2)]
    for line in lines:
        line["pk"] = lines[0]["pk"]
        books.write("lines", {**line, "text": "old"})

    def change_one() -> None:
        with ben.begin() as unit:
            unit.update(ben.lines, lines[0], "SET #text = :new", {":new": "new"}, {"#text": "text"})

    ann.line.between["TransactGetItems"] = change_one
    found = ann.units.query(ann.lines, "pk = :pk", values={":pk": lines[0]["pk"]}, isolation=SERIALIZABLE)
    assert [item["text"] for item in found] == ["new", "old"]


@IN_HUNDREDS
@pytest.mark.parametrize(("absent", "is_refused"), [(99, False), (100, False), (101, True)])
def test_a_hundred_items_may_be_absent_outside_of_units(
    books: Books, ann: Party, absent: int, is_refused: bool
) -> None:
    keys = [*accounts_of(books, 2), *(some_account() for _ in range(absent))]
    if is_refused:
        with pytest.raises(UnitTooLarge, match="do not exist"):
            everything_of(ann, keys)()
    else:
        assert ann.sends(everything_of(ann, keys))[-1] == "TransactGetItems"
    assert not {"PutItem", "UpdateItem", "TransactWriteItems"} & set(ann.line.operations)


@IN_HUNDREDS
@pytest.mark.parametrize(("absent", "is_marked"), [(100, False), (101, True)])
def test_a_unit_that_only_reads_marks_more_than_a_hundred_absent_items(
    books: Books, ann: Party, absent: int, is_marked: bool
) -> None:
    keys = [*accounts_of(books, 2), *(some_account() for _ in range(absent))]
    assert ("TransactWriteItems" in ann.sends(reads(ann, keys).commit)) is is_marked
    assert books.balances(keys) == [100, 100, *[None] * absent]


@IN_HUNDREDS
def test_the_new_values_of_a_unit_that_was_killed_after_its_decision_are_read(
    books: Books, ann: Party, units_world: UnitsWorld
) -> None:
    keys = accounts_of(books, MOST + 1)
    units_world.killed([keys[0], keys[-1]], is_committed=True)
    found = ann.units.get_all([(ann.accounts, key) for key in keys], isolation=SERIALIZABLE)
    assert [item and item["balance"] for item in found] == books.balances(keys)
    assert books.balances(keys)[:2] != [100, 100]
