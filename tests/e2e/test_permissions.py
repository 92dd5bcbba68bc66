"""The deployed stack with the permissions of its roles: each of these needs requests that the others do not send.

A file of its own, for its cloud is one of its own: two workers can have a cloud each.
"""

from typing import Any

from ticketlock import LockName
from ticketlock._items import lock_key, row_key


def test_the_roles_let_executions_queue_and_renew(guarded_cloud: Any, entity: str) -> None:
    arns = [guarded_cloud.sleep(entity, 6), guarded_cloud.sleep(entity, 0)]
    assert [guarded_cloud.ended(arn).status for arn in arns] == ["SUCCEEDED", "SUCCEEDED"]
    assert guarded_cloud.is_free(entity)


def test_the_roles_let_an_execution_leave_the_queue(guarded_cloud: Any, entity: str) -> None:
    holder = guarded_cloud.sleep(entity, 4)
    guarded_cloud.wait_until_held(entity)
    assert guarded_cloud.ended(guarded_cloud.sleep(entity, 0, recordWaitSeconds=1)).error == "RecordWaitExceeded"
    assert guarded_cloud.ended(holder).status == "SUCCEEDED"


def test_the_roles_let_an_execution_sweep_the_row_of_one_that_was_stopped(guarded_cloud: Any, entity: str) -> None:
    holder = guarded_cloud.sleep(entity, 2)
    guarded_cloud.wait_until_held(entity)
    stopped, next_one = guarded_cloud.sleep(entity, 0), guarded_cloud.sleep(entity, 0)
    guarded_cloud.wait_until(lambda: len(guarded_cloud.lock(entity).rows) == 2, "two rows")
    guarded_cloud.step_functions.stop_execution(executionArn=stopped)
    assert [guarded_cloud.ended(arn).status for arn in (holder, next_one)] == ["SUCCEEDED", "SUCCEEDED"]
    assert guarded_cloud.is_free(entity)


def test_the_roles_let_an_execution_join_again_that_lost_its_row(guarded_cloud: Any, entity: str) -> None:
    holder = guarded_cloud.sleep(entity, 3)
    guarded_cloud.wait_until_held(entity)
    waiter = guarded_cloud.sleep(entity, 0)
    guarded_cloud.wait_until(lambda: len(guarded_cloud.lock(entity).rows) == 1, "a row")
    [row] = guarded_cloud.lock(entity).rows
    guarded_cloud.dynamodb.delete_item(
        TableName=guarded_cloud.outputs["TableName"], Key=row_key(LockName(entity), row.ticket)
    )
    assert [guarded_cloud.ended(arn).status for arn in (holder, waiter)] == ["SUCCEEDED", "SUCCEEDED"]


def test_the_roles_let_an_execution_take_a_lock_whose_count_is_too_high(guarded_cloud: Any, entity: str) -> None:
    guarded_cloud.ended(guarded_cloud.sleep(entity, 0))
    guarded_cloud.dynamodb.update_item(
        TableName=guarded_cloud.outputs["TableName"],
        Key=lock_key(LockName(entity)),
        UpdateExpression="SET waiting = :three",
        ExpressionAttributeValues={":three": {"N": "3"}},
    )
    assert guarded_cloud.ended(guarded_cloud.sleep(entity, 0)).status == "SUCCEEDED"
    assert guarded_cloud.lock(entity).item.waiting == 0
