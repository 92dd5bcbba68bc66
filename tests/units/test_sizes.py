"""How large items, statements and units may be: just below each limit, at it, and above; then nothing is written."""

import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from kit.crashes import crashes
from kit.engines import first_on, roomy_engine_names
from kit.units import (
    MARK,
    THREADS_ONLY,
    VERSION,
    Books,
    Key,
    Killed,
    Party,
    UnitsWorld,
    dumped,
    some_account,
    some_line,
)

from ticketlock._expressions._values import size_of
from ticketlock.errors import InvalidUnitRequest, ItemTooLarge, UnitConflict, UnitFinished, UnitTooLarge
from ticketlock.units import Unit, _work

KB = 1_024

ITEM, TRANSACTION, SUBSTITUTED = 400 * KB, 4 * KB * KB, 2 * KB * KB

VERSION_ROOM, MARK_ROOM = 64, 128

COUNTS_NO_BYTES = "ministack"
"""The engine that takes transactions of more than 4 MB."""

SET = "SET padding = :padding"

pytestmark = [
    pytest.mark.shows("bad input"),
    pytest.mark.parametrize("units_engine", first_on("memory", roomy_engine_names()), indirect=True),
]


def padded(key: Key, size: int) -> dict[str, Any]:
    """An item of so many bytes."""
    bare = size_of({"id": {"S": key["id"]}, "padding": {"S": ""}})
    return {**key, "padding": "x" * (size - bare)}


def writes(party: Party) -> list[str]:
    return [each for each in party.line.operations if each not in ("GetItem", "TransactGetItems", "BatchGetItem")]


# It has room for what units add: the version, and for a commit by marks also the mark.


@pytest.mark.parametrize(("way", "room"), [("native", VERSION_ROOM), ("marked", MARK_ROOM)])
def test_an_item_up_to_its_bound_is_written(books: Books, ann: Party, way: str, room: int) -> None:
    for less in (1, 0):
        item = padded(some_account(), ITEM - room - less)
        with ann.begin(engine=way) as unit:
            unit.put(ann.accounts, item)
        assert books.item("accounts", {"id": item["id"]}) == item
        with ann.begin(engine=way) as unit:
            unit.update(ann.accounts, {"id": item["id"]}, SET, {":padding": item["padding"]})
        assert books.version({"id": item["id"]}) == unit.id


@pytest.mark.parametrize(("way", "room"), [("native", VERSION_ROOM), ("marked", MARK_ROOM)])
def test_an_item_above_its_bound_is_refused(books: Books, ann: Party, account: Key, way: str, room: int) -> None:
    before = books.everything()

    def put_it() -> None:
        with ann.begin(engine=way) as unit:
            unit.update(ann.accounts, account, "SET balance = :n", {":n": 1})
            unit.put(ann.accounts, padded(some_account(), ITEM - room + 1))

    with pytest.raises(ItemTooLarge, match="padding") as refused:
        put_it()
    assert refused.value.phase == ("statement" if way == "native" else "mark")
    assert writes(ann) == []
    assert books.everything() == before


def test_an_item_that_has_no_room_for_a_mark_is_deleted_in_one_request_only(books: Books, ann: Party) -> None:
    key = some_account()
    books.write("accounts", padded(key, ITEM - MARK_ROOM + 1))
    with pytest.raises(ItemTooLarge) as refused, ann.begin(engine="marked") as unit:
        unit.delete(ann.accounts, key)
    assert refused.value.phase == "mark"
    assert writes(ann) == []
    with ann.begin() as unit:
        unit.delete(ann.accounts, key)
    assert books.raw("accounts", key) is None


@pytest.mark.parametrize("way", ["native", "marked"])
def test_an_item_that_a_blind_update_surely_makes_too_large_is_refused_at_its_line(
    books: Books, ann: Party, account: Key, way: str
) -> None:
    before = books.everything()
    unit = ann.begin(engine=way)
    with pytest.raises(ItemTooLarge):
        unit.update(ann.accounts, account, SET, {":padding": "x" * ITEM}, blind=True)
    unit.commit()
    assert books.everything() == before


def test_an_item_that_a_blind_update_makes_too_large_is_found_before_anything_is_marked(
    books: Books, ann: Party, account: Key
) -> None:
    """Otherwise DynamoDB would refuse it after the unit was committed."""
    large = some_account()
    books.write("accounts", {**padded(large, 250 * KB)})
    before = books.everything()
    unit = ann.begin(engine="marked")
    unit.update(ann.accounts, account, "SET balance = :n", {":n": 1})
    unit.update(ann.accounts, large, "SET more = :more", {":more": "x" * 190 * KB}, blind=True)
    with pytest.raises(ItemTooLarge):
        unit.commit()
    assert writes(ann) == []
    assert books.everything() == before


