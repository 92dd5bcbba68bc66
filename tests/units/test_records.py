"""The record of a marked unit, and its rows: none stays after its end, wherever a process crashes or pauses."""

import random
from math import inf
from typing import Any

import pytest
from kit.units import THREADS_ONLY, VERSION, Books, Key, Lost, Party, UnitsWorld

from ticketlock.errors import OutcomeUnknown, RequestNotApplied, TableError, UnitFinished, UnitForgotten, UnitRolledBack
from ticketlock.units import Unit

pytestmark = [
    pytest.mark.shows("known outcomes", "wrong clocks", "nothing left"),
    THREADS_ONLY,
]

# Incompressible, so that it does not fit into the head.
LONG = random.Random(0).randbytes(8_000)
LATER_S = 700


def rows(books: Books, unit: Unit) -> dict[str, Any]:
    """The rows of a unit in the units table."""
    return {row["row"]: row for row in books.everything()["units"] if row["unit"] == unit.id}


def test_a_unit_that_cannot_ask_the_time_before_it_marks_is_not_applied(
    books: Books, units_world: UnitsWorld, account: Key
) -> None:
    ann = units_world.party(sleep=books.clock.sleep)
    unit = ann.begin(engine="marked")
    unit.put(ann.accounts, {**account, "balance": 0})
    books.clock.advance(LATER_S)
    # The time-out covers the request for the time; the later requests are sent.
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


def test_time_to_live_keeps_a_closed_record_that_still_has_rows(
    books: Books, units_world: UnitsWorld, account: Key
) -> None:
    ann = units_world.party(sleep=books.clock.sleep)
    with ann.begin(engine="marked") as unit:
        unit.put(ann.accounts, {**account, "balance": 0, "long": LONG})
        ann.loses(Lost.NOT_SENT, 1, inf, "DeleteItem")
    head = rows(books, unit)["head"]
    assert head["closed"]
    assert "expiresAt" not in head


@pytest.mark.parametrize("lost", [(1, Lost.REPLY), (2, Lost.NOT_SENT)], ids=["after the head", "before a row"])
@pytest.mark.parametrize("stands_still", [False, True], ids=["asleep", "frozen with its clock"])
def test_a_process_that_slept_past_its_lease_writes_down_nothing(
    books: Books, units_world: UnitsWorld, ben: Party, account: Key, lost: tuple[int, Lost], stands_still: bool
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        books.clock.sleep(seconds)
        if seconds and not slept:
            slept.append(seconds)
            for _ in range(2):
                (books.clock.freeze if stands_still else books.clock.advance)(LATER_S)
                ben.units.sweep()

    ann = units_world.party(sleep=sleep)
    unit = ann.begin(engine="marked")
    unit.put(ann.accounts, {**account, "balance": 0, "long": LONG})
    which, what = lost
    ann.loses(what, which, operation="PutItem")
    with pytest.raises((RequestNotApplied, UnitRolledBack)):
        unit.commit()
    assert slept
    assert set(rows(books, unit)) == {"head"}
    assert books.balance(account) == 100


def test_a_unit_that_paused_until_its_record_was_gone_is_forgotten_and_writes_nothing(
    books: Books, ann: Party, ben: Party, account: Key, other: Key
) -> None:
    unit = ann.begin(engine="marked")
    for key in (account, other):
        unit.update(ann.accounts, key, "SET balance = :zero", {":zero": 0})
    updates = 0

    def before(model: Any, **_: Any) -> None:
        nonlocal updates
        updates += model.name == "UpdateItem"
        # The first two requests mark, the third one decides.
        if (model.name, updates) == ("UpdateItem", 3):
            for _twice in range(2):
                books.clock.advance(LATER_S)
                ben.units.sweep()
            books.plain_client.delete_item(
                TableName=books.tables["units"], Key={"unit": {"S": unit.id}, "row": {"S": "head"}}
            )

    ann.client.meta.events.register_first("before-call.dynamodb", before)
    with pytest.raises(UnitForgotten):
        unit.commit()
    assert [books.raw("accounts", key) for key in (account, other)] == [
        {**account, "balance": 100, VERSION: books.version(account)},
        {**other, "balance": 50, VERSION: books.version(other)},
    ]


class TestADecisionWithoutAnAnswer:
    def test_it_may_come_after_its_unit_gave_up_in_vain(
        self, books: Books, units_world: UnitsWorld, account: Key, other: Key
    ) -> None:
        ann, ben = (units_world.party(sleep=books.clock.sleep, timeout=0) for _ in range(2))
        unit = ann.begin(engine="marked")
        unit.get(ann.accounts, account)
        unit.update(ann.accounts, other, "SET balance = :zero", {":zero": 0})
        # Ben marks what Ann has read, and crashes.
        marker = ben.begin(engine="marked")
        marker.update(ben.accounts, account, "SET balance = :zero", {":zero": 0})
        ben.loses(Lost.NOT_SENT, 2, inf, "UpdateItem")
        with pytest.raises(TableError):
            marker.commit()
        books.clock.advance(25)
        # Ann's first attempt takes long to arrive; the next one meets the mark, and no further request of hers arrives.
        ann.loses(Lost.REQUEST, 1, operation="TransactWriteItems")
        ann.loses(Lost.NOT_SENT, 2, inf, "UpdateItem")
        with pytest.raises(OutcomeUnknown):
            unit.commit()
        (late, *_) = (sent.parameters for sent in ann.line.sent if sent.operation == "TransactWriteItems")
        # Ben's lease ends, and hers has not ended yet.
        books.clock.advance(15)
        assert units_world.party().units.sweep().rolled_back == 1
        assert books.balance(other) == 50
        books.plain_client.transact_write_items(**late)
        reader = units_world.party()
        assert reader.units.get(reader.accounts, other) == {**other, "balance": 0}

    def test_of_a_record_that_is_gone_no_error_says_that_it_was_rolled_back(
        self, books: Books, units_world: UnitsWorld, ben: Party, account: Key
    ) -> None:
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            books.clock.sleep(seconds)
            if decision.seen >= 4 and seconds == 0 and not slept:
                slept.append(seconds)
                # Other processes finish it, and TTL deletes its record.
                for _ in range(2):
                    ben.units.sweep()
                    books.clock.advance(LATER_S)
                ben.units.sweep()
                books.plain_client.delete_item(
                    TableName=books.tables["units"], Key={"unit": {"S": unit.id}, "row": {"S": "head"}}
                )

        ann = units_world.party(sleep=sleep)
        unit = ann.begin(engine="marked")
        unit.update(ann.accounts, account, "SET balance = :zero", {":zero": 0})
        # The first request marks.
        decision = ann.loses(Lost.REPLY, 2, 5, "UpdateItem")
        with pytest.raises(UnitForgotten):
            unit.commit()
        assert slept
        with pytest.raises(UnitFinished, match="its outcome unknown"):
            unit.rollback()
        assert books.balance(account) == 0
