"""Sweeps: what they do and report, also beside each other, in parts of the table, and with a time-out."""

import uuid
from typing import Any
from zlib import compress

import pytest
from botocore.exceptions import ClientError
from kit.crashes import before_the_nth, crashes
from kit.engines import engine_names, first_on
from kit.units import MARK, THREADS_ONLY, Books, Key, Killed, Party, UnitsWorld, loaded, make_table, some_account
from units.conftest import NEW, OLD, killed

from ticketlock.errors import InvalidUnitRequest, TableRefused
from ticketlock.units import Swept
from ticketlock.wire._item_requests import MOST_TOGETHER

pytestmark = [
    pytest.mark.shows("nothing left"),
    THREADS_ONLY,
    pytest.mark.parametrize("units_engine", first_on("memory", engine_names()), indirect=True),
]


LEASE_S, COPIES_S, MARGIN_S = 60, 600, 5

LONG_S = 30
"""How long a request may take that uses up the time of a sweep."""

PARTS = 4

MANY = 24
"""So many units that each of two parts has several of them."""

FILLER_BYTES = 390_000
"""Of a row; a page has up to 1 MB."""

HEAD = {"format": 1, "state": "pending", "rev": 0, "born": 0, "leaseUntilMs": 0, "attempt": "1", "pieces": 0}
ENDED = {**HEAD, "state": "committed", "finalMs": 1}


@pytest.fixture(autouse=True)
def only_its_own(books: Books) -> None:
    books.empty()


def rows(books: Books) -> list[str]:
    """The kinds of the rows in the units table: heads, and the writes of units."""
    return [row["row"].partition("#")[0] for row in books.everything()["units"]]


def assert_ended(books: Books, keys: list[Key], *, is_committed: bool) -> None:
    """What was left is finished or rolled back, and only its record remains."""
    assert books.marks(keys) == 0
    assert books.balances(keys) == (NEW if is_committed else OLD)
    assert "w" not in rows(books)


def test_a_unit_is_left_alone_until_its_lease_is_over_and_then_rolled_back(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
) -> None:
    killed(units_world, keys, is_committed=False)
    assert ben.units.sweep().open == 1
    assert books.marks(keys) == 3
    books.clock.advance(LEASE_S + MARGIN_S)
    assert ben.units.sweep() == Swept(rolled_back=1, finished=3, closed=0, open=1)
    assert (books.marks(keys), books.balances(keys)) == (0, OLD)
    books.clock.advance(COPIES_S + MARGIN_S)
    assert ben.units.sweep() == Swept(closed=1)
    assert rows(books) == ["head"]
    assert ben.units.sweep() == Swept()


def test_a_unit_that_was_committed_is_finished_at_once_and_closed_ten_minutes_after_its_end(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
) -> None:
    killed(units_world, keys, is_committed=True)
    assert ben.units.sweep() == Swept(finished=3, open=1)
    assert (books.marks(keys), books.balances(keys)) == (0, NEW)
    books.clock.advance(COPIES_S - MARGIN_S)
    assert ben.units.sweep() == Swept(open=1)
    books.clock.advance(2 * MARGIN_S)
    assert ben.units.sweep() == Swept(closed=1)
    assert rows(books) == ["head"]


@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.parametrize("operation", ["GetItem", "BatchGetItem", "UpdateItem", "DeleteItem", "PutItem"])
def test_two_sweeps_beside_each_other_do_what_one_does(
    books: Books,
    units_world: UnitsWorld,
    ann: Party,
    ben: Party,
    keys: list[Key],
    is_committed: bool,
    operation: str,
) -> None:
    killed(units_world, keys, is_committed=is_committed)
    books.clock.advance(LEASE_S + MARGIN_S)
    for _ in range(2):
        ann.line.between[operation] = ben.units.sweep
        ann.units.sweep()
        books.clock.advance(COPIES_S + MARGIN_S)
    ann.units.sweep()
    assert_ended(books, keys, is_committed=is_committed)


