"""Keys of indexes: a statement is refused at its line if DynamoDB would refuse it after the unit is committed."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kit.engines import OF_OTHERS_FIRST, first_on
from kit.units import Books, Party

from ticketlock.errors import InvalidUnitRequest

pytestmark = pytest.mark.shows("bad input")


@pytest.mark.parametrize("way", ["native", "marked"])
@pytest.mark.parametrize("units_engine", first_on(OF_OTHERS_FIRST, ["moto", OF_OTHERS_FIRST]), indirect=True)
class TestTheKeysOfAnIndex:
    """An item need not have them; if it has one, the index must accept it."""

    @pytest.fixture
    def name(self, books: Books) -> Iterator[str]:
        name = f"orders-{uuid.uuid4().hex[:8]}"
        keys = [("by-owner", "HASH"), ("at", "RANGE")]
        books.plain_client.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[
                {"AttributeName": key, "AttributeType": kind}
                for key, kind in (("id", "S"), ("by-owner", "S"), ("at", "N"))
            ],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            GlobalSecondaryIndexes=[
                {
                    "IndexName": "of-owners",
                    "KeySchema": [{"AttributeName": key, "KeyType": role} for key, role in keys],
                    "Projection": {"ProjectionType": "ALL"},
                }
            ],
        )
        books.plain_client.get_waiter("table_exists").wait(TableName=name)
        yield name
        books.plain_client.delete_table(TableName=name)

    @pytest.mark.parametrize(
        ("attribute", "bad"),
        [("by-owner", ""), ("by-owner", 5), ("by-owner", None), ("by-owner", "o" * 2_049), ("at", "5"), ("at", {5})],
        ids=["empty", "a number", "none", "too long", "a text", "a set"],
    )
    def test_are_checked_at_the_statement(
        self, books: Books, ann: Party, name: str, way: str, attribute: str, bad: Any
    ) -> None:
        orders = ann.units.table(name)
        with ann.begin(engine=way) as unit:
            unit.put(orders, {"id": "a", "by-owner": "ann", "at": 5})
            unit.put(orders, {"id": "b"})
        before = books.plain_client.scan(TableName=name, ConsistentRead=True)["Items"]
        unit = ann.begin(engine=way)
        given: Any = ("SET #key = :bad", {":bad": bad}, {"#key": attribute})
        with pytest.raises(InvalidUnitRequest, match=attribute):
            unit.update(orders, {"id": "a"}, *given, blind=True)
        with pytest.raises(InvalidUnitRequest, match=attribute):
            unit.update(orders, {"id": "b"}, *given)
        with pytest.raises(InvalidUnitRequest, match=attribute):
            unit.put(orders, {"id": "a", attribute: bad})
        unit.commit()
        assert books.plain_client.scan(TableName=name, ConsistentRead=True)["Items"] == before
