"""Queries of a unit: its own writes are merged with the items of the table, at each level, page by page."""

import random
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr, Key
from kit.crashes import crashes
from kit.engines import engine_names_but_moto, first_on
from kit.units import MARK, THREADS_ONLY, VERSION, Books, Killed, Party, UnitsWorld, new_version, some_line

from ticketlock.errors import InvalidUnitRequest, UnitConflict
from ticketlock.units import COMMITTED, SERIALIZABLE, UNCOMMITTED, Isolation
from ticketlock.units._records._record import LEASE_MS

pytestmark = pytest.mark.shows("own writes in queries")

LEVELS = pytest.mark.parametrize("level", [UNCOMMITTED, COMMITTED, SERIALIZABLE], ids=lambda level: level.name)

SET = "SET amount = :n"

LARGE = "x" * 380_000
"""A page of the service has up to 1 MB: two of these."""


@pytest.fixture
def order(books: Books) -> str:
    """Five lines, 1 to 5, with amounts of 10 to 50."""
    return with_lines(books, 5)


@pytest.fixture
def empty() -> str:
    """An order without lines."""
    return str(some_line()["pk"])


def with_lines(books: Books, count: int, **more: Any) -> str:
    order = str(some_line()["pk"])
    for number in range(1, count + 1):
        item = {"pk": order, "sk": number, "amount": 10 * number, VERSION: new_version(), **more}
        books.write("lines", item)
    return order


def line(order: str, number: int) -> dict[str, Any]:
    return {"pk": order, "sk": number}


def of(order: str) -> Any:
    return Key("pk").eq(order)


def low_level(party: Party, order: str) -> dict[str, Any]:
    return {
        "TableName": party.lines.name,
        "KeyConditionExpression": "pk = :pk",
        "ExpressionAttributeValues": {":pk": {"S": order}},
    }


def numbers(items: list[dict[str, Any]]) -> list[int]:
    return [int(item["sk"]) for item in items]


def amounts(items: list[dict[str, Any]]) -> dict[int, int]:
    return {int(item["sk"]): int(item["amount"]) for item in items}


@LEVELS
def test_the_items_of_a_partition_come_in_order_without_the_attributes_of_units(
    ann: Party, order: str, level: Isolation
) -> None:
    found = ann.begin(isolation=level).query(ann.lines, of(order))
    assert found == [{**line(order, number), "amount": 10 * number} for number in range(1, 6)]


@LEVELS
def test_own_inserts_appear_in_their_place_and_not_those_of_another_partition_or_table(
    ann: Party, order: str, level: Isolation
) -> None:
    unit = ann.begin(isolation=level)
    for number in (0, 6, 3):
        unit.put(ann.lines, {**line(order, number), "amount": 7})
    unit.put(ann.lines, {**some_line(4), "amount": 1})
    unit.put(ann.accounts, {"id": order, "sk": 4})
    assert amounts(unit.query(ann.lines, of(order))) == {0: 7, 1: 10, 2: 20, 3: 7, 4: 40, 5: 50, 6: 7}
    assert numbers(unit.query(ann.lines, of(order), forward=False)) == [6, 5, 4, 3, 2, 1, 0]


@LEVELS
def test_own_updates_move_items_into_the_filter_and_out_of_it(ann: Party, order: str, level: Isolation) -> None:
    unit = ann.begin(isolation=level)
    unit.update(ann.lines, line(order, 1), SET, {":n": 99})
    unit.update(ann.lines, line(order, 5), SET, {":n": 1}, blind=True)
    assert numbers(unit.query(ann.lines, of(order), filter=Attr("amount").gte(40))) == [1, 4]