@pytest.mark.parametrize("is_committed", [False, True])
def test_who_was_suspended_does_not_close_a_record_that_was_made_again(
    books: Books, units_world: UnitsWorld, ann: Party, ben: Party, keys: list[Key], is_committed: bool
) -> None:
    unit = killed(units_world, keys, is_committed=is_committed)
    marked = books.everything()

    def made_again() -> None:
        """Time to live deletes what Ben has closed; the unit's process was suspended as long, and goes on."""
        ben.units.sweep()
        assert "open" not in books.rows(unit)["head"], "closed"
        books.empty()
        days_ms = 2 * 24 * 3_600 * 1_000
        books.clock.advance(days_ms / 1_000)
        for use, items in marked.items():
            for item in items:
                again = {each: item[each] + days_ms for each in ("finalMs", "leaseUntilMs") if each in item}
                books.write(use, {**item, **again})

    ann.units.sweep()
    books.clock.advance(LEASE_S + MARGIN_S)
    ann.units.sweep()
    books.clock.advance(COPIES_S + MARGIN_S)
    before_the_nth(ann, 1, made_again, "UpdateItem")
    ann.units.sweep()
    assert "closed" not in books.rows(unit)["head"], "by Ann, who has seen another end"
    for _ in range(2):
        books.clock.advance(LEASE_S + COPIES_S + MARGIN_S)
        ben.units.sweep()
    assert_ended(books, keys, is_committed=is_committed)


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_table_that_is_deleted_does_not_keep_the_items_of_others_from_being_finished(
    books: Books, units_world: UnitsWorld, ben: Party, account: Key, is_committed: bool
) -> None:
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
    "with writes that are none": {**ENDED, "writes": b"?"},
    "with writes that are a number": {**ENDED, "writes": compress(b"5")},
    "with writes of another shape": {**ENDED, "writes": compress(b"[[1,2,3,4,5,6]]")},
    "with a piece that is none": {**ENDED, "pieces": 1},
}


@pytest.mark.parametrize("row", STRANGE.values(), ids=STRANGE)
def test_a_strange_row_is_left_and_reported_and_the_others_are_swept(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key], row: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for unit in "0z":
        books.write("units", {"unit": unit, "row": "head", "open": unit, **row})
        books.write("units", {"unit": unit, "row": "w#1#00000"})
    killed(units_world, keys, is_committed=True)
    swept = ben.units.sweep()
    assert (swept.finished, swept.open, swept.closed) == (3, 3, 0)
    assert all(any(f"'unit': {{'S': '{unit}'}}" in message for message in caplog.messages) for unit in "0z")


def left(world: UnitsWorld, count: int = 1, *, after_s: int = LEASE_S + MARGIN_S) -> None:
    """Units that set an account to zero and create another one, whose processes crashed before the decision."""
    for _ in range(count):
        ann = world.party()
        unit = ann.begin(engine="marked")
        unit.update(ann.accounts, world.books.account(), "SET balance = :n", {":n": 0})
        unit.put(ann.accounts, {**some_account(), "balance": 0})
        crashes(ann, 2, is_sent=False)
        with pytest.raises(Killed):
            unit.commit()
    world.books.clock.advance(after_s)


def filled(books: Books, rows: int) -> None:
    """Make the table longer than a page, with rows that are no records of units."""
    for number in range(rows):
        books.write("units", {"unit": f"name#{number}", "row": "receipt", "data": "x" * FILLER_BYTES})


def longer_than_a_page(books: Books, pages: int) -> None:
    """Fill so many pages of the index, and begin another one, with heads that no unit has written."""
    for number in range(pages * MOST_TOGETHER + 1):
        books.write("units", {"unit": f"{number}", "row": "head", "open": f"{number}"})


def scans(party: Party) -> list[Any]:
    return [sent.parameters for sent in party.line.sent if sent.operation == "Scan"]


@pytest.mark.parametrize("open_units", [0, 2])
def test_a_sweep_sends_the_same_however_many_receipts_there_are(
    books: Books, units_world: UnitsWorld, ann: Party, ben: Party, open_units: int
) -> None:
    left(units_world, open_units, after_s=0)
    without = ann.sends(ann.units.sweep)
    filled(books, 9)
    assert ben.sends(ben.units.sweep) == without


@pytest.mark.parametrize("goes", ["closed", "deleted"])
def test_a_head_that_the_index_still_shows_after_its_unit_is_closed_is_passed_over(
    books: Books, units_world: UnitsWorld, ann: Party, ben: Party, goes: str
) -> None:
    left(units_world)
    ann.units.sweep()
    books.clock.advance(COPIES_S + MARGIN_S)

    def close() -> None:
        assert ann.units.sweep().closed == 1
        if goes == "deleted":
            books.empty()

    ben.line.between["BatchGetItem"] = close
    assert ben.units.sweep() == Swept()
    assert ben.units.open_units() == []


def test_a_sweep_reads_no_faster_than_it_is_told(books: Books, units_world: UnitsWorld, ben: Party) -> None:
    left(units_world, 3)
    began = books.clock.wall_ms
    ben.units.sweep(read_units_per_s=1_000)
    fast = books.clock.wall_ms
    ben.units.sweep(parts=2, read_units_per_s=2)
    # Each of two parts reads the index, and one of them heads.
    assert fast - began < 1_000 <= books.clock.wall_ms - fast


