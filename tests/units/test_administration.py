"""What operators do with the records of units."""

import random
from collections.abc import Callable
from itertools import count

import pytest
from kit.crashes import crashes
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
    make_table,
    some_account,
    some_name,
)

from ticketlock.errors import InvalidUnitRequest, UnitRolledBack, UnsupportedFormat
from ticketlock.units import OpenUnit, Outcome, Record
from ticketlock.units._marks import Marks
from ticketlock.units._operators import Settled, Shown, Standing, inspect, open_units, roll_back, settle
from ticketlock.units._record import UnitRecords

IN_MEMORY_FIRST = pytest.mark.parametrize("units_engine", first_on("memory", engine_names()), indirect=True)
pytestmark = [IN_MEMORY_FIRST]

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


def inspected(party: Party, unit: str) -> Shown | None:
    return party.units._performer.follow(inspect(UnitRecords(party.books.tables["units"]), MARKS, unit))


def settled(party: Party, unit: str) -> Settled:
    return party.units._performer.follow(settle(UnitRecords(party.books.tables["units"]), MARKS, unit))


def rolled_back(party: Party, unit: str) -> Settled:
    return party.units._performer.follow(roll_back(UnitRecords(party.books.tables["units"]), MARKS, unit))


def standings(party: Party, unit: str) -> list[Standing]:
    shown = inspected(party, unit)
    assert shown is not None
    assert shown.items is not None
    return [each.standing for each in shown.items]


def keys_of(known: Settled) -> list[Key]:
    return [{name: value["S"] for name, value in entry.key.items()} for entry in known.ended]


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
    records = UnitRecords(books.tables["units"])
    found = ben.units._performer.follow(open_units(records, known.append))
    assert unit in [each.unit for each in found]
    assert any("'unit': {'S': '0'}" in str(each) for each in known)
    assert opened(ben, "0") is None
    assert any("'unit': {'S': '0'}" in message for message in caplog.messages)
    books.plain_client.delete_item(TableName=books.tables["units"], Key=dumped({"unit": "0", "row": "head"}))


@THREADS_ONLY
def test_an_inspection_shows_which_items_are_marked(units_world: UnitsWorld, ben: Party, keys: list[Key]) -> None:
    unit = units_world.killed(keys, is_committed=True)
    assert standings(ben, unit) == [Standing.THERE] * 2
    ben.units.get(ben.accounts, keys[0])
    with ben.begin() as one:
        one.update(ben.accounts, keys[0], SET, {":n": 1})
    assert sorted(each.value for each in standings(ben, unit)) == ["off", "there"]
    settled(ben, unit)
    assert sorted(each.value for each in standings(ben, unit)) == ["off", "off, written"]


@THREADS_ONLY
def test_an_inspection_shows_marks_of_others_and_what_no_unit_has_written(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
) -> None:
    unit = units_world.killed(keys, is_committed=True)
    for key, strange in zip(keys, ({"unit": UNKNOWN_ID, "kind": "write"}, "a secret"), strict=True):
        books.write("accounts", {**(books.raw("accounts", key) or {}), MARK: strange})
    assert set(standings(ben, unit)) == {Standing.OF_ANOTHER, Standing.STRANGE}


@THREADS_ONLY
def test_an_inspection_shows_tables_that_are_gone(books: Books, units_world: UnitsWorld, ben: Party) -> None:
    ann, gone = units_world.party(), f"{books.tables['accounts']}-gone"
    make_table(books.plain_client, gone, {"id": "S"})
    unit = ann.begin(engine="marked")
    unit.put(ann.units.table(gone), some_account())
    crashes(ann, 1, is_sent=True)
    with pytest.raises(Killed):
        unit.commit()
    books.plain_client.delete_table(TableName=gone)
    assert standings(ben, unit.id) == [Standing.NO_TABLE]


@THREADS_ONLY
def test_an_inspection_writes_nothing(books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]) -> None:
    unit = units_world.killed(keys, is_committed=False)
    books.clock.advance(LEASE_S + MARGIN_S)
    before = books.everything()
    assert standings(ben, unit) == [Standing.THERE] * 2
    assert books.everything() == before


@THREADS_ONLY
def test_settling_a_unit_finishes_one_that_is_committed(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
) -> None:
    unit = units_world.killed(keys, is_committed=True)
    known = settled(ben, unit)
    assert known.outcome is Outcome.COMMITTED
    assert sorted(map(str, keys_of(known))) == sorted(map(str, keys))
    assert (books.marks(keys), books.balances(keys)) == (0, [0, 0])
    assert settled(ben, unit).ended == []


