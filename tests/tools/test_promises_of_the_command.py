"""The checks after every test of the command find broken promises; they are the checks of the contract."""

from typing import Any

import pytest
from kit.command import Command

from ticketlock import LockName
from ticketlock.locks._items import lock_key

pytestmark = pytest.mark.verify("tests no part of the product")


@pytest.mark.leaves_a_promise_broken("the count is changed behind the lock's back")
def test_a_count_that_is_wrong_is_found_when_the_test_is_over(
    command: Command, dynamodb: Any, table_name: str, entity: str
) -> None:
    assert command.run("run", entity, "--", "true").exit_code == 0
    dynamodb.update_item(
        TableName=table_name,
        Key=lock_key(LockName(entity)),
        UpdateExpression="SET held = :one",
        ExpressionAttributeValues={":one": {"N": "1"}},
    )
