"""The record of a marked unit, and its rows: none stays once it has ended, whoever dies or sleeps on the way."""

import random
from math import inf
from typing import Any

import pytest
from kit.units import Books, Key, Lost, Party, UnitsWorld

from ticketlock.errors import RequestNotApplied, UnitRolledBack
from ticketlock.units import Unit

# Nothing packs it: it does not fit into the head.
LONG = random.Random(0).randbytes(8_000)
LATER_S = 700


def rows(books: Books, unit: Unit) -> dict[str, Any]:
    """What stands in the units' own table of a unit."""
    return {row["row"]: row for row in books.everything()["units"] if row["unit"] == unit.id}


def test_a_unit_that_cannot_ask_the_time_before_it_marks_is_not_applied(
    books: Books, units_world: UnitsWorld, account: Key
) -> None:
    ann = units_world.party(sleep=books.clock.sleep)
    unit = ann.begin(engine="marked")
    unit.put(ann.accounts, {**account, "balance": 0})
    books.clock.advance(LATER_S)
    # For as long as it asks; what it does about that is sent.
    ann.loses(Lost.NOT_SENT, 1, 4)
    with pytest.raises(RequestNotApplied):
        unit.commit()
    assert books.balance(account) == 100


def test_rows_that_their_owner_did_not_delete_are_swept(
    books: Books, units_world: UnitsWorld, ben: Party, account: Key
) -> None:
    ann = units_world.party(sleep=books.clock.sleep)
    with ann.begin(engine="marked") as unit:
        unit.put(ann.accounts, {**account, "balance": 0, "long": LONG})
        ann.loses(Lost.NOT_SENT, 1, inf, "DeleteItem")
    assert set(rows(books, unit)) == {"head", "w#1#00000"}
    ben.units.sweep()
    assert set(rows(books, unit)) == {"head"}
    assert "expiresAt" in rows(books, unit)["head"]


def test_a_closed_record_whose_rows_stand_yet_is_not_forgotten_by_time_to_live(
    books: Books, units_world: UnitsWorld, account: Key
) -> None:
    ann = units_world.party(sleep=books.clock.sleep)
    with ann.begin(engine="marked") as unit:
        unit.put(ann.accounts, {**account, "balance": 0, "long": LONG})
        ann.loses(Lost.NOT_SENT, 1, inf, "DeleteItem")
    head = rows(books, unit)["head"]
    assert head["closed"]
    assert "expiresAt" not in head


def test_a_process_that_slept_past_its_lease_writes_down_nothing(
    books: Books, units_world: UnitsWorld, ben: Party, account: Key
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        books.clock.sleep(seconds)
        if seconds and not slept:
            slept.append(seconds)
            for _ in range(2):
                books.clock.advance(LATER_S)
                ben.units.sweep()

    ann = units_world.party(sleep=sleep)
    unit = ann.begin(engine="marked")
    unit.put(ann.accounts, {**account, "balance": 0, "long": LONG})
    # The head is the first.
    ann.loses(Lost.NOT_SENT, 2, operation="PutItem")
    with pytest.raises((RequestNotApplied, UnitRolledBack)):
        unit.commit()
    assert slept
    assert set(rows(books, unit)) == {"head"}
    assert books.balance(account) == 100
