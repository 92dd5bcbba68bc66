"""Queries of indexes: eventually consistent, with the unit's own writes where the index will have them."""

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr, Key
from kit.crashes import crashes
from kit.engines import OF_OTHERS_FIRST, first_on, indexing_engine_names
from kit.units import THREADS_ONLY, VERSION, Books, Killed, Party, new_version

from ticketlock.errors import InvalidUnitRequest, UnitConflict
from ticketlock.units import COMMITTED, SERIALIZABLE, UNCOMMITTED, UnitTable

pytestmark = pytest.mark.parametrize("units_engine", first_on(OF_OTHERS_FIRST, indexing_engine_names()), indirect=True)

KINDS = {"pk": "S", "sk": "N", "owner": "S", "rank": "N"}
ALL, KEYS_ONLY = {"ProjectionType": "ALL"}, {"ProjectionType": "KEYS_ONLY"}
GLOBAL: Mapping[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "by-owner": (("owner", "rank"), ALL),
    "keys-by-owner": (("owner", "rank"), KEYS_ONLY),
    "of-owners": (("owner",), {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["amount"]}),
    "inverted": (("sk", "pk"), KEYS_ONLY),
}
LOCAL = {"by-rank": (("pk", "rank"), ALL)}
OWNER = Key("owner").eq("ann")


def index(name: str, keys: tuple[str, ...], projection: dict[str, Any]) -> dict[str, Any]:
    roles = [{"AttributeName": key, "KeyType": role} for key, role in zip(keys, ("HASH", "RANGE"), strict=False)]
    return {"IndexName": name, "KeySchema": roles, "Projection": projection}


def table_with(books: Books, **indexes: Any) -> Iterator[str]:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    used = {
        "pk",
        "sk",
        *(each["AttributeName"] for many in indexes.values() for one in many for each in one["KeySchema"]),
    }
    books.plain_client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": KINDS[key]} for key in sorted(used)],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        **indexes,
    )
    books.plain_client.get_waiter("table_exists").wait(TableName=name)
    yield name
    books.plain_client.delete_table(TableName=name)


@pytest.fixture
def orders(books: Books, ann: Party) -> Iterator[UnitTable]:
    """Five items of one owner, at the ranks 10 to 50; one without."""
    for name in table_with(books, GlobalSecondaryIndexes=[index(name, *each) for name, each in GLOBAL.items()]):
        table = ann.units.table(name)
        with ann.begin() as unit:
            for number in range(1, 6):
                unit.put(table, item(number))
            unit.put(table, {"pk": "o", "sk": 9, "amount": 1})
        ann.line.sent.clear()
        yield table


def item(number: int, rank: int | None = None, **more: Any) -> dict[str, Any]:
    return {"pk": "o", "sk": number, "owner": "ann", "rank": 10 * number if rank is None else rank, "amount": 1, **more}


def key(number: int) -> dict[str, Any]:
    return {"pk": "o", "sk": number}


def numbers(items: list[dict[str, Any]]) -> list[int]:
    return [int(item["sk"]) for item in items]


def test_the_items_of_an_index_come_in_its_order(ann: Party, orders: UnitTable) -> None:
    unit = ann.begin()
    assert unit.query(orders, OWNER, index="by-owner") == [item(number) for number in range(1, 6)]
    assert numbers(unit.query(orders, OWNER & Key("rank").gt(20), index="by-owner", forward=False)) == [5, 4, 3]


@pytest.mark.parametrize(("name", "beside"), [("keys-by-owner", {"rank"}), ("of-owners", {"amount"})])
def test_own_writes_are_shown_as_the_index_has_them(ann: Party, orders: UnitTable, name: str, beside: set[str]) -> None:
    unit = ann.begin()
    unit.put(orders, item(6, secret="s"))
    unit.update(orders, key(2), "SET secret = :s", {":s": "s"})
    found = unit.query(orders, OWNER, index=name)
    assert sorted(numbers(found)) == [1, 2, 3, 4, 5, 6]
    assert {frozenset(each) for each in found} == {frozenset({"pk", "sk", "owner"} | beside)}


