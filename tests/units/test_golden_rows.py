"""What a process of format 1 has left is read and ended by this version, and what a newer one leaves is refused."""

import base64
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key as KeyOf
from kit.units import MARK, Books, Party
from units.conftest import COPIES_S, LEASE_S
from units.golden_rows import CORRECTION, SET, STATES, empty_books, golden, party, path_of, written

from ticketlock.errors import InvalidUnitRequest, UnitConflict, UnitRolledBack, UnsupportedFormat
from ticketlock.units import Outcome, Record, Swept
from ticketlock.units._records._record import UnitRecords
from ticketlock.units._recovery._operators import Correction, correct, inspect, open_units

LATER_S = LEASE_S + COPIES_S
MORE_THAN_A_YEAR_S = 370 * 86_400


def heads(books: Books) -> list[Any]:
    return [row for row in books.everything()["units"] if row["row"] == "head"]


def id_of_the_only_unit(books: Books) -> str:
    (head,) = heads(books)
    return str(head["unit"])


def balances(books: Books) -> dict[str, Any]:
    return {item["id"]: item.get("balance") for item in books.everything()["accounts"] if item["id"] != "lock"}


def marks(books: Books) -> int:
    return sum(MARK in item for use in ("accounts", "lines") for item in books.everything()[use])


# What is read.

OF_TWO_MARKS = Swept(rolled_back=1, finished=2, open=1)
# What a sweep does with each state so many seconds later, and how many rows of the units are left.
SWEPT: dict[str, tuple[int, Swept, int]] = {
    "pending": (LATER_S, OF_TWO_MARKS, 1),
    "committed": (0, Swept(finished=3, open=1), 1),
    "committed_with_rows": (0, Swept(finished=3, open=1), 2),
    "closed_with_rows": (0, Swept(closed=1), 1),
    "rolled_back_by_an_older_unit": (LATER_S, Swept(rolled_back=1, finished=2, closed=1, open=1), 2),
    # It is found by the keys in its rows what the unit has marked.
    "with_read_locks": (LATER_S, OF_TWO_MARKS, 4),
    "saved": (MORE_THAN_A_YEAR_S, Swept(rolled_back=1, open=1), 3),
    "an_operator_s_correction": (LATER_S, Swept(closed=1), 2),
    # It continues where the last one has stopped.
    "a_sweep_that_stopped": (0, Swept(rolled_back=1, finished=1, open=1), 2),
}


# The balances that it leaves, if not the old ones.
NEW = {"a": 0, "new": None, "c": 100}
LEFT_BY_A_SWEEP: dict[str, dict[str, Any]] = {
    "committed": NEW,
    "committed_with_rows": NEW,
    "closed_with_rows": {"a": 0, "b": 100, "c": 100},
}


@pytest.mark.parametrize("state", SWEPT)
def test_what_a_unit_has_left_is_ended_by_a_sweep(state: str) -> None:
    later_s, swept, rows = SWEPT[state]
    with golden(state) as books:
        books.clock.advance(later_s)
        assert party(books).units.sweep(timeout=10) == swept
        assert (len(books.everything()["units"]), marks(books)) == (rows, 0)
        assert balances(books) == LEFT_BY_A_SWEEP.get(state, {"a": 100, "b": 100, "c": 100})


COMMITTED_STATES = pytest.mark.parametrize("state", ["committed", "committed_with_rows"])


@COMMITTED_STATES
def test_an_item_that_a_committed_unit_inserts_has_all_of_its_attributes_after_a_sweep(state: str) -> None:
    with golden(state) as books:
        party(books).units.sweep()
        inserted = {"id": "new", "raw": b"\x00\x01", "set": {1, 2}, "deep": [{"a": None}, True]}
        assert books.item("accounts", {"id": "new"}) == inserted


@COMMITTED_STATES
def test_a_committed_unit_is_read_by_readers_and_operators_and_left_as_it_is(state: str) -> None:
    with golden(state) as books:
        ben, before = party(books), books.everything()
        found = [ben.units.get(ben.accounts, {"id": name}) for name in ("a", "b", "new")]
        assert [item and item.get("balance", "new") for item in found] == [0, None, "new"]
        steps = inspect(UnitRecords("units"), id_of_the_only_unit(books))
        shown = ben.units._performer.perform_steps(steps)
        assert shown is not None
        assert shown.items is not None
        assert [each.entry.kind for each in shown.items] == ["change", "delete", "put"]
        assert ben.units.rollback(id_of_the_only_unit(books)) is Outcome.COMMITTED
        assert books.everything() == before


