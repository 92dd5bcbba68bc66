"""``unit.client``: the parameters and replies of the low-level API."""

import copy
from typing import Any

import pytest
from kit.units import Books, dumped, some_name

from ticketlock import ConditionFailed, InvalidUnitRequest, TableNotFound
from ticketlock.units import UnitClient, Units

pytestmark = pytest.mark.shows("bad input")

ITEM = {"balance": 100, "owner": {"name": "Ada", "city": "London"}, "tags": {"a", "b"}, "photo": b"\x00\x01"}
VALUES = {":n": {"N": "1"}, ":city": {"S": "Paris"}}
UPDATES: list[dict[str, Any]] = [
    {"UpdateExpression": "SET balance = balance + :n", "ExpressionAttributeValues": {":n": {"N": "1"}}},
    {"UpdateExpression": "REMOVE tags, nothing"},
    {
        "UpdateExpression": "SET #owner.city = :city, fresh = :n REMOVE photo",
        "ExpressionAttributeNames": {"#owner": "owner"},
        "ExpressionAttributeValues": VALUES,
        "ConditionExpression": "#owner.city <> :city",
    },
]


@pytest.fixture
def client(units: Units) -> UnitClient:
    """The client of a unit that is never committed."""
    return units.begin().client


@pytest.fixture
def at(books: Books) -> dict[str, Any]:
    """The table and key of an item."""
    name = some_name()
    books.write("accounts", {"id": name, **ITEM})
    return {"TableName": books.tables["accounts"], "Key": {"id": {"S": name}}}


def ordered(reply: dict[str, Any]) -> dict[str, Any]:
    """A reply with the members of sets in order, without the metadata of the response."""
    return {
        name: {
            attribute: {kind: sorted(value) if kind == "SS" else value for kind, value in each.items()}
            for attribute, each in item.items()
        }
        for name, item in reply.items()
        if name in ("Attributes", "Item")
    }


def test_an_item_is_as_a_plain_client_finds_it(books: Books, client: UnitClient, at: dict[str, Any]) -> None:
    assert ordered(client.get_item(**at, ConsistentRead=True)) == ordered(books.plain_client.get_item(**at))


@pytest.mark.parametrize("only", [{}, {"ProjectionExpression": "balance"}], ids=["whole", "in part"])
def test_an_item_that_is_not_there_is_not_in_the_reply(books: Books, client: UnitClient, only: dict[str, str]) -> None:
    assert client.get_item(TableName=books.tables["accounts"], Key={"id": {"S": some_name()}}, **only) == {}


def test_an_item_is_without_the_attributes_of_units(units: Units, at: dict[str, Any]) -> None:
    with units.begin() as unit:
        unit.client.update_item(**at, **UPDATES[0])
    assert set(units.begin().client.get_item(**at)["Item"]) == {"id", *ITEM}


@pytest.mark.parametrize(
    ("projection", "names", "shown"),
    [
        ("#owner.city, balance", {"#owner": "owner"}, {"owner": {"city": "London"}, "balance": 101}),
        ("balance, #owner, tags, photo", {"#owner": "owner"}, {**ITEM, "balance": 101}),
        ("balance, #version", {"#version": "_tluVersion"}, {"balance": 101}),
    ],
    ids=["of some", "of all", "of the units' own"],
)
def test_a_projection_leaves_the_rest_out(
    units: Units, at: dict[str, Any], projection: str, names: dict[str, str], shown: dict[str, Any]
) -> None:
    with units.begin() as unit:
        unit.client.update_item(**at, **UPDATES[0])
    only = {"ProjectionExpression": projection, "ExpressionAttributeNames": names}
    assert ordered(units.begin().client.get_item(**at, **only)) == ordered({"Item": dumped(shown)})


# moto returns more than what an update changes in a map, and what it has removed.
@pytest.mark.parametrize("units_engine", ["ministack"], indirect=True)
@pytest.mark.parametrize("returned", ["NONE", "ALL_OLD", "UPDATED_OLD", "ALL_NEW", "UPDATED_NEW"])
@pytest.mark.parametrize("update", UPDATES, ids=lambda update: update["UpdateExpression"])
def test_an_update_replies_as_a_plain_client_s(
    books: Books, client: UnitClient, at: dict[str, Any], update: dict[str, Any], returned: str
) -> None:
    ours = client.update_item(**at, **update, ReturnValues=returned)
    assert ordered(ours) == ordered(books.plain_client.update_item(**at, **update, ReturnValues=returned))


