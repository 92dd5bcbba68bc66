"""``unit.client``: the parameters that it takes, and how it refuses the others of boto3's client."""

from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.exceptions import OperationNotPageableError
from kit.units import Books, dumped, some_account

from ticketlock import InvalidUnitRequest
from ticketlock.units import UnitClient, Units
from ticketlock.units._like_boto3._client import METHODS_IN_PLACE_OF
from ticketlock.units._like_boto3._client_parameters import IN_PLACE_OF, OPERATIONS, STRUCTURES

pytestmark = pytest.mark.shows("bad input")
IN_MEMORY = pytest.mark.parametrize("units_engine", ["memory"], indirect=True)

N = {":n": {"N": "1"}}
GOOD: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "get_item": lambda at: at,
    "put_item": lambda at: {"TableName": at["TableName"], "Item": at["Key"]},
    "update_item": lambda at: {**at, "UpdateExpression": "SET balance = :n", "ExpressionAttributeValues": N},
    "delete_item": lambda at: at,
    "transact_get_items": lambda at: {"TransactItems": [{"Get": at}]},
    "transact_write_items": lambda at: {"TransactItems": [{"Delete": at}]},
    "batch_get_item": lambda at: {"RequestItems": {at["TableName"]: {"Keys": [at["Key"]]}}},
    "batch_write_item": lambda at: {"RequestItems": {at["TableName"]: [{"DeleteRequest": {"Key": at["Key"]}}]}},
}
"""The parameters of a request that is accepted, for an item."""
LEGACY = {
    "AttributesToGet": ["balance"],
    "AttributeUpdates": {},
    "ConditionalOperator": "AND",
    "Expected": {"balance": {"Exists": False}},
}


@pytest.fixture
def client(units: Units) -> UnitClient:
    """The client of a unit that is never committed."""
    return units.begin().client


@pytest.fixture
def at(books: Books) -> dict[str, Any]:
    """The table and key of an item that does not exist."""
    return {"TableName": books.tables["accounts"], "Key": dumped(some_account())}


def taken(client: UnitClient, verb: str, given: dict[str, Any]) -> InvalidUnitRequest | None:
    """What refuses it; None if it is accepted."""
    try:
        getattr(client, verb)(**given)
    except InvalidUnitRequest as error:
        return error
    return None


@IN_MEMORY
@pytest.mark.parametrize(
    ("verb", "parameter", "value"),
    [
        *((verb, "TableName", None) for verb in ("get_item", "put_item", "update_item", "delete_item")),
        *((verb, "Key", None) for verb in ("get_item", "update_item", "delete_item")),
        ("put_item", "Item", None),
        *((verb, "TransactItems", None) for verb in ("transact_get_items", "transact_write_items")),
        *((verb, "RequestItems", None) for verb in ("batch_get_item", "batch_write_item")),
        *((verb, "ReturnConsumedCapacity", "INDEXES") for verb in GOOD),
        ("get_item", "AttributesToGet", LEGACY["AttributesToGet"]),
        ("get_item", "ConsistentRead", "yes"),
        ("get_item", "ProjectionExpression", ""),
        ("get_item", "ExpressionAttributeNames", {"#a": 5}),
        ("put_item", "Expected", LEGACY["Expected"]),
        ("put_item", "ReturnValues", "ALL_NEW"),
        ("put_item", "ReturnValuesOnConditionCheckFailure", "ALL_NEW"),
        ("put_item", "ExpressionAttributeNames", None),
        ("update_item", "AttributeUpdates", LEGACY["AttributeUpdates"]),
        ("update_item", "ExpressionAttributeNames", {"#a": 5}),
        ("update_item", "ReturnValues", ["ALL_NEW"]),
        ("delete_item", "ConditionExpression", 5),
        ("transact_get_items", "TransactItems", []),
        ("transact_write_items", "TransactItems", {}),
        ("transact_write_items", "ClientRequestToken", "a"),
        ("batch_get_item", "RequestItems", {}),
        ("batch_write_item", "RequestItems", []),
    ],
)
def test_a_missing_parameter_or_one_that_a_unit_does_not_take_is_named(
    client: UnitClient, at: dict[str, Any], verb: str, parameter: str, value: Any
) -> None:
    good = GOOD[verb](at)
    assert taken(client, verb, good) is None
    wrong = [{**good, parameter: value}]
    if value is None and parameter in good:
        wrong.append({name: each for name, each in good.items() if name != parameter})
    for given in wrong:
        error = taken(client, verb, given)
        assert error is not None
        assert error.field == parameter


@IN_MEMORY
def test_an_update_expression_may_be_left_out_but_not_be_none(client: UnitClient, at: dict[str, Any]) -> None:
    assert taken(client, "update_item", at) is None
    error = taken(client, "update_item", {**at, "UpdateExpression": None})
    assert error is not None
    assert error.field == "UpdateExpression"


