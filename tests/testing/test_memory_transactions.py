"""The DynamoDB in memory: transactions that write or read many items at one moment."""

from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from testing.memory_requests import KEY, LOCKS, put, refused

from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB

TEN_MINUTES_S = 600
TAKES_S = 0.05
MEGABYTE = 1_024 * 1_024
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


def key(sk: str | int) -> Any:
    return {**KEY, "sk": {"S": str(sk)}}


def put_of(sk: str | int, **attributes: Any) -> Any:
    return {"Put": {**LOCKS, "Item": {**key(sk), **attributes}}}


def reasons(error: pytest.ExceptionInfo[ClientError]) -> list[str]:
    response: Any = error.value.response
    return [reason["Code"] for reason in response["CancellationReasons"]]


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


def test_a_transaction_beside_another_one_is_cancelled_with_the_item_named(slow: MemoryDynamoDB) -> None:
    slow.transact_write_items(TransactItems=[DOUBLE])
    put_other: Any = {"Put": {**LOCKS, "Item": OTHER}}
    with pytest.raises(ClientError) as caught:
        slow.transact_write_items(TransactItems=[put_other, DOUBLE])
    assert reasons(caught) == ["None", "TransactionConflict"]
    assert [item["sk"] for item in slow.items()] == [KEY["sk"]]


def test_each_action_has_its_own_reason_be_it_a_condition_or_a_conflict(slow: MemoryDynamoDB) -> None:
    slow.transact_write_items(TransactItems=[DOUBLE])
    check: Any = {"ConditionCheck": {**LOCKS, "Key": OTHER, "ConditionExpression": "attribute_exists(pk)"}}
    with pytest.raises(ClientError) as caught:
        slow.transact_write_items(TransactItems=[DOUBLE, check, put_of("third")])
    assert reasons(caught) == ["TransactionConflict", "ConditionalCheckFailed", "None"]


def test_a_batch_leaves_items_of_a_running_transaction_unprocessed(slow: MemoryDynamoDB, clock: ManualClock) -> None:
    slow.transact_write_items(TransactItems=[DOUBLE])
    delete: Any = {"DeleteRequest": {"Key": KEY}}
    put_other: Any = {"PutRequest": {"Item": OTHER}}
    reply = slow.batch_write_item(RequestItems={"locks": [put_other, delete]})
    assert reply["UnprocessedItems"] == {"locks": [delete]}
    assert {item["sk"]["S"] for item in slow.items()} == {KEY["sk"]["S"], "other"}
    clock.advance(TAKES_S)
    assert slow.batch_write_item(RequestItems=reply["UnprocessedItems"])["UnprocessedItems"] == {}
    assert [item["sk"] for item in slow.items()] == [OTHER["sk"]]


def test_time_to_live_deletes_no_item_of_a_running_transaction(slow: MemoryDynamoDB, clock: ManualClock) -> None:
    slow.transact_write_items(TransactItems=[put_of("over", expiresAt={"N": "1"})])
    assert slow.expire() == 0
    clock.advance(TAKES_S)
    assert slow.expire() == 1


def test_other_items_and_reads_meet_no_conflict(slow: MemoryDynamoDB) -> None:
    slow.transact_write_items(TransactItems=[DOUBLE])
    put(slow, "other")
    assert slow.get_item(**LOCKS, Key=KEY, ConsistentRead=True)["Item"]["a"] == {"N": "2"}


def test_a_cancelled_transaction_does_not_conflict_any_more(slow: MemoryDynamoDB) -> None:
    check: Any = {"ConditionCheck": {**LOCKS, "Key": KEY, "ConditionExpression": "attribute_not_exists(pk)"}}
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        slow.transact_write_items(TransactItems=[check])
    slow.update_item(**LOCKS, Key=KEY, UpdateExpression="SET a = a + a")
    assert value(slow) == "2"


def test_a_retried_transaction_is_reported_as_in_progress_and_then_as_applied(
    slow: MemoryDynamoDB, clock: ManualClock
) -> None:
    slow.transact_write_items(TransactItems=[DOUBLE], ClientRequestToken="once")
    with pytest.raises(ClientError, match="TransactionInProgressException"):
        slow.transact_write_items(TransactItems=[DOUBLE], ClientRequestToken="once")
    clock.advance(TAKES_S)
    slow.transact_write_items(TransactItems=[DOUBLE], ClientRequestToken="once")
    assert value(slow) == "2"


