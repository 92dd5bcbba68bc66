"""What operators do with the records of units."""

import random
from collections.abc import Callable
from functools import partial
from itertools import count

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
    loaded,
    make_table,
    some_account,
    some_name,
)

from ticketlock.errors import InvalidUnitRequest, UnitRolledBack, UnsupportedFormat
from ticketlock.units import OpenUnit, Outcome, Record, Unit
from ticketlock.units._marks import Marks
from ticketlock.units._operators import Settled, Shown, Standing, inspect, open_units, roll_back, settle
from ticketlock.units._record import UnitRecords

pytestmark = pytest.mark.parametrize("units_engine", first_on("memory", engine_names()), indirect=True)

LEASE_S, MARGIN_S, COPIES_S = 60, 5, 600
SET, NOUGHT = "SET balance = :n", {":n": 0}
# Incompressible, so that it does not fit into the record.
LONG = random.Random(0).randbytes(8_000)
UNKNOWN_ID, OTHER = "01K9AA0000SA1M0SPPS3EJ8KYB", "01K9AA0000SA1M0SPPS3EJ8KYC"
HEAD = {
    "format": 1,
    "state": "rolledBack",
    "rev": 0,
    "born": 1,
    "leaseUntilMs": 1,
    "finalMs": 1,
    "by": OTHER,
    "attempt": "1",
    "pieces": 1,
}
MARKS = Marks("_tlu")


@pytest.fixture
def keys(books: Books) -> list[Key]:
    return [books.account(), books.account()]


def opened(party: Party, unit: str) -> OpenUnit | None:
    return next((each for each in party.units.open_units() if each.unit == unit), None)


def records(party: Party) -> UnitRecords:
    return UnitRecords(party.books.tables["units"])


def inspected(party: Party, unit: str) -> Shown | None:
    return party.units._performer.perform_steps(inspect(records(party), MARKS, unit))


def settled(party: Party, unit: str) -> Settled:
    return party.units._performer.perform_steps(settle(records(party), MARKS, unit))


def rolled_back(party: Party, unit: str) -> Settled:
    return party.units._performer.perform_steps(roll_back(records(party), MARKS, unit))


def standings(party: Party, unit: str) -> list[Standing]:
    shown = inspected(party, unit)
    assert shown is not None
    assert shown.items is not None
    return sorted((each.standing for each in shown.items), key=lambda each: each.value)


def test_both_faces_list_what_is_open_and_repair_what_no_record_leads_to(books: Books, ann: Party) -> None:
    books.write("units", {"unit": UNKNOWN_ID, "row": "head", **HEAD})
    known = opened(ann, UNKNOWN_ID)
    assert known is not None
    assert (known.state, known.rolled_back_by, known.items) == (Outcome.ROLLED_BACK, OTHER, None)
    key = books.account()
    books.write("accounts", {**key, "balance": 1, MARK: {"unit": UNKNOWN_ID, "kind": "write"}})
    for write in (False, True):
        (found,) = [each for each in ann.units.repair(ann.accounts, write=write) if each.key == key]
        assert (found.unit, found.record, found.action) == (UNKNOWN_ID, Record.ROLLED_BACK, "unmarked")
        assert books.marks([key]) == (not write)
    books.plain_client.delete_item(TableName=books.tables["units"], Key=dumped({"unit": UNKNOWN_ID, "row": "head"}))


@THREADS_ONLY
def test_the_list_of_open_units_has_a_unit_from_its_first_mark_until_it_is_closed(
    ann: Party, ben: Party, keys: list[Key]
) -> None:
    seen = []
    ann.line.between["TransactWriteItems"] = lambda: seen.append(opened(ben, unit.id))
    with ann.begin(engine="marked", name=some_name()) as unit:
        for key in keys:
            unit.update(ann.accounts, key, SET, NOUGHT)
    (known,) = seen
    assert known is not None
    assert (known.state, known.items, known.is_closed) == (Outcome.PENDING, 2, False)
    assert opened(ben, unit.id) is None


