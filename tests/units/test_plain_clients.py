"""Plain readers and writers beside units: what they find, and by which condition they write."""

from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Attr
from botocore.exceptions import ClientError
from kit.crashes import crashes
from kit.engines import first_on
from kit.pages import rows
from kit.units import (
    MARK,
    THREADS_ONLY,
    VERSION,
    Books,
    Key,
    Killed,
    Party,
    UnitsWorld,
    dumped,
    new_version,
    some_account,
)

from ticketlock import InvalidUnitRequest
from ticketlock.units import Units
from ticketlock.units._record import new_id

pytestmark = pytest.mark.shows("no dirty read")

# Those that a resource of boto3 reaches.
OVER_HTTP = pytest.mark.parametrize("units_engine", first_on("moto", ["moto", "ministack"]), indirect=True)

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


@OVER_HTTP
def test_a_scan_of_a_plain_client_leaves_placeholders_out(books: Books, units: Units) -> None:
    found = books.plain_client.scan(TableName=books.tables["accounts"], **units.VISIBLE.parameters)["Items"]
    assert {item["id"]["S"] for item in found} == ITEMS.keys()


@OVER_HTTP
def test_a_query_of_the_table_resource_leaves_placeholders_out(books: Books, units: Units) -> None:
    resource: Any = boto3.resource("dynamodb", endpoint_url=books.engine.endpoint_url).Table(books.tables["accounts"])
    for name, there in (("marked", 1), ("placeholder", 0)):
        condition = {"KeyConditionExpression": "id = :id", "ExpressionAttributeValues": {":id": name}}
        assert resource.query(**condition)["Count"] == 1
        assert resource.query(**condition, FilterExpression=units.VISIBLE.condition)["Count"] == there


@OVER_HTTP
def test_a_filter_of_ones_own_is_combined_with_it(books: Books, units: Units) -> None:
    resource: Any = boto3.resource("dynamodb", endpoint_url=books.engine.endpoint_url).Table(books.tables["accounts"])
    found = resource.scan(FilterExpression=units.VISIBLE.condition & Attr("id").begins_with("p"))["Items"]
    assert [item["id"] for item in found] == ["plain"]


@OVER_HTTP
@pytest.mark.parametrize("name", ITEMS)
def test_an_item_is_cleaned_of_the_attributes_of_units(books: Books, units: Units, name: str) -> None:
    assert units.clean(books.raw("accounts", {"id": name}) or {}) == {"id": name, "balance": 1}
    assert units.clean(dumped({"id": name, **ITEMS[name]})) == dumped({"id": name, "balance": 1})


@OVER_HTTP
def test_a_placeholder_is_no_item(books: Books, units: Units) -> None:
    assert units.clean(books.raw("accounts", {"id": "placeholder"}) or {}) is None
    assert units.clean(dumped(PLACEHOLDER)) is None


@OVER_HTTP
def test_the_names_are_those_of_the_prefix(books: Books) -> None:
    mine = books.units(prefix="my")
    assert mine.clean({"id": "a", "myVersion": UNIT, "_tluVersion": UNIT}) == {"id": "a", "_tluVersion": UNIT}
    assert {"myVersion", "myMark"} <= set(mine.VISIBLE.parameters["ExpressionAttributeNames"].values())


@OVER_HTTP
@pytest.mark.parametrize("mark", [None, 5, "insert", {}, {"M": 5}, {"M": None}, {"kind": 5}], ids=repr)
def test_a_mark_that_no_unit_has_written_is_no_placeholder(units: Units, mark: Any) -> None:
    assert units.clean({"id": "a", "_tluMark": mark}) == {"id": "a"}


@OVER_HTTP
@pytest.mark.parametrize("item", [None, 5, [], {1: 2}])
def test_what_is_no_item_is_refused(units: Units, item: Any) -> None:
    with pytest.raises(InvalidUnitRequest, match="item is "):
        units.clean(item)


@OVER_HTTP
@pytest.mark.parametrize("prefix", ["a.b", "a[0]"])
def test_a_prefix_that_would_part_a_path_is_refused(books: Books, prefix: str) -> None:
    with pytest.raises(InvalidUnitRequest, match="prefix is "):
        books.units(prefix=prefix)


CONDITIONS = dict(row for row in rows("docs/units.md", "Beside plain readers and writers") if len(row) == 2)

A_VERSION, NO_VERSION, NO_ITEM = "an item with a version", "an item without one, which no unit has written", "no item"


