"""How large items, statements and units may be: just below each limit, at it, and above; then nothing is written."""

import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from botocore.exceptions import ClientError
from kit.crashes import before_the_nth, crashes
from kit.engines import engine_names_but_moto, first_on
from kit.units import THREADS_ONLY, VERSION, Books, Key, Killed, Party, UnitsWorld, dumped, some_account, some_line

from ticketlock._expressions._values import size_of
from ticketlock.errors import (
    InvalidUnitRequest,
    ItemTooLarge,
    TableRefused,
    UnitConflict,
    UnitFinished,
    UnitTooLarge,
)
from ticketlock.units import COMMITTED, READ_LOCK, SERIALIZABLE, UNCOMMITTED, Isolation, Unit
from ticketlock.units._statements import _work

KB = 1_024

ITEM_BYTES, TRANSACTION_BYTES, VALUES_BYTES = 400 * KB, 4 * KB * KB, 2 * KB * KB

VERSION_ROOM, MARK_ROOM, ACTION_ROOM = 64, 128, 1_024
"""For what units add: the version of an item, and for a commit by marks also its mark; the rest of a request."""

ROW_BYTES = 350 * KB
"""A unit writes down what it is about to write before its first mark, in rows of this size."""

COUNT, STORED_BYTES = 11, 390 * KB
"""So many items of this size do not fit together into one request."""

LEASE_S, COPIES_S, MARGIN_S = 60, 600, 5

COUNT_NO_BYTES = ("memory", "ministack", "dynoxide")
"""The engines that take transactions that find more than 4 MB, as DynamoDB does if little is sent."""

SET = "SET padding = :padding"
SET_BALANCE, ONE = "SET balance = :n", {":n": 1}

WAY = pytest.mark.parametrize("way", ["native", "marked"])
WAY_AND_ROOM = pytest.mark.parametrize(("way", "room"), [("native", VERSION_ROOM), ("marked", MARK_ROOM)])


@pytest.fixture(autouse=True)
def few_items(books: Books) -> Iterator[None]:
    """What tests look through has the items of one test, which may be megabytes."""
    yield
    books.empty()


pytestmark = [
    pytest.mark.shows("bad input"),
    pytest.mark.parametrize("units_engine", first_on("memory", engine_names_but_moto()), indirect=True),
]


def padded(key: Key, size: int) -> dict[str, Any]:
    """An item of so many bytes."""
    bare = size_of({"id": {"S": key["id"]}, "padding": {"S": ""}})
    return {**key, "padding": "x" * (size - bare)}


def writes(party: Party) -> list[str]:
    return [each for each in party.line.operations if each not in ("GetItem", "TransactGetItems", "BatchGetItem")]


def noise(size: int) -> bytes:
    """Incompressible bytes."""
    return random.Random(size).randbytes(size)


def incompressible(key: Key, size: int) -> dict[str, Any]:
    """An item of so many bytes, with a balance of 2."""
    bare = size_of({"id": {"S": key["id"]}, "balance": {"N": "2"}, "padding": {"B": b""}})
    return {**key, "balance": 2, "padding": noise(size - bare)}


def plain(books: Books, key: Key) -> dict[str, Any] | None:
    found = books.item("accounts", key)
    return found and {name: bytes(value) if name == "padding" else value for name, value in found.items()}


@WAY_AND_ROOM
def test_an_item_up_to_its_bound_is_written(books: Books, ann: Party, way: str, room: int) -> None:
    for less in (1, 0):
        item = padded(some_account(), ITEM_BYTES - room - less)
        with ann.begin(engine=way) as unit:
            unit.put(ann.accounts, item)
        assert books.item("accounts", {"id": item["id"]}) == item
        with ann.begin(engine=way) as unit:
            unit.update(ann.accounts, {"id": item["id"]}, SET, {":padding": item["padding"]})
        assert books.version({"id": item["id"]}) == unit.id


@WAY_AND_ROOM
def test_an_item_above_its_bound_is_refused(books: Books, ann: Party, account: Key, way: str, room: int) -> None:
    before, unit = books.everything(), ann.begin(engine=way)
    unit.update(ann.accounts, account, SET_BALANCE, ONE)
    with pytest.raises(ItemTooLarge, match="padding") as refused, unit:
        unit.put(ann.accounts, padded(some_account(), ITEM_BYTES - room + 1))
    assert refused.value.phase == ("statement" if way == "native" else "mark")
    assert writes(ann) == []
    assert books.everything() == before


