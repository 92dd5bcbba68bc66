"""`repair`: from the marks in a table to the records of their units, beside running units."""

import random
import uuid
from dataclasses import dataclass, replace
from typing import Any

import pytest
from kit.crashes import before_the_nth, crashes
from kit.engines import engine_names, first_on
from kit.units import (
    MARK,
    THREADS_ONLY,
    Books,
    Key,
    Killed,
    Party,
    UnitsWorld,
    dumped,
    make_units_table,
    some_line,
)

from ticketlock.errors import InvalidUnitRequest, TableNotFound, TableRefused, UnitRolledBack
from ticketlock.units import FoundMark, Outcome, Record

pytestmark = [THREADS_ONLY, pytest.mark.parametrize("units_engine", first_on("memory", engine_names()), indirect=True)]

LEASE_S, MARGIN_S, COPIES_S, DAY_S = 60, 5, 600, 24 * 3_600
SET, NOUGHT = "SET balance = :n", {":n": 0}
OLD_ID = "01K9AA0000SA1M0SPPS3EJ8KYB"
"""The id of a unit so old that its record may be gone."""


@pytest.fixture
def keys(books: Books) -> list[Key]:
    return [books.account(), books.account()]


def marked(books: Books, mark: object, **more: object) -> Key:
    """A new account with a mark that no unit has written."""
    key = books.account()
    books.write("accounts", {**(books.raw("accounts", key) or {}), MARK: mark, **more})
    return key


def forget(books: Books, unit: str) -> None:
    """Delete a record with a plain client."""
    head = dumped({"unit": unit, "row": "head"})
    books.plain_client.delete_item(TableName=books.tables["units"], Key=head)


def with_units_table(books: Books, name: str) -> Books:
    return replace(books, tables={**books.tables, "units": name})


def found_in(party: Party, keys: list[Key], **how: bool) -> list[tuple[Record, str]]:
    """What is reported of the marks in these items, one for each."""
    return [(each.record, each.action) for each in reports_of(party, keys, **how)]


def reports_of(party: Party, keys: list[Key], **how: bool) -> list[FoundMark]:
    return [each for each in party.units.repair(party.accounts, **how) if each.key in keys]


@dataclass
class Case:
    """A unit that was killed with two marked accounts, what time and loss have done to it, and what is made of it.

    Attributes:
        is_lost: whether the operator says that records are lost.
    """

    record: Record
    action: str
    balance: int = 100
    after_s: int = 0
    is_committed: bool = False
    is_forgotten: bool = False
    is_lost: bool = False


DELETED = Case(Record.GONE, "unmarked", after_s=DAY_S + MARGIN_S, is_committed=True, is_forgotten=True)
CASES = {
    "on its way": Case(Record.PENDING, "left", is_lost=True),
    "its lease is over": Case(Record.LEASE_OVER, "unmarked", after_s=LEASE_S + MARGIN_S),
    "committed": Case(Record.COMMITTED, "finished", balance=0, is_committed=True),
    "deleted by time to live": DELETED,
    "deleted, and said to be lost": replace(DELETED, is_lost=True),
    "cannot have gone yet": Case(Record.MISSING, "left", after_s=DAY_S - MARGIN_S, is_forgotten=True),
    "said to be lost": Case(Record.MISSING, "unmarked", after_s=DAY_S - MARGIN_S, is_forgotten=True, is_lost=True),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_repair_without_write_reports_what_it_would_do_and_with_write_does_it(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key], case: Case
) -> None:
    unit = units_world.killed(keys, is_committed=case.is_committed)
    if case.is_forgotten:
        forget(books, unit)
    books.clock.advance(case.after_s)
    before = books.everything()
    would = reports_of(ben, keys, lost_records=case.is_lost)
    assert [(each.record, each.action) for each in would] == [(case.record, case.action)] * 2
    assert {each.needs_you for each in would} == {case.record is Record.MISSING and case.action == "left"}
    assert books.everything() == before
    # The repair of the first account rolls the unit back.
    then = Record.ROLLED_BACK if case.record is Record.LEASE_OVER else case.record
    done = found_in(ben, keys, write=True, lost_records=case.is_lost)
    assert done == [(case.record, case.action), (then, case.action)]
    assert (books.marks(keys), books.balances(keys)) == (2 if case.action == "left" else 0, [case.balance] * 2)
    if then is Record.ROLLED_BACK:
        assert ben.units.outcome(unit=unit).state is Outcome.ROLLED_BACK


