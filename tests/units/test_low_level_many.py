"""``unit.client`` beside a plain client: the same call has the same reply, or raises the same error."""

import pickle
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from botocore.exceptions import ClientError
from kit.engines import first_on
from kit.units import THREADS_ONLY, Books, Key, Party, UnitsWorld, dumped, some_account, some_line

from ticketlock import ConditionFailed, InvalidUnitRequest, TableNotFound, TicketLockError
from ticketlock.units import COMMITTED, READ_LOCK, SERIALIZABLE, Isolation

IN_MEMORY = pytest.mark.parametrize("units_engine", ["memory"], indirect=True)
BESIDE_OTHERS = pytest.mark.parametrize(
    "units_engine", [*first_on("memory", ["memory", "ministack"]), "moto"], indirect=True
)

Given = dict[str, Any]
At = Callable[[Key], Given]
IS_NEW, IS_THERE = {"ConditionExpression": "attribute_not_exists(id)"}, {"ConditionExpression": "attribute_exists(id)"}
WITH_ITEM = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
UPDATE = {"UpdateExpression": "SET balance = :n", "ExpressionAttributeValues": {":n": {"N": "1"}}}

CALLS: dict[str, tuple[str, Callable[[str, Key, Key], Given]]] = {
    "a get": ("get_item", lambda table, there, _: at(table, there)),
    "a get of none": ("get_item", lambda table, _, none: at(table, none)),
    "a batch of gets": (
        "batch_get_item",
        lambda table, there, none: {
            "RequestItems": {table: {"Keys": [dumped(there), dumped(none)], "ProjectionExpression": "balance"}}
        },
    ),
    "a batch of gets of none": (
        "batch_get_item",
        lambda table, _, none: {"RequestItems": {table: {"Keys": [dumped(none)]}}},
    ),
    "gets together": (
        "transact_get_items",
        lambda table, there, none: {"TransactItems": [{"Get": at(table, there)}, {"Get": at(table, none)}]},
    ),
    "a batch of writes": (
        "batch_write_item",
        lambda table, there, none: {
            "RequestItems": {table: [{"DeleteRequest": {"Key": dumped(there)}}, {"PutRequest": {"Item": dumped(none)}}]}
        },
    ),
    "writes together": (
        "transact_write_items",
        lambda table, there, none: {
            "TransactItems": [
                {"ConditionCheck": {**at(table, none), **IS_NEW}},
                {"Update": {**at(table, there), **UPDATE, **IS_THERE}},
            ]
        },
    ),
    "a refused put": ("put_item", lambda table, there, _: {**put(table, there), **IS_NEW}),
    "a refused put with the item": ("put_item", lambda table, there, _: {**put(table, there), **IS_NEW, **WITH_ITEM}),
    "a refused update of none": (
        "update_item",
        lambda table, _, none: {**at(table, none), **UPDATE, **IS_THERE, **WITH_ITEM},
    ),
    "a refused delete": ("delete_item", lambda table, there, _: {**at(table, there), **IS_NEW, **WITH_ITEM}),
    "refused writes": (
        "transact_write_items",
        lambda table, there, none: {
            "TransactItems": [
                {"Put": {**put(table, some_account()), **IS_NEW}},
                {"Delete": {**at(table, there), **IS_NEW, **WITH_ITEM}},
                {"Update": {**at(table, none), **UPDATE, **IS_THERE}},
            ]
        },
    ),
    "a get of no table": ("get_item", lambda _, there, __: at("no-such-table", there)),
    "a put into no table": ("put_item", lambda _, there, __: put("no-such-table", there)),
}


def at(table: str, key: Key) -> Given:
    return {"TableName": table, "Key": dumped(key)}


def put(table: str, item: Key) -> Given:
    return {"TableName": table, "Item": dumped({**item, "balance": 7})}


def outcome(client: Any, verb: str, given: Given) -> Any:
    """The reply, or the error's class, operation and reply: without the words, which each engine chooses."""
    kind: Any = None
    try:
        reply: dict[str, Any] = getattr(client, verb)(**given)
    except ClientError as error:
        reply = {**error.response, "Error": {"Code": error.response["Error"]["Code"]}}
        kind = error.operation_name, isinstance(error, getattr(client.exceptions, reply["Error"]["Code"]))
    metadata = reply.pop("ResponseMetadata")
    assert {"RequestId", "HTTPHeaders", "RetryAttempts"} <= metadata.keys()
    # moto tells two things that it was not asked for.
    for name in ("message", "Message", "ConsumedCapacity", "ItemCollectionMetrics"):
        reply.pop(name, None)
    for reason in reply.get("CancellationReasons", ()):
        reason.pop("Message", None)
    return kind, reply, metadata["HTTPStatusCode"]