@pytest.mark.parametrize("does", ["deleted", "made smaller"])
def test_an_item_without_room_for_a_mark_is_deleted_or_made_smaller_in_one_request_only(
    books: Books, ann: Party, account: Key, does: str
) -> None:
    large = padded(some_account(), ITEM_BYTES - MARK_ROOM + 1)
    books.write("accounts", large)
    before, key = books.everything(), {"id": large["id"]}

    def begin(way: Any) -> Unit:
        unit = ann.begin(engine=way)
        unit.update(ann.accounts, account, SET_BALANCE, ONE)
        unit.delete(ann.accounts, key) if does == "deleted" else unit.update(ann.accounts, key, "REMOVE padding")
        return unit

    unit = begin("marked")
    with pytest.raises(ItemTooLarge, match=f"{key['id']}.* {ITEM_BYTES - MARK_ROOM + 1:,} bytes") as refused:
        unit.commit()
    assert refused.value.phase == "mark"
    with pytest.raises(UnitFinished, match="rolled back"):
        unit.get(ann.accounts, account)
    assert writes(ann) == []
    assert books.everything() == before
    begin(None).commit()
    assert books.item("accounts", key) == (None if does == "deleted" else key)


@WAY
def test_an_item_that_a_blind_update_surely_makes_too_large_is_refused_at_its_line(
    books: Books, ann: Party, account: Key, way: str
) -> None:
    before = books.everything()
    unit = ann.begin(engine=way)
    with pytest.raises(ItemTooLarge):
        unit.update(ann.accounts, account, SET, {":padding": "x" * ITEM_BYTES}, blind=True)
    unit.commit()
    assert books.everything() == before


@pytest.mark.parametrize("by", ["a commit by marks", "a later statement"])
def test_an_item_that_a_blind_update_makes_too_large_is_found_before_anything_is_marked_by(
    books: Books, ann: Party, account: Key, by: str
) -> None:
    """Otherwise DynamoDB would refuse it after the unit was committed."""
    large = some_account()
    books.write("accounts", {**padded(large, 250 * KB)})
    before = books.everything()
    unit = ann.begin(engine="marked" if by == "a commit by marks" else None)
    unit.update(ann.accounts, account, SET_BALANCE, ONE)
    unit.update(ann.accounts, large, "SET more = :more", {":more": "x" * 190 * KB}, blind=True)
    with pytest.raises(ItemTooLarge):
        unit.commit() if by == "a commit by marks" else unit.get(ann.accounts, large)
    assert writes(ann) == []
    assert books.everything() == before


@pytest.mark.parametrize(("more", "end"), [(-1, "save"), (0, "save"), (1, "save"), (0, "commit"), (1, "commit")])
def test_a_unit_has_items_up_to_the_bound(
    books: Books, ann: Party, monkeypatch: pytest.MonkeyPatch, more: int, end: str
) -> None:
    assert _work.MOST_ITEMS == 100_000
    most_items = 120
    monkeypatch.setattr(_work, "MOST_ITEMS", most_items)
    before, unit = books.everything(), ann.begin()
    for _ in range(most_items + more):
        unit.put(ann.accounts, some_account())
    if more > 0:
        with pytest.raises(UnitTooLarge, match="121 items, and may have up to 120: split it"):
            getattr(unit, end)()
        assert writes(ann) == []
        assert books.everything() == before
    else:
        unit.commit() if end == "commit" else ann.units.resume(unit.save()).commit()
        assert len(books.everything()["accounts"]) - len(before["accounts"]) == most_items + more


@pytest.fixture
def stored(books: Books) -> list[Key]:
    """Items that do not fit together into one request."""
    keys: list[Key] = [some_account() for _ in range(COUNT)]
    for key in keys:
        books.write("accounts", padded(key, STORED_BYTES))
    return keys


DOES: dict[str, Callable[[Party, Unit, Key], object]] = {
    "deletes": lambda ann, unit, key: unit.delete(ann.accounts, key),
    "shrinks": lambda ann, unit, key: unit.update(ann.accounts, key, SET, {":padding": ""}),
    "reads": lambda ann, unit, key: unit.get(ann.accounts, key),
    "updates blindly": lambda ann, unit, key: unit.update(ann.accounts, key, "ADD balance :n", ONE, blind=True),
}


def put_together(party: Party, unit: Unit, size: int) -> list[Key]:
    """Put items that need so many bytes of one request. Returns their keys."""
    keys: list[Key] = [some_account() for _ in range(COUNT)]
    each, rest = divmod(size, COUNT)
    for key in keys:
        unit.put(party.accounts, padded(key, each + rest * (key is keys[-1]) - ACTION_ROOM))
    return keys


