"""Requests to the DynamoDB in memory, as its tests say them."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from ticketlock import LockTable
from ticketlock.testing import ManualClock, MemoryDynamoDB

KEY = {"pk": {"S": "order-42"}, "sk": {"S": "default/"}}
LOCKS = {"TableName": "locks"}
LEASE_MS = 60_000


def table_on(memory: MemoryDynamoDB, clock: ManualClock) -> LockTable:
    return LockTable("locks", client=memory.client, clocks=clock, sleep=clock.sleep)


def key(sk: str | int = "default/") -> Any:
    return {**KEY, "sk": {"S": str(sk)}}


def put(memory: MemoryDynamoDB, sk: str | int = "default/", **attributes: Any) -> None:
    memory.put_item(**LOCKS, Item={**key(sk), **attributes})


def update(memory: MemoryDynamoDB, expression: str, condition: str | None = None, **numbers: int) -> Any:
    """UpdateItem; the attributes afterwards, without the key."""
    request: dict[str, Any] = {**LOCKS, "Key": KEY, "UpdateExpression": expression, "ReturnValues": "ALL_NEW"}
    if condition is not None:
        request["ConditionExpression"] = condition
    if numbers:
        request["ExpressionAttributeValues"] = {f":{name}": {"N": str(value)} for name, value in numbers.items()}
    found = memory.update_item(**request).get("Attributes", {})
    return {name: value for name, value in found.items() if name not in KEY}


def stored(memory: MemoryDynamoDB) -> list[str]:
    """The sort keys of the items."""
    return sorted(item["sk"]["S"] for item in memory.items())


# The actions of transactions.


def putting(sk: str | int, **attributes: Any) -> Any:
    return {"Put": {**LOCKS, "Item": {**key(sk), **attributes}}}


def adding(sk: str = "default/", condition: str = "attribute_exists(pk)") -> Any:
    """Adds one to an item that is there."""
    one = {":one": {"N": "1"}}
    asked = {"UpdateExpression": "SET a = a + :one", "ConditionExpression": condition}
    return {"Update": {**LOCKS, "Key": key(sk), **asked, "ExpressionAttributeValues": one}}


def checking(sk: str = "default/", condition: str = "attribute_exists(pk)", **more: Any) -> Any:
    return {"ConditionCheck": {**LOCKS, "Key": key(sk), "ConditionExpression": condition, **more}}


def deleting(sk: str = "default/") -> Any:
    return {"Delete": {**LOCKS, "Key": key(sk)}}


def getting(sk: str | int = "default/", **more: Any) -> Any:
    return {"Get": {**LOCKS, "Key": key(sk), **more}}


def write(memory: MemoryDynamoDB, *actions: Any, token: str | None = None) -> None:
    """TransactWriteItems."""
    memory.transact_write_items(TransactItems=[*actions], **({} if token is None else {"ClientRequestToken": token}))


def read(memory: MemoryDynamoDB, *actions: Any) -> list[Any]:
    """TransactGetItems: the items, or None for each that is not there."""
    return [each.get("Item") for each in memory.transact_get_items(TransactItems=[*actions])["Responses"]]


# Refusals.


def refused(do: Any, *arguments: Any, **more: Any) -> str:
    """What the service says to a request that is wrong."""
    with pytest.raises(ClientError) as caught:
        do(*arguments, **more)
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    return caught.value.response["Error"]["Message"]


def cancelled(do: Any, *arguments: Any, **more: Any) -> list[str]:
    """The reasons for which a transaction is cancelled."""
    with pytest.raises(ClientError, match="TransactionCanceledException") as caught:
        do(*arguments, **more)
    response: Any = caught.value.response
    return [reason["Code"] for reason in response["CancellationReasons"]]


def pages_of(read: Any, request: dict[str, Any]) -> list[Any]:
    pages = [read(**request)]
    while "LastEvaluatedKey" in pages[-1]:
        pages.append(read(**request, ExclusiveStartKey=pages[-1]["LastEvaluatedKey"]))
    return pages
