"""Operators list units, inspect one, settle it, or roll it back."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

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
from units.conftest import COPIES_S, LEASE_S, MARGIN_S

from ticketlock.errors import InvalidUnitRequest, UnitRolledBack
from ticketlock.units import OpenUnit, Outcome, Record, Unit
from ticketlock.units._records._marks import Marks
from ticketlock.units._records._record import UnitRecords
from ticketlock.units._records._rows import Strange
from ticketlock.units._recovery._operators import (
    Counted,
    Settled,
    Shown,
    Standing,
    count_unfinished,
    inspect,
    open_units,
    roll_back,
    settle,
)

pytestmark = pytest.mark.parametrize("units_engine", first_on("memory", engine_names()), indirect=True)

OLD_BALANCES, NEW_BALANCES = [100, 100], [0, 0]
SET, NOUGHT = "SET balance = :n", {":n": 0}
# Incompressible, so that it does not fit into the record.
LONG = random.Random(0).randbytes(8_000)
UNKNOWN_ID, OTHER = "01K9AA0000SA1M0SPPS3EJ8KYB", "01K9AA0000SA1M0SPPS3EJ8KYC"
ROLLED_BACK_HEAD = {
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
# The sort keys of rows with a unit's new values begin with it.
NEW_VALUES = "w#"
# More than a unit of two items sends.
MANY_REQUESTS = 50
MARKS = Marks("_tlu")


def new_accounts(books: Books) -> list[Key]:
    """The keys of two new accounts with ``OLD_BALANCES``."""
    return [books.account(), books.account()]


@pytest.fixture
def two_accounts(books: Books) -> list[Key]:
    return new_accounts(books)


@pytest.fixture
def rolled_back_by_another(books: Books) -> Iterator[str]:
    """The id of a unit that another one has rolled back; the rows that list its items do not exist."""
    books.write("units", {"unit": UNKNOWN_ID, "row": "head", "open": UNKNOWN_ID, **ROLLED_BACK_HEAD})
    yield UNKNOWN_ID
    delete_row(books, UNKNOWN_ID, "head")


@pytest.fixture
def strange_row(books: Books) -> Iterator[str]:
    """The partition key of a head that no unit has written."""
    strange = some_name()
    books.write("units", {"unit": strange, "row": "head", "open": strange, "state": "new", "rev": 1})
    yield strange
    delete_row(books, strange, "head")


def delete_row(books: Books, unit: str, row: str) -> None:
    """Delete a row of the units table without a unit."""
    books.plain_client.delete_item(TableName=books.tables["units"], Key=dumped({"unit": unit, "row": row}))


def mark_as(books: Books, key: Key, value: object) -> None:
    """Give an account a mark that no unit has written."""
    books.write("accounts", {**(books.raw("accounts", key) or {}), MARK: value})


def listed(party: Party, unit: str) -> OpenUnit | None:
    """Its entry in the list of open units; None if it is not there."""
    return next((each for each in party.units.open_units() if each.unit == unit), None)


def records(party: Party) -> UnitRecords:
    return UnitRecords(party.books.tables["units"])


def inspected(party: Party, unit: str) -> Shown | None:
    return party.units._performer.perform_steps(inspect(records(party), unit))


def settled(party: Party, unit: str) -> Settled:
    return party.units._performer.perform_steps(settle(records(party), unit))


def rolled_back(party: Party, unit: str) -> Settled:
    return party.units._performer.perform_steps(roll_back(records(party), unit))


def standings(party: Party, unit: str) -> dict[str, Standing]:
    """What the unit's items contain, by the accounts' ids."""
    shown = inspected(party, unit)
    assert shown is not None
    assert shown.items is not None
    found = {loaded(each.entry.key)["id"]: each.standing for each in shown.items}
    assert len(found) == len(shown.items)
    return found


@THREADS_ONLY
def test_items_that_an_operator_may_not_read_are_unknown_and_not_counted_as_finished(
    units_world: UnitsWorld, ben: Party, two_accounts: list[Key]
) -> None:
    unit = units_world.killed(two_accounts, is_committed=True)

    def counted() -> Counted:
        return ben.units._performer.perform_steps(count_unfinished(records(ben), unit, 10))

    assert counted() == Counted(2, 2, are_all=True)
    ben.may_not_read_accounts()
    assert set(standings(ben, unit).values()) == {Standing.UNKNOWN}
    assert counted() == Counted(0, 2, are_all=True, are_refused=True)


@THREADS_ONLY
@pytest.mark.parametrize("way", ["settle", "sweep"])
def test_a_unit_is_ended_by_the_prefix_of_its_record_whatever_that_of_the_process_that_ends_it(
    units_world: UnitsWorld, books: Books, ben: Party, two_accounts: list[Key], way: str
) -> None:
    ann = units_world.party(prefix="_mine")
    with ann.begin() as first:
        for key in two_accounts:
            first.update(ann.accounts, key, "SET balance = :n", {":n": 1})
    unit = ann.begin(engine="marked")
    for key in two_accounts:
        unit.update(ann.accounts, key, "SET balance = :n", {":n": 0})
    crashes(ann, len(two_accounts) + 1, is_sent=True)
    with pytest.raises(Killed):
        unit.commit()
    assert set(standings(ben, unit.id).values()) == {Standing.THERE}
    settled(ben, unit.id) if way == "settle" else ben.units.sweep()
    assert set(standings(ben, unit.id).values()) == {Standing.WRITTEN}
    assert [books.balance(key) for key in two_accounts] == [0, 0]


def test_threads_and_tasks_list_a_unit_that_another_one_has_rolled_back(
    ann: Party, rolled_back_by_another: str
) -> None:
    entry = listed(ann, rolled_back_by_another)
    assert entry is not None
    assert (entry.state, entry.rolled_back_by, entry.items) == (Outcome.ROLLED_BACK, OTHER, None)


def test_threads_and_tasks_repair_an_item_that_no_record_leads_to(
    books: Books, ann: Party, account: Key, rolled_back_by_another: str
) -> None:
    mark_as(books, account, {"unit": rolled_back_by_another, "kind": "write"})
    for write in (False, True):
        (found,) = [each for each in ann.units.repair(ann.accounts, write=write) if each.key == account]
        assert (found.unit, found.record, found.action) == (rolled_back_by_another, Record.ROLLED_BACK, "unmarked")
        assert books.marks([account]) == (not write)


@THREADS_ONLY
def test_the_list_of_open_units_has_a_unit_from_its_first_mark_until_it_is_closed(
    ann: Party, ben: Party, two_accounts: list[Key]
) -> None:
    seen = []
    ann.line.between["TransactWriteItems"] = lambda: seen.append(listed(ben, unit.id))
    with ann.begin(engine="marked", name=some_name()) as unit:
        for key in two_accounts:
            unit.update(ann.accounts, key, SET, NOUGHT)
    (entry,) = seen
    assert entry is not None
    assert (entry.state, entry.items, entry.is_closed) == (Outcome.PENDING, 2, False)
    assert listed(ben, unit.id) is None


@THREADS_ONLY
def test_the_list_of_open_units_has_the_oldest_first_with_their_ages_and_leases(
    books: Books, units_world: UnitsWorld, ben: Party, two_accounts: list[Key]
) -> None:
    first = units_world.killed(two_accounts, is_committed=True)
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
    books: Books, units_world: UnitsWorld, ben: Party, two_accounts: list[Key]
) -> None:
    unit = units_world.killed(two_accounts, is_committed=True, noise=LONG)
    entry = listed(ben, unit)
    assert entry is not None
    assert entry.items == 2
    for row in books.rows(unit):
        if row.startswith(NEW_VALUES):
            delete_row(books, unit, row)
    entry = listed(ben, unit)
    assert entry is not None
    assert entry.items is None


@THREADS_ONLY
def test_the_list_of_open_units_leaves_out_what_no_unit_has_written_and_reports_it(
    units_world: UnitsWorld, ben: Party, two_accounts: list[Key], strange_row: str, caplog: pytest.LogCaptureFixture
) -> None:
    unit = units_world.killed(two_accounts, is_committed=True)
    problems: list[Strange] = []
    found = [each.unit for each in ben.units._performer.perform_steps(open_units(records(ben), problems.append))]
    assert unit in found
    assert strange_row not in found
    assert any(strange_row in str(each) for each in problems)
    assert not any(strange_row in message for message in caplog.messages)
    assert listed(ben, strange_row) is None
    assert any(strange_row in message for message in caplog.messages)


@THREADS_ONLY
@pytest.mark.parametrize("is_committed", [False, True], ids=["pending", "committed"])
def test_an_inspection_shows_that_items_are_marked_and_writes_nothing(
    books: Books, units_world: UnitsWorld, ben: Party, two_accounts: list[Key], is_committed: bool
) -> None:
    unit = units_world.killed(two_accounts, is_committed=is_committed)
    books.clock.advance(LEASE_S + MARGIN_S)
    before = books.everything()
    assert standings(ben, unit) == {key["id"]: Standing.THERE for key in two_accounts}
    assert books.everything() == before


@THREADS_ONLY
def test_an_inspection_shows_which_items_of_a_committed_unit_are_finished_and_which_others_have_changed_since(
    units_world: UnitsWorld, ben: Party, two_accounts: list[Key]
) -> None:
    changed, left = two_accounts
    unit = units_world.killed(two_accounts, is_committed=True)
    ben.changes(changed, 1)
    assert standings(ben, unit) == {changed["id"]: Standing.OFF, left["id"]: Standing.THERE}
    settled(ben, unit)
    assert standings(ben, unit) == {changed["id"]: Standing.OFF, left["id"]: Standing.WRITTEN}


@THREADS_ONLY
def test_an_inspection_shows_marks_of_other_units_strange_marks_and_tables_that_are_gone(
    books: Books, units_world: UnitsWorld, ben: Party, two_accounts: list[Key]
) -> None:
    ann, gone = units_world.party(), f"{books.tables['accounts']}-gone"
    make_table(books.plain_client, gone, {"id": "S"})
    unit = ann.begin(engine="marked")
    lost = some_account()
    unit.put(ann.units.table(gone), lost)
    for key in two_accounts:
        unit.update(ann.accounts, key, SET, NOUGHT)
    # The first update after the last mark decides.
    crashes(ann, len(two_accounts) + 1, is_sent=True)
    with pytest.raises(Killed):
        unit.commit()
    books.plain_client.delete_table(TableName=gone)
    of_another, strange = two_accounts
    mark_as(books, of_another, {"unit": UNKNOWN_ID, "kind": "write"})
    mark_as(books, strange, "a secret")
    assert standings(ben, unit.id) == {
        of_another["id"]: Standing.OF_ANOTHER,
        strange["id"]: Standing.STRANGE,
        lost["id"]: Standing.NO_TABLE,
    }


@dataclass(frozen=True)
class Action:
    """What an operator does with a unit whose process was killed, and the outcome.

    Attributes:
        is_committed: whether the unit was killed after its decision; otherwise before it.
        later_s: seconds from then until the operator acts.
    """

    command: Callable[[Party, str], Settled]
    is_committed: bool
    later_s: int
    outcome: Outcome


ENDS = {
    "settled, committed": Action(settled, True, 0, Outcome.COMMITTED),
    "settled, its lease over": Action(settled, False, LEASE_S + MARGIN_S, Outcome.ROLLED_BACK),
    "rolled back, its lease running": Action(rolled_back, False, 0, Outcome.ROLLED_BACK),
}
LEAVES = {
    "settled, its lease running": Action(settled, False, 0, Outcome.PENDING),
    "rolled back, committed": Action(rolled_back, True, 0, Outcome.COMMITTED),
}


@THREADS_ONLY
@pytest.mark.parametrize("action", ENDS.values(), ids=ENDS)
def test_an_operator_ends_a_unit_once_and_finishes_its_items(
    books: Books, units_world: UnitsWorld, ben: Party, two_accounts: list[Key], action: Action
) -> None:
    unit = units_world.killed(two_accounts, is_committed=action.is_committed)
    books.clock.advance(action.later_s)
    result = action.command(ben, unit)
    assert result.outcome is action.outcome
    ended = [loaded(entry.key) for entry in result.ended]
    assert sorted(ended, key=str) == sorted(two_accounts, key=str)
    assert books.marks(two_accounts) == 0
    assert books.balances(two_accounts) == (NEW_BALANCES if action.is_committed else OLD_BALANCES)
    assert ben.units.outcome(unit=unit).state is action.outcome
    again = action.command(ben, unit)
    assert (again.outcome, again.failed, list(again.ended)) == (action.outcome, None, [])


@THREADS_ONLY
@pytest.mark.parametrize("action", LEAVES.values(), ids=LEAVES)
def test_an_operator_changes_nothing_if_the_command_may_not_end_the_unit(
    books: Books, units_world: UnitsWorld, ben: Party, two_accounts: list[Key], action: Action
) -> None:
    unit = units_world.killed(two_accounts, is_committed=action.is_committed)
    books.clock.advance(action.later_s)
    before = books.everything()
    assert action.command(ben, unit).outcome is action.outcome
    assert books.everything() == before


@THREADS_ONLY
def test_settling_a_unit_closes_it_ten_minutes_after_its_end(
    books: Books, units_world: UnitsWorld, ben: Party, two_accounts: list[Key]
) -> None:
    unit = units_world.killed(two_accounts, is_committed=True)
    settled(ben, unit)
    assert listed(ben, unit) is not None
    books.clock.advance(COPIES_S + MARGIN_S)
    # Also when it is already closed.
    for _ in range(2):
        assert settled(ben, unit).outcome is Outcome.COMMITTED
        assert listed(ben, unit) is None


@THREADS_ONLY
def test_settling_a_unit_returns_the_outcome_although_an_item_cannot_be_finished(
    books: Books, units_world: UnitsWorld, ben: Party, two_accounts: list[Key]
) -> None:
    unit = units_world.killed(two_accounts, is_committed=True)
    mark_as(books, two_accounts[0], "a secret")
    result = settled(ben, unit)
    assert result.outcome is Outcome.COMMITTED
    assert isinstance(result.failed, InvalidUnitRequest)


def roll_back_before_the_nth(party: Party, number: int, operator: Party, unit: Unit) -> list[Settled]:
    """Roll a unit back before its process sends its n-th request; the list that is returned gets the result then."""
    results: list[Settled] = []
    before_the_nth(party, number, lambda: results.append(rolled_back(operator, unit.id)))
    return results


@THREADS_ONLY
def test_an_operators_rollback_before_any_request_of_a_unit_leaves_it_rolled_back_or_committed_whole(
    books: Books, units_world: UnitsWorld, ben: Party
) -> None:
    ends = set[Outcome]()
    for number in range(1, MANY_REQUESTS):
        accounts, ann, is_rolled_back = new_accounts(books), units_world.party(), False
        unit = ann.begin(engine="marked")
        results = roll_back_before_the_nth(ann, number, ben, unit)
        for key in accounts:
            unit.update(ann.accounts, key, SET, NOUGHT)
        try:
            unit.commit()
        except UnitRolledBack:
            is_rolled_back = True
        if not results:
            # It has sent fewer requests: the operator has acted before each of them.
            break
        (result,) = results
        assert is_rolled_back == (result.outcome is Outcome.ROLLED_BACK)
        if result.outcome is not Outcome.FORGOTTEN:
            assert books.marks(accounts) == 0
            assert books.balances(accounts) == (OLD_BALANCES if is_rolled_back else NEW_BALANCES)
        ends.add(result.outcome)
    else:
        pytest.fail(f"the unit has sent {MANY_REQUESTS} requests or more")
    assert ends == {Outcome.FORGOTTEN, Outcome.ROLLED_BACK, Outcome.COMMITTED}


@THREADS_ONLY
@pytest.mark.parametrize("command", [inspected, settled, rolled_back], ids=["inspect", "settle", "roll back"])
def test_a_text_that_is_no_id_of_a_unit_is_refused_before_any_request(
    ann: Party, command: Callable[[Party, str], object]
) -> None:
    with pytest.raises(InvalidUnitRequest, match=r"unit is .*; allowed: the `id` of a unit"):
        command(ann, "unit-42")
    assert ann.line.sent == []


@THREADS_ONLY
def test_a_unit_without_a_record_is_forgotten_and_nothing_is_written(books: Books, ann: Party) -> None:
    before = books.everything()
    assert inspected(ann, UNKNOWN_ID) is None
    assert {settled(ann, UNKNOWN_ID).outcome, rolled_back(ann, UNKNOWN_ID).outcome} == {Outcome.FORGOTTEN}
    assert books.everything() == before
