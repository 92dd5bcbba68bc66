"""A lock that a newer version has used."""

from typing import Any

import pytest

from ticketlock import LockName, UnsupportedFormat
from ticketlock.locks._items import lock_key

NEWER = pytest.mark.leaves_a_promise_broken("no version that we have can read the lock item", error=UnsupportedFormat)


def raise_the_format(client: Any, table: str, lock: LockName, *without: str) -> None:
    """Write a newer format into the lock item, and remove attributes that it does not have any more."""
    client.update_item(
        TableName=table,
        Key=lock_key(lock),
        UpdateExpression=f"SET #format = :newer REMOVE {', '.join(['nowServing', *without])}",
        ExpressionAttributeNames={"#format": "format"},
        ExpressionAttributeValues={":newer": {"N": "2"}},
    )
