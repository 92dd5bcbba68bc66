"""Tables of users, by their names and ARNs; how the units table is made; and permissions that are missing."""

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from kit.engines import first_on
from kit.units import KEYS, THREADS_ONLY, Books, Key, Party, dumped, index, make_table, new_version, some_name

from ticketlock import InvalidUnitRequest, ItemTooLarge, TableNotFound, TableRefused
from ticketlock._expressions._schemas import Index, KeyAttribute, Schema
from ticketlock._expressions._values import MAX_ITEM_BYTES, size_of
from ticketlock.units import Swept, Units, UnitTable, create_units_table
from ticketlock.units._statements._work import guard_key
from ticketlock.units._words._tables import VERSION_BYTES

WAYS = pytest.mark.parametrize("way", ["native", "marked"])


def arn_of(books: Books, use: str) -> str:
    arn: str = books.plain_client.describe_table(TableName=books.tables[use])["Table"]["TableArn"]
    return arn


@WAYS
def test_a_table_is_the_same_by_its_name_and_by_its_arn(books: Books, ann: Party, account: Key, way: str) -> None:
    arn = arn_of(books, "accounts")
    by_arn: UnitTable = ann.units.table(arn)
    assert by_arn is ann.accounts
    assert by_arn.name == books.tables["accounts"]
    one = {"UpdateExpression": "SET balance = balance + :n", "ExpressionAttributeValues": {":n": {"N": "1"}}}
    with ann.begin(engine=way) as unit:
        for table, name in ((ann.accounts, by_arn.name), (by_arn, arn)):
            unit.update(table, account, "SET balance = balance + :n", {":n": 1})
            unit.client.update_item(TableName=name, Key=dumped(account), **one)
    assert books.item("accounts", account) == {**account, "balance": 104}


def test_an_arn_of_another_account_or_region_is_refused(books: Books, ann: Party) -> None:
    parts = arn_of(books, "accounts").split(":")
    for changed, other in ((3, "eu-north-9"), (4, "999999999999")):
        arn = ":".join([*parts[:changed], other, *parts[changed + 1 :]])
        with pytest.raises(InvalidUnitRequest, match="the client's own account and Region") as refused:
            ann.units.table(arn)
        assert refused.value.field == "name"


def test_the_units_own_table_is_none_of_a_user(books: Books, ann: Party) -> None:
    row: Any = {"TableName": books.tables["units"], "Item": {"unit": {"S": "a"}, "row": {"S": "head"}}}
    asked: list[tuple[str, Callable[[], object]]] = [
        ("name", lambda: ann.units.table(books.tables["units"])),
        ("name", lambda: ann.units.table(arn_of(books, "units"))),
        ("TableName", lambda: ann.begin().client.put_item(**row)),
    ]
    for field, ask in asked:
        with pytest.raises(InvalidUnitRequest, match="this one is the units' own") as refused:
            ask()
        assert refused.value.field == field


@THREADS_ONLY
def test_all_who_ask_for_a_table_at_once_get_the_same(books: Books, ann: Party, account: Key) -> None:
    units, quicker = Units(books.tables["units"], client=ann.client), []
    ann.line.between["DescribeTable"] = lambda: quicker.append(units.table(books.tables["accounts"]))
    slower = units.table(books.tables["accounts"])
    assert quicker == [slower]
    for table in (slower, *quicker):
        assert units.get(table, account) == {**account, "balance": 100}


@pytest.mark.parametrize("local", [0, 1, 5])
def test_a_new_item_leaves_room_for_the_version_in_itself_and_in_each_local_index(local: int) -> None:
    # DynamoDB counts the entries of local indexes with the item.
    keys = (KeyAttribute("id", "S", "HASH"), KeyAttribute("at", "S", "RANGE"))
    indexes = tuple(
        Index(f"by-{number}", (keys[0], KeyAttribute("at", "S", "RANGE")), True, frozenset({"id", "at"}), None)
        for number in range(local)
    )
    table = UnitTable("accounts", Schema("accounts", keys, indexes))
    item = {"id": {"S": "a"}, "at": {"S": "b"}, "_tluVersion": {"S": new_version()}}
    left = MAX_ITEM_BYTES // (1 + local) - size_of(item)

    def is_taken(pad: int) -> bool:
        try:
            table.check_item({"id": {"S": "a"}, "at": {"S": "b"}, "pad": {"S": "x" * pad}}, "statement", VERSION_BYTES)
        except ItemTooLarge:
            return False
        return True

    largest = max(pad for pad in range(left - 200, left + 1) if is_taken(pad))
    whole = {**item, "pad": {"S": "x" * largest}}
    assert size_of(whole) * (1 + local) <= MAX_ITEM_BYTES


