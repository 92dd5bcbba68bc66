"""Clients that cannot be created: without a Region, or with something other than an SDK client."""

import asyncio
from collections.abc import Callable
from typing import Any

import boto3
import pytest

from ticketlock import InvalidLockRequest, LockClient, LockTable, aio, create_table


def for_tasks(**client: Any) -> None:
    async def open_it() -> None:
        async with aio.LockClient("locks", **client):
            pass

    asyncio.run(open_it())


MADE: list[Callable[..., object]] = [
    lambda **client: LockClient("locks", **client),
    lambda **client: LockTable("locks", **client),
    lambda **client: create_table("locks", **client),
    for_tasks,
]
EACH = pytest.mark.parametrize("make", MADE, ids=["LockClient", "LockTable", "create_table", "aio.LockClient"])


@pytest.fixture
def no_region(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(variable, raising=False)
    # The session that boto3.client uses has read them before.
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)


@EACH
@pytest.mark.usefixtures("no_region")
def test_without_a_region_the_error_says_where_to_set_one(make: Callable[..., object]) -> None:
    with pytest.raises(InvalidLockRequest, match="set AWS_DEFAULT_REGION"):
        make()


@EACH
def test_given_a_resource_the_error_says_which_client_is_needed(make: Callable[..., object]) -> None:
    with pytest.raises(InvalidLockRequest, match=r"client is .*dynamodb.ServiceResource.*boto3\.client") as refused:
        make(client=boto3.resource("dynamodb"))
    # It retries by itself, and converts values: it is refused as well.
    assert "meta.client" not in str(refused.value)


@EACH
def test_given_the_table_of_a_resource_the_error_says_which_client_is_needed(make: Callable[..., object]) -> None:
    with pytest.raises(InvalidLockRequest, match=r"client is .*dynamodb.Table.*boto3\.client"):
        make(client=boto3.resource("dynamodb").Table("locks"))


def test_a_transaction_given_a_resource_says_which_client_is_needed(locks: LockClient, entity: str) -> None:
    lease = locks.acquire(entity)
    resource: Any = boto3.resource("dynamodb")
    with pytest.raises(InvalidLockRequest, match=r"boto3\.client"):
        lease.transact_write([], client=resource)