@LEVELS
@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (Key("sk").eq(3), [3]),
        (Key("sk").lt(3), [0, 2]),
        (Key("sk").lte(3), [0, 2, 3]),
        (Key("sk").gt(3), [4, 5, 9]),
        (Key("sk").gte(3), [3, 4, 5, 9]),
        (Key("sk").between(3, 9), [3, 4, 5, 9]),
    ],
    ids=["=", "<", "<=", ">", ">=", "BETWEEN"],
)
def test_a_bound_of_the_sort_key_holds_for_own_writes_too(
    ann: Party, order: str, level: Isolation, bound: Any, expected: list[int]
) -> None:
    unit = ann.begin(isolation=level)
    for number in (0, 9):
        unit.put(ann.lines, {**line(order, number), "amount": 1})
    unit.delete(ann.lines, line(order, 1))
    assert numbers(unit.query(ann.lines, of(order) & bound)) == expected


@LEVELS
def test_a_limit_counts_what_is_returned(ann: Party, order: str, level: Isolation) -> None:
    unit = ann.begin(isolation=level)
    unit.delete(ann.lines, line(order, 1))
    unit.put(ann.lines, {**line(order, 3), "amount": 1})
    assert numbers(unit.query(ann.lines, of(order), limit=3)) == [2, 3, 4]
    assert numbers(unit.query(ann.lines, of(order), limit=2, filter=Attr("amount").gt(30))) == [4, 5]
    assert numbers(unit.query(ann.lines, of(order), limit=4)) == [2, 3, 4, 5]
    assert numbers(unit.query(ann.lines, of(order), limit=5)) == [2, 3, 4, 5]


@LEVELS
@pytest.mark.parametrize("forward", [True, False], ids=["forward", "backward"])
def test_page_by_page_everything_comes_once(ann: Party, order: str, level: Isolation, forward: bool) -> None:
    unit = ann.begin(isolation=level)
    for number in (0, 3, 6, 7):
        unit.put(ann.lines, {**line(order, number), "amount": 1})
    for number in (2, 5):
        unit.delete(ann.lines, line(order, number))
    found: list[int] = []
    after: Any = None
    while page := unit.query(ann.lines, of(order), limit=2, after=after, forward=forward):
        found += numbers(page)
        after = page[-1]
    assert found == sorted([0, 1, 3, 4, 6, 7], reverse=not forward)


@LEVELS
def test_after_the_one_item_of_a_partition_without_a_sort_key_comes_nothing(
    books: Books, ann: Party, level: Isolation
) -> None:
    """DynamoDB refuses to continue such a query."""
    key = books.account()
    unit = ann.begin(isolation=level)
    (page,) = unit.query(ann.accounts, Key("id").eq(key["id"]), limit=1)
    assert unit.query(ann.accounts, Key("id").eq(key["id"]), limit=1, after=page) == []
    condition = {"KeyConditionExpression": "id = :id", "ExpressionAttributeValues": {":id": {"S": key["id"]}}}
    reply = unit.client.query(TableName=ann.accounts.name, Limit=1, **condition)
    assert reply["Count"] == 1
    assert "LastEvaluatedKey" not in reply


@LEVELS
def test_a_query_reads_more_than_one_page_of_the_service(books: Books, ann: Party, level: Isolation) -> None:
    order = with_lines(books, 7, text=LARGE)
    unit = ann.begin(isolation=level)
    unit.put(ann.lines, {**line(order, 8), "amount": 1})
    unit.delete(ann.lines, line(order, 4))
    ann.line.sent.clear()
    assert numbers(unit.query(ann.lines, of(order))) == [1, 2, 3, 5, 6, 7, 8]
    assert ann.line.operations.count("Query") > 1


@LEVELS
def test_a_query_by_text_with_placeholders_does_the_same(ann: Party, order: str, level: Isolation) -> None:
    found = ann.begin(isolation=level).query(
        ann.lines,
        "#pk = :pk AND sk > :from",
        filter="amount < :most",
        values={":pk": order, ":from": 1, ":most": 40},
        names={"#pk": "pk"},
    )
    assert numbers(found) == [2, 3]


@LEVELS
def test_an_item_that_its_caller_changes_is_not_the_unit_s(ann: Party, order: str, level: Isolation) -> None:
    unit = ann.begin(isolation=level)
    unit.put(ann.lines, {**line(order, 1), "tags": ["a"]})
    unit.query(ann.lines, of(order))[0]["tags"].append("b")
    unit.client.query(**low_level(ann, order))["Items"][0]["tags"]["L"].clear()
    assert unit.get(ann.lines, line(order, 1)) == {**line(order, 1), "tags": ["a"]}


