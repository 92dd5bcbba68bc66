"""Plain readers and writers beside units: what they find, and by which condition they write."""

from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Attr
from botocore.exceptions import ClientError
from kit.engines import first_on
from kit.pages import rows
from kit.units import MARK, THREADS_ONLY, VERSION, Books, Key, Party, UnitsWorld, dumped, new_version, some_account
from units.conftest import killed

from ticketlock import InvalidUnitRequest
from ticketlock.units import Units
from ticketlock.units._records._record import new_id

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
def test_the_table_resource_leaves_placeholders_out_also_with_a_filter_of_ones_own(books: Books, units: Units) -> None:
    resource: Any = boto3.resource("dynamodb", endpoint_url=books.engine.endpoint_url).Table(books.tables["accounts"])
    for name, there in (("marked", 1), ("placeholder", 0)):
        condition = {"KeyConditionExpression": "id = :id", "ExpressionAttributeValues": {":id": name}}
        assert resource.query(**condition)["Count"] == 1
        assert resource.query(**condition, FilterExpression=units.VISIBLE.condition)["Count"] == there
    found = resource.scan(FilterExpression=units.VISIBLE.condition & Attr("id").begins_with("p"))["Items"]
    assert [item["id"] for item in found] == ["plain"]


@OVER_HTTP
@pytest.mark.parametrize("name", [*ITEMS, "placeholder"])
def test_an_item_is_cleaned_of_the_attributes_of_units_and_a_placeholder_is_none(
    books: Books, units: Units, name: str
) -> None:
    stored = books.raw("accounts", {"id": name}) or {}
    cleaned = {"id": name, "balance": 1} if name in ITEMS else None
    assert (units.clean(stored), units.clean(dumped(stored))) == (cleaned, cleaned and dumped(cleaned))


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


FOUND = pytest.mark.parametrize("found", [A_VERSION, NO_VERSION, NO_ITEM])


def some_key(books: Books, found: str) -> Key:
    return {A_VERSION: books.account, NO_VERSION: books.plain_account, NO_ITEM: some_account}[found]()


@FOUND
def test_a_plain_write_is_applied_to_what_was_found(books: Books, found: str) -> None:
    key = some_key(books, found)
    writes(books, key, found, books.version(key) if found is A_VERSION else None)
    assert books.balance(key) == 7


@pytest.mark.parametrize("way", ["native", "marked"])
@pytest.mark.parametrize(
    ("found", "does"),
    [
        (A_VERSION, "written"),
        (NO_VERSION, "written"),
        (NO_ITEM, "written"),
        (A_VERSION, "deleted"),
        (NO_VERSION, "deleted"),
    ],
)
def test_a_plain_write_is_refused_to_an_item_that_a_unit_has(
    books: Books, ben: Party, found: str, way: Any, does: str
) -> None:
    key = some_key(books, found)
    seen = books.version(key) if found is A_VERSION else None
    with ben.begin(engine=way) as unit:
        unit.put(ben.accounts, {**key, "balance": 1}) if does == "written" else unit.delete(ben.accounts, key)
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        writes(books, key, found, seen)
    assert books.balances([key]) == [1 if does == "written" else None]


@THREADS_ONLY
def test_what_a_pending_unit_writes_is_as_it_was_with_a_mark_and_what_it_makes_is_a_placeholder(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
) -> None:
    before = [books.raw("accounts", key) or dict(key) for key in keys]
    killed(units_world, keys, is_committed=False)
    found = [books.raw("accounts", key) or {} for key in keys]
    assert [ben.units.clean(item) is None for item in found] == [False, False, True]
    assert [item.pop(MARK)["kind"] for item in found] == ["write", "write", "insert"]
    assert found == before
    pages = books.plain_client.get_paginator("scan").paginate(
        TableName=books.tables["accounts"], **ben.units.VISIBLE.parameters
    )
    seen = {item["id"]["S"] for page in pages for item in page["Items"]}
    assert [key["id"] in seen for key in keys] == [True, True, False]