# moto returns the key as an updated attribute.
@pytest.mark.parametrize("units_engine", ["ministack"], indirect=True)
@pytest.mark.parametrize("returned", ["NONE", "ALL_OLD", "UPDATED_OLD", "ALL_NEW", "UPDATED_NEW"])
def test_an_update_of_an_item_that_is_not_there_replies_as_a_plain_client_s(
    books: Books, client: UnitClient, returned: str
) -> None:
    update: dict[str, Any] = {
        "TableName": books.tables["accounts"],
        "Key": {"id": {"S": some_name()}},
        "UpdateExpression": "SET fresh = :n ADD balance :n",
        "ExpressionAttributeValues": {":n": {"N": "1"}},
        "ReturnValues": returned,
    }
    assert ordered(client.update_item(**update)) == ordered(books.plain_client.update_item(**update))


@pytest.mark.parametrize("returned", ["NONE", "ALL_OLD"])
@pytest.mark.parametrize("is_there", [True, False])
def test_puts_and_deletes_reply_as_a_plain_client_s(
    books: Books, units: Units, at: dict[str, Any], is_there: bool, returned: str
) -> None:
    if not is_there:
        books.plain_client.delete_item(**at)
    item = {**at["Key"], "balance": {"N": "7"}}
    put = {"TableName": at["TableName"], "Item": item, "ReturnValues": returned}
    ours = units.begin().client.put_item(**put), units.begin().client.delete_item(**at, ReturnValues=returned)
    before = books.raw("accounts", {"id": at["Key"]["id"]["S"]})
    theirs = books.plain_client.put_item(**put)
    if before is not None:
        books.write("accounts", before)
    else:
        books.plain_client.delete_item(**at)
    assert ordered(ours[0]) == ordered(theirs)
    assert ordered(ours[1]) == ordered(books.plain_client.delete_item(**at, ReturnValues=returned))


def test_what_it_writes_is_committed_with_the_unit(books: Books, units: Units, at: dict[str, Any]) -> None:
    other = some_name()
    with units.begin() as unit:
        unit.client.update_item(**at, **UPDATES[0])
        unit.client.put_item(TableName=at["TableName"], Item=dumped({"id": other, "balance": 1}))
        assert unit.get(units.table(books.tables["accounts"]), {"id": other}) == {"id": other, "balance": 1}
        assert books.raw("accounts", {"id": other}) is None
    assert [books.balance({"id": at["Key"]["id"]["S"]}), books.balance({"id": other})] == [101, 1]


def test_several_items_are_read_together(client: UnitClient, at: dict[str, Any]) -> None:
    absent = {**at, "Key": {"id": {"S": some_name()}}}
    only = {**at, "ProjectionExpression": "balance"}
    reply = client.transact_get_items(TransactItems=[{"Get": absent}, {"Get": only}])
    assert reply == {"Responses": [{}, {"Item": {"balance": {"N": "100"}}}]}


def test_a_condition_that_does_not_hold_is_raised_at_its_line(client: UnitClient, at: dict[str, Any]) -> None:
    condition = {"ConditionExpression": "balance > :n", "ExpressionAttributeValues": {":n": {"N": "100"}}}
    with pytest.raises(ConditionFailed) as raised:
        client.delete_item(**at, **condition)
    assert raised.value.key == {"id": at["Key"]["id"]["S"]}
    assert "Item" in client.get_item(**at)


def test_a_reply_that_its_caller_changes_is_not_the_unit_s(client: UnitClient, at: dict[str, Any]) -> None:
    replies = [
        client.get_item(**at)["Item"],
        client.update_item(**at, **UPDATES[0], ReturnValues="ALL_NEW")["Attributes"],
        client.transact_get_items(TransactItems=[{"Get": at}])["Responses"][0]["Item"],
    ]
    before = copy.deepcopy(client.get_item(**at))
    for each in replies:
        each["owner"]["M"]["city"]["S"] = "Rome"
        del each["balance"]
    assert client.get_item(**at) == before