def changes(party: Party, order: str, number: int = 2) -> None:
    with party.begin() as unit:
        unit.update(party.lines, line(order, number), SET, {":n": 1})


@pytest.mark.parametrize("filter", [None, Attr("amount").eq(1)], ids=["shown", "left out by its filter"])
@pytest.mark.parametrize("writes", [True, False], ids=["a unit that writes", "a unit that only reads"])
def test_what_a_serializable_query_has_read_is_checked_at_the_commit(
    books: Books, ann: Party, ben: Party, order: str, filter: Any, writes: bool
) -> None:
    unit = ann.begin()
    assert len(unit.query(ann.lines, of(order), filter=filter)) == (5 if filter is None else 0)
    if writes:
        unit.put(ann.lines, {**line(order, 9), "amount": 1})
    changes(ben, order)
    with pytest.raises(UnitConflict) as refused:
        unit.commit()
    assert refused.value.keys == ((books.tables["lines"], line(order, 2)),)
    assert books.raw("lines", line(order, 9)) is None


def test_what_is_behind_the_limit_of_a_serializable_query_is_not_checked(
    books: Books, ann: Party, ben: Party, order: str
) -> None:
    unit = ann.begin()
    unit.query(ann.lines, of(order), limit=2)
    unit.put(ann.lines, {**line(order, 9), "amount": 1})
    changes(ben, order, 3)
    unit.commit()
    assert books.raw("lines", line(order, 9)) is not None


@pytest.mark.parametrize("level", [UNCOMMITTED, COMMITTED], ids=lambda level: level.name)
def test_what_a_query_below_serializable_has_shown_is_not_checked_but_for_what_is_written(
    books: Books, ann: Party, ben: Party, order: str, level: Isolation
) -> None:
    with ann.begin(isolation=level) as unit:
        unit.query(ann.lines, of(order))
        unit.update(ann.lines, line(order, 1), SET, {":n": 2})
        changes(ben, order)
    assert books.item("lines", line(order, 1)) == {**line(order, 1), "amount": 2}
    unit = ann.begin(isolation=level)
    (shown,) = unit.query(ann.lines, of(order) & Key("sk").eq(3))
    changes(ben, order, 3)
    with pytest.raises(UnitConflict):
        unit.put(ann.lines, {**shown, "amount": shown["amount"] + 1})


def test_a_serializable_query_of_lines_that_have_changed_since_the_unit_has_read_them_conflicts_at_once(
    ann: Party, ben: Party, order: str
) -> None:
    unit = ann.begin()
    unit.get(ann.lines, line(order, 2))
    unit.get(ann.lines, line(order, 7))
    changes(ben, order)
    with ben.begin() as other:
        other.put(ben.lines, {**line(order, 7), "amount": 1})
    with pytest.raises(UnitConflict) as conflict:
        unit.query(ann.lines, of(order))
    assert list(conflict.value.keys) == [(ann.lines.name, line(order, number)) for number in (2, 7)]


def test_two_queries_of_a_unit_read_each_item_once(ann: Party, order: str) -> None:
    unit = ann.begin()
    unit.query(ann.lines, of(order))
    unit.update(ann.lines, line(order, 1), SET, {":n": 1})
    assert ann.line.operations == ["Query"]


@pytest.mark.parametrize(
    ("level", "consistent"), [(UNCOMMITTED, False), (COMMITTED, True), (SERIALIZABLE, True)], ids=str
)
def test_only_an_uncommitted_query_is_of_half_the_price(
    ann: Party, order: str, level: Isolation, consistent: bool
) -> None:
    ann.begin(isolation=level).query(ann.lines, of(order))
    (sent,) = ann.line.sent
    assert (sent.operation, sent.parameters["ConsistentRead"]) == ("Query", consistent)