@BESIDE_OTHERS
@pytest.mark.parametrize("called", CALLS)
def test_a_call_in_a_unit_has_the_outcome_of_a_plain_client_s(books: Books, ann: Party, called: str) -> None:
    verb, parameters = CALLS[called]
    given = parameters(books.tables["accounts"], books.plain_account(), some_account())
    unit = ann.begin()
    inside = outcome(unit.client, verb, given)
    unit.rollback()
    assert inside == outcome(books.plain_client, verb, given)


@IN_MEMORY
def test_a_condition_that_does_not_hold_raises_our_error_which_is_also_the_plain_client_s(
    books: Books, ann: Party
) -> None:
    key = books.plain_account()
    unit = ann.begin()
    with pytest.raises(ConditionFailed, match="attribute_not_exists") as raised:
        unit.client.put_item(**put(ann.accounts.name, key), **IS_NEW)
    assert isinstance(raised.value, books.plain_client.exceptions.ConditionalCheckFailedException)
    assert (raised.value.table, raised.value.key) == (ann.accounts.name, key)
    assert type(raised.value).__name__ == "ConditionFailed"
    unit.client.delete_item(**at(ann.accounts.name, key))
    unit.commit()
    assert books.raw("accounts", key) is None


@IN_MEMORY
@pytest.mark.parametrize("called", ["a refused put", "refused writes", "a get of no table"])
def test_an_error_is_pickled_with_its_reply(books: Books, ann: Party, called: str) -> None:
    verb, parameters = CALLS[called]
    with pytest.raises(TicketLockError) as raised:
        getattr(ann.begin().client, verb)(**parameters(books.tables["accounts"], books.plain_account(), some_account()))
    back = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(raised.value))))
    assert isinstance(back, ConditionFailed | TableNotFound)
    assert isinstance(back, ClientError)
    assert (str(back), vars(back)) == (str(raised.value), vars(raised.value))


@IN_MEMORY
@pytest.mark.parametrize("isolation", [COMMITTED, SERIALIZABLE, READ_LOCK])
def test_of_writes_together_the_unit_takes_all_or_none(books: Books, ann: Party, isolation: Isolation) -> None:
    table, first, second = ann.accounts.name, books.account(), books.account()
    first_in_order = [{"Update": {**at(table, first), **UPDATE}}, {"Delete": {**at(table, second), **IS_NEW}}]
    with ann.begin(isolation=isolation) as unit:
        with pytest.raises(ConditionFailed) as raised:
            unit.client.transact_write_items(TransactItems=first_in_order)
        assert raised.value.key == second
        assert unit.get(ann.accounts, first)["balance"] == 100  # type: ignore[index]
        unit.client.transact_write_items(TransactItems=[first_in_order[0], {"Delete": at(table, second)}])
    assert books.balances([first, second]) == [1, None]


@IN_MEMORY
def test_a_condition_that_was_checked_together_with_writes_holds_at_the_commit(books: Books, ann: Party) -> None:
    checked, written = books.account(), books.account()
    unit = ann.begin()
    actions = [
        {"ConditionCheck": {**at(ann.accounts.name, checked), **IS_THERE}},
        {"Delete": at(ann.accounts.name, written)},
    ]
    unit.client.transact_write_items(TransactItems=actions)
    ann.changes(checked, 5)
    with pytest.raises(TicketLockError, match=checked["id"]):
        unit.commit()
    assert books.balance(written) == 100


def batch_get(table: str, keys: Sequence[Key]) -> tuple[str, Given]:
    return "batch_get_item", {"RequestItems": {table: {"Keys": [dumped(key) for key in keys]}}}


def batch_write(table: str, keys: Sequence[Key]) -> tuple[str, Given]:
    return "batch_write_item", {"RequestItems": {table: [{"PutRequest": {"Item": dumped(key)}} for key in keys]}}


