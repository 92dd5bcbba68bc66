"""``check_access`` finds which permissions a caller lacks, and writes nothing."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from units.own_tables import OwnTables

from ticketlock import InvalidUnitRequest, TableNotFound
from ticketlock.units import Denied, Units

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


class Body:
    """A reply's body, as botocore reads one."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self._content


def denied(request: Any) -> AWSResponse:
    said = {"__type": "com.amazon.coral.service#AccessDeniedException", "Message": "not authorized to perform this"}
    body: Any = Body(json.dumps(said).encode())
    headers: Any = {"date": "Sun, 22 Nov 2026 12:00:00 GMT"}
    return AWSResponse(request.url, 400, headers, body)


def test_nothing_is_missing_and_nothing_is_written(tables: OwnTables) -> None:
    units = tables.units()
    assert units.check_access([units.table(tables.accounts)]) == []
    for name in (tables.accounts, tables.units_name):
        assert tables.client.scan(TableName=name)["Count"] == 0


@pytest.mark.parametrize("operation", ACTIONS)
def test_a_permission_that_is_missing_is_named(tables: OwnTables, operation: str) -> None:
    (found,) = found_without(tables, operation)
    assert (found.table, found.action) == (tables.accounts, f"dynamodb:{ACTIONS[operation]}")
    assert operation in found.why
    assert "not authorized" in found.why


def test_a_permission_that_two_operations_need_is_named_once(tables: OwnTables) -> None:
    (found,) = found_without(tables, "GetItem", "TransactGetItems")
    assert found.action == "dynamodb:GetItem"


def found_without(tables: OwnTables, *operations: str) -> list[Denied]:
    """What is found where these operations on the accounts are refused."""
    client = tables.engine.client()

    def deny(request: Any, **_: Any) -> Any:
        operation, asked = request.headers["X-Amz-Target"].decode().rpartition(".")[-1], request.body.decode()
        return denied(request) if operation in operations and tables.accounts in asked else None

    client.meta.events.register_first("before-send.dynamodb", deny)
    units = Units(tables.units_name, client=client)
    return units.check_access([units.table(tables.accounts)])


def test_units_without_a_table_of_their_own_say_so(tables: OwnTables) -> None:
    with pytest.raises(TableNotFound, match="no-such-table"):
        Units("no-such-table", client=tables.engine.client()).check_access()


def test_a_table_by_its_name_alone_is_refused(tables: OwnTables) -> None:
    by_its_name: Any = tables.accounts
    with pytest.raises(InvalidUnitRequest, match="table is "):
        tables.units().check_access([by_its_name])
