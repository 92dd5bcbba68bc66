"""Errors of ``unit.client``: what DynamoDB refuses is also the error that a plain client raises, with its code."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from kit.units import THREADS_ONLY, Books, Key, Party, dumped, some_account, some_name

from ticketlock import (
    ConditionFailed,
    InvalidUnitRequest,
    ItemTooLarge,
    RequestNotApplied,
    TableRefused,
    TicketLockError,
    UnitConflict,
)
from ticketlock.testing import Fault
from ticketlock.units import READ_LOCK

pytestmark = pytest.mark.shows("bad input")
IN_MEMORY = pytest.mark.parametrize("units_engine", ["memory"], indirect=True)

Given = dict[str, Any]
Refuse = Callable[[str, Key], Given]
N = {":n": {"N": "1"}}
LARGE = {"S": "x" * 500_000}
INVALID = {"UpdateExpression": "SET nothing.seen = :n", "ExpressionAttributeValues": N}
IS_THERE = {"ConditionExpression": "attribute_exists(id)"}


def at(table: str, key: Key) -> Given:
    return {"TableName": table, "Key": dumped(key)}


def update(expression: str, values: Any = N, **more: Any) -> Refuse:
    given = {"UpdateExpression": expression, "ExpressionAttributeValues": values, **more}
    return lambda table, key: {**at(table, key), **{name: each for name, each in given.items() if each}}


# Requests that DynamoDB refuses, about an item that has only a balance.
BAD: dict[str, tuple[str, Refuse]] = {
    "a member of a map that is not there": ("update_item", update("SET nothing.seen = :n")),
    "a sum with an attribute that is not there": ("update_item", update("SET nothing = nothing + :n")),
    "an addition to a text": ("update_item", update("ADD noted :n")),
    "an element of what is no list": ("update_item", update("SET balance[0] = :n")),
    "an item that becomes too large": ("update_item", update("SET noise = :n", {":n": LARGE})),
    "a reserved word": ("update_item", update("SET name = :n")),
    "a syntax error": ("update_item", update("SET balance =")),
    "an undefined value": ("update_item", update("SET balance = :m")),
    "an unused value": ("update_item", update("SET balance = :n", {**N, ":m": {"N": "1"}})),
    "an update of the key": ("update_item", update("SET id = :n", {":n": {"S": "a"}})),
    "an invalid condition": ("update_item", update("SET balance = :n", ConditionExpression="size(:n) > :n")),
    "an item that is too large": (
        "put_item",
        lambda table, key: {"TableName": table, "Item": {**dumped(key), "t": LARGE}},
    ),
    "an item without its key": ("put_item", lambda table, _: {"TableName": table, "Item": {"balance": {"N": "1"}}}),
    "an item with an empty key": ("put_item", lambda table, _: {"TableName": table, "Item": {"id": {"S": ""}}}),
    "a number that is none": (
        "put_item",
        lambda table, key: {"TableName": table, "Item": {**dumped(key), "n": {"N": "x"}}},
    ),
    "a key of another type": ("get_item", lambda table, _: {"TableName": table, "Key": {"id": {"N": "1"}}}),
    "a key with more than the key": ("delete_item", lambda table, key: at(table, {**key, "balance": 1})),
    "a wrong projection": ("get_item", lambda table, key: {**at(table, key), "ProjectionExpression": "a,,b"}),
    "a query without its key": (
        "query",
        lambda table, _: {
            "TableName": table,
            "KeyConditionExpression": "balance = :n",
            "ExpressionAttributeValues": N,
        },
    ),
    "one item twice": (
        "batch_write_item",
        lambda table, key: {"RequestItems": {table: [{"DeleteRequest": {"Key": dumped(key)}}] * 2}},
    ),
    "one key twice in a batch": (
        "batch_get_item",
        lambda table, key: {"RequestItems": {table: {"Keys": [dumped(key)] * 2}}},
    ),
    "one key twice in a transaction of reads": (
        "transact_get_items",
        lambda table, key: {"TransactItems": [{"Get": at(table, key)}] * 2},
    ),
    "an item in a batch that is too large": (
        "batch_write_item",
        lambda table, key: {"RequestItems": {table: [{"PutRequest": {"Item": {**dumped(key), "t": LARGE}}}]}},
    ),
    "one item twice in a transaction": (
        "transact_write_items",
        lambda table, key: {"TransactItems": [{"Delete": at(table, key)}] * 2},
    ),
    "a syntax error in a transaction": (
        "transact_write_items",
        lambda table, key: {"TransactItems": [{"Update": update("SET balance =")(table, key)}]},
    ),
    "a new item in a transaction that is too large": (
        "transact_write_items",
        lambda table, key: {
            "TransactItems": [{"Put": {"TableName": table, "Item": {**dumped(key), "t": LARGE}}}],
        },
    ),
    "updates in a transaction that do not fit their items": (
        "transact_write_items",
        lambda table, key: {
            "TransactItems": [
                {"Put": {"TableName": table, "Item": dumped(some_account())}},
                {"Update": {**at(table, key), **INVALID}},
                {"Update": {**at(table, some_account()), **INVALID, **IS_THERE}},
                {"Update": update("SET noise = :n", {":n": LARGE})(table, some_account())},
            ]
        },
    ),
}


def told(client: Any, verb: str, given: Given) -> tuple[str, list[str], str]:
    """The code, those of the reasons, and the operation of the error that a call raises."""
    with pytest.raises(ClientError) as raised:
        getattr(client, verb)(**given)
    reply = raised.value.response
    reasons: Any = reply.get("CancellationReasons", ())
    return reply["Error"]["Code"], [reason["Code"] for reason in reasons], raised.value.operation_name


@IN_MEMORY
@pytest.mark.parametrize("asked", BAD)
def test_what_dynamodb_refuses_as_invalid_is_the_error_of_a_plain_client(books: Books, ann: Party, asked: str) -> None:
    verb, parameters = BAD[asked]
    given = parameters(ann.accounts.name, books.account(noted="text"))
    unit = ann.begin()
    found = told(unit.client, verb, given)
    with pytest.raises((InvalidUnitRequest, ItemTooLarge)):
        getattr(unit.client, verb)(**given)
    unit.rollback()
    assert found == told(books.plain_client, verb, given)


@IN_MEMORY
def test_code_that_makes_a_map_if_there_is_none_works_in_a_unit(books: Books, ann: Party) -> None:
    key = books.plain_account()

    def count(client: Any) -> None:
        member = {"UpdateExpression": "SET counts.seen = :n", "ExpressionAttributeValues": N}
        whole = {"UpdateExpression": "SET counts = :m", "ExpressionAttributeValues": {":m": {"M": {"seen": N[":n"]}}}}
        try:
            client.update_item(**at(ann.accounts.name, key), **member)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ValidationException":
                raise
            client.update_item(**at(ann.accounts.name, key), **whole)

    with ann.begin() as unit:
        count(unit.client)
        count(unit.client)
    assert (books.item("accounts", key) or {})["counts"] == {"seen": 1}


@IN_MEMORY
def test_the_error_has_the_words_of_dynamodb_and_ours(books: Books, ann: Party) -> None:
    given = {**at(ann.accounts.name, books.plain_account()), **INVALID}
    words = "The document path provided in the update expression is invalid for update"
    client = ann.begin().client
    with pytest.raises(InvalidUnitRequest, match=rf"^An error occurred \(ValidationException\).* {words}") as raised:
        client.update_item(**given)
    assert isinstance(raised.value, client.exceptions.ClientError)
    assert raised.value.response["Error"]["Message"] == words
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert (raised.value.field, type(raised.value).__name__) == ("update", "InvalidUnitRequest")
    with pytest.raises(InvalidUnitRequest) as in_transaction:
        client.transact_write_items(TransactItems=[{"Update": given}])
    assert isinstance(in_transaction.value, client.exceptions.TransactionCanceledException)
    assert in_transaction.value.response["CancellationReasons"] == [{"Code": "ValidationError", "Message": words}]
    for error in (raised.value, in_transaction.value):
        back = pickle.loads(pickle.dumps(error))
        assert isinstance(back, InvalidUnitRequest)
        assert isinstance(back, ClientError)
        assert (str(back), vars(back)) == (str(error), vars(error))


@IN_MEMORY
def test_a_failed_condition_in_a_transaction_comes_before_an_update_that_does_not_fit(books: Books, ann: Party) -> None:
    table, key = ann.accounts.name, books.plain_account()
    actions = [
        {"Delete": {**at(table, some_account()), **IS_THERE}},
        {"Update": {**at(table, key), **INVALID}},
    ]
    client = ann.begin().client
    for kind, first in ((ConditionFailed, actions), (InvalidUnitRequest, actions[::-1])):
        with pytest.raises(kind) as raised:
            client.transact_write_items(TransactItems=first)
        codes = [reason["Code"] for reason in raised.value.response["CancellationReasons"]]  # type: ignore[attr-defined]
        assert sorted(codes) == ["ConditionalCheckFailed", "ValidationError"]


# What the plain client accepts: code that falls back after a ValidationException must not hide it.
OF_UNITS: dict[str, tuple[str, Refuse]] = {
    "a parameter that units do not take": (
        "put_item",
        lambda table, key: {"TableName": table, "Item": dumped(key), "Expected": {"id": {"Exists": False}}},
    ),
    "units of indexes": ("get_item", lambda table, key: {**at(table, key), "ReturnConsumedCapacity": "INDEXES"}),
    "sizes of collections": (
        "put_item",
        lambda table, key: {"TableName": table, "Item": dumped(key), "ReturnItemCollectionMetrics": "SIZE"},
    ),
    "an attribute of units": (
        "put_item",
        lambda table, key: {"TableName": table, "Item": dumped({**key, "_tluVersion": "1"})},
    ),
}


@IN_MEMORY
@pytest.mark.parametrize("asked", OF_UNITS)
def test_what_only_units_refuse_is_no_error_of_a_plain_client(ann: Party, asked: str) -> None:
    verb, parameters = OF_UNITS[asked]
    with pytest.raises(InvalidUnitRequest) as raised:
        getattr(ann.begin().client, verb)(**parameters(ann.accounts.name, some_account()))
    assert not isinstance(raised.value, ClientError)


@IN_MEMORY
def test_a_query_of_a_unit_with_read_locks_and_the_units_table_are_refused_by_units_alone(
    books: Books, ann: Party
) -> None:
    lines = {"KeyConditionExpression": "pk = :pk", "ExpressionAttributeValues": {":pk": {"S": some_name()}}}
    calls: list[Callable[[], object]] = [
        lambda: ann.begin(isolation=READ_LOCK).client.query(TableName=ann.lines.name, **lines),
        lambda: ann.begin().client.get_item(TableName=books.tables["units"], Key=dumped(some_account())),
    ]
    for call in calls:
        with pytest.raises(InvalidUnitRequest) as raised:
            call()
        assert not isinstance(raised.value, ClientError)


@IN_MEMORY
def test_a_conflict_ends_the_unit_and_is_no_error_that_a_plain_client_s_caller_repeats(
    books: Books, ann: Party, ben: Party
) -> None:
    key, table = books.account(), ann.accounts.name
    unit = ann.begin()
    unit.client.get_item(**at(table, key))
    ben.changes(key, 5)
    with pytest.raises(UnitConflict) as raised:
        unit.client.transact_get_items(TransactItems=[{"Get": at(table, key)}, {"Get": at(table, some_account())}])
    assert not isinstance(raised.value, ClientError)


@IN_MEMORY
@THREADS_ONLY
@pytest.mark.parametrize(
    ("fault", "kind", "code"),
    [
        (Fault.THROUGHPUT_EXCEEDED, RequestNotApplied, "ProvisionedThroughputExceededException"),
        (Fault.THROTTLED, RequestNotApplied, "ThrottlingException"),
        (Fault.ACCESS_DENIED, TableRefused, "AccessDeniedException"),
    ],
)
def test_what_the_service_answers_to_a_read_is_the_error_of_a_plain_client_and_the_call_may_be_repeated(
    books: Books, ann: Party, fault: Fault, kind: type[TicketLockError], code: str
) -> None:
    key, memory = books.account(), books.engine.memory
    assert memory is not None
    unit = ann.begin()
    with memory.outage(fault), pytest.raises(kind) as raised:
        unit.client.update_item(
            **at(ann.accounts.name, key), UpdateExpression="SET balance = :n", ExpressionAttributeValues=N
        )
    assert isinstance(raised.value, ClientError)
    assert isinstance(raised.value, getattr(unit.client.exceptions, code, ClientError))
    assert raised.value.response["Error"]["Code"] == code
    unit.client.update_item(
        **at(ann.accounts.name, key), UpdateExpression="SET balance = :n", ExpressionAttributeValues=N
    )
    unit.commit()
    assert books.balance(key) == 1