@pytest.mark.parametrize("timeout", [0, 1])
def test_a_sweep_that_is_paced_does_not_pause_beyond_its_end(
    books: Books, units_world: UnitsWorld, ben: Party, timeout: int
) -> None:
    left(units_world, 8)
    began = books.clock.wall_ms
    ben.units.sweep(timeout=timeout, read_units_per_s=1)
    # One unit costs more than a second at this pace.
    assert books.clock.wall_ms - began < 1_000 * (timeout + 1)


def all_marks(books: Books) -> int:
    return sum(MARK in item for item in books.everything()["accounts"])


def places(books: Books) -> list[Any]:
    """The rows about how far sweeps have come."""
    return [row for row in books.everything()["units"] if row["unit"] == "sweep"]


def test_a_sweep_in_parts_does_what_one_in_one_part_does(books: Books, units_world: UnitsWorld, ben: Party) -> None:
    left(units_world, 8)
    assert ben.units.sweep(parts=PARTS) == Swept(rolled_back=8, finished=16, open=8)
    assert all_marks(books) == 0
    books.clock.advance(COPIES_S + MARGIN_S)
    assert ben.units.sweep(parts=PARTS) == Swept(closed=8)
    assert {(scan["Segment"], scan["TotalSegments"]) for scan in scans(ben)} == {(part, PARTS) for part in range(PARTS)}


def test_a_sweep_stops_when_its_time_is_over_and_the_next_one_continues_there(
    books: Books, units_world: UnitsWorld, ben: Party
) -> None:
    left(units_world, 5)
    swept = []
    for _ in range(5):
        # It takes long to delete the placeholder, the last thing that it does for a unit.
        ben.line.between["DeleteItem"] = lambda: books.clock.advance(LONG_S)
        swept.append(ben.units.sweep(timeout=LONG_S / 2))
    assert [each.rolled_back for each in swept] == [1, 1, 1, 1, 1]
    # Only the next page shows that this unit was the last.
    assert [each.is_whole for each in swept[:4]] == [False] * 4
    # Each pass reads heads, and the items of one unit.
    assert (all_marks(books), ben.line.operations.count("BatchGetItem")) == (0, 2 * 5)


def test_a_sweep_after_the_end_of_the_table_begins_at_the_beginning(
    books: Books, units_world: UnitsWorld, ben: Party
) -> None:
    left(units_world, 2)
    ben.line.between["DeleteItem"] = lambda: books.clock.advance(LONG_S)
    assert not ben.units.sweep(timeout=LONG_S / 2).is_whole
    assert len(places(books)) == 1
    assert ben.units.sweep(timeout=LONG_S).is_whole
    assert places(books) == []
    books.clock.advance(COPIES_S + MARGIN_S)
    assert ben.units.sweep(timeout=LONG_S) == Swept(closed=2)


def test_each_part_continues_at_its_own_position(books: Books, units_world: UnitsWorld, ben: Party) -> None:
    left(units_world, MANY)
    # The tests' parties have one connection: the first part with work to do uses up the time.
    ben.line.between["DeleteItem"] = lambda: books.clock.advance(LONG_S)
    assert not ben.units.sweep(parts=2, timeout=LONG_S / 2).is_whole
    kept = {place["row"]: place["after"] for place in places(books)}
    ben.line.sent.clear()
    assert ben.units.sweep(parts=2, timeout=LONG_S).is_whole
    began = {f"part#{scan['Segment']}of2": loaded(scan["ExclusiveStartKey"]) for scan in scans(ben)[:2]}
    assert began == kept
    assert all_marks(books) == 0


@pytest.mark.parametrize("timeout", [LONG_S, None])
def test_a_sweep_that_is_killed_has_kept_how_far_it_came_for_the_next_one_with_a_time_out(
    books: Books, units_world: UnitsWorld, ann: Party, timeout: int | None
) -> None:
    longer_than_a_page(books, 2)
    dying = units_world.party()
    crashes(dying, 3, "Scan", is_sent=False)
    with pytest.raises(Killed):
        dying.units.sweep(timeout=LONG_S)
    third = scans(dying)[2]["ExclusiveStartKey"]
    assert ann.units.sweep(timeout=timeout).is_whole
    assert scans(ann)[0].get("ExclusiveStartKey") == (third if timeout else None)


