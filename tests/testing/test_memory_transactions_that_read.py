"""TransactGetItems on the DynamoDB in memory: many items as they stood at one moment."""

from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from testing.memory_requests import KEY, LOCKS, put, refused

from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB


def get_of(sk: str | int, **more: Any) -> Any:
    return {"Get": {**LOCKS, "Key": {**KEY, "sk": {"S": str(sk)}}, **more}}


def test_it_finds_the_items_in_the_order_of_their_actions(memory: MemoryDynamoDB) -> None:
    for sk in ("one", "two"):
        put(memory, sk, a={"S": sk})
    found = memory.transact_get_items(TransactItems=[get_of(sk) for sk in ("two", "none", "one")])["Responses"]
    assert [each["Item"]["a"]["S"] if each else None for each in found] == ["two", None, "one"]


def test_it_finds_items_of_several_tables(memory: MemoryDynamoDB) -> None:
    put(memory)
    memory.create_table(
        TableName="orders",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
    )
    memory.put_item(TableName="orders", Item={"id": {"S": "42"}})
    order = {"Get": {"TableName": "orders", "Key": {"id": {"S": "42"}}}}
    found = memory.transact_get_items(TransactItems=[order, get_of("default/")])["Responses"]
    assert found == [{"Item": {"id": {"S": "42"}}}, {"Item": KEY}]


def test_each_action_has_its_own_projection(memory: MemoryDynamoDB) -> None:
    put(memory, "one", a={"N": "1"}, b={"N": "2"})
    put(memory, "two", a={"N": "3"})
    named = get_of("one", ProjectionExpression="#b", ExpressionAttributeNames={"#b": "b"})
    found = memory.transact_get_items(TransactItems=[named, get_of("two", ProjectionExpression="b")])["Responses"]
    assert found == [{"Item": {"b": {"N": "2"}}}, {"Item": {}}]


def test_it_has_one_to_a_hundred_distinct_items(memory: MemoryDynamoDB) -> None:
    put(memory, "99")
    found = memory.transact_get_items(TransactItems=[get_of(number) for number in range(100)])["Responses"]
    assert [number for number, each in enumerate(found) if each] == [99]
    assert "101" in refused(memory.transact_get_items, TransactItems=[get_of(number) for number in range(101)])
    assert "has 0" in refused(memory.transact_get_items, TransactItems=[])
    assert "on one item" in refused(memory.transact_get_items, TransactItems=[get_of("99"), get_of("99")])


def test_it_finds_four_megabytes_at_most(memory: MemoryDynamoDB) -> None:
    for number in range(14):
        put(memory, str(number), x={"S": "x" * 304_000})
    reads = [get_of(number) for number in range(14)]
    assert "at most 4194304" in refused(memory.transact_get_items, TransactItems=reads)
    assert len(memory.transact_get_items(TransactItems=reads[1:])["Responses"]) == 13


@pytest.mark.parametrize("unknown", [{"ConsistentRead": True}, {"FilterExpression": "a = b"}])
def test_a_parameter_that_is_not_known_is_refused_and_not_ignored(memory: MemoryDynamoDB, unknown: Any) -> None:
    with pytest.raises(NotImplementedError, match="does not know"):
        memory.transact_get_items(TransactItems=[get_of(1, **unknown)])


def test_a_transaction_that_writes_one_of_its_items_is_a_conflict(clock: ManualClock) -> None:
    memory = MemoryDynamoDB(clock=clock, transactions_take_s=0.05)
    write: Any = {"Put": {**LOCKS, "Item": KEY}}
    memory.transact_write_items(TransactItems=[write])
    with pytest.raises(ClientError) as caught:
        memory.transact_get_items(TransactItems=[get_of("other"), get_of("default/")])
    response: Any = caught.value.response
    assert [reason["Code"] for reason in response["CancellationReasons"]] == ["None", "TransactionConflict"]
    clock.advance(0.05)
    assert memory.transact_get_items(TransactItems=[get_of("default/")])["Responses"] == [{"Item": KEY}]


def test_it_takes_no_item(clock: ManualClock) -> None:
    memory = MemoryDynamoDB(clock=clock, transactions_take_s=0.05)
    memory.transact_get_items(TransactItems=[get_of("default/")])
    put(memory)
    assert memory.transact_get_items(TransactItems=[get_of("default/")])["Responses"] == [{"Item": KEY}]


def test_it_meets_the_fault_of_a_conflict(memory: MemoryDynamoDB) -> None:
    memory.faults.append(Fault.CONFLICT)
    with pytest.raises(ClientError, match=r"TransactionCanceledException.*\[TransactionConflict, None\]"):
        memory.transact_get_items(TransactItems=[get_of(1), get_of(2)])
    assert memory.transact_get_items(TransactItems=[get_of(1)])["Responses"] == [{}]


def test_it_answers_for_a_boto3_client(memory: MemoryDynamoDB) -> None:
    put(memory, "one", a={"B": b"\x00\xff"})
    client: Any = boto3.client("dynamodb", region_name="eu-central-1")
    memory.serve(client)
    found = client.transact_get_items(TransactItems=[get_of("one"), get_of("none")])["Responses"]
    assert [each.get("Item", {}).get("a") for each in found] == [{"B": b"\x00\xff"}, None]