DECISION = 3
"""The decision among the updates: two marks come before it."""


def left(books: Books, party: Party, order: str, state: str) -> None:
    """Leave a unit that inserts 0, updates 1 and deletes 2, whose process is killed at the decision."""
    unit = party.begin(engine="marked")
    unit.put(party.lines, {**line(order, 0), "amount": 5})
    unit.update(party.lines, line(order, 1), SET, {":n": 5})
    unit.delete(party.lines, line(order, 2))
    crashes(party, DECISION, is_sent=state == "committed")
    with pytest.raises(Killed):
        unit.commit()
    assert all(MARK in (books.raw("lines", line(order, number)) or {}) for number in (0, 1, 2))


BEFORE, AFTER = {1: 10, 2: 20, 3: 30, 4: 40, 5: 50}, {0: 5, 1: 5, 3: 30, 4: 40, 5: 50}


@THREADS_ONLY
@pytest.mark.parametrize(
    ("state", "level", "shown"),
    [
        *(("pending", level, BEFORE) for level in (UNCOMMITTED, COMMITTED, SERIALIZABLE)),
        ("committed", UNCOMMITTED, BEFORE),
        *(("committed", level, AFTER) for level in (COMMITTED, SERIALIZABLE)),
        *(("rolled back", level, BEFORE) for level in (COMMITTED, SERIALIZABLE)),
    ],
    ids=lambda each: getattr(each, "name", each if isinstance(each, str) else ""),
)
def test_a_query_past_marks_shows_what_is_committed_and_uncommitted_what_is_stored(
    books: Books, ann: Party, ben: Party, order: str, state: str, level: Isolation, shown: dict[int, int]
) -> None:
    left(books, ann, order, state)
    if state == "rolled back":
        books.clock.advance(2 * LEASE_MS / 1_000)
        ben.units.sweep()
    ben.line.sent.clear()
    assert amounts(ben.begin(isolation=level).query(ben.lines, of(order))) == shown
    if shown is AFTER:
        has_written = any(operation in ("UpdateItem", "PutItem", "DeleteItem") for operation in ben.line.operations)
        assert has_written == (level is SERIALIZABLE)


@THREADS_ONLY
def test_placeholders_do_not_count_in_the_limit_of_a_query(books: Books, ann: Party, ben: Party, order: str) -> None:
    left(books, ann, order, "pending")
    assert numbers(ben.begin().query(ben.lines, of(order), limit=1)) == [1]
    reply = ben.begin().client.query(**low_level(ben, order), Limit=1)
    assert [item["sk"]["N"] for item in reply["Items"]] == ["1"]
    assert (reply["Count"], reply["ScannedCount"]) == (1, 1)


@pytest.mark.parametrize(("asked", "more"), [({}, []), ({"isolation": SERIALIZABLE}, ["TransactGetItems"])], ids=str)
def test_a_query_outside_of_units_is_one_request_and_at_serializable_is_checked_at_its_end(
    ann: Party, order: str, asked: Any, more: list[str]
) -> None:
    assert numbers(ann.units.query(ann.lines, of(order), **asked)) == [1, 2, 3, 4, 5]
    assert ann.line.operations == ["Query", *more]


@pytest.mark.parametrize(("count", "transactions"), [(99, 1), (100, 1), (101, 2)])
@pytest.mark.parametrize("units_engine", ["memory"], indirect=True)
def test_a_serializable_query_reads_its_items_once_more_a_hundred_in_a_transaction(
    books: Books, ann: Party, count: int, transactions: int
) -> None:
    order = with_lines(books, count)
    found = ann.units.query(ann.lines, of(order), isolation=SERIALIZABLE)
    assert numbers(found) == list(range(1, count + 1))
    assert ann.line.operations == ["Query"] + ["TransactGetItems"] * transactions