@COMMITTED_STATES
def test_a_committed_unit_is_finished_by_a_writer_and_by_a_repair(state: str) -> None:
    with golden(state) as books:
        ben = party(books)
        ben.changes({"id": "a"}, 5)
        ben.units.repair(ben.accounts, write=True)
        assert (balances(books), marks(books)) == ({"a": 5, "new": None, "c": 100}, 0)


def test_the_outcome_of_a_pending_unit_is_pending() -> None:
    with golden("pending") as books:
        assert party(books).units.outcome(unit=id_of_the_only_unit(books)).state is Outcome.PENDING


def test_a_unit_that_an_older_one_has_rolled_back_is_known_as_rolled_back_and_keeps_no_writer_from_its_items() -> None:
    with golden("rolled_back_by_an_older_unit") as books:
        ben = party(books)
        listed = ben.units._performer.perform_steps(open_units(UnitRecords("units")))
        (seen,) = [each for each in listed if each.rolled_back_by]
        assert ben.units.outcome(unit=seen.unit).state is Outcome.ROLLED_BACK
        ben.changes({"id": "b"}, 7)
        assert balances(books)["b"] == 7


def test_a_saved_unit_is_resumed_with_all_that_it_has_read_and_stated() -> None:
    with golden("saved") as books:
        ben = party(books, guarded=True)
        unit = ben.units.resume(id_of_the_only_unit(books))
        assert (unit.get(ben.accounts, {"id": "a"}) or {})["balance"] == 0
        assert [unit.get(ben.accounts, {"id": name}) for name in ("b", "none")] == [None, None]
        assert unit.get(ben.lines, {"pk": "p", "sk": 1}) == {"pk": "p", "sk": 1, "raw": b"\x00"}
        unit.commit()
        assert balances(books) == {"a": 0, "c": 100}
        assert ben.units.outcome(name="charge-42").state is Outcome.COMMITTED


def test_a_saved_unit_is_rolled_back_with_its_owner() -> None:
    with golden("saved") as books:
        ben, unit = party(books), id_of_the_only_unit(books)
        assert ben.units.end_owner("execution") == [unit]
        with pytest.raises(UnitRolledBack):
            ben.units.resume(unit)


def test_a_saved_unit_that_its_head_holds_is_resumed_and_knows_its_steps() -> None:
    with golden("saved_in_its_head") as books:
        ben, unit = party(books), id_of_the_only_unit(books)
        ben.units.resume(unit).save()
        assert ben.units.resume(unit, step="second").save() == unit
        ben.units.resume(unit).commit()
        assert balances(books) == {"a": 0, "b": 0, "c": 100}


def test_a_saved_unit_that_has_ended_is_known_as_committed_or_rolled_back() -> None:
    with golden("saved_and_ended") as books:
        ben, found = party(books), {}
        for head in heads(books):
            found[head["state"]] = ben.units.outcome(unit=head["unit"]).state
            if head["state"] == "committed":
                assert ben.units.resume(head["unit"]).repeated
            else:
                with pytest.raises(UnitRolledBack):
                    ben.units.resume(head["unit"])
        assert found == {"committed": Outcome.COMMITTED, "rolledBack": Outcome.ROLLED_BACK}


def test_an_operator_s_correction_is_known_if_it_is_repeated() -> None:
    with golden("an_operator_s_correction") as books:
        ben, unit = party(books), id_of_the_only_unit(books)
        again = Correction(CORRECTION, None, "ada", "a wrong vector")
        steps = correct(UnitRecords("units"), unit, ben.accounts, {"id": {"S": "a"}}, again)
        assert ben.units._performer.perform_steps(steps) == "dropped"


def test_a_committed_name_stays_committed_and_one_that_was_given_up_may_be_used_again() -> None:
    with golden("names") as books:
        ben = party(books)
        assert [ben.units.outcome(name=name).state for name in ("committed", "given up")] == [
            Outcome.COMMITTED,
            Outcome.ROLLED_BACK,
        ]
        for name, key in (("committed", "b"), ("given up", "c")):
            with ben.begin(name=name) as unit:
                unit.update(ben.accounts, {"id": key}, SET, {":n": 0})
        assert balances(books) == {"a": 0, "b": 100, "c": 0}


def test_nothing_is_saved_under_an_owner_that_has_ended() -> None:
    with golden("an_owner_that_has_ended") as books, pytest.raises(UnitRolledBack, match="has ended"):
        party(books).saves({"id": "a"}, owner="execution")


