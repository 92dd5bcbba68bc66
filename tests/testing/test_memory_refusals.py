"""The DynamoDB in memory: what a client of the SDK does not send, and the words of the service's refusals."""

import io
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ParamValidationError
from kit.units import index, make_table
from testing.memory_requests import cancelled

from ticketlock.testing import MemoryDynamoDB

THINGS: dict[str, Any] = {"TableName": "things"}
KEY: dict[str, Any] = {"p": {"S": "a"}, "s": {"S": "b"}}
ITEM = {**KEY, "g": {"S": "c"}}
A: dict[str, Any] = {":a": {"S": "a"}}


@pytest.fixture
def memory() -> MemoryDynamoDB:
    """An engine with one item, and a table without a sort key."""
    memory = MemoryDynamoDB(lock_table=None)
    by_g = index("by-g", {"g": "HASH"})
    local = index("by-place", {"p": "HASH", "g": "RANGE"})
    indexes = {"GlobalSecondaryIndexes": [by_g], "LocalSecondaryIndexes": [local]}
    make_table(memory, "things", {"p": "S", "s": "S"}, {"g": "S"}, **indexes)
    make_table(memory, "plain", {"p": "S"})
    memory.put_item(**THINGS, Item=ITEM)
    return memory


def served(memory: MemoryDynamoDB, *, checks: bool = True) -> Any:
    """A client of boto3."""
    client = boto3.client("dynamodb", config=Config(parameter_validation=checks))
    memory.serve(client)
    return client


def outcome(client: Any, operation: str, asked: dict[str, Any]) -> Any:
    """What a request changes, or the error's class and code."""
    try:
        getattr(client, operation)(**asked)
    except ParamValidationError:
        return "ParamValidationError", None
    except Exception as error:
        return type(error).__name__, getattr(error, "response", {}).get("Error")
    return client.scan(**THINGS)["Items"]


def putting(value: Any) -> tuple[str, Any]:
    return "put_item", {**THINGS, "Item": {**KEY, "x": value}}


def writing(action: str, **more: Any) -> tuple[str, Any]:
    return "transact_write_items", {"TransactItems": [{action: {**THINGS, **more}}]}


VALUES: list[Any] = [
    *({kind: each} for kind, each in (("SS", {"a"}), ("NS", frozenset("1")), ("BS", {b"a"}), ("SS", ["a", 1]))),
    *({kind: each} for kind, each in (("N", 5), ("S", None), ("X", "a"), ("BOOL", "true"), ("NULL", 1))),
    *({"B": each} for each in ("é", b"a", bytearray(b"a"), memoryview(b"a"), io.BytesIO(b"a"))),
    *({"BS": each} for each in (["a"], ("a", b"b"))),
    *({"L": each} for each in (({"S": "a"},), {"S": "a"}, [{"S": 1}], [{"B": "a"}])),
    *({"M": each} for each in ({1: {"S": "a"}}, [("a", {"S": "a"})], {"a": {"SS": {"a"}}}, {"a": {"B": "a"}})),
    *("text", None, {}, {"S": "a", "N": "1"}),
]
NAMED: dict[str, Any] = {**THINGS, "Key": KEY, "ProjectionExpression": "#a"}
SENT: list[tuple[str, Any]] = [
    *map(putting, VALUES),
    ("put_item", {**THINGS, "Item": {1: {"S": "a"}}}),
    ("put_item", {**THINGS, "Item": KEY, "ReturnValues": None}),
    ("put_item", {"TableName": "", "Item": KEY}),
    ("get_item", {**THINGS, "Key": {"p": "a", "s": "b"}}),
    ("get_item", {**NAMED, "ExpressionAttributeNames": {"#a": 1}}),
    ("get_item", {**NAMED, "ExpressionAttributeNames": {1: "a"}}),
    ("get_item", {**THINGS, "Key": KEY, "Unknown": 1}),
    ("scan", {**THINGS, "ExclusiveStartKey": {"p": "a"}}),
    ("scan", {**THINGS, "Limit": 0}),
    ("scan", {**THINGS, "Limit": True}),
    ("query", {**THINGS, "KeyConditionExpression": "p = :p", "ExpressionAttributeValues": {":p": "a"}}),
    ("batch_get_item", {"RequestItems": {"things": {"Keys": [KEY], "Unknown": 1}}}),
    ("batch_get_item", {"RequestItems": {"things": {"Keys": []}}}),
    ("batch_write_item", {"RequestItems": {"things": {"PutRequest": {"Item": KEY}}}}),
    ("batch_write_item", {"RequestItems": {"things": [{"Put": {"Item": KEY}}]}}),
    writing("Put", Item={**KEY, "x": {"SS": {"a"}}}),
    writing("Put", Item={**KEY, "x": {"BS": ["a"]}}),
    writing("Put", Item=KEY, Unknown=1),
    writing("Get", Key=KEY),
    writing("Update", Key=KEY),
    ("transact_get_items", {"TransactItems": [{"Get": {**THINGS, "Key": KEY, "ConsistentRead": True}}]}),
    ("transact_get_items", {"TransactItems": []}),
    ("list_tables", {"Limit": 0}),
    ("list_tables", {"ExclusiveStartTableName": "a"}),
    ("create_table", {**THINGS, "AttributeDefinitions": [], "KeySchema": []}),
]


