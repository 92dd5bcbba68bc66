"""What plain readers of the tables leave out: the attributes of units, and pending inserts."""

from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Attr
from kit.engines import first_on
from kit.units import Books, dumped

from ticketlock import InvalidUnitRequest
from ticketlock.units import Units
from ticketlock.units._record import new_id

# Those that a resource of boto3 reaches.
pytestmark = pytest.mark.parametrize("units_engine", first_on("moto", ["moto", "ministack"]), indirect=True)

UNIT = new_id(0)


def marked(kind: str) -> dict[str, Any]:
    return {"_tluMark": {"unit": UNIT, "kind": kind}}


ITEMS: dict[str, dict[str, Any]] = {
    "plain": {"balance": 1},
    "written": {"balance": 1, "_tluVersion": UNIT},
    "marked": {"balance": 1, "_tluVersion": UNIT, **marked("write")},
    "marked, of no unit": {"balance": 1, **marked("write")},
    "read": {"balance": 1, **marked("read")},
    "inserted again": {"balance": 1, "_tluVersion": UNIT, **marked("insert")},
}
PLACEHOLDER = {"id": "placeholder", **marked("insert")}


@pytest.fixture
def books(books: Books) -> Books:
    """With all of these items."""
    for name, item in ITEMS.items():
        books.write("accounts", {"id": name, **item})
    books.write("accounts", PLACEHOLDER)
    return books


def test_a_scan_of_a_plain_client_leaves_placeholders_out(books: Books, units: Units) -> None:
    found = books.plain_client.scan(TableName=books.tables["accounts"], **units.VISIBLE.parameters)["Items"]
    assert {item["id"]["S"] for item in found} == ITEMS.keys()


def test_a_query_of_the_table_resource_leaves_placeholders_out(books: Books, units: Units) -> None:
    resource: Any = boto3.resource("dynamodb", endpoint_url=books.engine.endpoint_url).Table(books.tables["accounts"])
    for name, there in (("marked", 1), ("placeholder", 0)):
        condition = {"KeyConditionExpression": "id = :id", "ExpressionAttributeValues": {":id": name}}
        assert resource.query(**condition)["Count"] == 1
        assert resource.query(**condition, FilterExpression=units.VISIBLE.condition)["Count"] == there


def test_a_filter_of_ones_own_is_combined_with_it(books: Books, units: Units) -> None:
    resource: Any = boto3.resource("dynamodb", endpoint_url=books.engine.endpoint_url).Table(books.tables["accounts"])
    found = resource.scan(FilterExpression=units.VISIBLE.condition & Attr("id").begins_with("p"))["Items"]
    assert [item["id"] for item in found] == ["plain"]


@pytest.mark.parametrize("name", ITEMS)
def test_an_item_is_cleaned_of_the_attributes_of_units(books: Books, units: Units, name: str) -> None:
    assert units.clean(books.raw("accounts", {"id": name}) or {}) == {"id": name, "balance": 1}
    assert units.clean(dumped({"id": name, **ITEMS[name]})) == dumped({"id": name, "balance": 1})


def test_a_placeholder_is_no_item(books: Books, units: Units) -> None:
    assert units.clean(books.raw("accounts", {"id": "placeholder"}) or {}) is None
    assert units.clean(dumped(PLACEHOLDER)) is None


def test_the_names_are_those_of_the_prefix(books: Books) -> None:
    mine = books.units(prefix="my")
    assert mine.clean({"id": "a", "myVersion": UNIT, "_tluVersion": UNIT}) == {"id": "a", "_tluVersion": UNIT}
    assert {"myVersion", "myMark"} <= set(mine.VISIBLE.parameters["ExpressionAttributeNames"].values())


@pytest.mark.parametrize("mark", [None, 5, "insert", {}, {"M": 5}, {"M": None}, {"kind": 5}], ids=repr)
def test_a_mark_that_no_unit_has_written_is_no_placeholder(units: Units, mark: Any) -> None:
    assert units.clean({"id": "a", "_tluMark": mark}) == {"id": "a"}


@pytest.mark.parametrize("item", [None, 5, [], {1: 2}])
def test_what_is_no_item_is_refused(units: Units, item: Any) -> None:
    with pytest.raises(InvalidUnitRequest, match="item is "):
        units.clean(item)


@pytest.mark.parametrize("prefix", ["a.b", "a[0]"])
def test_a_prefix_that_would_part_a_path_is_refused(books: Books, prefix: str) -> None:
    with pytest.raises(InvalidUnitRequest, match="prefix is "):
        books.units(prefix=prefix)
