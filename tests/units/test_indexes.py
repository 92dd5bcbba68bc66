"""Indexes: their keys are checked at the statement; queries show own writes, as the index will have them."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError
from kit.crashes import crashes
from kit.engines import engine_names, engine_names_but_dynoxide, engine_names_but_moto, first_on
from kit.units import THREADS_ONLY, VERSION, Books, Killed, Party, dumped, index, make_table, new_version

from ticketlock.errors import InvalidUnitRequest, ItemTooLarge, UnitConflict
from ticketlock.units import COMMITTED, SERIALIZABLE, UNCOMMITTED, Isolation, Unit, UnitTable

pytestmark = pytest.mark.shows("bad input", "own writes in queries")

INDEXING_FIRST = pytest.mark.parametrize("units_engine", first_on("memory", engine_names()), indirect=True)
LEVELS_OF_INDEXES = pytest.mark.parametrize("level", [UNCOMMITTED, COMMITTED], ids=repr)

KEYS = {"pk": "S", "sk": "N"}
BY_RANK = {"owner": "HASH", "rank": "RANGE"}
GLOBAL = [
    index("by-owner", BY_RANK),
    index("keys-by-owner", BY_RANK, ProjectionType="KEYS_ONLY"),
    index("of-owners", {"owner": "HASH"}, ProjectionType="INCLUDE", NonKeyAttributes=["amount"]),
    index("inverted", {"sk": "HASH", "pk": "RANGE"}, ProjectionType="KEYS_ONLY"),
]
LOCAL = [index("by-rank", {"pk": "HASH", "rank": "RANGE"})]
OF_ANN = Key("owner").eq("ann")


@contextmanager
def table_of(books: Books, keys: Mapping[str, str], also: Mapping[str, str], **indexes: Any) -> Iterator[str]:
    """The name of a table with indexes, which is deleted afterwards."""
    name = f"indexed-{uuid.uuid4().hex[:8]}"
    make_table(books.plain_client, name, keys, also, **indexes)
    yield name
    books.plain_client.delete_table(TableName=name)


ABSENT = "attribute_not_exists(pk)"
PUTS: dict[str, Callable[[Unit, UnitTable, dict[str, Any]], object]] = {
    "put": lambda unit, table, wrong: unit.put(table, wrong, condition=ABSENT),
    "put_all": lambda unit, table, wrong: unit.put_all(table, [item(9), wrong], condition=ABSENT),
    "PutItem": lambda unit, table, wrong: unit.client.put_item(
        TableName=table.name, Item=dumped(wrong), ConditionExpression=ABSENT
    ),
}


@pytest.mark.parametrize("units_engine", first_on("memory", engine_names_but_moto()), indirect=True)
@pytest.mark.parametrize("call", PUTS)
@pytest.mark.parametrize("fault", ["the key of an index", "the size"])
def test_the_faults_of_a_put_are_told_whether_or_not_its_condition_holds_as_by_dynamodb(
    books: Books, ann: Party, orders: UnitTable, call: str, fault: str
) -> None:
    wrong = {**item(1), **({"owner": 7} if fault == "the key of an index" else {"amount": "x" * 410_000})}
    with pytest.raises(ClientError, match="ValidationException"):
        books.plain_client.put_item(TableName=orders.name, Item=dumped(wrong), ConditionExpression=ABSENT)
    with ann.begin() as unit:
        with pytest.raises((InvalidUnitRequest, ItemTooLarge)):
            PUTS[call](unit, orders, wrong)
        assert ann.line.sent == []
        unit.put(orders, item(9))


@pytest.fixture
def orders(books: Books, ann: Party) -> Iterator[UnitTable]:
    """Five items of one owner, at the ranks 10 to 50; one without."""
    with table_of(books, KEYS, {"owner": "S", "rank": "N"}, GlobalSecondaryIndexes=GLOBAL) as name:
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


@INDEXING_FIRST
def test_a_query_of_an_index_returns_items_in_the_order_of_its_key(ann: Party, orders: UnitTable) -> None:
    unit = ann.begin()
    assert unit.query(orders, OF_ANN, index="by-owner") == [item(number) for number in range(1, 6)]
    assert numbers(unit.query(orders, OF_ANN & Key("rank").gt(20), index="by-owner", forward=False)) == [5, 4, 3]


@INDEXING_FIRST
@pytest.mark.parametrize(("name", "beside"), [("keys-by-owner", {"rank"}), ("of-owners", {"amount"})])
def test_own_writes_are_shown_as_the_index_has_them(ann: Party, orders: UnitTable, name: str, beside: set[str]) -> None:
    unit = ann.begin()
    unit.put(orders, item(6, secret="s"))
    unit.update(orders, key(2), "SET secret = :s", {":s": "s"})
    found = unit.query(orders, OF_ANN, index=name)
    assert sorted(numbers(found)) == [1, 2, 3, 4, 5, 6]
    assert {frozenset(each) for each in found} == {frozenset({"pk", "sk", "owner"} | beside)}


@INDEXING_FIRST
def test_own_writes_move_by_the_key_of_the_index(ann: Party, orders: UnitTable) -> None:
    unit = ann.begin()
    unit.update(orders, key(1), "SET #r = :r", {":r": 45}, {"#r": "rank"})
    unit.update(orders, key(2), "SET #o = :o", {":o": "ben"}, {"#o": "owner"})
    unit.update(orders, key(3), "REMOVE #r", names={"#r": "rank"})
    unit.delete(orders, key(5))
    unit.update(orders, key(9), "SET #o = :o, #r = :r", {":o": "ann", ":r": 0}, {"#o": "owner", "#r": "rank"})
    assert numbers(unit.query(orders, OF_ANN, index="by-owner")) == [9, 4, 1]
    assert numbers(unit.query(orders, Key("owner").eq("ben"), index="by-owner")) == [2]
    assert numbers(unit.query(orders, OF_ANN, index="by-owner", filter=Attr("sk").lt(9))) == [4, 1]


@INDEXING_FIRST
@pytest.mark.parametrize("forward", [True, False], ids=["forward", "backward"])
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_of_an_index_return_each_item_once_also_if_several_have_one_rank(
    ann: Party, orders: UnitTable, limit: int, forward: bool
) -> None:
    ranks = {1: 10, 2: 20, 3: 30, 4: 20, 5: 50, 11: 20, 12: 20, 13: 60, 14: 20}
    unit = ann.begin()
    for number in (11, 12, 13, 14):
        unit.put(orders, item(number, ranks[number]))
    unit.update(orders, key(4), "SET #r = :r", {":r": ranks[4]}, {"#r": "rank"})
    unit.update(orders, key(2), "SET amount = :n", {":n": 5})
    found: list[int] = []
    after: Any = None
    while page := unit.query(orders, OF_ANN, index="by-owner", limit=limit, after=after, forward=forward):
        found += numbers(page)
        after = page[-1]
    assert sorted(found) == sorted(ranks)
    found_ranks = [ranks[number] for number in found]
    assert found_ranks == sorted(found_ranks, reverse=not forward)


@INDEXING_FIRST
def test_a_unit_commits_although_an_item_that_an_index_has_shown_has_changed(
    books: Books, ann: Party, ben: Party, orders: UnitTable
) -> None:
    theirs = ben.units.table(orders.name)
    with ann.begin() as unit:
        assert len(unit.query(orders, OF_ANN, index="keys-by-owner")) == 5
        with ben.begin() as other:
            other.update(theirs, key(1), "SET amount = :n", {":n": 7})
        unit.put(ann.accounts, {"id": orders.name})
    assert books.raw("accounts", {"id": orders.name}) is not None


@INDEXING_FIRST
def test_a_unit_that_writes_an_item_which_has_changed_since_an_index_has_shown_it_whole_conflicts(
    ann: Party, ben: Party, orders: UnitTable
) -> None:
    unit, theirs = ann.begin(), ben.units.table(orders.name)
    shown = unit.query(orders, OF_ANN, index="by-owner", limit=1)[0]
    with ben.begin() as other:
        other.update(theirs, key(1), "SET amount = :n", {":n": 7})
    with pytest.raises(UnitConflict):
        unit.put(orders, {**shown, "amount": shown["amount"] + 1})


@INDEXING_FIRST
def test_a_query_of_an_index_at_serializable_is_refused(ann: Party, orders: UnitTable) -> None:
    with pytest.raises(InvalidUnitRequest) as refused:
        ann.begin().query(orders, OF_ANN, index="by-owner", isolation=SERIALIZABLE)
    assert refused.value.field == "isolation"


@INDEXING_FIRST
@pytest.mark.parametrize("index", ["by-owner", "keys-by-owner"])
def test_a_query_of_an_index_at_serializable_is_refused_outside_of_units_too(
    ann: Party, orders: UnitTable, index: str
) -> None:
    with pytest.raises(InvalidUnitRequest, match=index) as refused:
        ann.units.query(orders, OF_ANN, index=index, isolation=SERIALIZABLE)
    assert refused.value.field == "isolation"
    assert ann.line.sent == []


@INDEXING_FIRST
@LEVELS_OF_INDEXES
def test_an_index_is_shown_as_it_is_and_not_with_what_was_only_read_for_later(
    ann: Party, ben: Party, orders: UnitTable, level: Isolation
) -> None:
    theirs = ben.units.table(orders.name)
    with ann.begin() as unit:
        unit.prefetch([(orders, key(1)), (orders, key(2))])
        assert unit.get(orders, key(2)) == item(2)
        with ben.begin() as other:
            for number in (1, 2, 3):
                other.update(theirs, key(number), "SET amount = :n", {":n": 7})
        amounts = {
            int(each["sk"]): each["amount"] for each in unit.query(orders, OF_ANN, index="by-owner", isolation=level)
        }
        # The second one was shown, and the commit checks it.
        assert amounts == {1: 7, 2: 1, 3: 7, 4: 1, 5: 1}
        unit.rollback()


@INDEXING_FIRST
def test_the_error_of_an_unknown_index_names_those_that_the_table_has(ann: Party, orders: UnitTable) -> None:
    with pytest.raises(InvalidUnitRequest, match="by-owner, inverted, keys-by-owner, of-owners"):
        ann.begin().query(orders, OF_ANN, index="by-none")


@INDEXING_FIRST
@LEVELS_OF_INDEXES
def test_a_global_index_is_never_read_consistently(ann: Party, orders: UnitTable, level: Isolation) -> None:
    ann.units.query(orders, OF_ANN, index="by-owner", isolation=level)
    assert [sent.parameters["ConsistentRead"] for sent in ann.line.sent] == [False]
    given = {"TableName": orders.name, "IndexName": "by-owner", "KeyConditionExpression": "#o = :o"}
    placeholders = {"ExpressionAttributeNames": {"#o": "owner"}, "ExpressionAttributeValues": {":o": {"S": "ann"}}}
    with pytest.raises(InvalidUnitRequest) as refused:
        ann.begin().client.query(**given, **placeholders, ConsistentRead=True)
    assert refused.value.field == "ConsistentRead"
    assert ann.begin().client.query(**given, **placeholders)["Count"] == 5


@INDEXING_FIRST
@THREADS_ONLY
@LEVELS_OF_INDEXES
def test_an_item_that_is_only_about_to_be_inserted_is_found_in_an_index_of_keys_by_plain_readers_alone(
    books: Books, ann: Party, ben: Party, orders: UnitTable, level: Isolation
) -> None:
    """The index has neither attribute for which ``VISIBLE`` looks."""
    unit = ben.begin(engine="marked")
    unit.put(ben.units.table(orders.name), {"pk": "p", "sk": 1})
    crashes(ben, 1, is_sent=False)
    with pytest.raises(Killed):
        unit.commit()
    found = ann.units.query(orders, Key("sk").eq(1), index="inverted", isolation=level)
    assert [each["pk"] for each in found] == ["o"]
    given = {"KeyConditionExpression": "sk = :one", "ExpressionAttributeValues": {":one": {"N": "1"}}}
    plain = books.plain_client.query(TableName=orders.name, IndexName="inverted", **given)["Items"]
    assert [(each["pk"]["S"], each.keys()) for each in plain] == [("o", {"pk", "sk"}), ("p", {"pk", "sk"})]


@INDEXING_FIRST
def test_items_of_more_than_four_megabytes_are_found_in_an_index_that_has_keys_alone(
    books: Books, ann: Party, orders: UnitTable
) -> None:
    partitions = [f"p{number:02}" for number in range(12)]
    for partition in partitions:
        stored = {"pk": {"S": partition}, "sk": {"N": "7"}, "text": {"S": "x" * 380_000}}
        books.plain_client.put_item(TableName=orders.name, Item=stored)
    found = ann.begin().query(orders, Key("sk").eq(7), index="inverted")
    assert [each["pk"] for each in found] == partitions
    assert "TransactGetItems" not in ann.line.operations


@INDEXING_FIRST
@pytest.mark.parametrize(("level", "consistent"), [(UNCOMMITTED, False), (COMMITTED, True), (None, True)], ids=repr)
def test_a_local_index_is_read_as_its_table(books: Books, ann: Party, level: Any, consistent: bool) -> None:
    with table_of(books, KEYS, {"rank": "N"}, LocalSecondaryIndexes=LOCAL) as name:
        table = ann.units.table(name)
        for number in range(1, 4):
            stored = dumped({**item(number), VERSION: new_version()})
            books.plain_client.put_item(TableName=name, Item=stored)
        unit = ann.begin()
        unit.update(table, key(3), "SET #r = :r", {":r": 15}, {"#r": "rank"})
        ann.line.sent.clear()
        assert numbers(unit.query(table, Key("pk").eq("o"), index="by-rank", isolation=level)) == [1, 3, 2]
        assert [sent.parameters["ConsistentRead"] for sent in ann.line.sent] == [consistent]


# What an index does not have.

BY_KEYS = [
    index("keys-by-rank", {"pk": "HASH", "rank": "RANGE"}, ProjectionType="KEYS_ONLY"),
    index("amounts-by-rank", {"pk": "HASH", "rank": "RANGE"}, ProjectionType="INCLUDE", NonKeyAttributes=["amount"]),
]
OF_RANK = {"#pk": "pk"}, {":o": {"S": "o"}}


@pytest.fixture
def ranked(books: Books, ann: Party) -> Iterator[UnitTable]:
    """Five items of one partition, at the ranks 10 to 50, whose local indexes have little of them."""
    with table_of(books, KEYS, {"rank": "N"}, LocalSecondaryIndexes=BY_KEYS) as name:
        table = ann.units.table(name)
        for number in range(1, 6):
            stored = dumped({**item(number, text={"long": "l"}), VERSION: new_version()})
            books.plain_client.put_item(TableName=name, Item=stored)
        ann.line.sent.clear()
        yield table


def through(unit: Any, table: UnitTable, name: str, **more: Any) -> dict[str, Any]:
    """A page of a local index."""
    names, values = OF_RANK
    given = {"TableName": table.name, "IndexName": name, "KeyConditionExpression": "#pk = :o"}
    placeholders = {
        "ExpressionAttributeNames": {**names, **more.pop("names", {})},
        "ExpressionAttributeValues": {**values, **more.pop("values", {})},
    }
    reply: dict[str, Any] = unit.client.query(**given, **placeholders, **more)
    return reply


@INDEXING_FIRST
@pytest.mark.parametrize("level", [UNCOMMITTED, COMMITTED, SERIALIZABLE], ids=repr)
@pytest.mark.parametrize("name", ["keys-by-rank", "amounts-by-rank"])
def test_a_low_level_query_reads_what_a_local_index_does_not_have_from_the_table(
    ann: Party, ranked: UnitTable, name: str, level: Isolation
) -> None:
    unit = ann.begin(isolation=level)
    unit.update(ranked, key(1), "SET amount = :n", {":n": 7})
    unit.update(ranked, key(2), "SET #r = :r", {":r": 60}, {"#r": "rank"})
    found = through(unit, ranked, name, ProjectionExpression="amount, #t.#l", names={"#t": "text", "#l": "long"})[
        "Items"
    ]
    assert found == [dumped({"amount": 7 if number == 1 else 1, "text": {"long": "l"}}) for number in (1, 3, 4, 5, 2)]
    whole = through(unit, ranked, name, Select="ALL_ATTRIBUTES")["Items"]
    assert whole == [
        dumped(each) for each in unit.get_all([(ranked, key(number)) for number in (1, 3, 4, 5, 2)]) if each
    ]
    assert through(unit, ranked, name, Select="ALL_PROJECTED_ATTRIBUTES")["Items"][1].keys() < whole[1].keys()


@INDEXING_FIRST
def test_a_local_index_that_has_all_that_is_asked_for_is_all_that_is_read(ann: Party, ranked: UnitTable) -> None:
    unit = ann.begin()
    asked: dict[str, Any] = {"ProjectionExpression": "amount, sk"}
    assert ann.sends(lambda: through(unit, ranked, "amounts-by-rank", **asked)) == ["Query"]
    assert ann.sends(lambda: through(unit, ranked, "keys-by-rank", Limit=1, **asked)) == ["Query", "GetItem"]
    assert ann.sends(lambda: through(unit, ranked, "keys-by-rank", **asked)) == ["Query", "BatchGetItem"]


@INDEXING_FIRST
@THREADS_ONLY
def test_an_item_that_moves_in_a_local_index_while_it_is_read_is_left_out_of_the_page(
    books: Books, ann: Party, ranked: UnitTable
) -> None:
    def move() -> None:
        stored = dumped({**item(1, rank=40), VERSION: new_version()})
        books.plain_client.put_item(TableName=ranked.name, Item=stored)

    ann.line.between["BatchGetItem"] = move
    pages, more = list[list[int]](), dict[str, Any]()
    while not pages or more:
        page = through(ann.begin(), ranked, "keys-by-rank", ProjectionExpression="amount, sk", Limit=2, **more)
        pages.append([int(each["sk"]["N"]) for each in page["Items"]])
        more = {"ExclusiveStartKey": page["LastEvaluatedKey"]} if "LastEvaluatedKey" in page else {}
    assert list(chain.from_iterable(pages)) == [2, 3, 1, 4, 5]


@INDEXING_FIRST
@pytest.mark.parametrize("limit", [None, 7, 100, 130])
def test_pages_with_what_a_local_index_does_not_have_return_each_item_once(
    books: Books, ann: Party, ranked: UnitTable, limit: int | None
) -> None:
    for number in range(6, 131):
        books.plain_client.put_item(TableName=ranked.name, Item=dumped(item(number)))
    found, more = list[int](), dict[str, Any]()
    unit = ann.begin()
    while True:
        if limit is not None:
            more["Limit"] = limit
        page = through(unit, ranked, "keys-by-rank", Select="ALL_ATTRIBUTES", **more)
        found += [int(each["sk"]["N"]) for each in page["Items"]]
        if "LastEvaluatedKey" not in page:
            break
        more = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
    assert found == list(range(1, 131))


@INDEXING_FIRST
@pytest.mark.parametrize("forward", [True, False], ids=["forward", "backward"])
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_with_what_a_local_index_does_not_have_go_on_after_an_own_item_at_the_rank_of_others(
    ann: Party, ranked: UnitTable, limit: int, forward: bool
) -> None:
    unit = ann.begin()
    for number in (2, 6, 7):
        unit.put(ranked, item(number, rank=30))
    found, more = list[int](), dict[str, Any]()
    while not found or more:
        page = through(
            unit, ranked, "keys-by-rank", Select="ALL_ATTRIBUTES", Limit=limit, ScanIndexForward=forward, **more
        )
        found += [int(each["sk"]["N"]) for each in page["Items"]]
        more = {"ExclusiveStartKey": page["LastEvaluatedKey"]} if "LastEvaluatedKey" in page else {}
        assert len(found) <= 7
    assert sorted(found) == list(range(1, 8))


@INDEXING_FIRST
@pytest.mark.parametrize(
    "asked",
    [
        {"ProjectionExpression": "amount"},
        {"ProjectionExpression": "sk, #t.#l", "names": {"#t": "text", "#l": "long"}},
        {"Select": "ALL_ATTRIBUTES"},
        {"FilterExpression": "amount = :n", "values": {":n": {"N": "1"}}},
    ],
    ids=lambda asked: min(asked),
)
def test_what_a_global_index_does_not_have_is_refused_and_not_sent(
    ann: Party, orders: UnitTable, asked: dict[str, Any]
) -> None:
    given = {"TableName": orders.name, "IndexName": "keys-by-owner", "KeyConditionExpression": "#o = :o"}
    placeholders = {
        "ExpressionAttributeNames": {"#o": "owner", **asked.get("names", {})},
        "ExpressionAttributeValues": {":o": {"S": "ann"}, **asked.get("values", {})},
    }
    more = {name: each for name, each in asked.items() if name not in ("names", "values")}
    with pytest.raises(InvalidUnitRequest) as refused:
        ann.begin().client.query(**given, **placeholders, **more)
    assert refused.value.field == min(more)
    assert isinstance(refused.value, ClientError)
    assert refused.value.response["Error"]["Code"] == "ValidationException"
    assert ann.line.operations == []


@INDEXING_FIRST
def test_a_filter_by_what_an_index_does_not_have_is_refused_as_dynamodb_refuses_it(
    ann: Party, orders: UnitTable, ranked: UnitTable
) -> None:
    unit = ann.begin()
    for table, name, condition in (
        (orders, "keys-by-owner", OF_ANN),
        (orders, "of-owners", OF_ANN),
        (ranked, "keys-by-rank", Key("pk").eq("o")),
    ):
        with pytest.raises(InvalidUnitRequest, match=r"does not project one or more filter attributes: \[secret\]"):
            unit.query(table, condition, index=name, filter=Attr("secret").eq(1))
    assert unit.query(orders, OF_ANN, index="of-owners", filter=Attr("amount").eq(1) & Attr("sk").eq(2))


@pytest.mark.parametrize("way", ["native", "marked"])
@pytest.mark.parametrize("units_engine", first_on("ministack", ["moto", "ministack"]), indirect=True)
@pytest.mark.parametrize(
    ("attribute", "bad"),
    [("by-owner", ""), ("by-owner", 5), ("by-owner", None), ("by-owner", "o" * 2_049), ("at", "5"), ("at", {5})],
    ids=["empty", "a number", "none", "too long", "a text", "a set"],
)
def test_an_item_may_be_without_the_key_of_an_index_and_a_wrong_value_for_it_is_refused_at_the_statement(
    books: Books, ann: Party, way: str, attribute: str, bad: Any
) -> None:
    of_owners = index("of-owners", {"by-owner": "HASH", "at": "RANGE"})
    with table_of(books, {"id": "S"}, {"by-owner": "S", "at": "N"}, GlobalSecondaryIndexes=[of_owners]) as name:
        orders = ann.units.table(name)
        with ann.begin(engine=way) as unit:
            unit.put(orders, {"id": "a", "by-owner": "ann", "at": 5})
            unit.put(orders, {"id": "b"})
        before = books.plain_client.scan(TableName=name, ConsistentRead=True)["Items"]
        unit = ann.begin(engine=way)
        given: Any = ("SET #key = :bad", {":bad": bad}, {"#key": attribute})
        with pytest.raises(InvalidUnitRequest, match=attribute):
            unit.update(orders, {"id": "a"}, *given, blind=True)
        with pytest.raises(InvalidUnitRequest, match=attribute):
            unit.update(orders, {"id": "b"}, *given)
        with pytest.raises(InvalidUnitRequest, match=attribute):
            unit.put(orders, {"id": "a", attribute: bad})
        unit.commit()
        assert books.plain_client.scan(TableName=name, ConsistentRead=True)["Items"] == before


def refuse_inverted(party: Party, code: str) -> None:
    """Refuse each query of the index ``inverted``."""

    def refuse(params: Any, **_: Any) -> None:
        if params.get("IndexName") == "inverted":
            raise ClientError({"Error": {"Code": code, "Message": "not this index"}}, "Query")

    party.client.meta.events.register("provide-client-params.dynamodb.Query", refuse)


@INDEXING_FIRST
def test_an_index_that_is_being_filled_is_no_missing_permission(ann: Party, orders: UnitTable) -> None:
    refuse_inverted(ann, "ValidationException")
    assert ann.units.check_access([orders]) == []


@INDEXING_FIRST
def test_each_index_is_queried_when_access_is_checked_and_the_one_that_is_denied_is_named(
    ann: Party, orders: UnitTable
) -> None:
    refuse_inverted(ann, "AccessDeniedException")
    (found,) = ann.units.check_access([orders])
    assert (found.table, found.action) == (orders.name, "dynamodb:Query")
    assert "index inverted" in found.why


# Keys of several attributes.

INDEXING = pytest.mark.parametrize("units_engine", engine_names(), indirect=True)
NESTING = pytest.mark.parametrize("units_engine", engine_names_but_dynoxide(), indirect=True)
BY_ROUND = index("by-round", {"cup": "HASH", "region": "HASH", "round": "RANGE", "bracket": "RANGE"})
NORTH = Key("cup").eq("winter") & Key("region").eq("north")


@pytest.fixture
def matches(books: Books, ann: Party) -> Iterator[UnitTable]:
    """Four matches in the north, in three rounds, and one in the south."""
    kinds = {"cup": "S", "region": "S", "round": "N", "bracket": "S"}
    with table_of(books, {"id": "S"}, kinds, GlobalSecondaryIndexes=[BY_ROUND]) as name:
        table = ann.units.table(name)
        with ann.begin() as unit:
            for round, bracket in ((1, "a"), (1, "b"), (2, "a"), (3, "a")):
                unit.put(table, match(round, bracket))
            unit.put(table, {**match(1, "a"), "id": "south", "region": "south"})
        yield table


def match(round: int, bracket: str) -> dict[str, Any]:
    return {"id": f"{round}{bracket}", "cup": "winter", "region": "north", "round": round, "bracket": bracket}


def ids(found: list[dict[str, Any]]) -> list[str]:
    return [each["id"] for each in found]


@INDEXING
def test_items_of_an_index_come_in_the_order_of_all_attributes_of_its_key_with_own_writes_in_their_places(
    ann: Party, matches: UnitTable
) -> None:
    unit = ann.begin()
    for each in (match(2, "b"), match(1, "c"), match(0, "z")):
        unit.put(matches, each)
    unit.delete(matches, {"id": "1b"})
    assert ids(unit.query(matches, NORTH, index="by-round")) == ["0z", "1a", "1c", "2a", "2b", "3a"]
    assert ids(unit.query(matches, NORTH, index="by-round", forward=False)) == ["3a", "2b", "2a", "1c", "1a", "0z"]


@NESTING
def test_conditions_on_the_first_attributes_of_the_key_of_an_index_select_a_range(
    ann: Party, matches: UnitTable
) -> None:
    unit = ann.begin()
    unit.put(matches, match(1, "c"))
    of_first = NORTH & Key("round").eq(1)
    assert ids(unit.query(matches, of_first, index="by-round")) == ["1a", "1b", "1c"]
    assert ids(unit.query(matches, of_first & Key("bracket").gt("a"), index="by-round")) == ["1b", "1c"]
    assert ids(unit.query(matches, NORTH & Key("round").gte(2), index="by-round")) == ["2a", "3a"]


@INDEXING
def test_pages_of_an_index_with_several_attributes_in_its_key_continue_after_an_item(
    ann: Party, matches: UnitTable
) -> None:
    unit = ann.begin()
    unit.put(matches, match(1, "c"))
    found: list[str] = []
    after: Any = None
    while page := unit.query(matches, NORTH, index="by-round", limit=2, after=after):
        found += ids(page)
        after = page[-1]
    assert found == ["1a", "1b", "1c", "2a", "3a"]


@INDEXING
@pytest.mark.parametrize(
    "condition",
    [Key("cup").eq("winter"), NORTH & Key("bracket").eq("a"), NORTH & Key("round").gt(1) & Key("bracket").eq("a")],
    ids=["without all hash attributes", "without the attribute before it", "after a range"],
)
def test_a_condition_on_the_key_of_an_index_that_dynamodb_would_refuse_is_not_sent(
    ann: Party, matches: UnitTable, condition: Any
) -> None:
    ann.line.sent.clear()
    with pytest.raises(InvalidUnitRequest):
        ann.begin().query(matches, condition, index="by-round")
    assert ann.line.operations == []
