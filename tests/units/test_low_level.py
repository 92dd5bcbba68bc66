"""``unit.client``: the replies of the methods for one item; ``test_low_level_many.py`` has those for several."""

import copy
from typing import Any

import pytest
from kit.units import Books, Party, dumped, some_name

from ticketlock.units import UnitClient, Units

ITEM = {"balance": 100, "owner": {"name": "Ada", "city": "London"}, "tags": {"a", "b"}, "photo": b"\x00\x01"}
UPDATES: list[dict[str, Any]] = [
    {"UpdateExpression": "SET balance = balance + :n", "ExpressionAttributeValues": {":n": {"N": "1"}}},
    {"UpdateExpression": "REMOVE tags, nothing"},
    {
        "UpdateExpression": "SET #owner.city = :city, fresh = :n REMOVE photo",
        "ExpressionAttributeNames": {"#owner": "owner"},
        "ExpressionAttributeValues": {":n": {"N": "1"}, ":city": {"S": "Paris"}},
        "ConditionExpression": "#owner.city <> :city",
    },
]
UPDATE_OF_NONE = {
    "UpdateExpression": "SET fresh = :n ADD balance :n",
    "ExpressionAttributeValues": {":n": {"N": "1"}},
}

IN_MEMORY = pytest.mark.parametrize("units_engine", ["memory"], indirect=True)


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


def test_get_item_returns_what_a_plain_client_returns(books: Books, client: UnitClient, at: dict[str, Any]) -> None:
    assert ordered(client.get_item(**at, ConsistentRead=True)) == ordered(books.plain_client.get_item(**at))


@pytest.mark.parametrize("only", [{}, {"ProjectionExpression": "balance"}], ids=["whole", "in part"])
def test_an_item_that_is_not_there_is_not_in_the_reply(books: Books, client: UnitClient, only: dict[str, str]) -> None:
    reply = client.get_item(TableName=books.tables["accounts"], Key={"id": {"S": some_name()}}, **only)
    assert reply.keys() == {"ResponseMetadata"}


def test_get_item_leaves_out_the_attributes_of_units(units: Units, at: dict[str, Any]) -> None:
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


# moto returns more than what an update changes in a map, what it has removed, and the key as an updated attribute.
@pytest.mark.parametrize("units_engine", ["ministack"], indirect=True)
@pytest.mark.parametrize("returned", ["NONE", "ALL_OLD", "UPDATED_OLD", "ALL_NEW", "UPDATED_NEW"])
@pytest.mark.parametrize(
    ("is_there", "update"),
    [*((True, update) for update in UPDATES), (False, UPDATE_OF_NONE)],
    ids=lambda each: each["UpdateExpression"] if isinstance(each, dict) else "there" if each else "not there",
)
def test_an_update_replies_as_a_plain_client_s(
    books: Books, client: UnitClient, at: dict[str, Any], is_there: bool, update: dict[str, Any], returned: str
) -> None:
    if not is_there:
        books.plain_client.delete_item(**at)
    given = {**at, **update, "ReturnValues": returned}
    assert ordered(client.update_item(**given)) == ordered(books.plain_client.update_item(**given))


@IN_MEMORY
@pytest.mark.parametrize("engine", ["native", "marked"])
@pytest.mark.parametrize("returned", ["NONE", "ALL_OLD", "UPDATED_OLD", "ALL_NEW", "UPDATED_NEW"])
@pytest.mark.parametrize("is_there", [True, False])
def test_an_update_without_an_expression_creates_a_missing_item_and_changes_no_other(
    books: Books, ann: Party, at: dict[str, Any], engine: Any, is_there: bool, returned: str
) -> None:
    if not is_there:
        books.plain_client.delete_item(**at)
    before = books.plain_client.get_item(**at).get("Item") or at["Key"]
    given = {**at, "ReturnValues": returned}
    with ann.begin(engine=engine) as unit:
        told = unit.client.update_item(**given)
    assert ann.units.clean(books.plain_client.get_item(**at)["Item"]) == before
    if not is_there:
        books.plain_client.delete_item(**at)
    expected = books.plain_client.update_item(**given).get("Attributes")
    assert told.get("Attributes") == (None if expected is None else ann.units.clean(expected))


@pytest.mark.parametrize("returned", ["NONE", "ALL_OLD"])
@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("verb", ["put_item", "delete_item"])
def test_puts_and_deletes_reply_as_a_plain_client_s(
    books: Books, client: UnitClient, at: dict[str, Any], verb: str, is_there: bool, returned: str
) -> None:
    if not is_there:
        books.plain_client.delete_item(**at)
    item = {"TableName": at["TableName"], "Item": {**at["Key"], "balance": {"N": "7"}}}
    given = {**(item if verb == "put_item" else at), "ReturnValues": returned}
    assert ordered(getattr(client, verb)(**given)) == ordered(getattr(books.plain_client, verb)(**given))


def test_what_the_client_writes_is_read_by_its_unit_and_committed_with_it(
    books: Books, units: Units, at: dict[str, Any]
) -> None:
    other = some_name()
    with units.begin() as unit:
        unit.client.update_item(**at, **UPDATES[0])
        unit.client.put_item(TableName=at["TableName"], Item=dumped({"id": other, "balance": 1}))
        assert unit.get(units.table(books.tables["accounts"]), {"id": other}) == {"id": other, "balance": 1}
        assert books.raw("accounts", {"id": other}) is None
    assert [books.balance({"id": at["Key"]["id"]["S"]}), books.balance({"id": other})] == [101, 1]


def test_transact_get_items_returns_items_in_the_order_in_which_they_were_asked_for(
    client: UnitClient, at: dict[str, Any]
) -> None:
    absent = {**at, "Key": {"id": {"S": some_name()}}}
    only = {**at, "ProjectionExpression": "balance"}
    reply = client.transact_get_items(TransactItems=[{"Get": absent}, {"Get": only}])
    assert reply["Responses"] == [{}, {"Item": {"balance": {"N": "100"}}}]


def test_a_caller_that_changes_a_reply_does_not_change_what_the_unit_has_read(
    client: UnitClient, at: dict[str, Any]
) -> None:
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