@IN_MEMORY
@pytest.mark.parametrize("verb", [verb for verb in GOOD if "get" not in verb])
def test_that_no_sizes_of_collections_are_asked_for_may_be_said(
    client: UnitClient, at: dict[str, Any], verb: str
) -> None:
    assert taken(client, verb, {**GOOD[verb](at), "ReturnItemCollectionMetrics": "NONE"}) is None


@IN_MEMORY
@pytest.mark.parametrize(
    ("verb", "second", "field"),
    [
        ("transact_get_items", {"Put": {}}, "TransactItems[1]"),
        ("transact_get_items", {"Get": {"Key": {}}}, "TransactItems[1].Get.TableName"),
        ("transact_write_items", {"Get": {}}, "TransactItems[1]"),
        ("transact_write_items", {"Put": {}, "Delete": {}}, "TransactItems[1]"),
        ("transact_write_items", {"Put": 5}, "TransactItems[1].Put"),
        ("transact_write_items", {"Put": LEGACY}, "TransactItems[1].Put.AttributesToGet"),
        ("transact_write_items", {"ConditionCheck": {"TableName": "a", "Key": {}}}, "ConditionExpression"),
        ("batch_write_item", {"Put": {}}, "RequestItems[{table!r}][1]"),
        ("batch_write_item", {"PutRequest": {}}, "RequestItems[{table!r}][1].PutRequest.Item"),
    ],
)
def test_what_is_wrong_with_one_of_several_is_named_with_its_position(
    client: UnitClient, at: dict[str, Any], verb: str, second: Any, field: str
) -> None:
    given = GOOD[verb](at)
    (many,) = given.values()
    (many if isinstance(many, list) else many[at["TableName"]]).append(second)
    error = taken(client, verb, given)
    assert error is not None
    assert error.field.endswith(field.format(table=at["TableName"]))


@IN_MEMORY
@pytest.mark.parametrize("given", [5, {}, {"Keys": []}, {"Keys": 5}, {"Keys": [{}], "Keyz": []}])
def test_the_keys_of_a_batch_are_named_if_they_are_wrong(client: UnitClient, at: dict[str, Any], given: Any) -> None:
    error = taken(client, "batch_get_item", {"RequestItems": {at["TableName"]: given}})
    assert error is not None
    assert error.field.startswith(f"RequestItems[{at['TableName']!r}]")


@IN_MEMORY
@pytest.mark.parametrize("verb", ["batch_write_item", "transact_write_items"])
def test_two_writes_of_one_item_in_one_call_are_refused(client: UnitClient, at: dict[str, Any], verb: str) -> None:
    given = GOOD[verb](at)
    (many,) = given.values()
    both = many if isinstance(many, list) else many[at["TableName"]]
    both.append(both[0])
    error = taken(client, verb, given)
    assert error is not None
    assert at["Key"]["id"]["S"] in str(error)


def test_each_parameter_of_the_api_is_taken_or_refused_with_what_to_use_in_its_place() -> None:
    model: Any = boto3.client("dynamodb").meta.service_model
    of_api = {each.name: set(model.shape_for(each.name).members) for each in STRUCTURES}
    for each in OPERATIONS:
        operation = "".join(part.capitalize() for part in each.name.split("_"))
        of_api[each.name] = set(model.operation_model(operation).input_shape.members)
    taken = {each.name: {*each.required, *each.optional} for each in (*OPERATIONS, *STRUCTURES)}
    missing = {name: members - taken[name] for name, members in of_api.items()}
    assert set().union(*missing.values()) == IN_PLACE_OF.keys()
    assert {name: members - of_api[name] for name, members in taken.items()} == {name: set() for name in taken}


@IN_MEMORY
def test_each_method_of_the_api_for_items_is_there_or_is_refused_with_what_to_use_in_its_place(
    client: UnitClient,
) -> None:
    about_items = {
        name
        for name in boto3.client("dynamodb").meta.method_to_api_mapping
        if {"item", "items", "query", "scan", "search", "statement", "execute"} & set(name.split("_"))
    }
    assert {each.name for each in OPERATIONS} | METHODS_IN_PLACE_OF.keys() == about_items
    assert all(hasattr(client, each.name) for each in OPERATIONS)
    for name in (*METHODS_IN_PLACE_OF, "create_table"):
        with pytest.raises(AttributeError, match=f"no '{name}'; use [a-z]"):
            getattr(client, name)


@IN_MEMORY
def test_only_query_has_a_paginator(client: UnitClient) -> None:
    assert client.can_paginate("query")
    assert not client.can_paginate("scan")
    with pytest.raises(OperationNotPageableError):
        client.get_paginator("scan")