@pytest.mark.parametrize(
    ("operation", "asked"), SENT, ids=[f"{operation} {number}" for number, (operation, _) in enumerate(SENT)]
)
def test_a_client_sends_and_refuses_what_the_client_of_the_sdk_does(
    memory: MemoryDynamoDB, operation: str, asked: Any
) -> None:
    assert outcome(memory, operation, asked) == outcome(served(memory), operation, asked)


def test_what_is_not_sent_is_no_request(memory: MemoryDynamoDB) -> None:
    memory.sent.clear()
    assert outcome(memory, *putting({"N": 5})) == ("ParamValidationError", None)
    assert memory.sent == []


def test_what_is_too_short_to_be_sent_is_also_refused_as_the_service_refuses_it(memory: MemoryDynamoDB) -> None:
    """A test of what is refused need not know by whom."""
    with pytest.raises(ParamValidationError, match="Invalid length for parameter ExclusiveStartTableName"):
        memory.list_tables(ExclusiveStartTableName="a")
    with pytest.raises(ClientError) as raised:
        memory.list_tables(ExclusiveStartTableName="a")
    assert raised.value.response["Error"]["Code"] == "ValidationException"


def starting(**attributes: str) -> dict[str, Any]:
    return {"ExclusiveStartKey": {name: {"S": value} for name, value in attributes.items()}}


def asking(condition: str, **values: Any) -> dict[str, Any]:
    return {**THINGS, "KeyConditionExpression": condition, "ExpressionAttributeValues": {**A, **values}}


def batch(count: int, table: str = "things") -> Any:
    return {table: [{"DeleteRequest": {"Key": {**KEY, "s": {"S": str(each)}}}} for each in range(count)]}


def keys(count: int, table: str = "things") -> Any:
    return {table: {"Keys": [{**KEY, "s": {"S": str(each)}} for each in range(count)]}}