def test_an_insert_conflicts_with_a_unit_that_has_read_the_guard_of_its_partition() -> None:
    with golden("a_guard") as books:
        ann, ben = (party(books, guarded=True) for _ in range(2))
        unit = ann.begin()
        assert len(unit.query(ann.lines, KeyOf("pk").eq("p"))) == 1
        with ben.begin() as other:
            other.put(ben.lines, {"pk": "p", "sk": 2})
        unit.update(ann.accounts, {"id": "a"}, SET, {":n": 0})
        with pytest.raises(UnitConflict, match="inserted"):
            unit.commit()


@pytest.mark.parametrize("state", STATES)
def test_what_is_written_now_has_the_shape_of_its_file(state: str) -> None:
    """Whoever changes a shape raises its format, and adds files of the new one: those of the old one stay."""
    then = json.loads(path_of(state).read_text())["tables"]["units"]
    now = written(state)["tables"]["units"]
    assert sorted(map(shape, now), key=str) == sorted(map(shape, then), key=str)


def shape(row: dict[str, Any]) -> dict[str, Any]:
    """The names and types in a row, what is packed in it included."""
    with_contents = {name: contents(value["B"]) if set(value) == {"B"} else value for name, value in row.items()}
    kind = row["row"]["S"].partition("#")[0] if row["row"]["S"].islower() else "of an owner"
    return {"kind": kind, "format": row["format"], **names_in(with_contents)}


def names_in(told: Any) -> Any:
    if isinstance(told, dict):
        return {name: names_in(each) for name, each in sorted(told.items())}
    return [names_in(each) for each in told] if isinstance(told, list) else type(told).__name__


def contents(packed: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(packed))) if packed else None


# What is refused.

NEWER = {"N": "2"}
ANOTHER_ID = "0" * 26


def newer(kind: str) -> Callable[[dict[str, Any]], object]:
    """Makes rows of a newer version of those whose sort keys begin with this kind."""

    def change(row: dict[str, Any]) -> None:
        if row["row"]["S"].startswith(kind):
            row["format"] = NEWER

    return change


REFUSED: dict[str, tuple[str, str, Callable[[Party, str], object]]] = {
    "resume": ("saved", "head", lambda ben, unit: ben.units.resume(unit)),
    "resume, of its rows": ("saved", "w#", lambda ben, unit: ben.units.resume(unit)),
    "a reader that meets its mark": ("committed", "head", lambda ben, _: ben.units.get(ben.accounts, {"id": "a"})),
    "a reader, of its rows": ("committed_with_rows", "w#", lambda ben, _: ben.units.get(ben.accounts, {"id": "a"})),
    "a writer that meets its mark": ("pending", "head", lambda ben, _: ben.changes({"id": "a"}, 1)),
    "the outcome of a unit": ("committed", "head", lambda ben, unit: ben.units.outcome(unit=unit)),
    "the outcome of a name": ("names", "receipt", lambda ben, _: ben.units.outcome(name="given up")),
    "a unit of that name": ("names", "receipt", lambda ben, _: ben.begin(name="committed").commit()),
    "rollback": ("pending", "head", lambda ben, unit: ben.units.rollback(unit)),
    "end_owner": ("saved", "head", lambda ben, _: ben.units.end_owner("execution")),
    # Its sort key is the unit's id.
    "end_owner, of the row that names the unit": ("saved", "0", lambda ben, _: ben.units.end_owner("execution")),
    "end_owner, of an end": ("an_owner_that_has_ended", "ended", lambda ben, _: ben.units.end_owner("execution")),
    "a query of a guarded table": (
        "a_guard",
        "guard",
        lambda ben, _: ben.begin().query(ben.lines, KeyOf("pk").eq("p")),
    ),
}


@pytest.mark.parametrize("which", REFUSED)
def test_a_newer_format_is_refused_by_its_number_and_nothing_is_written(which: str) -> None:
    state, kind, do = REFUSED[which]
    with golden(state, newer(kind)) as books:
        before = all_but_the_end_of_an_owner(books)
        unit = next((each["unit"] for each in heads(books)), "")
        with pytest.raises(UnsupportedFormat, match="format 2, but this version only knows 1: upgrade") as caught:
            do(party(books, guarded=True), str(unit))
        assert caught.value.stored == 2
        assert all_but_the_end_of_an_owner(books) == before


def all_but_the_end_of_an_owner(books: Books) -> list[Any]:
    return [row for rows in books.everything().values() for row in rows if row.get("row") != "ended"]


