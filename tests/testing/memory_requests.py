"""Requests to the DynamoDB in memory, as its tests say them."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from ticketlock import LockTable
from ticketlock.testing import ManualClock, MemoryDynamoDB

KEY = {"pk": {"S": "order-42"}, "sk": {"S": "default/"}}
LOCKS = {"TableName": "locks"}


def table_on(memory: MemoryDynamoDB, clock: ManualClock) -> LockTable:
    return LockTable("locks", client=memory.client, clocks=clock, sleep=clock.sleep)


def put(memory: MemoryDynamoDB, sk: str = "default/", **attributes: Any) -> None:
    memory.put_item(**LOCKS, Item={**KEY, "sk": {"S": sk}, **attributes})


def update(memory: MemoryDynamoDB, expression: str, condition: str | None = None, **values: int | str) -> Any:
    """UpdateItem with numbers and texts; the attributes afterwards, without the key."""
    request: dict[str, Any] = {**LOCKS, "Key": KEY, "UpdateExpression": expression, "ReturnValues": "ALL_NEW"}
    if condition is not None:
        request["ConditionExpression"] = condition
    if values:
        request["ExpressionAttributeValues"] = {f":{name}": wire(value) for name, value in values.items()}
    found = memory.update_item(**request).get("Attributes", {})
    return {name: value for name, value in found.items() if name not in KEY}


def wire(value: int | str) -> dict[str, str]:
    return {"N": str(value)} if isinstance(value, int) else {"S": value}


def holds(memory: MemoryDynamoDB, condition: str, **values: int | str) -> bool:
    """Whether a condition holds for the stored item."""
    given = {f":{name}": wire(value) for name, value in values.items()}
    try:
        memory.transact_write_items(
            TransactItems=[
                {
                    "ConditionCheck": {
                        **LOCKS,
                        "Key": KEY,
                        "ConditionExpression": condition,
                        **({"ExpressionAttributeValues": given} if given else {}),
                    }
                }
            ]
        )
    except ClientError as error:
        if error.response["Error"]["Code"] != "TransactionCanceledException":
            raise
        return False
    return True


def refused(do: Any, *arguments: Any, **more: Any) -> str:
    """What the service says to a request that is wrong."""
    with pytest.raises(ClientError) as caught:
        do(*arguments, **more)
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    return caught.value.response["Error"]["Message"]


def pages_of(read: Any, request: dict[str, Any]) -> list[Any]:
    pages = [read(**request)]
    while "LastEvaluatedKey" in pages[-1]:
        pages.append(read(**request, ExclusiveStartKey=pages[-1]["LastEvaluatedKey"]))
    return pages