@pytest.mark.parametrize("select", [{}, {"Select": "COUNT"}], ids=str)
def test_a_query_of_the_low_level_api_replies_as_a_plain_client_s(
    books: Books, ann: Party, order: str, select: dict[str, str]
) -> None:
    given = {
        **low_level(ann, order),
        "FilterExpression": "#amount > :n",
        "ExpressionAttributeNames": {"#amount": "amount"},
        "ExpressionAttributeValues": {":pk": {"S": order}, ":n": {"N": "20"}},
        "ScanIndexForward": False,
        **(select or {"ProjectionExpression": "sk, #amount"}),
    }
    theirs, ours = (client.query(**given) for client in (books.plain_client, ann.begin().client))
    for reply in (theirs, ours):
        assert reply.pop("ResponseMetadata")["HTTPStatusCode"] == 200
    assert ours == theirs


@pytest.mark.parametrize("limit", [1, 2, 5, 6, 7])
def test_a_query_of_the_low_level_api_comes_page_by_page_as_its_loop_is_written(
    ann: Party, order: str, limit: int
) -> None:
    unit = ann.begin()
    unit.put(ann.lines, {**line(order, 6), "amount": 1})
    unit.delete(ann.lines, line(order, 3))
    found: list[str] = []
    more: dict[str, Any] = {}
    while True:
        reply = unit.client.query(**low_level(ann, order), Limit=limit, **more)
        assert reply["ScannedCount"] <= limit
        found += [item["sk"]["N"] for item in reply["Items"]]
        if "LastEvaluatedKey" not in reply:
            break
        more = {"ExclusiveStartKey": reply["LastEvaluatedKey"]}
    assert found == ["1", "2", "4", "5", "6"]


def test_without_a_limit_a_reply_of_the_low_level_api_is_a_page_of_the_service(books: Books, ann: Party) -> None:
    order = with_lines(books, 7, text=LARGE)
    unit = ann.begin(isolation=COMMITTED)
    ann.line.sent.clear()
    reply = unit.client.query(**low_level(ann, order))
    assert ann.line.operations == ["Query"]
    found, pages = reply["Items"], 1
    while "LastEvaluatedKey" in reply:
        reply = unit.client.query(**low_level(ann, order), ExclusiveStartKey=reply["LastEvaluatedKey"])
        found, pages = found + reply["Items"], pages + 1
    assert [item["sk"]["N"] for item in found] == ["1", "2", "3", "4", "5", "6", "7"]
    assert pages > 2


def bad(name: str, value: Any, field: str | None = None) -> Any:
    return pytest.param({name: value}, field or name, id=f"{name}={str(value)[:20]}")


@pytest.mark.parametrize("units_engine", ["memory"], indirect=True)
@pytest.mark.parametrize(
    ("given", "field"),
    [
        bad("key_condition", None),
        bad("key_condition", Attr("pk").eq("x")),
        bad("key_condition", Key("sk").eq(1), "query"),
        bad("key_condition", Key("pk").eq(5), "query"),
        bad("key_condition", Key("pk").eq("x") & Key("other").eq(1), "query"),
        bad("filter", 5),
        bad("filter", Attr("sk").eq(1)),
        bad("filter", Attr(VERSION).exists()),
        bad("filter", "amount = :missing", "query"),
        bad("values", {":idle": 1}, "query"),
        bad("names", {"#idle": "a"}, "query"),
        bad("names", 5),
        bad("index", "by-nothing"),
        bad("after", 5),
        bad("after", {"pk": "x"}, "after.sk"),
        bad("after", {"pk": "another", "sk": 1}),
        bad("limit", 0),
        bad("limit", True),
        bad("forward", None),
        bad("isolation", "COMMITTED"),
        bad("table", "lines"),
    ],
)
def test_bad_input_of_a_query_is_named_and_nothing_is_sent(ann: Party, given: dict[str, Any], field: str) -> None:
    asked = {"table": ann.lines, "key_condition": Key("pk").eq("x"), **given}
    table, condition = asked.pop("table"), asked.pop("key_condition")
    for query in (ann.begin().query, ann.units.query):
        with pytest.raises(InvalidUnitRequest) as refused:
            query(table, condition, **asked)
        assert refused.value.field == field
        assert refused.value.allowed
    assert ann.line.sent == []


