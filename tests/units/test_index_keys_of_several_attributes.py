"""Queries of indexes whose keys have several attributes, with the unit's own writes in their order."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key
from kit.engines import indexing_engine_names
from kit.units import Books, Party

from ticketlock.errors import InvalidUnitRequest
from ticketlock.units import UnitTable

pytestmark = pytest.mark.parametrize("units_engine", indexing_engine_names(), indirect=True)

ROLES = {"cup": "HASH", "region": "HASH", "round": "RANGE", "bracket": "RANGE"}
CUP = Key("cup").eq("winter") & Key("region").eq("north")


@pytest.fixture
def matches(books: Books, ann: Party) -> Iterator[UnitTable]:
    name = f"matches-{uuid.uuid4().hex[:8]}"
    books.plain_client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": each, "AttributeType": "N" if each == "round" else "S"} for each in ("id", *ROLES)
        ],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "by-round",
                "KeySchema": [{"AttributeName": each, "KeyType": role} for each, role in ROLES.items()],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
    )
    books.plain_client.get_waiter("table_exists").wait(TableName=name)
    table = ann.units.table(name)
    with ann.begin() as unit:
        for round, bracket in ((1, "a"), (1, "b"), (2, "a"), (3, "a")):
            unit.put(table, match(round, bracket))
        unit.put(table, {**match(1, "a"), "id": "south", "region": "south"})
    yield table
    books.plain_client.delete_table(TableName=name)


def match(round: int, bracket: str) -> dict[str, Any]:
    return {"id": f"{round}{bracket}", "cup": "winter", "region": "north", "round": round, "bracket": bracket}


def ids(found: list[dict[str, Any]]) -> list[str]:
    return [each["id"] for each in found]


def test_they_come_in_the_order_of_all_attributes_with_own_writes_in_their_places(
    ann: Party, matches: UnitTable
) -> None:
    unit = ann.begin()
    for each in (match(2, "b"), match(1, "c"), match(0, "z")):
        unit.put(matches, each)
    unit.delete(matches, {"id": "1b"})
    assert ids(unit.query(matches, CUP, index="by-round")) == ["0z", "1a", "1c", "2a", "2b", "3a"]
    assert ids(unit.query(matches, CUP, index="by-round", forward=False)) == ["3a", "2b", "2a", "1c", "1a", "0z"]


def test_conditions_on_the_first_attributes_select_a_range(ann: Party, matches: UnitTable) -> None:
    unit = ann.begin()
    unit.put(matches, match(1, "c"))
    of_first = CUP & Key("round").eq(1)
    assert ids(unit.query(matches, of_first, index="by-round")) == ["1a", "1b", "1c"]
    assert ids(unit.query(matches, of_first & Key("bracket").gt("a"), index="by-round")) == ["1b", "1c"]
    assert ids(unit.query(matches, CUP & Key("round").gte(2), index="by-round")) == ["2a", "3a"]


def test_pages_continue_after_an_item(ann: Party, matches: UnitTable) -> None:
    unit = ann.begin()
    unit.put(matches, match(1, "c"))
    found: list[str] = []
    page = unit.query(matches, CUP, index="by-round", limit=2)
    while page:
        found += ids(page)
        page = unit.query(matches, CUP, index="by-round", limit=2, after=page[-1])
    assert found == ["1a", "1b", "1c", "2a", "3a"]


@pytest.mark.parametrize(
    "condition",
    [Key("cup").eq("winter"), CUP & Key("bracket").eq("a"), CUP & Key("round").gt(1) & Key("bracket").eq("a")],
)
def test_what_dynamodb_would_refuse_is_not_sent(ann: Party, matches: UnitTable, condition: Any) -> None:
    ann.line.sent.clear()
    with pytest.raises(InvalidUnitRequest):
        ann.begin().query(matches, condition, index="by-round")
    assert ann.line.operations == []