@THREADS_ONLY
def test_the_list_of_open_units_has_the_oldest_first_with_their_ages_and_leases(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
) -> None:
    first = units_world.killed(keys, is_committed=True)
    books.clock.advance(30)
    second = units_world.killed([books.account()], is_committed=False)
    books.clock.advance(90)
    mine = [each for each in ben.units.open_units() if each.unit in (first, second)]
    assert [each.unit for each in mine] == [first, second]
    committed, pending = mine
    assert (committed.state, committed.lease_ends_in_s) == (Outcome.COMMITTED, None)
    assert committed.age_s == pytest.approx(120, abs=3)
    assert committed.ended_for_s == pytest.approx(120, abs=3)
    assert (pending.state, pending.ended_for_s) == (Outcome.PENDING, None)
    assert pending.lease_ends_in_s == pytest.approx(-30, abs=4)


@THREADS_ONLY
def test_the_list_of_open_units_counts_items_in_rows_of_their_own_unless_the_rows_are_gone(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
) -> None:
    unit = units_world.killed(keys, is_committed=True, noise=LONG)
    known = opened(ben, unit)
    assert known is not None
    assert known.items == 2
    for row in books.everything()["units"]:
        if row["unit"] == unit and row["row"].startswith("w#"):
            key = dumped({name: row[name] for name in ("unit", "row")})
            books.plain_client.delete_item(TableName=books.tables["units"], Key=key)
    known = opened(ben, unit)
    assert known is not None
    assert known.items is None


@THREADS_ONLY
def test_the_list_of_open_units_leaves_out_what_no_unit_has_written_and_reports_it(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key], caplog: pytest.LogCaptureFixture
) -> None:
    unit = units_world.killed(keys, is_committed=True)
    books.write("units", {"unit": "0", "row": "head", "state": "new", "rev": 1})
    known: list[InvalidUnitRequest | UnsupportedFormat] = []
    found = ben.units._performer.perform_steps(open_units(records(ben), known.append))
    assert unit in [each.unit for each in found]
    assert any("'unit': {'S': '0'}" in str(each) for each in known)
    assert opened(ben, "0") is None
    assert any("'unit': {'S': '0'}" in message for message in caplog.messages)
    books.plain_client.delete_item(TableName=books.tables["units"], Key=dumped({"unit": "0", "row": "head"}))


@THREADS_ONLY
def test_an_inspection_shows_which_items_are_marked_and_finished_and_writes_nothing(
    books: Books, units_world: UnitsWorld, ben: Party
) -> None:
    for is_committed in (False, True):
        keys: list[Key] = [books.account(), books.account()]
        unit = units_world.killed(keys, is_committed=is_committed)
        books.clock.advance(LEASE_S + MARGIN_S)
        before = books.everything()
        assert standings(ben, unit) == [Standing.THERE] * 2
        assert books.everything() == before
    ben.changes(keys[0], 1)
    assert [each.value for each in standings(ben, unit)] == ["off", "there"]
    settled(ben, unit)
    assert [each.value for each in standings(ben, unit)] == ["off", "off, written"]


@THREADS_ONLY
def test_an_inspection_shows_marks_of_others_what_no_unit_has_written_and_tables_that_are_gone(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
) -> None:
    ann, gone = units_world.party(), f"{books.tables['accounts']}-gone"
    make_table(books.plain_client, gone, {"id": "S"})
    unit = ann.begin(engine="marked")
    unit.put(ann.units.table(gone), some_account())
    for key in keys:
        unit.update(ann.accounts, key, SET, NOUGHT)
    crashes(ann, 3, is_sent=True)
    with pytest.raises(Killed):
        unit.commit()
    books.plain_client.delete_table(TableName=gone)
    for key, strange in zip(keys, ({"unit": UNKNOWN_ID, "kind": "write"}, "a secret"), strict=True):
        books.write("accounts", {**(books.raw("accounts", key) or {}), MARK: strange})
    assert set(standings(ben, unit.id)) == {Standing.OF_ANOTHER, Standing.STRANGE, Standing.NO_TABLE}


OLD, NEW = [100, 100], [0, 0]
# What an operator does with a committed or a pending unit so many seconds later, its outcome, and its balances if it
# is ended by that.
ENDS: dict[str, tuple[Callable[[Party, str], Settled], bool, int, Outcome, list[int] | None]] = {
    "settled, committed": (settled, True, 0, Outcome.COMMITTED, NEW),
    "settled, its lease over": (settled, False, LEASE_S + MARGIN_S, Outcome.ROLLED_BACK, OLD),
    "settled, its lease running": (settled, False, 0, Outcome.PENDING, None),
    "rolled back, its lease running": (rolled_back, False, 0, Outcome.ROLLED_BACK, OLD),
    "rolled back, committed": (rolled_back, True, 0, Outcome.COMMITTED, None),
}


