"""Sweeps: what they do and report, also in parallel, and if they are killed themselves."""

import random
import uuid
from collections.abc import Callable
from typing import Any
from zlib import compress

import pytest
from kit.crashes import crashes
from kit.engines import engine_names, first_on
from kit.units import MARK, THREADS_ONLY, Books, Key, Killed, Party, UnitsWorld, make_table, some_account

from ticketlock.units import Swept

pytestmark = [THREADS_ONLY, pytest.mark.parametrize("units_engine", first_on("memory", engine_names()), indirect=True)]

# Incompressible, so that it does not fit into the record.
LONG = random.Random(0).randbytes(8_000)
LEASE_S, COPIES_S, MARGIN_S = 60, 600, 5
HEAD = {"format": 1, "state": "pending", "rev": 0, "born": 0, "leaseUntilMs": 0, "attempt": "1", "pieces": 0}
Left = Callable[[UnitsWorld, list[Key]], None]


@pytest.fixture
def keys(books: Books) -> list[Key]:
    return [books.account(), books.account(), some_account()]


def killed(world: UnitsWorld, keys: list[Key], number: int, *, is_sent: bool) -> None:
    """A unit that sets the first two to zero and creates the third, and crashes at one of its updates."""
    ann = world.party()
    unit = ann.begin(engine="marked")
    for key in keys[:2]:
        unit.update(ann.accounts, key, "SET balance = :n, noise = :noise", {":n": 0, ":noise": LONG})
    unit.put(ann.accounts, {**keys[2], "balance": 0})
    crashes(ann, number, is_sent=is_sent)
    with pytest.raises(Killed):
        unit.commit()


def before_its_decision(world: UnitsWorld, keys: list[Key]) -> None:
    """All three are marked."""
    killed(world, keys, 3, is_sent=False)


def after_its_decision(world: UnitsWorld, keys: list[Key]) -> None:
    """None has its new value."""
    killed(world, keys, 3, is_sent=True)


def balances(books: Books, keys: list[Key]) -> list[object]:
    found = [books.item("accounts", key) for key in keys]
    return [item and item["balance"] for item in found]


def marks(books: Books, keys: list[Key]) -> int:
    return sum(MARK in (books.raw("accounts", key) or {}) for key in keys)


def rows(books: Books) -> list[str]:
    return [row["row"][:2] for row in books.everything()["units"]]


def assert_ended(books: Books, keys: list[Key], left: Left) -> None:
    """What was left is finished or rolled back, and only its record remains."""
    assert marks(books, keys) == 0
    assert balances(books, keys) == ([0, 0, 0] if left is after_its_decision else [100, 100, None])
    assert "w#" not in rows(books)


def test_a_unit_that_is_on_its_way_is_left_alone(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
) -> None:
    before_its_decision(units_world, keys)
    assert marks(books, keys) == 3
    assert ben.units.sweep().open >= 1
    assert marks(books, keys) == 3


def test_one_whose_lease_is_over_is_rolled_back_and_its_marks_are_removed(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
) -> None:
    empty(books)
    before_its_decision(units_world, keys)
    books.clock.advance(LEASE_S + MARGIN_S)
    assert ben.units.sweep() == Swept(rolled_back=1, finished=3, closed=0, open=1)
    assert (marks(books, keys), balances(books, keys)) == (0, [100, 100, None])
    books.clock.advance(COPIES_S + MARGIN_S)
    assert ben.units.sweep() == Swept(closed=1)
    assert rows(books) == ["he"]
    assert ben.units.sweep() == Swept()


def test_one_that_was_committed_is_finished_at_once_and_closed_ten_minutes_after_its_end(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
) -> None:
    empty(books)
    after_its_decision(units_world, keys)
    assert ben.units.sweep() == Swept(finished=3, open=1)
    assert (marks(books, keys), balances(books, keys)) == (0, [0, 0, 0])
    books.clock.advance(COPIES_S - MARGIN_S)
    assert ben.units.sweep() == Swept(open=1)
    books.clock.advance(2 * MARGIN_S)
    assert ben.units.sweep() == Swept(closed=1)
    assert rows(books) == ["he"]


@pytest.mark.parametrize("left", [before_its_decision, after_its_decision])
@pytest.mark.parametrize("operation", ["GetItem", "BatchGetItem", "UpdateItem", "DeleteItem", "PutItem"])
def test_two_sweeps_beside_each_other_do_what_one_does(
    books: Books, units_world: UnitsWorld, ann: Party, ben: Party, keys: list[Key], left: Left, operation: str
) -> None:
    left(units_world, keys)
    books.clock.advance(LEASE_S + MARGIN_S)
    for _ in range(2):
        ann.line.between[operation] = ben.units.sweep
        ann.units.sweep()
        books.clock.advance(COPIES_S + MARGIN_S)
    ann.units.sweep()
    assert_ended(books, keys, left)


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_table_that_is_deleted_does_not_keep_the_items_of_others_from_being_finished(
    books: Books, units_world: UnitsWorld, ben: Party, account: Key, is_committed: bool
) -> None:
    empty(books)
    ann, gone = units_world.party(), f"a-{uuid.uuid4().hex}"
    make_table(books.plain_client, gone, {"id": "S"})
    unit = ann.begin(engine="marked")
    unit.put(ann.units.table(gone), some_account())
    unit.update(ann.accounts, account, "SET balance = :n", {":n": 0})
    # The first update marks, the second one decides.
    crashes(ann, 2, is_sent=is_committed)
    with pytest.raises(Killed):
        unit.commit()
    books.plain_client.delete_table(TableName=gone)
    books.clock.advance(LEASE_S + MARGIN_S)
    assert ben.units.sweep() == Swept(rolled_back=not is_committed, finished=1, open=1)
    assert books.item("accounts", account) == {**account, "balance": 0 if is_committed else 100}
    books.clock.advance(COPIES_S + MARGIN_S)
    assert ben.units.sweep() == Swept(closed=1)


STRANGE: dict[str, dict[str, Any]] = {
    "of no unit": {"state": "new", "rev": 1},
    "of a state that is none": {**HEAD, "state": "new"},
    "with a number that is none": {**HEAD, "rev": "1"},
    "under another key": {**HEAD, "row": "me"},
    "with writes that are none": {**HEAD, "state": "committed", "finalMs": 1, "writes": b"?"},
    "with writes that are a number": {**HEAD, "state": "committed", "finalMs": 1, "writes": compress(b"5")},
    "with writes of another shape": {
        **HEAD,
        "state": "committed",
        "finalMs": 1,
        "writes": compress(b"[[1,2,3,4,5,6]]"),
    },
    "with a piece that is none": {**HEAD, "state": "committed", "finalMs": 1, "pieces": 1},
}


@pytest.mark.parametrize("row", STRANGE)
def test_a_strange_row_is_left_and_reported_and_the_others_are_swept(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key], row: str, caplog: pytest.LogCaptureFixture
) -> None:
    empty(books)
    for unit in "0z":
        books.write("units", {"unit": unit, "row": "head", **STRANGE[row]})
        books.write("units", {"unit": unit, "row": "w#1#00000"})
    after_its_decision(units_world, keys)
    swept = ben.units.sweep()
    assert (swept.finished, swept.open, swept.closed) == (3, 3, 0)
    assert all(any(f"'unit': {{'S': '{unit}'}}" in message for message in caplog.messages) for unit in "0z")


def empty(books: Books) -> None:
    """Delete what other tests have left."""
    for row in books.everything()["units"]:
        key = {name: {"S": row[name]} for name in ("unit", "row")}
        books.plain_client.delete_item(TableName=books.tables["units"], Key=key)