def with_one_call(level: Isolation, party: Party, keys: list[Key]) -> list[Any]:
    return party.begin().get_all([(party.accounts, key) for key in keys], isolation=level)


def outside(level: Isolation, party: Party, keys: list[Key]) -> list[Any]:
    return party.units.get_all([(party.accounts, key) for key in keys], isolation=level)


def in_a_unit(party: Party, keys: list[Key], level: Isolation, before: int = 0) -> list[Any]:
    with party.begin(isolation=level) as unit:
        for key in keys[:before]:
            unit.get(party.accounts, key)
        return unit.get_all([(party.accounts, key) for key in keys])


LEVELS = (SERIALIZABLE, COMMITTED, UNCOMMITTED)
READS_ALL: dict[str, Callable[[Party, list[Key]], list[Any]]] = {
    **{f"{level!r} in a unit": partial(with_one_call, level) for level in LEVELS},
    **{f"{level!r} outside": partial(outside, level) for level in LEVELS},
    "with read locks": lambda party, keys: in_a_unit(party, keys, READ_LOCK),
    "after some of them": lambda party, keys: in_a_unit(party, keys, SERIALIZABLE, before=2),
    "BatchGetItem": lambda party, keys: party.begin().client.batch_get_item(
        RequestItems={party.accounts.name: {"Keys": [dumped(key) for key in keys]}}
    )["Responses"][party.accounts.name],
    "TransactGetItems": lambda party, keys: [
        each["Item"]
        for each in party.begin().client.transact_get_items(
            TransactItems=[{"Get": {"TableName": party.accounts.name, "Key": dumped(key)}} for key in keys]
        )["Responses"]
    ],
}
"""Each way to read items together."""


def stored_together(books: Books, count: int, total: int) -> list[Key]:
    """So many items of so many bytes together."""
    keys: list[Key] = [some_account() for _ in range(count)]
    sizes = [total // count] * (count - 1)
    for key, size in zip(keys, (*sizes, total - sum(sizes)), strict=True):
        books.write("accounts", padded(key, size))
    return keys


@pytest.mark.parametrize("how", READS_ALL)
@pytest.mark.parametrize(
    ("count", "total"),
    [
        *((COUNT, TRANSACTION_BYTES + more) for more in (-1, 0, 1)),
        pytest.param(100, 100 * 45_000, marks=pytest.mark.verify("more items")),
        pytest.param(100, 100 * ITEM_BYTES, marks=pytest.mark.verify("40 MB")),
    ],
)
def test_items_of_any_sizes_are_read_together_in_one_request_if_they_fit_and_otherwise_in_groups(
    books: Books, ann: Party, how: str, count: int, total: int
) -> None:
    if how == "with read locks":
        total -= count * MARK_ROOM
    keys = stored_together(books, count, total)
    found = READS_ALL[how](ann, keys)
    assert len(found) == count
    assert sum(
        len(str(item["padding"]["S"] if isinstance(item["padding"], dict) else item["padding"])) for item in found
    ) > (total - count * KB)


@THREADS_ONLY
def test_a_snapshot_of_more_than_four_megabytes_is_of_one_instant(books: Books, ann: Party, ben: Party) -> None:
    keys = stored_together(books, COUNT, TRANSACTION_BYTES + COUNT)
    # All are refused together, and then read by halves.
    before_the_nth(ann, 3, lambda: changes_all(ben, keys, "new"), "TransactGetItems")
    found = ann.units.get_all([(ann.accounts, key) for key in keys], isolation=SERIALIZABLE)
    assert len({item["padding"][0] for item in found if item is not None}) == 1


def changes_all(party: Party, keys: list[Key], text: str) -> None:
    with party.begin() as unit:
        for key in keys:
            unit.put(party.accounts, {**key, "padding": text})


def test_a_read_that_is_denied_is_not_taken_for_one_that_is_too_large(books: Books, ann: Party) -> None:
    keys = [books.account() for _ in range(COUNT - 1)]

    def deny(**_: object) -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "not these"}}, "TransactGetItems")

    ann.client.meta.events.register("before-call.dynamodb.TransactGetItems", deny)
    unit = ann.begin()
    with pytest.raises(TableRefused, match="not these"):
        unit.get_all([(ann.accounts, key) for key in keys])
    assert ann.line.operations == ["TransactGetItems"]