def test_an_item_that_a_blind_update_makes_too_large_is_found_by_a_later_statement(books: Books, ann: Party) -> None:
    large = some_account()
    books.write("accounts", padded(large, 250 * KB))
    unit = ann.begin()
    unit.update(ann.accounts, large, "SET more = :more", {":more": "x" * 190 * KB}, blind=True)
    with pytest.raises(ItemTooLarge):
        unit.get(ann.accounts, large)


class TestAUnitOfManyItems:
    """The bound is lowered, so that the tests need not write 100,000 items."""

    MOST = 120

    @pytest.fixture(autouse=True)
    def lowered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert _work.MOST_ITEMS == 100_000
        monkeypatch.setattr(_work, "MOST_ITEMS", self.MOST)

    def unit_of(self, ann: Party, count: int) -> Unit:
        unit = ann.begin()
        for _ in range(count):
            unit.put(ann.accounts, some_account())
        return unit

    @pytest.mark.parametrize("less", [1, 0])
    def test_a_unit_of_many_items_up_to_the_bound_is_committed_and_saved(
        self, books: Books, ann: Party, less: int
    ) -> None:
        before = len(books.everything()["accounts"])
        ann.units.resume(self.unit_of(ann, self.MOST - less).save()).commit()
        assert len(books.everything()["accounts"]) - before == self.MOST - less

    @pytest.mark.parametrize("end", ["commit", "save"])
    def test_a_unit_of_too_many_items_is_refused(self, books: Books, ann: Party, end: str) -> None:
        before = books.everything()
        unit = self.unit_of(ann, self.MOST + 1)
        with pytest.raises(UnitTooLarge, match="121 items, and may have up to 120: split it"):
            getattr(unit, end)()
        assert writes(ann) == []
        assert books.everything() == before