def writes(books: Books, key: Key, found: str, seen: str | None = None) -> None:
    """A plain write of 7, on the condition for what was found."""
    condition = CONDITIONS[found].strip("`")
    names = {"#mark": MARK, "#version": VERSION, "#key": "id"}
    values: dict[str, Any] = {":n": {"N": "7"}, ":new": {"S": new_version()}}
    books.plain_client.update_item(
        TableName=books.tables["accounts"],
        Key={"id": {"S": key["id"]}},
        UpdateExpression="SET balance = :n, #version = :new",
        ConditionExpression=condition,
        ExpressionAttributeNames={name: each for name, each in names.items() if name in f"{condition} #version"},
        ExpressionAttributeValues=values | ({":seen": {"S": seen}} if seen is not None else {}),
    )


def is_refused(books: Books, key: Key, found: str, seen: str | None = None) -> None:
    with pytest.raises(ClientError) as refused:
        writes(books, key, found, seen)
    assert refused.value.response["Error"]["Code"] == "ConditionalCheckFailedException"


FOUND = pytest.mark.parametrize("found", [A_VERSION, NO_VERSION, NO_ITEM])


def some_key(books: Books, found: str) -> Key:
    return {A_VERSION: books.account, NO_VERSION: books.plain_account, NO_ITEM: some_account}[found]()


@FOUND
def test_a_plain_write_is_applied_to_what_was_found(books: Books, found: str) -> None:
    key = some_key(books, found)
    writes(books, key, found, books.version(key) if found is A_VERSION else None)
    assert books.balance(key) == 7


@FOUND
@pytest.mark.parametrize("way", ["native", "marked"])
def test_a_plain_write_is_refused_once_a_unit_has_written_the_item(
    books: Books, ben: Party, found: str, way: Any
) -> None:
    key = some_key(books, found)
    seen = books.version(key) if found is A_VERSION else None
    with ben.begin(engine=way) as unit:
        unit.put(ben.accounts, {**key, "balance": 1})
    is_refused(books, key, found, seen)
    assert books.balance(key) == 1


@pytest.mark.parametrize("way", ["native", "marked"])
def test_a_plain_write_is_refused_to_an_item_that_a_unit_has_deleted(books: Books, ben: Party, way: Any) -> None:
    key = books.plain_account()
    with ben.begin(engine=way) as unit:
        unit.delete(ben.accounts, key)
    is_refused(books, key, NO_VERSION)
    assert books.raw("accounts", key) is None


@pytest.fixture
def before(books: Books, account: Key, other: Key) -> dict[str, Any]:
    """The two accounts, as stored."""
    return {str(key["id"]): books.raw("accounts", key) for key in (account, other)}


@pytest.fixture
def made(units_world: UnitsWorld, before: dict[str, Any]) -> Key:
    """A unit has marked both, to change one and delete one, and a third that it creates; its process has crashed."""
    ann, key = units_world.party(), some_account()
    changed, deleted = before
    unit = ann.begin(engine="marked")
    unit.update(ann.accounts, {"id": changed}, "SET balance = :n", {":n": 0})
    unit.delete(ann.accounts, {"id": deleted})
    unit.put(ann.accounts, {**key, "balance": 7})
    crashes(ann, 3, is_sent=False)
    with pytest.raises(Killed):
        unit.commit()
    return key


@THREADS_ONLY
def test_items_are_as_they_were_and_have_a_mark(books: Books, before: dict[str, Any], made: Key) -> None:
    assert made["id"] not in before
    for name, item in before.items():
        found = books.raw("accounts", {"id": name}) or {}
        assert found.pop(MARK)["kind"] == "write"
        assert found == item


@THREADS_ONLY
def test_an_item_that_is_to_be_made_has_its_key_and_the_mark(books: Books, made: Key) -> None:
    found = books.raw("accounts", made) or {}
    assert found.pop(MARK)["kind"] == "insert"
    assert found == made
    assert VERSION not in found


@THREADS_ONLY
def test_cleaned_it_is_no_item_and_a_scan_may_leave_it_out(books: Books, ben: Party, made: Key) -> None:
    found = books.raw("accounts", made)
    assert found is not None
    assert ben.units.clean(found) is None
    pages = books.plain_client.get_paginator("scan").paginate(
        TableName=books.tables["accounts"], **ben.units.VISIBLE.parameters
    )
    seen = [item["id"]["S"] for page in pages for item in page["Items"]]
    assert seen
    assert made["id"] not in seen