@pytest.mark.parametrize("state", ["pending", "committed"])
def test_a_sweep_leaves_a_unit_of_a_newer_version_and_ends_the_others(
    state: str, caplog: pytest.LogCaptureFixture
) -> None:
    with golden("a_sweep_that_stopped") as books:
        books.clock.advance(LATER_S)
        unit = next(each for each in heads(books) if each["state"] == "pending")
        other = {**unit, "unit": ANOTHER_ID, "format": 2, "state": state}
        books.write("units", other)
        assert party(books).units.sweep() == Swept(rolled_back=1, finished=1, open=2, closed=1)
        assert books.raw("units", {"unit": ANOTHER_ID, "row": "head"}) == other
    (warned,) = [message for message in caplog.messages if ANOTHER_ID in message]
    assert "is in data format 2, but this version only knows 1: upgrade ticketlock" in warned


def test_a_sweep_begins_at_the_beginning_where_a_newer_one_has_stopped(caplog: pytest.LogCaptureFixture) -> None:
    with golden("a_sweep_that_stopped", newer("part#")) as books:
        assert party(books).units.sweep(timeout=10).open == 2
    assert any("'part#0of1'" in message and "data format 2" in message for message in caplog.messages)


def test_a_repair_leaves_the_marks_of_a_newer_version_and_says_why() -> None:
    with golden("pending", newer("head")) as books:
        books.clock.advance(LATER_S)
        ben = party(books)
        found = ben.units.repair(ben.accounts, write=True)
        assert [each.record for each in found] == [Record.UNCLEAR] * 2
        assert all("data format 2" in str(each.why) for each in found)
        assert marks(books) == 2


def test_open_units_are_listed_beside_one_of_a_newer_version() -> None:
    with golden("a_sweep_that_stopped") as books:
        first, *_ = heads(books)
        books.write("units", {**first, "unit": ANOTHER_ID, "format": 2})
        strange: list[Any] = []
        listed = party(books).units._performer.perform_steps(open_units(UnitRecords("units"), strange.append))
        assert (len(listed), [type(each) for each in strange]) == (2, [UnsupportedFormat])


def test_a_commit_whose_saved_unit_a_newer_version_has_taken_over_is_refused_as_of_an_unsupported_format() -> None:
    with empty_books() as books:
        ann = party(books)
        unit = ann.units.resume(ann.saves({"id": "a"}))
        for head in heads(books):
            books.write("units", {**head, "format": 2, "rev": head["rev"] + 2, "coordinator": "another"})
        with pytest.raises(UnsupportedFormat):
            unit.commit()
        assert balances(books)["a"] == 100


def test_a_saved_unit_stays_as_it_was_if_a_newer_version_has_ended_its_owner() -> None:
    with golden("an_owner_that_has_ended", newer("ended")) as books:
        ann = party(books)
        unit = ann.saves({"id": "a"})
        with pytest.raises(UnsupportedFormat):
            ann.units.resume(unit).save(owner="execution")
        ann.units.resume(unit).commit()
        assert balances(books)["a"] == 90


# Rows that no unit has written.


@pytest.mark.parametrize("stored", [None, 0, "1"])
def test_a_head_without_a_format_is_refused_as_the_row_of_no_unit(stored: object) -> None:
    def change(row: dict[str, Any]) -> None:
        row.pop("format")
        row.update({} if stored is None else {"format": {"N" if stored == 0 else "S": str(stored)}})

    with golden("committed", change) as books:
        ben = party(books)
        with pytest.raises(InvalidUnitRequest, match=r"no unit has written this row, .*'format'"):
            ben.units.outcome(unit=id_of_the_only_unit(books))
        assert ben.units.sweep().open == 1


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], type[Exception], str]] = {
    "an unknown name in a place": (lambda told: told["places"][0].update(more=1), InvalidUnitRequest, "has 'more'"),
    "a missing name in a place": (lambda told: told["places"][0].pop("seen"), InvalidUnitRequest, "lacks 'seen'"),
    "an unknown name": (lambda told: told.update(more=1), InvalidUnitRequest, "has 'more'"),
    "a missing name": (lambda told: told.pop("places"), InvalidUnitRequest, "lacks 'places'"),
    "no format": (lambda told: told.pop("format"), InvalidUnitRequest, "no number in its 'format'"),
    "a newer format": (lambda told: told.update(format=2, more=1), UnsupportedFormat, "data format 2"),
}


@pytest.mark.parametrize("which", CHANGES)
def test_a_saved_unit_of_another_shape_is_refused_with_the_name_that_is_unknown_or_missing(which: str) -> None:
    change, error, told = CHANGES[which]
    with empty_books() as books:
        ann = party(books)
        unit = ann.saves({"id": "a"})
        (head,) = heads(books)
        saved = json.loads(zlib.decompress(bytes(head["writes"])))
        change(saved)
        books.write("units", {**head, "writes": zlib.compress(json.dumps(saved).encode())})
        with pytest.raises(error, match=told):
            ann.units.resume(unit)