class TestAUnitOfFourMegabytes:
    """Eleven items, each with its old or new size, and room for the rest of the request."""

    COUNT, ROOM = 11, 1_024

    def keys(self) -> list[Key]:
        return [some_account() for _ in range(self.COUNT)]

    def put(self, ann: Party, unit: Unit, keys: Sequence[Key], total: int) -> None:
        share = total // self.COUNT
        sizes = [share] * (self.COUNT - 1) + [total - share * (self.COUNT - 1)]
        for key, size in zip(keys, sizes, strict=True):
            unit.put(ann.accounts, padded(key, size - self.ROOM))

    @pytest.mark.parametrize("less", [1, 0])
    def test_a_unit_of_four_megabytes_up_to_the_bound_is_committed_in_one_request(
        self, books: Books, ann: Party, less: int
    ) -> None:
        keys = self.keys()
        with ann.begin(engine="native") as unit:
            self.put(ann, unit, keys, TRANSACTION - less)
        assert writes(ann) == ["TransactWriteItems"]
        assert {books.version(key) for key in keys} == {unit.id}

    def test_a_unit_of_more_than_four_megabytes_is_committed_by_marks(self, books: Books, ann: Party) -> None:
        keys = self.keys()
        with ann.begin() as unit:
            self.put(ann, unit, keys, TRANSACTION + 1)
        assert {books.version(key) for key in keys} == {unit.id}
        assert not any(MARK in (books.raw("accounts", key) or {}) for key in keys)
        assert "DeleteItem" in writes(ann)

    def test_a_unit_of_more_than_four_megabytes_is_refused_where_one_request_was_asked_for(
        self, books: Books, ann: Party
    ) -> None:
        before = books.everything()
        unit = ann.begin(engine="native")
        self.put(ann, unit, self.keys(), TRANSACTION + 1)
        with pytest.raises(UnitTooLarge, match="4,194,305"):
            unit.commit()
        assert writes(ann) == []
        assert books.everything() == before

    @pytest.mark.parametrize("does", ["deletes", "shrinks", "reads"])
    def test_a_unit_of_four_megabytes_counts_the_stored_item(
        self, books: Books, ann: Party, account: Key, does: str
    ) -> None:
        """Also in the requests that mark items without a version, and in the deciding one."""
        keys = self.keys()
        for key in keys:
            books.write("accounts", padded(key, 390 * KB))
        with ann.begin() as unit:
            unit.update(ann.accounts, account, "SET balance = :n", {":n": 1})
            for key in keys:
                {
                    "deletes": lambda key: unit.delete(ann.accounts, key),
                    "shrinks": lambda key: unit.update(ann.accounts, key, SET, {":padding": ""}),
                    "reads": lambda key: unit.get(ann.accounts, key),
                }[does](key)
        assert books.balance(account) == 1
        found = [books.item("accounts", key) for key in keys]
        left: dict[str, Any] = {"deletes": None, "shrinks": "", "reads": padded(keys[0], 390 * KB)["padding"]}
        assert [item and item["padding"] for item in found] == [left[does]] * self.COUNT
        assert not any(MARK in (books.raw("accounts", key) or {}) for key in keys)

    def large(self, books: Books) -> list[Key]:
        """Existing items that do not fit together."""
        keys = self.keys()
        for key in keys:
            books.write("accounts", padded(key, 390 * KB))
        return keys

    def test_more_than_four_megabytes_that_were_only_read_are_held_together_by_marks(
        self, books: Books, ann: Party
    ) -> None:
        keys = self.large(books)
        with ann.begin() as unit:
            for key in keys:
                unit.get(ann.accounts, key)
        assert "TransactWriteItems" in writes(ann)
        assert not any(MARK in (books.raw("accounts", key) or {}) for key in keys)

    def test_more_than_four_megabytes_that_were_only_read_are_refused_where_one_request_was_asked_for(
        self, books: Books, ann: Party
    ) -> None:
        keys = self.large(books)
        unit = ann.begin(engine="native")
        for key in keys:
            unit.get(ann.accounts, key)
        with pytest.raises(UnitTooLarge):
            unit.commit()
        assert writes(ann) == []

    def test_what_others_have_written_to_what_a_unit_only_read_is_a_conflict_however_large(
        self, books: Books, ann: Party, ben: Party
    ) -> None:
        keys = [books.account() for _ in range(self.COUNT)]
        unit = ann.begin()
        for key in keys:
            unit.get(ann.accounts, key)
        unchanged = books.account()
        unit.get(ann.accounts, unchanged)
        for key in keys:
            with ben.begin() as other:
                other.put(ben.accounts, padded(key, ITEM - MARK_ROOM))
        with pytest.raises(UnitConflict) as conflict:
            unit.commit()
        assert list(conflict.value.keys) == [(ann.accounts.name, key) for key in keys]

    @pytest.mark.parametrize("way", [None, "marked"])
    def test_blind_updates_that_find_more_than_four_megabytes_are_committed(
        self, books: Books, ann: Party, way: Literal["marked"] | None
    ) -> None:
        keys = self.large(books)
        with ann.begin(engine=way) as unit:
            for key in keys:
                unit.update(ann.accounts, key, "ADD balance :n", {":n": 1}, blind=True)
        found = [books.raw("accounts", key) or {} for key in keys]
        assert [(item["balance"], item[VERSION], MARK in item) for item in found] == [(1, unit.id, False)] * self.COUNT

    def test_blind_updates_that_find_more_than_four_megabytes_are_refused_where_one_request_was_asked_for(
        self, books: Books, ann: Party
    ) -> None:
        keys = self.large(books)
        before = books.everything()
        unit = ann.begin(engine="native")
        for key in keys:
            unit.update(ann.accounts, key, "ADD balance :n", {":n": 1}, blind=True)
        is_refused = books.engine.name != COUNTS_NO_BYTES
        with pytest.raises(UnitTooLarge) if is_refused else nullcontext():
            unit.commit()
        assert (books.everything() == before) is is_refused

    @pytest.mark.parametrize("does", ["puts", "reads"])
    def test_a_unit_of_four_megabytes_counts_the_item_of_its_lock(
        self, books: Books, ann: Party, account: Key, does: str
    ) -> None:
        lock = some_line()
        books.write("lines", {**lock, "padding": "x" * 395 * KB})
        keys = self.large(books)[:10]
        with ann.begin(under=Held(books, lock)) as unit:
            unit.update(ann.accounts, account, "SET balance = :n", {":n": 1})
            for key in keys:
                if does == "puts":
                    unit.put(ann.accounts, padded(key, ITEM - MARK_ROOM))
                else:
                    unit.get(ann.accounts, key)
        assert books.version(account) == unit.id
        assert {books.version(key) for key in keys} == {unit.id if does == "puts" else None}


@dataclass
class Held:
    """A lock that is an item of ours, however large."""

    books: Books
    key: Key

    def condition_check(self) -> dict[str, Any]:
        check = {"TableName": self.books.tables["lines"], "Key": dumped(self.key)}
        return {"ConditionCheck": {**check, "ConditionExpression": "attribute_exists(pk)"}}


