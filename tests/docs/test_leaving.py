"""The program of docs/leaving.md removes what locks and units leave in items, and nothing else."""

from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from docs.conftest import make_table
from kit.pages import first_block

from ticketlock import LockClient, create_table
from ticketlock.testing import MemoryDynamoDB
from ticketlock.units import READ_LOCK, Units, create_units_table

_, PROGRAM = first_block("docs/leaving.md", "## Units")


@pytest.fixture
def tables(boto3_in_memory: MemoryDynamoDB) -> MemoryDynamoDB:
    make_table(boto3_in_memory, "accounts", id="S")
    make_table(boto3_in_memory, "orders", id="S", number="S")
    create_table("locks")
    create_units_table("units")
    return boto3_in_memory


def items(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = boto3.resource("dynamodb").Table(name).scan()["Items"]
    return sorted(found, key=repr)


def run() -> None:
    exec(PROGRAM, {})


@pytest.mark.usefixtures("tables")
def test_nothing_of_locks_and_units_stays_in_items() -> None:
    units = Units("units")
    accounts = units.table("accounts")
    people = [{"id": name, "balance": 5} for name in ("ann", "ben", "cleo")]
    with units.begin() as unit:
        unit.put_all(accounts, people[:2])
    boto3.resource("dynamodb").Table("accounts").put_item(Item=people[2])
    order = {"id": "42", "number": "1", "stock": 3}
    with LockClient("locks") as locks, locks.acquire("order-42") as lease:
        boto3.resource("dynamodb").Table("orders").put_item(**lease.fenced_put(order, native=True))
    assert items("accounts") != people
    assert items("orders") != [order]
    for _ in range(2):
        run()
        assert (items("accounts"), items("orders")) == (people, [order])


def test_the_version_of_an_item_that_a_unit_has_marked_stays(tables: MemoryDynamoDB) -> None:
    units = Units("units", client=tables.client)
    accounts = units.table("accounts")
    with units.begin() as unit:
        unit.put(accounts, {"id": "ann", "balance": 5})
    with units.begin(isolation=READ_LOCK) as unit:
        unit.update(accounts, {"id": "ann"}, "SET balance = :n", {":n": 7})
        before = items("accounts")
        with pytest.raises(ClientError, match="ConditionalCheckFailed"):
            run()
        assert items("accounts") == before
    assert units.get(accounts, {"id": "ann"}) == {"id": "ann", "balance": 7}


def test_an_item_that_is_deleted_meanwhile_does_not_come_back(
    tables: MemoryDynamoDB, session_in_memory: Any, request: pytest.FixtureRequest
) -> None:
    units = Units("units")
    with units.begin() as unit:
        unit.put(units.table("accounts"), {"id": "ann", "balance": 5})

    def delete(**_: Any) -> None:
        tables.delete_item(TableName="accounts", Key={"id": {"S": "ann"}})

    event = "provide-client-params.dynamodb.UpdateItem"
    session_in_memory.register(event, delete)
    request.addfinalizer(lambda: session_in_memory.unregister(event, delete))
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        run()
    assert items("accounts") == []