@pytest.mark.parametrize("units_engine", ["memory"], indirect=True)
@pytest.mark.parametrize(
    ("given", "field"),
    [
        bad("KeyConditionExpression", None),
        bad("KeyConditions", {}),
        bad("FilterExpression", "sk = :pk"),
        bad("IndexName", "by-nothing"),
        bad("ExclusiveStartKey", {"pk": {"S": "x"}}, "ExclusiveStartKey.sk"),
        bad("Limit", 0),
        bad("ScanIndexForward", "no"),
        bad("Select", "ALL_PROJECTED_ATTRIBUTES"),
        bad("ConsistentRead", "yes"),
        bad("ReturnConsumedCapacity", "INDEXES"),
    ],
)
def test_bad_input_of_a_query_of_the_low_level_api_is_named(ann: Party, given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidUnitRequest) as refused:
        ann.begin().client.query(**{**low_level(ann, "x"), **given})
    assert refused.value.field == field
    assert "Query" not in ann.line.operations


ROOMY = pytest.mark.parametrize("units_engine", first_on("memory", engine_names_but_moto()), indirect=True)

CHECKED_LEVELS = pytest.mark.parametrize("level", [COMMITTED, SERIALIZABLE], ids=lambda level: level.name)

DOZEN = range(1, 13)
"""The numbers of so many lines that they are several pages."""


# Incompressible: a dozen fill two rows of the record.
NOISE = random.Random(0).randbytes(55_000)


def inserted(world: UnitsWorld, order: str, **attributes: Any) -> None:
    """Insert lines in a unit whose process is killed after its decision: the table has placeholders of them."""
    killed = world.party()
    unit = killed.begin(engine="marked")
    for number in DOZEN:
        unit.put(killed.lines, {**line(order, number), **attributes})
    crashes(killed, 1, is_sent=True)
    with pytest.raises(Killed):
        unit.commit()
    assert all(MARK in (world.books.raw("lines", line(order, number)) or {}) for number in DOZEN)


@THREADS_ONLY
@ROOMY
@CHECKED_LEVELS
@pytest.mark.parametrize("by_another", [False, True], ids=["not finished", "finished after the page was read"])
def test_inserts_of_a_unit_that_is_committed_are_returned(
    units_world: UnitsWorld, ben: Party, empty: str, level: Isolation, by_another: bool
) -> None:
    inserted(units_world, empty, text=LARGE)
    eve = units_world.party()
    for operation in ("BatchGetItem", "TransactGetItems") if by_another else ():
        ben.line.between[operation] = lambda: eve.units.query(
            eve.lines, of(empty), limit=len(DOZEN), isolation=SERIALIZABLE
        )
    with ben.begin(isolation=level) as unit:
        found = unit.query(ben.lines, of(empty))
    assert found == [{**line(empty, number), "text": LARGE} for number in DOZEN]


@THREADS_ONLY
@ROOMY
def test_targets_of_blind_updates_are_returned_as_the_unit_leaves_them(books: Books, ann: Party, empty: str) -> None:
    unit = ann.begin()
    for number in DOZEN:
        books.write("lines", {**line(empty, number), "text": LARGE})
        unit.update(ann.lines, line(empty, number), "ADD amount :n", {":n": 1}, blind=True)
    assert amounts(unit.query(ann.lines, of(empty))) == dict.fromkeys(DOZEN, 1)


@THREADS_ONLY
@ROOMY
def test_the_record_of_a_unit_is_read_once_for_all_of_its_items(
    books: Books, units_world: UnitsWorld, ben: Party, empty: str
) -> None:
    inserted(units_world, empty, noise=NOISE)
    ben.begin().query(ben.lines, of(empty))
    asked = [sent.parameters for sent in ben.line.sent if sent.operation == "GetItem"]
    rows = [each["Key"]["row"]["S"] for each in asked if each["TableName"] == books.tables["units"]]
    assert sorted(rows) == ["head", "w#1#00000", "w#1#00001"]