def test_a_unit_with_many_items_may_be_left_half_finished_and_the_next_one_finishes_it(
    books: Books, units_world: UnitsWorld, ben: Party
) -> None:
    units_world.killed([books.account() for _ in range(MOST_TOGETHER + 3)], is_committed=True)
    assert all_marks(books) == MOST_TOGETHER + 3
    # Before it ends the items that it has read together.
    ben.line.between["UpdateItem"] = lambda: books.clock.advance(LONG_S)
    stopped = ben.units.sweep(timeout=LONG_S / 2)
    assert (stopped.unfinished, stopped.open) == (1, 1)
    assert all_marks(books) == 3
    assert ben.units.sweep(timeout=LONG_S) == Swept(finished=3, open=1)
    assert all_marks(books) == 0


@pytest.mark.parametrize(("takes_s", "swept_in_a_pass"), [(LONG_S - 1, 3), (LONG_S, 3), (LONG_S + 1, 1)])
def test_a_sweep_whose_time_goes_by_while_it_reads_sweeps_one_unit(
    books: Books, units_world: UnitsWorld, ben: Party, takes_s: int, swept_in_a_pass: int
) -> None:
    left(units_world, 3)
    passes = []
    for _ in range(3 // swept_in_a_pass):
        ben.line.between["Scan"] = lambda: books.clock.advance(takes_s)
        passes.append(ben.units.sweep(timeout=LONG_S).rolled_back)
    assert passes == [swept_in_a_pass] * len(passes)


def test_each_pass_with_too_little_time_for_one_unit_finishes_some_of_its_items(
    books: Books, units_world: UnitsWorld, ben: Party
) -> None:
    units_world.killed([books.account() for _ in range(2 * MOST_TOGETHER + 3)], is_committed=True)
    left_in_passes = []
    for _ in range(3):
        ben.line.between["Scan"] = lambda: books.clock.advance(LONG_S)
        ben.units.sweep(timeout=LONG_S / 2)
        left_in_passes.append(all_marks(books))
    assert left_in_passes == [MOST_TOGETHER + 3, 3, 0]


def test_a_part_that_cannot_be_read_does_not_keep_the_others_from_being_swept(
    books: Books, units_world: UnitsWorld, ben: Party
) -> None:
    left(units_world, MANY)

    def refuses(params: Any, **_: Any) -> None:
        if params["Segment"] == 1:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "not this one"}}, "Scan")

    ben.client.meta.events.register("provide-client-params.dynamodb.Scan", refuses)
    before = all_marks(books)
    with pytest.raises(TableRefused, match="not this one"):
        ben.units.sweep(parts=2)
    assert 0 < all_marks(books) < before


@pytest.mark.parametrize("after", ["nonsense", {"unit": "a"}, {"unit": 1, "row": "head"}], ids=str)
def test_a_strange_place_is_no_place(books: Books, units_world: UnitsWorld, ben: Party, after: Any) -> None:
    books.write("units", {"unit": "sweep", "row": "part#0of1", "after": after})
    left(units_world)
    assert ben.units.sweep(timeout=LONG_S).rolled_back == 1
    assert places(books) == []


def test_a_sweep_returns_how_old_the_oldest_unit_is_that_is_on_its_way(units_world: UnitsWorld, ben: Party) -> None:
    age_s = 20
    left(units_world, after_s=age_s)
    left(units_world, after_s=0)
    swept = ben.units.sweep(parts=PARTS)
    assert (swept.open, swept.unfinished) == (2, 0)
    assert 1_000 * age_s <= swept.oldest_ms <= 1_000 * (age_s + MARGIN_S)


def test_a_sweep_returns_that_a_committed_unit_could_not_be_finished(
    books: Books, units_world: UnitsWorld, ben: Party
) -> None:
    units_world.killed([books.account()], is_committed=True)
    books.clock.advance(LEASE_S)
    ben.may_not_read_accounts()
    swept = ben.units.sweep()
    assert (swept.unfinished, swept.open, swept.finished) == (1, 1, 0)
    assert swept.oldest_ms >= LEASE_S * 1_000


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("parts", 0),
        ("parts", 33),
        ("parts", True),
        ("timeout", -1),
        ("timeout", 901),
        ("read_units_per_s", 0),
        ("read_units_per_s", 0.5),
    ],
)
def test_bad_input_is_refused_by_its_field_and_nothing_is_sent(ben: Party, field: str, value: Any) -> None:
    with pytest.raises(InvalidUnitRequest, match=field):
        ben.units.sweep(**{field: value})
    assert ben.line.sent == []