def test_a_table_that_is_not_there(client: UnitClient) -> None:
    with pytest.raises(TableNotFound, match="no-such-table"):
        client.get_item(TableName="no-such-table", Key={"id": {"S": "a"}})


@pytest.mark.parametrize(
    ("verb", "parameter", "value"),
    [
        ("get_item", "AttributesToGet", ["balance"]),
        ("get_item", "ConsistentRead", "yes"),
        ("get_item", "Limit", 1),
        ("get_item", "TableName", None),
        ("get_item", "Key", None),
        ("get_item", "ProjectionExpression", ""),
        ("get_item", "ExpressionAttributeNames", {"#a": 5}),
        ("put_item", "Expected", {"balance": {"Exists": False}}),
        ("put_item", "ReturnValues", "ALL_NEW"),
        ("put_item", "ExpressionAttributeNames", None),
        ("update_item", "AttributeUpdates", {}),
        ("update_item", "Expected", {"balance": {"Exists": False}}),
        ("update_item", "ExpressionAttributeNames", {"#a": 5}),
        ("update_item", "ConditionalOperator", "AND"),
        ("update_item", "ReturnValues", ["ALL_NEW"]),
        ("update_item", "UpdateExpression", None),
        ("delete_item", "Expected", {"balance": {"Exists": False}}),
        ("delete_item", "ReturnConsumedCapacity", "TOTAL"),
        ("delete_item", "ConditionExpression", 5),
        ("transact_get_items", "ReturnConsumedCapacity", "TOTAL"),
        ("transact_get_items", "TransactItems", []),
        ("transact_get_items", "TransactItems", [{"Put": {}}]),
    ],
)
def test_a_parameter_that_it_does_not_take_is_named(
    books: Books, client: UnitClient, at: dict[str, Any], verb: str, parameter: str, value: Any
) -> None:
    good: dict[str, Any] = {
        "put_item": {"TableName": books.tables["accounts"], "Item": at["Key"]},
        "update_item": {**at, **UPDATES[0]},
        "transact_get_items": {"TransactItems": [{"Get": at}]},
    }.get(verb, at)
    getattr(client, verb)(**good)
    with pytest.raises(InvalidUnitRequest) as raised:
        getattr(client, verb)(**{**good, parameter: value})
    assert raised.value.field == parameter


@pytest.mark.parametrize(
    ("verb", "missing"),
    [
        *((verb, "TableName") for verb in ("get_item", "put_item", "update_item", "delete_item")),
        *((verb, "Key") for verb in ("get_item", "update_item", "delete_item")),
        ("put_item", "Item"),
        ("update_item", "UpdateExpression"),
    ],
)
def test_a_parameter_that_is_missing_is_named(client: UnitClient, at: dict[str, Any], verb: str, missing: str) -> None:
    given: dict[str, Any] = {
        "put_item": {"TableName": at["TableName"], "Item": at["Key"]},
        "update_item": {**at, **UPDATES[0]},
    }.get(verb, at)
    with pytest.raises(InvalidUnitRequest) as raised:
        getattr(client, verb)(**{name: value for name, value in given.items() if name != missing})
    assert raised.value.field == missing


@pytest.mark.parametrize("value", [{"NULL": False}, {"M": {"in": {"NULL": False}}}, {"L": [{"NULL": False}]}])
def test_a_null_that_is_not_true_is_refused_at_the_statement(
    books: Books, client: UnitClient, at: dict[str, Any], value: Any
) -> None:
    """DynamoDB would refuse it, for a marked unit after its decision."""
    with pytest.raises(InvalidUnitRequest, match="Null attribute value types must have the value of true"):
        client.put_item(TableName=books.tables["accounts"], Item={**at["Key"], "nothing": value})
    with pytest.raises(InvalidUnitRequest, match="Null attribute value types must have the value of true"):
        client.update_item(**at, UpdateExpression="SET nothing = :v", ExpressionAttributeValues={":v": value})
    client.put_item(TableName=books.tables["accounts"], Item={**at["Key"], "nothing": {"NULL": True}})