def test_own_writes_move_by_the_key_of_the_index(ann: Party, orders: UnitTable) -> None:
    unit = ann.begin()
    unit.update(orders, key(1), "SET #r = :r", {":r": 45}, {"#r": "rank"})
    unit.update(orders, key(2), "SET #o = :o", {":o": "ben"}, {"#o": "owner"})
    unit.update(orders, key(3), "REMOVE #r", names={"#r": "rank"})
    unit.delete(orders, key(5))
    unit.update(orders, key(9), "SET #o = :o, #r = :r", {":o": "ann", ":r": 0}, {"#o": "owner", "#r": "rank"})
    assert numbers(unit.query(orders, OWNER, index="by-owner")) == [9, 4, 1]
    assert numbers(unit.query(orders, Key("owner").eq("ben"), index="by-owner")) == [2]
    assert numbers(unit.query(orders, OWNER, index="by-owner", filter=Attr("sk").lt(9))) == [4, 1]


@pytest.mark.parametrize("forward", [True, False], ids=["forward", "backward"])
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_page_by_page_everything_comes_once_also_at_one_rank(
    ann: Party, orders: UnitTable, limit: int, forward: bool
) -> None:
    unit = ann.begin()
    for number, rank in ((11, 20), (12, 20), (13, 60), (14, 20)):
        unit.put(orders, item(number, rank))
    unit.update(orders, key(4), "SET #r = :r", {":r": 20}, {"#r": "rank"})
    unit.update(orders, key(2), "SET amount = :n", {":n": 5})
    found: list[int] = []
    after: Any = None
    while page := unit.query(orders, OWNER, index="by-owner", limit=limit, after=after, forward=forward):
        found += numbers(page)
        after = page[-1]
    expected = [1, 2, 4, 11, 12, 14, 3, 5, 13]
    assert sorted(found) == sorted(expected)
    ranks = {1: 10, 3: 30, 5: 50, 13: 60}
    positions = [ranks.get(number, 20) for number in found]
    assert positions == sorted(positions, reverse=not forward)


def test_what_an_index_shows_does_not_hold_until_the_commit(
    books: Books, ann: Party, ben: Party, orders: UnitTable
) -> None:
    theirs = ben.units.table(orders.name)
    with ann.begin() as unit:
        assert len(unit.query(orders, OWNER, index="keys-by-owner")) == 5
        with ben.begin() as other:
            other.update(theirs, key(1), "SET amount = :n", {":n": 7})
        unit.put(ann.accounts, {"id": orders.name})
    assert books.raw("accounts", {"id": orders.name}) is not None


def test_an_item_that_it_shows_whole_is_still_so_when_the_unit_writes_it(
    ann: Party, ben: Party, orders: UnitTable
) -> None:
    unit, theirs = ann.begin(), ben.units.table(orders.name)
    shown = unit.query(orders, OWNER, index="by-owner", limit=1)[0]
    with ben.begin() as other:
        other.update(theirs, key(1), "SET amount = :n", {":n": 7})
    with pytest.raises(UnitConflict):
        unit.put(orders, {**shown, "amount": shown["amount"] + 1})


def test_serializable_is_refused_where_it_is_asked_for(ann: Party, orders: UnitTable) -> None:
    with pytest.raises(InvalidUnitRequest) as refused:
        ann.begin().query(orders, OWNER, index="by-owner", isolation=SERIALIZABLE)
    assert refused.value.field == "isolation"
    with pytest.raises(InvalidUnitRequest, match="by-owner, inverted, keys-by-owner, of-owners"):
        ann.begin().query(orders, OWNER, index="by-none")