def test_items_with_a_number_in_their_key_are_finished(books: Books, units_world: UnitsWorld, ben: Party) -> None:
    ann, key = units_world.party(), some_line(10)
    unit = ann.begin(engine="marked")
    unit.put(ann.lines, {**key, "amount": 1})
    crashes(ann, 1, is_sent=True)
    with pytest.raises(Killed):
        unit.commit()
    (found,) = [each for each in ben.units.repair(ben.lines, write=True) if each.key == key]
    assert (found.record, found.action, found.unit) == (Record.COMMITTED, "finished", unit.id)
    assert books.item("lines", key) == {**key, "amount": 1}


def test_a_mark_that_comes_back_once_its_unit_is_closed_is_removed_and_reported(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
) -> None:
    units_world.killed(keys, is_committed=True)
    copy = books.raw("accounts", keys[0])
    assert copy is not None
    books.clock.advance(COPIES_S + MARGIN_S)
    ben.units.sweep()
    books.write("accounts", copy)
    assert found_in(ben, keys, write=True) == [(Record.CLOSED, "unmarked")]
    assert (books.marks(keys), books.balances(keys)) == (0, [100, 0])


@pytest.mark.parametrize("units_table", ["its own", "another"])
def test_a_repair_beside_each_request_of_a_unit_changes_nothing(
    books: Books, ann: Party, keys: list[Key], units_table: str
) -> None:
    name = books.tables["units"]
    if units_table == "another":
        name = f"units-{uuid.uuid4().hex[:8]}"
        make_units_table(books.plain_client, name)
    eve = Party(with_units_table(books, name), None)

    def repairs(**_: Any) -> None:
        eve.units.repair(eve.accounts, write=True, lost_records=units_table == "its own")

    ann.client.meta.events.register_first("before-call.dynamodb", repairs)
    with ann.begin(engine="marked") as unit:
        for key in keys:
            unit.update(ann.accounts, key, SET, NOUGHT)
    assert (books.marks(keys), books.balances(keys)) == (0, [0, 0])
    if units_table == "another":
        books.plain_client.delete_table(TableName=name)


def test_a_unit_that_pauses_past_its_lease_learns_that_it_was_rolled_back(
    books: Books, ann: Party, ben: Party, keys: list[Key]
) -> None:
    def pauses() -> None:
        books.clock.advance(LEASE_S + MARGIN_S)
        ben.units.repair(ben.accounts, write=True)

    unit = ann.begin(engine="marked")
    for key in keys:
        unit.update(ann.accounts, key, SET, NOUGHT)
    # Before its decision, which follows two marks.
    before_the_nth(ann, 3, pauses, "UpdateItem")
    with pytest.raises(UnitRolledBack):
        unit.commit()
    assert (books.marks(keys), books.balances(keys)) == (0, [100, 100])


def test_a_mark_that_goes_between_the_scan_and_the_read_is_not_reported(
    units_world: UnitsWorld, ann: Party, ben: Party, keys: list[Key]
) -> None:
    units_world.killed(keys, is_committed=True)
    ann.line.between["GetItem"] = ben.units.sweep
    assert found_in(ann, keys) == []


