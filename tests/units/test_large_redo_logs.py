"""What a unit writes down is read back unchanged, piece by piece: whoever finishes it needs memory for one piece."""

import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.crashes import crashes
from kit.units import MARK, Books, Key, Killed, Party, dumped, loaded
from units.golden_rows import empty_books, party

from ticketlock._expressions._values import canonical_item
from ticketlock.errors import InvalidUnitRequest
from ticketlock.units import Swept, Units
from ticketlock.units._records import _packing as packing
from ticketlock.units._records._packing import Entry, Unpacking, packed
from ticketlock.units._records._record import UnitRecord, new_id, piece_key, with_pieces
from ticketlock.units._records._rows import row_key

ITEMS, ITEM_BYTES = 12_000, 1_000
# The sort keys of rows with pieces begin with it.
PIECE = "w#"
A_FEW_PIECES_BYTES = 3 * packing.MOST_BYTES


def leave_committed_unit(books: Books, items: int) -> Key:
    """A committed unit that writes so many items of 1 KB, of which only the last is there, with its mark. Returns the
    key of that item.
    """
    unit, source = new_id(books.clock.wall_ms), random.Random(0)
    noises = [source.randbytes(ITEM_BYTES // 2).hex() for _ in range(64)]
    keys = [{"id": {"S": f"{at:06}"}} for at in range(items)]
    entries = [
        Entry("accounts", key, "id", "put", {**key, "noise": {"S": noises[at % len(noises)]}})
        for at, key in enumerate(keys)
    ]
    head, pieces = with_pieces(
        UnitRecord(unit=unit, state="pending", born_ms=0, lease_until_ms=0, attempt="1"), packed(entries).pieces
    )
    last = loaded(keys[-1])
    books.write("accounts", {**last, MARK: {"unit": unit, "kind": "write"}})
    for at, piece in enumerate(pieces):
        books.write("units", {**loaded(piece_key(head, at)), "format": 1, "data": piece})
    books.write(
        "units",
        {
            "unit": unit,
            "row": "head",
            "open": unit,
            "format": 1,
            "state": "committed",
            "rev": 0,
            "born": 0,
            "leaseUntilMs": 0,
            "finalMs": books.clock.wall_ms,
            "attempt": "1",
            "pieces": head.pieces,
        },
    )
    return last


def peak_bytes(do: Callable[[], object]) -> int:
    """How much memory a call holds at most, beside what was held before it."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        do()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("by", ["a sweep", "a list", "a reader", "a writer"])
def test_a_unit_of_many_items_is_finished_and_read_in_the_memory_of_a_few_pieces(by: str) -> None:
    with empty_books() as books:
        # A process that does not keep what it has sent.
        units = Units("units", client=books.plain_client, clocks=books.clock)
        accounts = units.table("accounts")
        last = leave_committed_unit(books, ITEMS)

        def writes() -> None:
            with units.begin() as unit:
                unit.update(accounts, last, "SET balance = :n", {":n": 1})

        do: dict[str, Callable[[], object]] = {
            "a sweep": units.sweep,
            "a list": units.open_units,
            "a reader": lambda: units.get(accounts, last),
            "a writer": writes,
        }
        assert peak_bytes(do[by]) < A_FEW_PIECES_BYTES
        found = units.get(accounts, last)
        assert found is not None
        assert len(found["noise"]) == ITEM_BYTES


def rows_read(ann: Party) -> list[str]:
    """Which rows of what a unit writes a process has read so far."""
    keys = [sent.parameters["Key"] for sent in ann.line.sent if sent.operation == "GetItem"]
    return [key["row"]["S"] for key in keys if "row" in key and key["row"]["S"].startswith(PIECE)]


@pytest.mark.parametrize(("number", "rows"), [(0, range(4)), (5, range(4, 8)), (11, range(8, 10))])
@pytest.mark.parametrize("by", ["a reader", "a writer"])
def test_an_item_is_found_in_the_rows_that_its_mark_names(by: str, number: int, rows: range) -> None:
    with empty_books() as books:
        ann, ben, noise = party(books), party(books), random.Random(0)
        unit = ann.begin(engine="marked")
        for at in range(12):
            # Five of them are packed together, in four rows.
            unit.put(ann.accounts, {"id": f"{at}", "noise": noise.randbytes(195_000).hex()})
        crashes(ann, 1, is_sent=True)
        with pytest.raises(Killed):
            unit.commit()
        key = {"id": f"{number}"}
        if by == "a reader":
            assert ben.units.get(ben.accounts, key) is not None
        else:
            ben.changes(key, 5)
        assert rows_read(ben) == [f"{PIECE}1#{at:05}" for at in rows]


def test_a_piece_is_decoded_without_those_before_it() -> None:
    entries = [Entry("t", {"id": {"S": str(at)}}, "id", "put", {"x": {"S": "y" * 200_000}}) for at in range(40)]
    pieces = packed(entries).pieces
    assert len(pieces) > 3
    found = [Unpacking(row_key("0", "head")).feed(piece) for piece in pieces]
    assert [entry for some in found for entry in some or ()] == entries


def test_a_piece_that_unpacks_to_more_than_the_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with empty_books() as books:
        last = leave_committed_unit(books, 8_000)
        ben = party(books)
        monkeypatch.setattr(packing, "MOST_BYTES", 1_000_000)
        with pytest.raises(InvalidUnitRequest, match="more than 1000000 bytes"):
            ben.units.get(ben.accounts, last)
        assert ben.units.sweep() == Swept(open=1, unfinished=1, oldest_ms=books.clock.wall_ms)


def test_a_piece_that_is_cut_short_is_refused() -> None:
    with empty_books() as books:
        last = leave_committed_unit(books, 3_000)
        ben = party(books)
        pieces = [row for row in books.everything()["units"] if row["row"].startswith(PIECE)]
        last_piece = max(pieces, key=lambda row: row["row"])
        books.write("units", {**last_piece, "data": bytes(last_piece["data"])[:-100]})
        with pytest.raises(InvalidUnitRequest, match="end too early"):
            ben.units.get(ben.accounts, last)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
OCTETS = st.binary(max_size=40)
NUMBERS = st.integers(-(10**37), 10**37) | st.decimals(-1_000, 1_000, allow_nan=False, places=3)
ONE_VALUE = TEXTS | OCTETS | NUMBERS | st.booleans() | st.none()
SETS = st.one_of(*(st.sets(each, min_size=1, max_size=4) for each in (TEXTS, OCTETS, st.integers(-1_000, 1_000))))
VALUES: st.SearchStrategy[Any] = st.recursive(
    ONE_VALUE | SETS,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(TEXTS, inside, max_size=3),
    max_leaves=12,
)


def items(values: st.SearchStrategy[Any], **sizes: Any) -> st.SearchStrategy[Any]:
    return st.dictionaries(TEXTS, values, **sizes).map(lambda item: canonical_item(dumped(item)))


ENTRIES = st.builds(
    Entry,
    table=TEXTS,
    key=items(ONE_VALUE, min_size=1, max_size=2),
    key_name=TEXTS,
    kind=st.sampled_from(["put", "change", "delete", "unmark"]),
    assigned=items(VALUES, max_size=5),
    removed=st.lists(TEXTS, max_size=3).map(tuple),
)


@given(st.lists(ENTRIES, max_size=4))
def test_what_was_written_down_is_read_as_it_was(entries: list[Entry]) -> None:
    unpacking = Unpacking(row_key("0", "head"))
    found = [entry for piece in packed(entries).pieces for entry in unpacking.feed(piece) or ()]
    unpacking.check_end()
    assert found == entries