ONE = "1 validation error detected: Value "
WRONG = "One or more parameter values were invalid:"
EMPTY = "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty"
SHORT = "failed to satisfy constraint: Member must have length greater than or equal to 1"
LONG = "failed to satisfy constraint: Member must have length less than or equal to 100"
START = "The provided starting key is invalid"
SCHEMA = "The provided key element does not match the schema"
WITHOUT = "can only be specified when using expressions"
REQUIRED = "parameter is required but was not present in the request when"
BELOW = "parameter is zero-based and must be less than"
OF_25 = "Map value must satisfy constraint: [Member must have length less than or equal to 25, Member must have length "
BY_G = {"IndexName": "by-g", **asking("g = :a")}
SORTED = ("s = :s", "s > :s", "s <= :s", "begins_with(s, :s)", "s BETWEEN :s AND :s")
NOWHERE = {"TableName": "nowhere"}
UNUSED = {"ProjectionExpression": "#a", "ExpressionAttributeNames": {"#a": "a", "#b": "b"}}
REFUSED: list[tuple[str, Any, str]] = [
    ("query", THINGS, "Either the KeyConditions or KeyConditionExpression parameter must be specified in the request."),
    *(("query", asking(f"p = :a AND {each}", **{":s": {"S": ""}}), f"{EMPTY} string value. Key: s") for each in SORTED),
    ("query", asking("p = :a AND s > :s", **{":s": {"S": "x" * 1_025}}), f"{WRONG} Size of rangekey has exceeded"),
    ("query", asking("s = :a"), "Query condition missed key schema element: p"),
    ("query", asking("zz = :a"), "Query condition missed key schema element: p"),
    ("query", asking("p = :a AND zz = :a"), "Query condition missed key schema element: s"),
    ("query", {**asking("p = :a AND zz = :a"), "TableName": "plain"}, "Query key condition not supported"),
    ("query", {**asking("p = :a"), **starting(p="a")}, START),
    ("query", {**asking("p = :a"), **starting(p="a", s="b", x="c")}, START),
    ("query", {**asking("p = :a"), "ExclusiveStartKey": {**KEY, "s": {"N": "1"}}}, SCHEMA),
    ("query", {**BY_G, **starting(g="a")}, START),
    ("query", {**BY_G, **starting(g="a", p="a")}, START),
    (
        "query",
        {**asking("p = :a"), "TableName": "plain", **starting(p="a")},
        "The provided exclusive start key is invalid: ExclusiveStartKey: {p=AttributeValue: {S:a}}",
    ),
    (
        "query",
        {**asking("p = :a"), "Limit": 0},
        f"{ONE}at 'Limit' failed to satisfy constraint: Member must have value",
    ),
    ("query", {**THINGS, "KeyConditionExpression": "p = s", "Select": "X"}, f"{ONE}'X' at 'select' failed"),
    ("scan", {**THINGS, **starting(p="a", s="b", x="c")}, f"{START}: {SCHEMA}"),
    ("scan", {**THINGS, "IndexName": "by-place", **starting(p="a", g="c")}, f"{START}: {SCHEMA}"),
    ("scan", {**THINGS, "Limit": 0}, f"{ONE}'0' at 'limit' failed to satisfy constraint: Member must have value"),
    (
        "scan",
        {**THINGS, "Select": "X"},
        "Member must satisfy enum value set: [SPECIFIC_ATTRIBUTES, COUNT, ALL_ATTRIBUTES, ALL_PROJECTED_ATTRIBUTES]",
    ),
    ("scan", {**THINGS, "Segment": 0}, f"The TotalSegments {REQUIRED} Segment parameter is present"),
    ("scan", {**THINGS, "TotalSegments": 4}, f"The Segment {REQUIRED} parameter TotalSegments is present"),
    (
        "scan",
        {**THINGS, "Segment": 5, "TotalSegments": 5},
        f"The Segment {BELOW} parameter TotalSegments: Segment: 5 is not less than TotalSegments: 5",
    ),
    ("get_item", {**THINGS, "Key": {**KEY, "s": {"N": "1"}}}, SCHEMA),
    (
        "get_item",
        {**THINGS, "Key": KEY, "ExpressionAttributeNames": {"#a": "b"}},
        f"ExpressionAttributeNames {WITHOUT}",
    ),
    *(
        (
            operation,
            {**THINGS, **asked, "ExpressionAttributeValues": A},
            f"ExpressionAttributeValues {WITHOUT}: {which}",
        )
        for operation, asked, which in (
            ("put_item", {"Item": KEY}, "ConditionExpression is null"),
            ("update_item", {"Key": KEY}, "UpdateExpression and ConditionExpression are null"),
            ("scan", {"ProjectionExpression": "p"}, "FilterExpression is null"),
        )
    ),
    ("batch_get_item", {"RequestItems": {}}, "The requestItems parameter is required for BatchGetItem"),
    ("batch_write_item", {"RequestItems": {}}, "The requestItems parameter is required for BatchWriteItem"),
    ("batch_get_item", {"RequestItems": keys(101)}, f"{ONE}at 'RequestItems.things.member.Keys' {LONG}"),
    ("batch_get_item", {"RequestItems": keys(0)}, f"{ONE}at 'RequestItems.things.member.Keys' {SHORT}"),
    ("batch_get_item", {"RequestItems": {**keys(99), "plain": {"Keys": [{"p": {"S": "a"}}] * 2}}}, "Too many items"),
    ("batch_write_item", {"RequestItems": batch(26)}, f"at 'requestItems' failed to satisfy constraint: {OF_25}"),
    ("batch_write_item", {"RequestItems": batch(0)}, f"{ONE}'{{things=[]}}' at 'requestItems' failed"),
    (
        "batch_write_item",
        {"RequestItems": {**batch(20), **batch(6, "plain")}},
        "Too many items requested for the Batch",
    ),
    *(
        (f"transact_{do}_items", {"TransactItems": []}, f"{ONE}'[]' at 'transactItems' {SHORT}")
        for do in ("get", "write")
    ),
    ("transact_write_items", {"TransactItems": [{}] * 101}, f" at 'transactItems' {LONG}"),
    (
        "transact_write_items",
        {"TransactItems": [{"Delete": {**THINGS, "Key": {**KEY, "s": {"S": ""}}}}]},
        f"{EMPTY} string value. Key: s",
    ),
    # A table that is missing is not what is told of a request that no table could answer.
    ("get_item", {**NOWHERE, "Key": KEY, **UNUSED}, "unused in expressions: keys: {#b}"),
    ("delete_item", {**NOWHERE, "Key": KEY, "ConditionExpression": "x ="}, "Invalid ConditionExpression: Syntax error"),
    ("batch_get_item", {"RequestItems": {"nowhere": {"Keys": [KEY], **UNUSED}}}, "unused in expressions: keys: {#b}"),
    (
        "put_item",
        {**THINGS, "Item": KEY, "ReturnValues": "X", "ReturnConsumedCapacity": "Y"},
        "2 validation errors detected: Value 'Y' at 'returnConsumedCapacity' failed",
    ),
]