# What a transaction may be.


@pytest.mark.parametrize("token", ["", "x" * 37])
def test_a_token_has_one_to_thirty_six_characters(memory: MemoryDynamoDB, token: str) -> None:
    memory.transact_write_items(TransactItems=[put_of(1)], ClientRequestToken="x" * 36)
    assert "1 to 36" in refused(memory.transact_write_items, TransactItems=[put_of(2)], ClientRequestToken=token)
    assert [item["sk"]["S"] for item in memory.items()] == ["1"]


def test_a_token_remembers_the_request_even_if_the_sender_changes_its_objects(memory: MemoryDynamoDB) -> None:
    items = [put_of("here", a={"N": "1"})]
    memory.transact_write_items(TransactItems=items, ClientRequestToken="once")
    items[0]["Put"]["Item"]["a"] = {"N": "2"}
    with pytest.raises(ClientError, match="IdempotentParameterMismatchException"):
        memory.transact_write_items(TransactItems=items, ClientRequestToken="once")


def test_a_refused_transaction_may_be_retried_with_its_token(memory: MemoryDynamoDB) -> None:
    check: Any = {"ConditionCheck": {**LOCKS, "Key": KEY, "ConditionExpression": "attribute_exists(pk)"}}
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        memory.transact_write_items(TransactItems=[check, put_of(1)], ClientRequestToken="once")
    put(memory)
    memory.transact_write_items(TransactItems=[check, put_of(1)], ClientRequestToken="once")
    assert len(memory.items()) == 2


def test_a_condition_that_cannot_be_evaluated_leaves_no_item_taken(memory: MemoryDynamoDB) -> None:
    values = {":n": {"NULL": True}}
    wrong = {**LOCKS, "Key": KEY, "ConditionExpression": "a < :n", "ExpressionAttributeValues": values}
    refused(
        memory.transact_write_items, TransactItems=[put_of(1), {"ConditionCheck": wrong}], ClientRequestToken="once"
    )
    memory.transact_write_items(TransactItems=[put_of(1)], ClientRequestToken="once")
    assert len(memory.items()) == 1


@pytest.mark.parametrize("wants", ["ALL_OLD", "NONE"])
@pytest.mark.parametrize("action", ["ConditionCheck", "Delete", "Update", "Put"])
def test_a_refused_action_brings_the_item_if_it_is_asked_to(memory: MemoryDynamoDB, action: str, wants: str) -> None:
    put(memory, a={"N": "1"})
    what: dict[str, Any] = {"Item": KEY} if action == "Put" else {"Key": KEY}
    if action == "Update":
        what["UpdateExpression"] = "SET a = a + a"
    asked = {"ConditionExpression": "attribute_not_exists(pk)", "ReturnValuesOnConditionCheckFailure": wants}
    with pytest.raises(ClientError) as caught:
        memory.transact_write_items(TransactItems=[{action: {**LOCKS, **what, **asked}}])
    response: Any = caught.value.response
    assert response["CancellationReasons"][0].get("Item") == (memory.items()[0] if wants == "ALL_OLD" else None)
    assert value(memory) == "1"


def test_a_transaction_has_one_to_a_hundred_actions(memory: MemoryDynamoDB) -> None:
    memory.transact_write_items(TransactItems=[put_of(number) for number in range(100)])
    many = [put_of(f"more {number}") for number in range(101)]
    assert "101" in refused(memory.transact_write_items, TransactItems=many)
    assert "has 0" in refused(memory.transact_write_items, TransactItems=[])
    assert len(memory.items()) == 100


def of_bytes(sk: str, size: int) -> Any:
    """A Put of an item of just this size."""
    names = sum(len(name) + len(text["S"]) for name, text in key(sk).items())
    return put_of(sk, x={"S": "x" * (size - names - 1)})


def sized(total: int) -> list[Any]:
    """Puts of items of this size in total."""
    return [of_bytes(f"{number:02}", 300_000) for number in range(13)] + [of_bytes("last", total - 13 * 300_000)]