def transact_get(table: str, keys: Sequence[Key]) -> tuple[str, Given]:
    return "transact_get_items", {"TransactItems": [{"Get": at(table, key)} for key in keys]}


def transact_write(table: str, keys: Sequence[Key]) -> tuple[str, Given]:
    return "transact_write_items", {"TransactItems": [{"Delete": at(table, key)} for key in keys]}


@IN_MEMORY
@pytest.mark.parametrize(
    ("call", "most", "read"),
    [
        (batch_get, 100, "TransactGetItems"),
        (batch_write, 25, "BatchGetItem"),
        (transact_get, 100, "TransactGetItems"),
        (transact_write, 100, "BatchGetItem"),
    ],
)
def test_many_items_take_one_read_and_one_more_than_the_api_has_is_refused(
    ann: Party, call: Callable[[str, Sequence[Key]], tuple[str, Given]], most: int, read: str
) -> None:
    keys = [some_account() for _ in range(most + 1)]

    def do(number: int) -> None:
        verb, given = call(ann.accounts.name, keys[:number])
        unit = ann.begin()
        getattr(unit.client, verb)(**given)
        unit.rollback()

    for number in (1, most - 1, most):
        assert ann.sends(partial(do, number)) == ["GetItem" if number == 1 else read]
    with pytest.raises(InvalidUnitRequest, match=f"a list of 1 to {most}"):
        do(most + 1)


@IN_MEMORY
def test_the_read_units_of_a_call_are_told_and_those_of_what_the_unit_has_read_are_0(books: Books, ann: Party) -> None:
    table, other = ann.accounts.name, ann.lines.name
    key, asks = books.account(noise="x" * 5_000), {"ReturnConsumedCapacity": "TOTAL"}
    plain = books.plain_client.get_item(**at(table, key), **asks, ConsistentRead=True)["ConsumedCapacity"]
    client = ann.begin().client
    assert client.get_item(**at(table, key), **asks)["ConsumedCapacity"] == plain
    assert plain["CapacityUnits"] == 2
    again = client.update_item(**at(table, key), **UPDATE, **asks)
    assert again["ConsumedCapacity"] == {"TableName": table, "CapacityUnits": 0}
    assert "ConsumedCapacity" not in client.get_item(**at(table, key))

    line = some_line()
    pages = {"TableName": other, "KeyConditionExpression": "pk = :pk", "ExpressionAttributeValues": {":pk": {"S": "a"}}}
    assert client.query(**pages, **asks)["ConsumedCapacity"] == {"TableName": other, "CapacityUnits": 1}
    gets = [{"Get": at(table, some_account())}, {"Get": at(other, line)}]
    told = client.transact_get_items(TransactItems=gets, **asks)["ConsumedCapacity"]
    assert told == [{"TableName": table, "CapacityUnits": 2}, {"TableName": other, "CapacityUnits": 2}]


@IN_MEMORY
def test_the_read_units_of_an_item_that_a_committed_unit_has_not_finished_are_those_of_its_table(
    books: Books, ann: Party, units_world: UnitsWorld
) -> None:
    """Its value is read from the units table, which the caller has not named."""
    key = books.account()
    units_world.killed([key], is_committed=True)
    reply = ann.begin(isolation=COMMITTED).client.get_item(**at(ann.accounts.name, key), ReturnConsumedCapacity="TOTAL")
    assert reply["Item"]["balance"] == {"N": "0"}
    assert reply["ConsumedCapacity"]["TableName"] == ann.accounts.name
    assert reply["ConsumedCapacity"]["CapacityUnits"] >= 1


@IN_MEMORY
@THREADS_ONLY
def test_a_paginator_reads_the_unit_s_own_writes_page_by_page(books: Books, ann: Party) -> None:
    order = some_line()["pk"]
    for number in range(5):
        books.write("lines", {"pk": order, "sk": number})
    given = {
        "TableName": ann.lines.name,
        "KeyConditionExpression": "pk = :pk",
        "ExpressionAttributeValues": {":pk": {"S": order}},
    }
    unit = ann.begin()
    unit.put(ann.lines, {"pk": order, "sk": 5})
    pages = list(unit.client.get_paginator("query").paginate(**given, PaginationConfig={"PageSize": 2, "MaxItems": 5}))
    numbers = [[int(item["sk"]["N"]) for item in page["Items"]] for page in pages]
    assert numbers == [[0, 1], [2, 3], [4]]