@pytest.mark.parametrize(("operation", "asked", "why"), REFUSED)
def test_the_service_refuses_in_dynamodb_s_words(
    memory: MemoryDynamoDB, operation: str, asked: dict[str, Any], why: str
) -> None:
    with pytest.raises(ClientError) as caught:
        getattr(served(memory, checks=False), operation)(**asked)
    error = caught.value.response["Error"]
    assert error["Code"] == "ValidationException"
    assert why in error["Message"]


@pytest.mark.parametrize(
    ("operation", "asked"),
    [("get_item", {"Key": KEY}), ("scan", {}), ("query", asking("p = :a")), ("delete_item", {"Key": KEY})],
)
def test_a_request_to_a_table_that_is_missing_is_told_so(memory: MemoryDynamoDB, operation: str, asked: Any) -> None:
    with pytest.raises(memory.exceptions.ResourceNotFoundException, match=r"operation: Requested resource not found$"):
        getattr(memory, operation)(**{**asked, "TableName": "none"})


@pytest.mark.parametrize(
    ("operation", "asked"),
    [
        ("query", {**THINGS, "KeyConditions": {"p": {"ComparisonOperator": "EQ", "AttributeValueList": [{"S": "a"}]}}}),
        ("batch_get_item", {"RequestItems": {"things": {"Keys": [KEY], "AttributesToGet": ["p"]}}}),
    ],
)
def test_the_legacy_api_is_not_known(memory: MemoryDynamoDB, operation: str, asked: Any) -> None:
    for client in (memory, served(memory)):
        with pytest.raises(NotImplementedError, match=r"KeyConditions|AttributesToGet"):
            getattr(client, operation)(**asked)


def test_a_wrong_read_cancels_a_transaction_as_a_wrong_write_does(memory: MemoryDynamoDB) -> None:
    wrong: Any = {"Get": {**THINGS, "Key": {"p": {"S": "a"}}}}
    assert cancelled(memory.transact_get_items, TransactItems=[wrong, wrong]) == ["ValidationError", "None"]