@pytest.mark.parametrize("level", [UNCOMMITTED, COMMITTED], ids=lambda level: level.name)
def test_a_global_index_is_never_read_consistently(ann: Party, orders: UnitTable, level: Any) -> None:
    ann.units.query(orders, OWNER, index="by-owner", isolation=level)
    assert [sent.parameters["ConsistentRead"] for sent in ann.line.sent] == [False]
    given = {"TableName": orders.name, "IndexName": "by-owner", "KeyConditionExpression": "#o = :o"}
    placeholders = {"ExpressionAttributeNames": {"#o": "owner"}, "ExpressionAttributeValues": {":o": {"S": "ann"}}}
    with pytest.raises(InvalidUnitRequest) as refused:
        ann.begin().client.query(**given, **placeholders, ConsistentRead=True)
    assert refused.value.field == "ConsistentRead"
    assert ann.begin().client.query(**given, **placeholders)["Count"] == 5


@THREADS_ONLY
@pytest.mark.parametrize("level", [UNCOMMITTED, COMMITTED], ids=lambda level: level.name)
def test_what_is_not_inserted_yet_is_not_there_in_an_index_that_has_keys_alone(
    ann: Party, ben: Party, orders: UnitTable, level: Any
) -> None:
    unit = ben.begin(engine="marked")
    unit.put(ben.units.table(orders.name), {"pk": "p", "sk": 1})
    crashes(ben, 1, is_sent=False)
    with pytest.raises(Killed):
        unit.commit()
    found = ann.units.query(orders, Key("sk").eq(1), index="inverted", isolation=level)
    assert [each["pk"] for each in found] == ["o"]


@THREADS_ONLY
def test_to_a_plain_reader_of_an_index_that_has_keys_alone_what_is_not_inserted_yet_looks_like_an_item(
    books: Books, ben: Party, orders: UnitTable
) -> None:
    """The index has neither attribute for which ``VISIBLE`` looks."""
    unit = ben.begin(engine="marked")
    unit.put(ben.units.table(orders.name), {"pk": "p", "sk": 1})
    crashes(ben, 1, is_sent=False)
    with pytest.raises(Killed):
        unit.commit()
    found = books.plain_client.query(
        TableName=orders.name,
        IndexName="inverted",
        KeyConditionExpression="sk = :one",
        ExpressionAttributeValues={":one": {"N": "1"}},
    )
    assert [(each["pk"]["S"], each.keys()) for each in found["Items"]] == [("o", {"pk", "sk"}), ("p", {"pk", "sk"})]


def test_items_of_more_than_four_megabytes_are_found_in_an_index_that_has_keys_alone(
    books: Books, ann: Party, orders: UnitTable
) -> None:
    named = [f"p{number:02}" for number in range(12)]
    for each in named:
        stored = {"pk": {"S": each}, "sk": {"N": "7"}, "text": {"S": "x" * 380_000}}
        books.plain_client.put_item(TableName=orders.name, Item=stored)
    found = ann.begin().query(orders, Key("sk").eq(7), index="inverted")
    assert [each["pk"] for each in found] == named
    assert "TransactGetItems" not in ann.line.operations


@pytest.mark.parametrize(
    ("level", "consistent"), [(UNCOMMITTED, False), (COMMITTED, True), (None, True)], ids=lambda each: str(each)
)
def test_a_local_index_is_read_as_its_table(books: Books, ann: Party, level: Any, consistent: bool) -> None:
    for name in table_with(books, LocalSecondaryIndexes=[index(name, *each) for name, each in LOCAL.items()]):
        table = ann.units.table(name)
        for number in range(1, 4):
            books.plain_client.put_item(TableName=name, Item=plain(number))
        unit = ann.begin()
        unit.update(table, key(3), "SET #r = :r", {":r": 15}, {"#r": "rank"})
        ann.line.sent.clear()
        assert numbers(unit.query(table, Key("pk").eq("o"), index="by-rank", isolation=level)) == [1, 3, 2]
        assert [sent.parameters["ConsistentRead"] for sent in ann.line.sent] == [consistent]


def plain(number: int) -> dict[str, Any]:
    whole = {"pk": "S", "sk": "N", "owner": "S", "rank": "N", "amount": "N"}
    return {**{name: {kind: str(item(number)[name])} for name, kind in whole.items()}, VERSION: {"S": new_version()}}