@pytest.mark.parametrize("way", ["native", "marked"])
@pytest.mark.parametrize("blind", [False, True], ids=["read", "blind"])
@pytest.mark.parametrize(
    ("field", "of_bytes"),
    [
        ("update", lambda size: {"update": f"SET {'b' * (size - 9)} = :n"}),
        ("condition", lambda size: {"condition": f"attribute_not_exists({'c' * (size - 22)})"}),
    ],
    ids=["update", "condition"],
)
def test_a_statement_of_expressions_of_four_kilobytes_is_as_far_as_it_goes(
    ann: Party, way: str, blind: bool, field: str, of_bytes: Callable[[int], Any]
) -> None:
    given = {"update": "SET a = :n", "values": {":n": 1}, "blind": blind}
    for size in (4_095, 4_096):
        with ann.begin(engine=way) as unit:
            unit.update(ann.accounts, some_account(), **{**given, **of_bytes(size)})
    before = len(ann.line.sent)
    unit = ann.begin(engine=way)
    with pytest.raises(InvalidUnitRequest, match="4,097") as refused:
        unit.update(ann.accounts, some_account(), **{**given, **of_bytes(4_097)})
    assert refused.value.field == field
    assert len(ann.line.sent) == before


@pytest.mark.parametrize("blind", [False, True], ids=["read", "blind"])
def test_a_statement_of_values_of_two_megabytes_is_as_far_as_it_goes(ann: Party, blind: bool) -> None:
    condition = "attribute_not_exists(a) OR a <> :large"
    text = "x" * (SUBSTITUTED - size_of({":n": {"N": "1"}, ":large": {"S": ""}}))
    with ann.begin() as unit:
        values = {":n": 1, ":large": text}
        unit.update(ann.accounts, some_account(), "SET a = :n", values, condition=condition, blind=blind)
    before = len(ann.line.sent)
    unit, values = ann.begin(), {":n": 1, ":large": text + "x"}
    with pytest.raises(InvalidUnitRequest, match="2,097,153") as refused:
        unit.update(ann.accounts, some_account(), "SET a = :n", values, condition=condition, blind=blind)
    assert refused.value.field == "values"
    assert len(ann.line.sent) == before


@pytest.mark.parametrize("way", ["native", "marked"])
def test_a_statement_may_nest_values_in_32_levels(books: Books, ann: Party, way: str) -> None:
    key, deep = some_account(), "SET v" + ".a" * 29 + " = :v"
    with ann.begin(engine=way) as unit:
        unit.put(ann.accounts, {**key, "v": nested(30)})
        unit.update(ann.accounts, key, deep, {":v": nested(3)})
    before = books.everything()
    unit = ann.begin(engine=way)
    with pytest.raises(InvalidUnitRequest, match="Nesting Levels"):
        unit.update(ann.accounts, key, deep, {":v": nested(4)})
    unit.commit()
    assert books.everything() == before


def nested(levels: int) -> Any:
    """A value of so many levels."""
    return "x" if levels == 1 else {"a": nested(levels - 1)}


ROW = 350 * KB

LEASE_S, COPIES_S, MARGIN_S = 60, 600, 5

SET_BALANCE, ONE = "SET balance = :n", {":n": 1}


def noise(size: int) -> bytes:
    """Incompressible bytes."""
    return random.Random(size).randbytes(size)


def incompressible(key: Key, size: int) -> dict[str, Any]:
    """An item of so many bytes, with a balance of 0."""
    bare = size_of({"id": {"S": key["id"]}, "balance": {"N": "1"}, "padding": {"B": b""}})
    return {**key, "balance": 2, "padding": noise(size - bare)}


def plain(books: Books, key: Key) -> dict[str, Any] | None:
    found = books.item("accounts", key)
    return found and {name: bytes(value) if name == "padding" else value for name, value in found.items()}


class TestToMark:
    """A mark needs room in the item with its old and with its new value."""

    BOUND = ITEM - MARK_ROOM

    def test_an_item_without_room_for_a_mark_is_refused_and_rolls_the_unit_back(
        self, books: Books, ann: Party, account: Key
    ) -> None:
        key = some_account()
        books.write("accounts", incompressible(key, self.BOUND + 1))
        before = books.everything()
        unit = ann.begin(engine="marked")
        unit.update(ann.accounts, account, SET_BALANCE, ONE)
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

    @pytest.mark.parametrize("way", ["native", "marked"])
    def test_an_item_that_would_grow_past_the_bound_is_refused_at_the_line_and_the_unit_stays_open(
        self, books: Books, ann: Party, account: Key, way: str
    ) -> None:
        item = incompressible(some_account(), 390 * KB)
        books.write("accounts", item)
        with ann.begin(engine=way) as unit:
            with pytest.raises(ItemTooLarge, match=item["id"]) as refused:
                self.update(ann, unit, item, ITEM - VERSION_ROOM + 1)
            unit.update(ann.accounts, account, SET_BALANCE, ONE)
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
    def test_an_item_that_nothing_packs_is_written_down_in_as_many_rows_as_it_needs(
        self, books: Books, ann: Party, size: int, rows: int
    ) -> None:
        item = incompressible(some_account(), size)
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
                unit.put(ann.accounts, incompressible(key, ITEM - MARK_ROOM))
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
