"""``check_access`` finds which permissions a caller lacks, and writes nothing."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from kit.units import Books

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


def test_nothing_is_missing_and_nothing_is_written(books: Books) -> None:
    units = books.units()
    assert units.check_access([units.table(books.tables["accounts"])]) == []
    for name in (books.tables["accounts"], books.tables["units"]):
        assert books.plain_client.scan(TableName=name)["Count"] == 0


@pytest.mark.parametrize("operation", ACTIONS)
def test_a_permission_that_is_missing_is_named(books: Books, operation: str) -> None:
    (found,) = found_without(books, operation)
    assert (found.table, found.action) == (books.tables["accounts"], f"dynamodb:{ACTIONS[operation]}")
    assert operation in found.why
    assert "not authorized" in found.why


def test_a_permission_that_two_operations_need_is_named_once(books: Books) -> None:
    (found,) = found_without(books, "GetItem", "TransactGetItems")
    assert found.action == "dynamodb:GetItem"


def found_without(books: Books, *operations: str) -> list[Denied]:
    """What is found where these operations on the accounts are refused."""
    client = books.engine.client()

    def deny(request: Any, **_: Any) -> Any:
        operation, asked = request.headers["X-Amz-Target"].decode().rpartition(".")[-1], request.body.decode()
        return denied(request) if operation in operations and books.tables["accounts"] in asked else None

    client.meta.events.register_first("before-send.dynamodb", deny)
    units = Units(books.tables["units"], client=client)
    return units.check_access([units.table(books.tables["accounts"])])


def test_units_without_a_table_of_their_own_say_so(books: Books) -> None:
    with pytest.raises(TableNotFound, match="no-such-table"):
        Units("no-such-table", client=books.engine.client()).check_access()


def test_a_table_by_its_name_alone_is_refused(books: Books) -> None:
    by_its_name: Any = books.tables["accounts"]
    with pytest.raises(InvalidUnitRequest, match="table is "):
        books.units().check_access([by_its_name])