@pytest.mark.parametrize(("more", "way"), [(-1, "native"), (0, "native"), (1, None)])
def test_a_unit_of_up_to_four_megabytes_is_one_request_and_a_larger_one_is_committed_by_marks(
    books: Books, ann: Party, more: int, way: Any
) -> None:
    with ann.begin(engine=way) as unit:
        keys = put_together(ann, unit, TRANSACTION_BYTES + more)
    assert {books.version(key) for key in keys} == {unit.id}
    assert books.marks(keys) == 0
    assert (writes(ann) == ["TransactWriteItems"]) == (way == "native")


def test_a_unit_of_more_than_four_megabytes_is_refused_where_one_request_was_asked_for(
    books: Books, ann: Party
) -> None:
    before, unit = books.everything(), ann.begin(engine="native")
    put_together(ann, unit, TRANSACTION_BYTES + 1)
    with pytest.raises(UnitTooLarge, match="4,194,305"):
        unit.commit()
    assert writes(ann) == []
    assert books.everything() == before


@pytest.mark.parametrize(
    ("does", "beside", "way"),
    [
        ("deletes", True, None),
        ("shrinks", True, None),
        ("reads", True, None),
        ("updates blindly", False, None),
        ("updates blindly", False, "marked"),
    ],
)
def test_a_unit_that_finds_more_than_four_megabytes_is_committed_by_marks(
    books: Books, ann: Party, account: Key, stored: list[Key], does: str, beside: bool, way: Any
) -> None:
    """Also the requests that mark items without a version have room, and the decision."""
    text = padded(stored[0], STORED_BYTES)["padding"]
    with ann.begin(engine=way) as unit:
        if beside:
            unit.update(ann.accounts, account, SET_BALANCE, ONE)
        for key in stored:
            DOES[does](ann, unit, key)
    assert "TransactWriteItems" in writes(ann)
    assert books.balance(account) == (1 if beside else 100)
    found = [books.raw("accounts", key) for key in stored]
    version = {} if does == "reads" else {VERSION: unit.id}
    left = {
        "deletes": None,
        "shrinks": {"padding": ""} | version,
        "reads": {"padding": text},
        "updates blindly": {"padding": text, "balance": 1} | version,
    }[does]
    assert found == [left and {**key, **left} for key in stored]


@pytest.mark.parametrize("does", ["reads", "updates blindly"])
def test_a_unit_that_finds_more_than_four_megabytes_is_refused_where_one_request_was_asked_for(
    books: Books, ann: Party, stored: list[Key], does: str
) -> None:
    before = books.everything()
    unit = ann.begin(engine="native")
    for key in stored:
        DOES[does](ann, unit, key)
    is_refused = does == "reads" or books.engine.name not in COUNT_NO_BYTES
    with pytest.raises(UnitTooLarge) if is_refused else nullcontext():
        unit.commit()
    assert (books.everything() == before) is is_refused


def test_what_others_have_written_to_what_a_unit_only_read_is_a_conflict_however_large(
    books: Books, ann: Party, ben: Party
) -> None:
    keys, unchanged = [books.account() for _ in range(COUNT)], books.account()
    unit = ann.begin()
    for key in (*keys, unchanged):
        unit.get(ann.accounts, key)
    for key in keys:
        with ben.begin() as other:
            other.put(ben.accounts, padded(key, ITEM_BYTES - MARK_ROOM))
    with pytest.raises(UnitConflict) as conflict:
        unit.commit()
    assert list(conflict.value.keys) == [(ann.accounts.name, key) for key in keys]


@dataclass
class Held:
    """A lock that is an item of ours, however large."""

    books: Books
    key: Key

    def condition_check(self) -> dict[str, Any]:
        check = {"TableName": self.books.tables["lines"], "Key": dumped(self.key)}
        return {"ConditionCheck": {**check, "ConditionExpression": "attribute_exists(pk)"}}


@pytest.mark.parametrize("does", ["puts", "reads"])
def test_a_unit_of_four_megabytes_counts_the_item_of_its_lock(
    books: Books, ann: Party, account: Key, stored: list[Key], does: str
) -> None:
    lock, most = some_line(), stored[: COUNT - 1]
    books.write("lines", {**lock, "padding": "x" * 395 * KB})
    with ann.begin(under=Held(books, lock)) as unit:
        unit.update(ann.accounts, account, SET_BALANCE, ONE)
        for key in most:
            if does == "puts":
                unit.put(ann.accounts, padded(key, ITEM_BYTES - MARK_ROOM))
            else:
                unit.get(ann.accounts, key)
    assert books.version(account) == unit.id
    assert {books.version(key) for key in most} == {unit.id if does == "puts" else None}