@THREADS_ONLY
def test_settling_a_unit_closes_it_ten_minutes_after_its_end(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
) -> None:
    unit = units_world.killed(keys, is_committed=True)
    settled(ben, unit)
    assert opened(ben, unit) is not None
    books.clock.advance(COPIES_S + MARGIN_S)
    assert settled(ben, unit).outcome is Outcome.COMMITTED
    assert opened(ben, unit) is None
    assert settled(ben, unit).outcome is Outcome.COMMITTED


@THREADS_ONLY
def test_settling_a_unit_rolls_one_back_whose_lease_is_over(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
) -> None:
    unit = units_world.killed(keys, is_committed=False)
    books.clock.advance(LEASE_S + MARGIN_S)
    known = settled(ben, unit)
    assert (known.outcome, len(known.ended)) == (Outcome.ROLLED_BACK, 2)
    assert (books.marks(keys), books.balances(keys)) == (0, [100, 100])


@THREADS_ONLY
def test_settling_a_unit_leaves_one_alone_whose_lease_runs(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
) -> None:
    unit = units_world.killed(keys, is_committed=False)
    before = books.everything()
    assert settled(ben, unit).outcome is Outcome.PENDING
    assert books.everything() == before


@THREADS_ONLY
def test_settling_a_unit_returns_the_outcome_although_an_item_cannot_be_finished(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
) -> None:
    unit = units_world.killed(keys, is_committed=True)
    books.write("accounts", {**(books.raw("accounts", keys[0]) or {}), MARK: "a secret"})
    known = settled(ben, unit)
    assert known.outcome is Outcome.COMMITTED
    assert isinstance(known.failed, InvalidUnitRequest)


@THREADS_ONLY
class TestRollingBack:
    def test_an_operators_rollback_ends_one_whose_lease_runs_and_takes_its_marks_off(
        self, books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
    ) -> None:
        unit = units_world.killed(keys, is_committed=False)
        known = rolled_back(ben, unit)
        assert known.outcome is Outcome.ROLLED_BACK
        assert sorted(map(str, keys_of(known))) == sorted(map(str, keys))
        assert (books.marks(keys), books.balances(keys)) == (0, [100, 100])
        assert ben.units.outcome(unit=unit) is Outcome.ROLLED_BACK
        again = rolled_back(ben, unit)
        assert (again.outcome, again.ended) == (Outcome.ROLLED_BACK, [])

    def test_an_operators_rollback_is_refused_to_one_that_is_committed_and_finishes_nothing(
        self, books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
    ) -> None:
        unit = units_world.killed(keys, is_committed=True)
        before = books.everything()
        assert rolled_back(ben, unit).outcome is Outcome.COMMITTED
        assert books.everything() == before

    def test_an_operators_rollback_at_any_request_of_a_unit_leaves_it_rolled_back_or_committed_whole(
        self, books: Books, units_world: UnitsWorld, ben: Party
    ) -> None:
        ends = set()
        for number in count(1):
            keys: list[Key] = [books.account(), books.account()]
            end = self.rolled_back_before(number, units_world.party(), ben, keys)
            if end is None:
                break
            outcome, is_rolled_back = end
            assert is_rolled_back == (outcome is Outcome.ROLLED_BACK)
            if outcome is not Outcome.FORGOTTEN:
                assert books.marks(keys) == 0
                assert books.balances(keys) == ([100, 100] if outcome is Outcome.ROLLED_BACK else [0, 0])
            ends.add(outcome)
        assert ends == {Outcome.FORGOTTEN, Outcome.ROLLED_BACK, Outcome.COMMITTED}

    def rolled_back_before(self, number: int, ann: Party, ben: Party, keys: list[Key]) -> tuple[Outcome, bool] | None:
        """The outcome of a unit that is rolled back before its n-th request, and whether its commit raised that; None
        if it sends fewer requests.
        """
        unit = ann.begin(engine="marked")
        known: list[Settled] = []
        before_the_nth(ann, number, lambda: known.append(rolled_back(ben, unit.id)))
        for key in keys:
            unit.update(ann.accounts, key, SET, NOUGHT)
        try:
            unit.commit()
        except UnitRolledBack:
            return known[0].outcome, True
        return (known[0].outcome, False) if known else None


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


def before_the_nth(party: Party, number: int, do: Callable[[], object]) -> None:
    """Run something before the party's n-th request from now on."""
    seen = 0

    def before(**_: object) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            do()

    party.client.meta.events.register_first("before-call.dynamodb", before)
