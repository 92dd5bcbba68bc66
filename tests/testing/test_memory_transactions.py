"""Transactions of the DynamoDB in memory that meet others, or themselves again."""

from typing import Any

import pytest
from botocore.exceptions import ClientError
from testing.memory_requests import KEY, LOCKS, put

from ticketlock.testing import ManualClock, MemoryDynamoDB

TEN_MINUTES_S = 600
TAKES_S = 0.05
OTHER = {**KEY, "sk": {"S": "other"}}
DOUBLE: Any = {"Update": {**LOCKS, "Key": KEY, "UpdateExpression": "SET a = a + a"}}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def slow(clock: ManualClock) -> MemoryDynamoDB:
    """An engine whose transactions take a while; one item is there."""
    memory = MemoryDynamoDB(clock=clock, transactions_take_s=TAKES_S)
    put(memory, a={"N": "1"})
    return memory


def value(memory: MemoryDynamoDB) -> str:
    (item,) = (item for item in memory.items() if item["sk"] == KEY["sk"])
    number: str = item["a"]["N"]
    return number


def test_a_token_is_forgotten_after_ten_minutes(clock: ManualClock) -> None:
    memory = MemoryDynamoDB(clock=clock)
    put(memory, a={"N": "1"})
    seen = []
    for passes_s in (0, TEN_MINUTES_S - 1, 1, TEN_MINUTES_S - 1, 1):
        clock.advance(passes_s)
        memory.transact_write_items(TransactItems=[DOUBLE], ClientRequestToken="once")
        seen.append(value(memory))
    assert seen == ["2", "2", "4", "4", "8"]


def test_a_token_is_remembered_for_ten_minutes_however_many_come_after_it(clock: ManualClock) -> None:
    memory = MemoryDynamoDB(clock=clock)
    put(memory, a={"N": "1"})
    memory.transact_write_items(TransactItems=[DOUBLE], ClientRequestToken="once")
    for number in range(2_000):
        put_other: Any = {"Put": {**LOCKS, "Item": OTHER}}
        memory.transact_write_items(TransactItems=[put_other], ClientRequestToken=str(number))
    memory.transact_write_items(TransactItems=[DOUBLE], ClientRequestToken="once")
    assert value(memory) == "2"


def test_after_ten_minutes_a_token_may_be_that_of_another_transaction(clock: ManualClock) -> None:
    memory = MemoryDynamoDB(clock=clock)
    put(memory, a={"N": "1"})
    memory.transact_write_items(TransactItems=[DOUBLE], ClientRequestToken="once")
    delete: Any = {"Delete": {**LOCKS, "Key": KEY}}
    with pytest.raises(ClientError, match="IdempotentParameterMismatchException"):
        memory.transact_write_items(TransactItems=[delete], ClientRequestToken="once")
    clock.advance(TEN_MINUTES_S)
    memory.transact_write_items(TransactItems=[delete], ClientRequestToken="once")
    assert memory.items() == []


def test_a_write_beside_a_transaction_on_the_same_item_meets_a_conflict(
    slow: MemoryDynamoDB, clock: ManualClock
) -> None:
    slow.transact_write_items(TransactItems=[DOUBLE])
    with pytest.raises(ClientError, match="TransactionConflictException"):
        slow.update_item(**LOCKS, Key=KEY, UpdateExpression="SET a = a + a")
    assert value(slow) == "2"
    clock.advance(TAKES_S)
    slow.update_item(**LOCKS, Key=KEY, UpdateExpression="SET a = a + a")
    assert value(slow) == "4"


def test_a_transaction_beside_another_one_is_cancelled_and_told_on_which_item(slow: MemoryDynamoDB) -> None:
    slow.transact_write_items(TransactItems=[DOUBLE])
    put_other: Any = {"Put": {**LOCKS, "Item": OTHER}}
    with pytest.raises(ClientError) as caught:
        slow.transact_write_items(TransactItems=[put_other, DOUBLE])
    response: Any = caught.value.response
    assert [reason["Code"] for reason in response["CancellationReasons"]] == ["None", "TransactionConflict"]
    assert [item["sk"] for item in slow.items()] == [KEY["sk"]]


def test_other_items_and_reads_meet_no_conflict(slow: MemoryDynamoDB) -> None:
    slow.transact_write_items(TransactItems=[DOUBLE])
    put(slow, "other")
    assert slow.get_item(**LOCKS, Key=KEY, ConsistentRead=True)["Item"]["a"] == {"N": "2"}


def test_a_transaction_that_was_cancelled_is_not_at_work_any_more(slow: MemoryDynamoDB) -> None:
    check: Any = {"ConditionCheck": {**LOCKS, "Key": KEY, "ConditionExpression": "attribute_not_exists(pk)"}}
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        slow.transact_write_items(TransactItems=[check])
    slow.update_item(**LOCKS, Key=KEY, UpdateExpression="SET a = a + a")
    assert value(slow) == "2"


def test_the_repetition_of_a_transaction_is_told_that_it_is_in_progress_and_then_that_it_was_applied(
    slow: MemoryDynamoDB, clock: ManualClock
) -> None:
    slow.transact_write_items(TransactItems=[DOUBLE], ClientRequestToken="once")
    with pytest.raises(ClientError, match="TransactionInProgressException"):
        slow.transact_write_items(TransactItems=[DOUBLE], ClientRequestToken="once")
    clock.advance(TAKES_S)
    slow.transact_write_items(TransactItems=[DOUBLE], ClientRequestToken="once")
    assert value(slow) == "2"