def test_a_lease_that_is_renewed_meanwhile_is_left(
    books: Books, units_world: UnitsWorld, ann: Party, keys: list[Key]
) -> None:
    unit = units_world.killed(keys, is_committed=False)
    books.clock.advance(LEASE_S + MARGIN_S)
    later_ms = books.clock.wall_ms + LEASE_S * 1_000

    def renew() -> None:
        books.plain_client.update_item(
            TableName=books.tables["units"],
            Key=dumped({"unit": unit, "row": "head"}),
            UpdateExpression="SET leaseUntilMs = :until",
            ExpressionAttributeValues={":until": {"N": str(later_ms)}},
        )

    ann.line.between["UpdateItem"] = renew
    assert found_in(ann, keys, write=True) == [(Record.PENDING, "left")] * 2
    assert books.marks(keys) == 2


def test_what_no_unit_has_written_is_left_and_its_value_is_not_shown(books: Books, ben: Party) -> None:
    key = marked(books, "a secret")
    (found,) = reports_of(ben, [key], write=True, lost_records=True)
    assert (found.record, found.action, found.unit, found.why) == (Record.STRANGE, "left", None, None)
    assert found.needs_you
    assert books.marks([key]) == 1
    books.plain_client.delete_item(TableName=books.tables["accounts"], Key=dumped(key))


def test_a_mark_of_a_committed_unit_that_does_not_write_the_item_is_left_and_reported(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
) -> None:
    units_world.killed(keys, is_committed=True)
    copy = books.raw("accounts", keys[0])
    assert copy is not None
    other = {"id": f"copy of {keys[0]['id']}"}
    books.write("accounts", {**copy, **other})
    (found,) = reports_of(ben, [other], write=True)
    assert (found.record, found.action) == (Record.UNCLEAR, "left")
    assert found.why is not None
    assert "does not name this item" in found.why
    assert books.marks([*keys, other]) == 1


def test_a_record_that_no_unit_has_written_leaves_the_mark_and_the_others_are_gone_on_with(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
) -> None:
    books.write("units", {"unit": OLD_ID, "row": "head", "state": "new"})
    strange = marked(books, {"unit": OLD_ID, "kind": "write"})
    units_world.killed(keys, is_committed=True)
    actions = [action for _, action in found_in(ben, [strange, *keys], write=True)]
    assert sorted(actions) == ["finished", "finished", "left"]
    assert books.marks([strange]) == 1
    forget(books, OLD_ID)


def test_a_placeholder_whose_record_is_gone_is_deleted(books: Books, ben: Party) -> None:
    key = {"id": f"account-{uuid.uuid4().hex}"}
    books.write("accounts", {**key, MARK: {"unit": OLD_ID, "kind": "insert"}})
    assert found_in(ben, [key], write=True) == [(Record.GONE, "unmarked")]
    assert books.raw("accounts", key) is None


def test_a_repair_reads_beyond_the_first_page(books: Books, ben: Party) -> None:
    noise = random.Random(0).randbytes(300_000)
    keys: list[Key] = [marked(books, {"unit": OLD_ID, "kind": "write"}, noise=noise) for _ in range(5)]
    scans = ben.sends(lambda: ben.units.repair(ben.accounts, write=True)).count("Scan")
    assert (scans > 1, books.marks(keys)) == (True, 0)
    for key in keys:
        books.plain_client.delete_item(TableName=books.tables["accounts"], Key=dumped(key))


@pytest.mark.parametrize("is_there", [False, True], ids=["none", "of another kind"])
def test_a_table_of_another_kind_or_none_in_the_place_of_the_units_own_is_refused_and_nothing_is_written(
    books: Books, units_world: UnitsWorld, keys: list[Key], is_there: bool
) -> None:
    units_world.killed(keys, is_committed=True)
    name = books.engine.table_name if is_there else f"units-{uuid.uuid4().hex[:8]}"
    before = books.everything()

    def repair() -> None:
        eve = Party(with_units_table(books, name), None)
        eve.units.repair(eve.accounts, write=True, lost_records=True)

    with pytest.raises(TableRefused if is_there else TableNotFound):
        repair()
    assert books.everything() == before


def test_a_table_of_other_units_is_refused(ann: Party, ben: Party) -> None:
    with pytest.raises(InvalidUnitRequest, match="table is"):
        ann.units.repair(ben.accounts)