@THREADS_ONLY
@pytest.mark.parametrize("case", ENDS)
def test_an_operator_ends_a_unit_once_and_finishes_its_items_or_leaves_all_as_it_is(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key], case: str
) -> None:
    do, is_committed, later_s, expected, balances = ENDS[case]
    unit = units_world.killed(keys, is_committed=is_committed)
    books.clock.advance(later_s)
    before, known = books.everything(), do(ben, unit)
    assert known.outcome is expected
    if balances is None:
        assert books.everything() == before
        return
    ended = [loaded(entry.key) for entry in known.ended]
    assert sorted(ended, key=str) == sorted(keys, key=str)
    assert (books.marks(keys), books.balances(keys)) == (0, balances)
    assert ben.units.outcome(unit=unit) is expected
    again = do(ben, unit)
    assert (again.outcome, again.ended) == (expected, [])


@THREADS_ONLY
def test_settling_a_unit_closes_it_ten_minutes_after_its_end(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
) -> None:
    unit = units_world.killed(keys, is_committed=True)
    settled(ben, unit)
    assert opened(ben, unit) is not None
    books.clock.advance(COPIES_S + MARGIN_S)
    for _ in range(2):
        assert settled(ben, unit).outcome is Outcome.COMMITTED
        assert opened(ben, unit) is None


@THREADS_ONLY
def test_settling_a_unit_returns_the_outcome_although_an_item_cannot_be_finished(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
) -> None:
    unit = units_world.killed(keys, is_committed=True)
    books.write("accounts", {**(books.raw("accounts", keys[0]) or {}), MARK: "a secret"})
    known = settled(ben, unit)
    assert known.outcome is Outcome.COMMITTED
    assert isinstance(known.failed, InvalidUnitRequest)


def _note_rolled_back(known: list[Settled], by: Party, unit: Unit) -> None:
    known.append(rolled_back(by, unit.id))


@THREADS_ONLY
def test_an_operators_rollback_before_any_request_of_a_unit_leaves_it_rolled_back_or_committed_whole(
    books: Books, units_world: UnitsWorld, ben: Party
) -> None:
    ends = set()
    for number in count(1):
        keys: list[Key] = [books.account(), books.account()]
        ann, known, is_rolled_back = units_world.party(), list[Settled](), False
        unit = ann.begin(engine="marked")
        before_the_nth(ann, number, partial(_note_rolled_back, known, ben, unit))
        for key in keys:
            unit.update(ann.accounts, key, SET, NOUGHT)
        try:
            unit.commit()
        except UnitRolledBack:
            is_rolled_back = True
        if not known:
            # It has sent fewer requests.
            break
        outcome = known[0].outcome
        assert is_rolled_back == (outcome is Outcome.ROLLED_BACK)
        if outcome is not Outcome.FORGOTTEN:
            assert books.marks(keys) == 0
            assert books.balances(keys) == (OLD if outcome is Outcome.ROLLED_BACK else NEW)
        ends.add(outcome)
    assert ends == {Outcome.FORGOTTEN, Outcome.ROLLED_BACK, Outcome.COMMITTED}


@THREADS_ONLY
@pytest.mark.parametrize("ask", [inspected, settled, rolled_back])
def test_what_is_no_id_is_refused_before_anything_is_sent(ann: Party, ask: Callable[[Party, str], object]) -> None:
    refused = pytest.raises(InvalidUnitRequest, match=r"unit is .*; allowed: the `id` of a unit")

    def asked() -> None:
        with refused:
            ask(ann, "unit-42")

    assert ann.sends(asked) == []


@THREADS_ONLY
def test_a_unit_without_a_record_is_forgotten_and_nothing_is_written(books: Books, ann: Party) -> None:
    before = books.everything()
    assert inspected(ann, UNKNOWN_ID) is None
    assert {settled(ann, UNKNOWN_ID).outcome, rolled_back(ann, UNKNOWN_ID).outcome} == {Outcome.FORGOTTEN}
    assert books.everything() == before