# Those that a plain client of boto3 reaches.
OVER_HTTP = pytest.mark.parametrize("units_engine", first_on("moto", ["moto", "ministack"]), indirect=True)


@pytest.fixture
def dynamodb(books: Books) -> Any:
    return boto3.client("dynamodb", endpoint_url=books.engine.endpoint_url)


@pytest.fixture
def name(dynamodb: Any) -> Iterator[str]:
    name = some_name()
    yield name
    dynamodb.delete_table(TableName=name)


def time_to_live(dynamodb: Any, name: str) -> tuple[str, str | None]:
    found = dynamodb.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    return found["TimeToLiveStatus"], found.get("AttributeName")


@OVER_HTTP
def test_a_table_of_units_has_their_keys_and_cleans_itself_and_further_settings_are_handed_on(
    dynamodb: Any, name: str
) -> None:
    tags = [{"Key": "team", "Value": "billing"}]
    assert create_units_table(name, client=dynamodb, Tags=tags)
    made = dynamodb.describe_table(TableName=name)["Table"]
    assert [(key["AttributeName"], key["KeyType"]) for key in made["KeySchema"]] == [("unit", "HASH"), ("row", "RANGE")]
    kinds = {each["AttributeName"]: each["AttributeType"] for each in made["AttributeDefinitions"]}
    assert kinds == {**KEYS["units"], "open": "S"}
    assert [each["IndexName"] for each in made["GlobalSecondaryIndexes"]] == ["open"]
    assert made["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert time_to_live(dynamodb, name) == ("ENABLED", "expiresAt")
    assert dynamodb.list_tags_of_resource(ResourceArn=made["TableArn"])["Tags"] == tags


@OVER_HTTP
@pytest.mark.parametrize("lacks", [False, True])
def test_to_make_a_table_of_units_again_is_harmless_and_puts_its_time_to_live_and_its_index_right(
    dynamodb: Any, name: str, books: Books, lacks: bool
) -> None:
    make_table(dynamodb, name, KEYS["units"]) if lacks else create_units_table(name, client=dynamodb)
    units = Units(name, client=books.engine.client())
    with units.begin(name="charge-42"):
        pass
    assert not create_units_table(name, client=dynamodb)
    assert time_to_live(dynamodb, name) == ("ENABLED", "expiresAt")
    assert units.sweep() == Swept()
    with units.begin(name="charge-42") as unit:
        assert unit.repeated


@OVER_HTTP
@pytest.mark.parametrize("lacks", [False, True])
def test_the_index_of_a_table_with_provisioned_capacity_has_as_much(dynamodb: Any, name: str, lacks: bool) -> None:
    capacity = {"ReadCapacityUnits": 5, "WriteCapacityUnits": 7}
    provisioned: Any = {"BillingMode": "PROVISIONED", "ProvisionedThroughput": capacity}
    if lacks:
        make_table(dynamodb, name, KEYS["units"], **provisioned)
    create_units_table(name, client=dynamodb, **provisioned)
    (index,) = dynamodb.describe_table(TableName=name)["Table"]["GlobalSecondaryIndexes"]
    assert {each: index["ProvisionedThroughput"][each] for each in capacity} == capacity


@OVER_HTTP
def test_a_table_whose_index_has_another_key_is_refused_and_left_alone(dynamodb: Any, name: str) -> None:
    of_states = index("open", {"state": "HASH"}, ProjectionType="KEYS_ONLY")
    make_table(dynamodb, name, KEYS["units"], {"state": "S"}, GlobalSecondaryIndexes=[of_states])
    with pytest.raises(ValueError, match="the key of its index open is"):
        create_units_table(name, client=dynamodb)
    assert time_to_live(dynamodb, name) == ("DISABLED", None)


@OVER_HTTP
def test_without_its_index_a_sweep_is_refused_and_the_error_says_what_adds_it(
    dynamodb: Any, name: str, books: Books
) -> None:
    make_table(dynamodb, name, KEYS["units"])
    units = Units(name, client=books.engine.client())
    for use in (units.sweep, units.open_units):
        with pytest.raises(TableRefused, match=rf"{name} needs its index `open`: `create_units_table` adds it"):
            use()


@OVER_HTTP
@pytest.mark.parametrize(
    ("keys", "item", "why"),
    [
        ({"pk": "S", "sk": "S"}, None, "is no table of units: its keys are"),
        (KEYS["units"], {"unit": "kilogram", "row": "1"}, "items of another kind"),
    ],
    ids=["a lock table", "a table with items of another kind"],
)
def test_a_table_of_another_kind_is_refused_and_left_alone(
    dynamodb: Any, name: str, keys: Any, item: Any, why: str
) -> None:
    make_table(dynamodb, name, keys)
    if item is not None:
        dynamodb.put_item(TableName=name, Item=dumped(item))
    with pytest.raises(ValueError, match=why):
        create_units_table(name, client=dynamodb)
    assert time_to_live(dynamodb, name) == ("DISABLED", None)


@OVER_HTTP
def test_a_table_whose_time_to_live_is_elsewhere_is_refused(dynamodb: Any, name: str) -> None:
    make_table(dynamodb, name, KEYS["units"])
    elsewhere = {"Enabled": True, "AttributeName": "deleteAfter"}
    dynamodb.update_time_to_live(TableName=name, TimeToLiveSpecification=elsewhere)
    with pytest.raises(ValueError, match="time to live is on deleteAfter"):
        create_units_table(name, client=dynamodb)


ROWS = {
    "the place of a sweep": {"unit": {"S": "sweep"}, "row": {"S": "part#0of4"}},
    "a guard": guard_key("lines", {"S": "order-1"}),
    "a unit of an owner": {"unit": {"S": "owner#job-7"}, "row": {"S": "01M84M0Z4SJQJRYEQ8HG3GHPEB"}},
    "the end of an owner": {"unit": {"S": "owner#job-7"}, "row": {"S": "ended"}},
}


@OVER_HTTP
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_table_whose_first_row_is_of_any_kind_is_one_of_units(dynamodb: Any, name: str, row: Any) -> None:
    make_table(dynamodb, name, KEYS["units"])
    dynamodb.put_item(TableName=name, Item=row)
    assert not create_units_table(name, client=dynamodb)
    assert time_to_live(dynamodb, name) == ("ENABLED", "expiresAt")


ACTIONS = {
    "GetItem": "GetItem",
    "BatchGetItem": "BatchGetItem",
    "TransactGetItems": "GetItem",
    "Query": "Query",
    "PutItem": "PutItem",
    "UpdateItem": "UpdateItem",
    "DeleteItem": "DeleteItem",
    "TransactWriteItems": "ConditionCheckItem",
}
"""Operations, and the permissions that they show."""


def test_no_permission_is_missing_and_nothing_is_written(books: Books) -> None:
    units, before = books.units(), books.everything()
    assert units.check_access([units.table(books.tables["accounts"])]) == []
    assert books.everything() == before


@OVER_HTTP
@pytest.mark.parametrize("operations", [*((each,) for each in ACTIONS), ("GetItem", "TransactGetItems")], ids="+".join)
def test_a_permission_that_is_missing_is_named_once(books: Books, operations: tuple[str, ...]) -> None:
    client = books.engine.client()

    def deny(model: Any, params: Any, **_: Any) -> None:
        if model.name in operations and books.tables["accounts"] in str(params["body"]):
            said: Any = {"Code": "AccessDeniedException", "Message": "not authorized to perform this"}
            raise ClientError({"Error": said}, model.name)

    client.meta.events.register("before-call.dynamodb", deny)
    units = Units(books.tables["units"], client=client)
    (found,) = units.check_access([units.table(books.tables["accounts"])])
    assert (found.table, found.action) == (books.tables["accounts"], f"dynamodb:{ACTIONS[operations[0]]}")
    assert operations[0] in found.why
    assert "not authorized" in found.why


def test_access_is_not_checked_without_a_table_of_units_or_to_a_table_by_its_name_alone(books: Books) -> None:
    by_its_name: Any = books.tables["accounts"]
    with pytest.raises(TableNotFound, match="no-such-table"):
        Units("no-such-table", client=books.engine.client()).check_access()
    with pytest.raises(InvalidUnitRequest, match="table is "):
        books.units().check_access([by_its_name])