@WAY
@pytest.mark.parametrize("blind", [False, True], ids=["read", "blind"])
@pytest.mark.parametrize(
    ("field", "of_bytes"),
    [
        ("update", lambda size: {"update": f"SET {'b' * (size - 9)} = :n"}),
        ("condition", lambda size: {"condition": f"attribute_not_exists({'c' * (size - 22)})"}),
    ],
    ids=["update", "condition"],
)
def test_a_statement_has_expressions_of_up_to_four_kilobytes(
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
def test_a_statement_has_values_of_up_to_two_megabytes(ann: Party, blind: bool) -> None:
    condition = "attribute_not_exists(a) OR a <> :large"
    text = "x" * (VALUES_BYTES - size_of({":n": {"N": "1"}, ":large": {"S": ""}}))
    with ann.begin() as unit:
        values = {":n": 1, ":large": text}
        unit.update(ann.accounts, some_account(), "SET a = :n", values, condition=condition, blind=blind)
    before = len(ann.line.sent)
    unit, values = ann.begin(), {":n": 1, ":large": text + "x"}
    with pytest.raises(InvalidUnitRequest, match="2,097,153") as refused:
        unit.update(ann.accounts, some_account(), "SET a = :n", values, condition=condition, blind=blind)
    assert refused.value.field == "values"
    assert len(ann.line.sent) == before


def nested(levels: int) -> Any:
    """A value of so many levels."""
    return "x" if levels == 1 else {"a": nested(levels - 1)}


@WAY
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


@WAY
def test_an_item_that_would_grow_past_the_bound_is_refused_at_the_line_and_the_unit_stays_open(
    books: Books, ann: Party, account: Key, way: str
) -> None:
    item = incompressible(some_account(), STORED_BYTES)
    books.write("accounts", item)
    more = {":more": noise(ITEM_BYTES - VERSION_ROOM + 1 - STORED_BYTES - len("more"))}
    with ann.begin(engine=way) as unit:
        with pytest.raises(ItemTooLarge, match=item["id"]) as refused:
            unit.update(ann.accounts, {"id": item["id"]}, "SET more = :more", more)
        unit.update(ann.accounts, account, SET_BALANCE, ONE)
    assert refused.value.phase == "statement"
    assert plain(books, {"id": item["id"]}) == item
    assert books.balance(account) == 1


def rows_sent(party: Party) -> list[str]:
    """The rows that it has sent, by the beginnings of their names."""
    items = [sent.parameters["Item"] for sent in party.line.sent if sent.operation == "PutItem"]
    return [item["row"]["S"][:2] for item in items if "row" in item]


@pytest.mark.parametrize(
    ("size", "rows"), [(ROW_BYTES - 4 * KB, 1), (ROW_BYTES + 4 * KB, 2), (ITEM_BYTES - MARK_ROOM, 2)]
)
def test_an_item_that_nothing_packs_is_written_down_in_as_many_rows_as_it_needs(
    books: Books, ann: Party, size: int, rows: int
) -> None:
    item = incompressible(some_account(), size)
    with ann.begin(engine="marked") as unit:
        unit.put(ann.accounts, item)
    assert rows_sent(ann) == ["he"] + ["w#"] * rows
    assert plain(books, {"id": item["id"]}) == item
    assert books.rows(unit.id).keys() == {"head"}


@THREADS_ONLY
@pytest.mark.parametrize("is_sent", [False, True], ids=["before", "after"])
def test_a_crash_at_any_of_several_rows_commits_nothing_and_leaves_nothing(
    books: Books, units_world: UnitsWorld, ben: Party, is_sent: bool
) -> None:
    # Three items of 400 KB take four rows.
    head_and_rows = 5
    for number in range(1, 1 + head_and_rows):
        keys = [books.account(100), books.account(50), some_account()]
        ann = units_world.party()
        unit = ann.begin(engine="marked")
        for key in keys:
            unit.put(ann.accounts, incompressible(key, ITEM_BYTES - MARK_ROOM))
        crashes(ann, number, "PutItem", is_sent=is_sent)
        with pytest.raises(Killed):
            unit.commit()
        found = ben.units.get_all([(ben.accounts, key) for key in keys])
        assert [item and item["balance"] for item in found] == [100, 50, None], number
        assert books.marks(keys) == 0
        for seconds in (LEASE_S, COPIES_S):
            books.clock.advance(seconds + MARGIN_S)
            ben.units.sweep()
        assert books.rows(unit.id).keys() <= {"head"}, number
    assert rows_sent(ann) == ["he"] + ["w#"] * (head_and_rows - 1)