def test_the_items_of_a_transaction_have_four_megabytes_at_most(memory: MemoryDynamoDB) -> None:
    assert "4194305" in refused(memory.transact_write_items, TransactItems=sized(4 * MEGABYTE + 1))
    assert memory.items() == []
    memory.transact_write_items(TransactItems=sized(4 * MEGABYTE))
    assert len(memory.items()) == 14


def test_stored_items_count_among_the_four_megabytes(memory: MemoryDynamoDB) -> None:
    memory.transact_write_items(TransactItems=sized(4 * MEGABYTE))
    keys = [{"Delete": {**LOCKS, "Key": key(item["sk"]["S"])}} for item in memory.items()]
    new = put_of("new")
    assert "at most 4194304" in refused(memory.transact_write_items, TransactItems=[*keys, new])
    memory.transact_write_items(TransactItems=keys)
    assert memory.items() == []


def test_an_update_that_makes_an_item_too_large_cancels_the_transaction(memory: MemoryDynamoDB) -> None:
    put(memory, a={"S": "x" * 300_000})
    update: dict[str, Any] = {
        "UpdateExpression": "SET b = :b",
        "ExpressionAttributeValues": {":b": {"S": "x" * 200_000}},
    }
    with pytest.raises(ClientError) as caught:
        memory.transact_write_items(TransactItems=[put_of("other"), {"Update": {**LOCKS, "Key": KEY, **update}}])
    assert reasons(caught) == ["None", "ValidationError"]
    assert len(memory.items()) == 1


def get_of(sk: str | int, **more: Any) -> Any:
    return {"Get": {**LOCKS, "Key": {**KEY, "sk": {"S": str(sk)}}, **more}}


def test_a_transaction_of_reads_finds_the_items_in_the_order_of_their_actions(memory: MemoryDynamoDB) -> None:
    for sk in ("one", "two"):
        put(memory, sk, a={"S": sk})
    found = memory.transact_get_items(TransactItems=[get_of(sk) for sk in ("two", "none", "one")])["Responses"]
    assert [each["Item"]["a"]["S"] if each else None for each in found] == ["two", None, "one"]


def test_a_transaction_of_reads_finds_items_of_several_tables(memory: MemoryDynamoDB) -> None:
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


def test_a_transaction_of_reads_has_one_to_a_hundred_distinct_items(memory: MemoryDynamoDB) -> None:
    put(memory, "99")
    found = memory.transact_get_items(TransactItems=[get_of(number) for number in range(100)])["Responses"]
    assert [number for number, each in enumerate(found) if each] == [99]
    assert "101" in refused(memory.transact_get_items, TransactItems=[get_of(number) for number in range(101)])
    assert "has 0" in refused(memory.transact_get_items, TransactItems=[])
    assert "on one item" in refused(memory.transact_get_items, TransactItems=[get_of("99"), get_of("99")])


def test_a_transaction_of_reads_finds_four_megabytes_at_most(memory: MemoryDynamoDB) -> None:
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


def test_a_transaction_of_reads_takes_no_item(clock: ManualClock) -> None:
    memory = MemoryDynamoDB(clock=clock, transactions_take_s=0.05)
    memory.transact_get_items(TransactItems=[get_of("default/")])
    put(memory)
    assert memory.transact_get_items(TransactItems=[get_of("default/")])["Responses"] == [{"Item": KEY}]


def test_a_transaction_of_reads_meets_the_fault_of_a_conflict(memory: MemoryDynamoDB) -> None:
    memory.faults.append(Fault.CONFLICT)
    with pytest.raises(ClientError, match=r"TransactionCanceledException.*\[TransactionConflict, None\]"):
        memory.transact_get_items(TransactItems=[get_of(1), get_of(2)])
    assert memory.transact_get_items(TransactItems=[get_of(1)])["Responses"] == [{}]


def test_a_transaction_of_reads_answers_for_a_boto3_client(memory: MemoryDynamoDB) -> None:
    put(memory, "one", a={"B": b"\x00\xff"})
    client: Any = boto3.client("dynamodb", region_name="eu-central-1")
    memory.serve(client)
    found = client.transact_get_items(TransactItems=[get_of("one"), get_of("none")])["Responses"]
    assert [each.get("Item", {}).get("a") for each in found] == [{"B": b"\x00\xff"}, None]
