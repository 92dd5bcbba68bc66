"""A units table that ``create_units_table`` creates."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from kit.engines import first_on
from kit.units import KEYS, Books, make_table, some_name

from ticketlock.units import Units, create_units_table
from ticketlock.units._guards import guard_key

# Those that a plain client of boto3 reaches.
pytestmark = pytest.mark.parametrize("units_engine", first_on("moto", ["moto", "ministack"]), indirect=True)


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


def test_it_has_the_keys_of_units_and_cleans_itself(dynamodb: Any, name: str) -> None:
    assert create_units_table(name, client=dynamodb)
    made = dynamodb.describe_table(TableName=name)["Table"]
    assert [(key["AttributeName"], key["KeyType"]) for key in made["KeySchema"]] == [("unit", "HASH"), ("row", "RANGE")]
    assert {each["AttributeName"]: each["AttributeType"] for each in made["AttributeDefinitions"]} == KEYS["units"]
    assert made["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert time_to_live(dynamodb, name) == ("ENABLED", "expiresAt")


def test_making_it_again_is_harmless(dynamodb: Any, name: str, books: Books) -> None:
    create_units_table(name, client=dynamodb)
    units = Units(name, client=books.engine.client())
    with units.begin(name="charge-42"):
        pass
    assert not create_units_table(name, client=dynamodb)
    with units.begin(name="charge-42") as unit:
        assert unit.repeated


def test_time_to_live_is_put_right_on_a_table_of_units_that_lacks_it(dynamodb: Any, name: str, books: Books) -> None:
    make_table(dynamodb, name, KEYS["units"])
    with Units(name, client=books.engine.client()).begin(name="charge-42"):
        pass
    assert not create_units_table(name, client=dynamodb)
    assert time_to_live(dynamodb, name) == ("ENABLED", "expiresAt")


def test_further_settings_are_handed_on(dynamodb: Any, name: str) -> None:
    create_units_table(name, client=dynamodb, Tags=[{"Key": "team", "Value": "billing"}])
    arn = dynamodb.describe_table(TableName=name)["Table"]["TableArn"]
    assert dynamodb.list_tags_of_resource(ResourceArn=arn)["Tags"] == [{"Key": "team", "Value": "billing"}]


def test_a_lock_table_is_refused_and_left_alone(dynamodb: Any, name: str) -> None:
    make_table(dynamodb, name, {"pk": "S", "sk": "S"})
    with pytest.raises(ValueError, match="is no table of units: its keys are"):
        create_units_table(name, client=dynamodb)
    assert time_to_live(dynamodb, name) == ("DISABLED", None)


def test_a_table_whose_time_to_live_is_elsewhere_is_refused(dynamodb: Any, name: str) -> None:
    make_table(dynamodb, name, KEYS["units"])
    elsewhere = {"Enabled": True, "AttributeName": "deleteAfter"}
    dynamodb.update_time_to_live(TableName=name, TimeToLiveSpecification=elsewhere)
    with pytest.raises(ValueError, match="time to live is on deleteAfter"):
        create_units_table(name, client=dynamodb)


def test_a_table_with_items_of_another_kind_is_refused_and_left_alone(dynamodb: Any, name: str) -> None:
    make_table(dynamodb, name, KEYS["units"])
    dynamodb.put_item(TableName=name, Item={"unit": {"S": "kilogram"}, "row": {"S": "1"}})
    with pytest.raises(ValueError, match="items of another kind"):
        create_units_table(name, client=dynamodb)
    assert time_to_live(dynamodb, name) == ("DISABLED", None)


ROWS = {
    "the place of a sweep": {"unit": {"S": "sweep"}, "row": {"S": "part#0of4"}},
    "a guard": guard_key("lines", {"S": "order-1"}),
    "a unit of an owner": {"unit": {"S": "owner#job-7"}, "row": {"S": "01M84M0Z4SJQJRYEQ8HG3GHPEB"}},
    "the end of an owner": {"unit": {"S": "owner#job-7"}, "row": {"S": "ended"}},
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_table_whose_first_row_is_of_any_kind_is_one_of_units(dynamodb: Any, name: str, row: Any) -> None:
    make_table(dynamodb, name, KEYS["units"])
    dynamodb.put_item(TableName=name, Item=row)
    assert not create_units_table(name, client=dynamodb)
    assert time_to_live(dynamodb, name) == ("ENABLED", "expiresAt")
