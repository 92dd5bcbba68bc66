"""Items that are too large to mark, to write, or to write down in one row: below each limit, at it, and above."""

import random
from typing import Any

import pytest
from kit.crashes import crashes
from kit.engines import first_on, roomy_engine_names
from kit.units import MARK, THREADS_ONLY, Books, Key, Killed, Party, UnitsWorld, some_account

from ticketlock._expressions._values import size_of
from ticketlock.errors import ItemTooLarge, UnitFinished

KB = 1_024
ITEM, VERSION_ROOM, MARK_ROOM = 400 * KB, 64, 128
ROW = 350 * KB
LEASE_S, COPIES_S, MARGIN_S = 60, 600, 5
SET, ONE = "SET balance = :n", {":n": 1}

pytestmark = pytest.mark.parametrize("units_engine", first_on("memory", roomy_engine_names()), indirect=True)


def noise(size: int) -> bytes:
    """Incompressible bytes."""
    return random.Random(size).randbytes(size)


def padded(key: Key, size: int) -> dict[str, Any]:
    """An item of so many bytes, with a balance of 0."""
    bare = size_of({"id": {"S": key["id"]}, "balance": {"N": "1"}, "padding": {"B": b""}})
    return {**key, "balance": 2, "padding": noise(size - bare)}


def plain(books: Books, key: Key) -> dict[str, Any] | None:
    found = books.item("accounts", key)
    return found and {name: bytes(value) if name == "padding" else value for name, value in found.items()}


class TestToMark:
    """A mark needs room in the item with its old and with its new value."""

    BOUND = ITEM - MARK_ROOM

    @pytest.mark.parametrize("less", [1, 0])
    def test_one_with_just_room_for_it_is_written(self, books: Books, ann: Party, less: int) -> None:
        key = some_account()
        item = padded(key, self.BOUND - less)
        books.write("accounts", item)
        with ann.begin(engine="marked") as unit:
            unit.update(ann.accounts, key, SET, ONE)
        assert plain(books, key) == {**item, "balance": 1}

    def test_one_without_is_refused_and_rolls_the_unit_back(self, books: Books, ann: Party, account: Key) -> None:
        key = some_account()
        books.write("accounts", padded(key, self.BOUND + 1))
        before = books.everything()
        unit = ann.begin(engine="marked")
        unit.update(ann.accounts, account, SET, ONE)
        unit.update(ann.accounts, key, "SET balance = :n REMOVE padding", ONE)
        with pytest.raises(ItemTooLarge, match=f"{key['id']}.* {self.BOUND + 1:,} bytes") as refused:
            unit.commit()
        assert refused.value.phase == "mark"
        with pytest.raises(UnitFinished, match="rolled back"):
            unit.get(ann.accounts, account)
        assert books.everything() == before


class TestToWrite:
    """The result of an update is measured at its line."""

    def update(self, ann: Party, unit: Any, item: dict[str, Any], size: int) -> None:
        """An update that lets an item grow up to so many bytes."""
        own_bytes = size_of({"id": {"S": item["id"]}, "balance": {"N": "1"}, "padding": {"B": item["padding"]}})
        more = noise(size - own_bytes - len("more"))
        unit.update(ann.accounts, {"id": item["id"]}, "SET more = :more", {":more": more})

    @pytest.mark.parametrize(("way", "room"), [("native", VERSION_ROOM), ("marked", MARK_ROOM)])
    @pytest.mark.parametrize("less", [1, 0])
    def test_one_that_grows_up_to_the_bound_is_written(
        self, books: Books, ann: Party, way: str, room: int, less: int
    ) -> None:
        item = padded(some_account(), 390 * KB)
        books.write("accounts", item)
        with ann.begin(engine=way) as unit:
            self.update(ann, unit, item, ITEM - room - less)
        found = books.raw("accounts", {"id": item["id"]})
        assert found is not None
        assert len(bytes(found["more"])) == 10 * KB - room - less - len("more")
        assert MARK not in found

    @pytest.mark.parametrize("way", ["native", "marked"])
    def test_one_that_would_grow_past_it_is_refused_at_the_line_and_the_unit_stays_open(
        self, books: Books, ann: Party, account: Key, way: str
    ) -> None:
        item = padded(some_account(), 390 * KB)
        books.write("accounts", item)
        with ann.begin(engine=way) as unit:
            with pytest.raises(ItemTooLarge, match=item["id"]) as refused:
                self.update(ann, unit, item, ITEM - VERSION_ROOM + 1)
            unit.update(ann.accounts, account, SET, ONE)
        assert refused.value.phase == "statement"
        assert plain(books, {"id": item["id"]}) == item
        assert books.balance(account) == 1


class TestToWriteDownInOneRow:
    """A unit writes down what it is about to write before its first mark, in rows of 350 KB."""

    # For three items of 400 KB.
    HEAD_AND_ROWS = 5

    def rows(self, books: Books, unit: str) -> list[str]:
        return sorted(row["row"] for row in books.everything()["units"] if row["unit"] == unit)

    def written(self, party: Party) -> list[str]:
        """The rows that it has sent, by the beginnings of their names."""
        items = [sent.parameters["Item"] for sent in party.line.sent if sent.operation == "PutItem"]
        return [item["row"]["S"][:2] for item in items if "row" in item]

    @pytest.mark.parametrize(("size", "rows"), [(ROW - 4 * KB, 1), (ROW + 4 * KB, 2), (ITEM - MARK_ROOM, 2)])
    def test_one_that_nothing_packs_is_written_from_as_many_as_it_needs(
        self, books: Books, ann: Party, size: int, rows: int
    ) -> None:
        item = padded(some_account(), size)
        with ann.begin(engine="marked") as unit:
            unit.put(ann.accounts, item)
        assert self.written(ann) == ["he"] + ["w#"] * rows
        assert plain(books, {"id": item["id"]}) == item
        assert self.rows(books, unit.id) == ["head"]

    @THREADS_ONLY
    @pytest.mark.parametrize("is_sent", [False, True], ids=["before", "after"])
    def test_a_crash_at_any_of_several_rows_commits_nothing_and_leaves_nothing(
        self, books: Books, units_world: UnitsWorld, ben: Party, is_sent: bool
    ) -> None:
        for number in range(1, 1 + self.HEAD_AND_ROWS):
            keys = [books.account(100), books.account(50), some_account()]
            ann = units_world.party()
            unit = ann.begin(engine="marked")
            for key in keys:
                unit.put(ann.accounts, padded(key, ITEM - MARK_ROOM))
            crashes(ann, number, "PutItem", is_sent=is_sent)
            with pytest.raises(Killed):
                unit.commit()
            found = ben.units.get_all([(ben.accounts, key) for key in keys])
            assert [item and item["balance"] for item in found] == [100, 50, None], number
            assert not any(MARK in (books.raw("accounts", key) or {}) for key in keys)
            for seconds in (LEASE_S, COPIES_S):
                books.clock.advance(seconds + MARGIN_S)
                ben.units.sweep()
            assert self.rows(books, unit.id) in ([], ["head"]), number
        assert self.written(ann) == ["he"] + ["w#"] * (self.HEAD_AND_ROWS - 1)
