"""Requests to tables with keys of their own, on every engine: the wire package is not limited to lock tables."""

from collections.abc import Iterator
from typing import Any

import pytest
from kit.engines import Engine

from ticketlock.wire._item_requests import GetMany
from ticketlock.wire._performer import Performer
from ticketlock.wire._requests import Read, TimeCheck, TransactWrite, Write

# Reserved words of DynamoDB, which an expression may not use directly.
KEYS = {"orders": ("name", "date"), "stock": ("key", "range")}
NEW = "attribute_not_exists(#first)"


class AnyTable(Performer):
    """A table whose time is read through the key of an item that does not exist."""

    _time_check = TimeCheck({"key": {"S": "none"}, "range": {"S": "none"}})


@pytest.fixture
def tables(engine: Engine) -> Iterator[dict[str, str]]:
    client = engine.client()
    made = {use: f"{engine.table_name}-{use}" for use in KEYS}
    for use, keys in KEYS.items():
        client.create_table(
            TableName=made[use],
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
            KeySchema=[
                {"AttributeName": key, "KeyType": kind} for key, kind in zip(keys, ("HASH", "RANGE"), strict=True)
            ],
        )
        client.get_waiter("table_exists").wait(TableName=made[use])
    yield made
    for name in made.values():
        client.delete_table(TableName=name)


@pytest.fixture
def performer(engine: Engine, tables: dict[str, str]) -> AnyTable:
    return AnyTable(tables["stock"], client=engine.client())


def put(use: str, first: str, second: str, table: str | None = None, **more: Any) -> Write:
    """A Put of an item that is not there yet, of the driver's table unless another is named."""
    key = dict(zip(KEYS[use], ({"S": first}, {"S": second}), strict=True))
    return Write("Put", key, NEW, item=key | more, names={"#first": KEYS[use][0]}, table=table)


def stored(performer: AnyTable, use: str, first: str, table: str | None = None) -> list[Any]:
    keys = KEYS[use]
    reply = performer.perform(Read({keys[0]: {"S": first}}, {keys[1]: {"S": "2026-"}}, limit=None, table=table))
    return list(reply.items)


def test_table_time_is_read_from_a_key_without_an_item(performer: AnyTable) -> None:
    assert performer.now().latest_ms > 0


def test_one_transaction_writes_to_two_tables_with_keys_of_other_names(
    performer: AnyTable, tables: dict[str, str]
) -> None:
    order = put("orders", "tea", "2026-11-22", tables["orders"])
    item = put("stock", "tea", "2026-11", left={"N": "3"})
    assert performer.perform(TransactWrite((order, item))).applied
    assert stored(performer, "orders", "tea", tables["orders"]) == [order.item]
    assert stored(performer, "stock", "tea") == [item.item]


def test_a_refusal_by_one_of_two_tables_writes_to_neither_and_says_which(
    performer: AnyTable, tables: dict[str, str]
) -> None:
    item = put("stock", "tea", "2026-11", left={"N": "3"})
    assert performer.perform(item).applied
    reply = performer.perform(TransactWrite((put("orders", "tea", "2026-11-22", tables["orders"]), item)))
    assert (reply.applied, reply.refused, reply.items) == (False, (False, True), (None, item.item))
    assert stored(performer, "orders", "tea", tables["orders"]) == []


def test_items_come_in_the_order_of_their_keys_in_any_order_of_the_reply(
    performer: AnyTable, tables: dict[str, str]
) -> None:
    wanted = [(use, put(use, "ada", day).key) for day in ("2026-11-03", "2026-11-01") for use in ("orders", "stock")]
    for use, key in wanted[:3]:
        performer.perform(put(use, "ada", key[KEYS[use][1]]["S"], tables[use]))
    reply = performer.perform(GetMany([(tables[use], key) for use, key in wanted]))
    assert reply.items == (*(key for _, key in wanted[:3]), None)


def test_items_that_were_not_read_because_of_throttling_are_read_again(performer: AnyTable) -> None:
    key = put("stock", "tea", "2026-11-01").key
    performer.perform(put("stock", "tea", "2026-11-01"))
    replies: list[dict[str, Any]] = []

    def throttle_the_first(parsed: dict[str, Any], **_: Any) -> None:
        replies.append(parsed)
        if len(replies) == 1:
            parsed["Responses"] = {}
            parsed["UnprocessedKeys"] = {performer.table_name: {"Keys": [key]}}

    events: Any = performer.client.meta.events
    events.register("after-call.dynamodb.BatchGetItem", throttle_the_first)
    reply = performer.perform(GetMany([(performer.table_name, key)]))
    assert (len(replies), reply.item) == (2, key)


def test_items_that_do_not_fit_into_one_reply_are_read_with_another_request(
    performer: AnyTable, tables: dict[str, str]
) -> None:
    """DynamoDB returns at most 16 MB: asking for all items again would never end."""
    wanted = [(tables[use], put(use, "ada", day).key) for use in KEYS for day in ("2026-11-01", "2026-11-02")]
    for use in KEYS:
        performer.perform(put(use, "ada", "2026-11-02", tables[use]))
    asked: list[Any] = []

    def keep_one_key(params: dict[str, Any], **_: Any) -> dict[str, Any]:
        asked.append(params["RequestItems"])
        table, of_one = next(iter(asked[-1].items()))
        return {**params, "RequestItems": {table: {**of_one, "Keys": of_one["Keys"][:1]}}}

    def tell_of_the_rest(parsed: dict[str, Any], **_: Any) -> None:
        (table, of_one), *others = asked[-1].items()
        rest = {**of_one, "Keys": of_one["Keys"][1:]}
        parsed["UnprocessedKeys"] = ({table: rest} if rest["Keys"] else {}) | dict(others)

    events: Any = performer.client.meta.events
    events.register("provide-client-params.dynamodb.BatchGetItem", keep_one_key)
    events.register("after-call.dynamodb.BatchGetItem", tell_of_the_rest)
    reply = performer.perform(GetMany(wanted, is_consistent=False))
    assert [item is not None for item in reply.items] == [False, True] * 2
    of_tables = [list(each.values()) for each in asked]
    assert [sum(len(of_one["Keys"]) for of_one in each) for each in of_tables] == [4, 3, 2, 1]
    assert not any(of_one["ConsistentRead"] for each in of_tables for of_one in each)
