"""The DynamoDB in memory: transactions that write or read many items at one moment."""

from typing import Any

import pytest
from botocore.exceptions import ClientError
from kit.units import make_table
from testing.memory_requests import (
    KEY,
    LOCKS,
    adding,
    cancelled,
    checking,
    deleting,
    getting,
    key,
    put,
    putting,
    read,
    refused,
    stored,
    write,
)

from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB

TEN_MINUTES_S = 600
TAKES_S = 0.05
MEGABYTE = 1_024 * 1_024


def value(memory: MemoryDynamoDB) -> str:
    number: str = memory.get_item(**LOCKS, Key=KEY)["Item"]["a"]["N"]
    return number


# Tokens.


def test_a_token_is_remembered_for_ten_minutes_however_many_come_after_it(memory: MemoryDynamoDB) -> None:
    put(memory, a={"N": "1"})
    write(memory, adding(), token="once")
    for number in range(2_000):
        write(memory, putting("other"), token=str(number))
    write(memory, adding(), token="once")
    assert value(memory) == "2"


def test_after_ten_minutes_a_token_may_be_that_of_another_transaction(
    memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    put(memory, a={"N": "1"})
    write(memory, adding(), token="once")
    with pytest.raises(ClientError, match="IdempotentParameterMismatchException"):
        write(memory, deleting(), token="once")
    clock.advance(TEN_MINUTES_S)
    write(memory, deleting(), token="once")
    assert stored(memory) == []


def test_a_token_has_thirty_six_characters_at_most(memory: MemoryDynamoDB) -> None:
    write(memory, putting(1), token="x" * 36)
    assert "1 to 36" in refused(write, memory, putting(2), token="x" * 37)
    assert stored(memory) == ["1"]


def test_a_token_remembers_the_request_even_if_the_sender_changes_its_objects(memory: MemoryDynamoDB) -> None:
    action = putting("here", a={"N": "1"})
    write(memory, action, token="once")
    action["Put"]["Item"]["a"] = {"N": "2"}
    with pytest.raises(ClientError, match="IdempotentParameterMismatchException"):
        write(memory, action, token="once")


def test_a_refused_transaction_may_be_retried_with_its_token(memory: MemoryDynamoDB) -> None:
    assert cancelled(write, memory, checking(), putting(1), token="once") == ["ConditionalCheckFailed", "None"]
    put(memory)
    write(memory, checking(), putting(1), token="once")
    assert stored(memory) == ["1", "default/"]


# Writes.


def test_a_transaction_whose_condition_cannot_be_evaluated_leaves_no_item_taken(memory: MemoryDynamoDB) -> None:
    wrong = checking(condition="a < :n", ExpressionAttributeValues={":n": {"NULL": True}})
    refused(write, memory, putting(1), wrong, token="once")
    write(memory, putting(1), token="once")
    assert stored(memory) == ["1"]


@pytest.mark.parametrize("wants", ["ALL_OLD", "NONE"])
@pytest.mark.parametrize("action", ["ConditionCheck", "Delete", "Update", "Put"])
def test_a_refused_action_brings_the_item_if_it_is_asked_to_and_nothing_is_applied(
    memory: MemoryDynamoDB, action: str, wants: str
) -> None:
    put(memory, a={"N": "1"})
    what: dict[str, Any] = {"Item": KEY} if action == "Put" else {"Key": KEY}
    if action == "Update":
        what["UpdateExpression"] = "SET a = a + a"
    asked = {"ConditionExpression": "attribute_not_exists(pk)", "ReturnValuesOnConditionCheckFailure": wants}
    with pytest.raises(ClientError) as caught:
        write(memory, putting("new"), {action: {**LOCKS, **what, **asked}})
    response: Any = caught.value.response
    first, second = response["CancellationReasons"]
    assert (first["Code"], second["Code"]) == ("None", "ConditionalCheckFailed")
    assert second.get("Item") == (memory.items()[0] if wants == "ALL_OLD" else None)
    assert (stored(memory), value(memory)) == (["default/"], "1")


@pytest.mark.parametrize(
    "update",
    [
        pytest.param({"UpdateExpression": "SET a = b"}, id="it does not fit the item"),
        pytest.param(
            {"UpdateExpression": "SET b = :b", "ExpressionAttributeValues": {":b": {"S": "x" * 200_000}}},
            id="it makes the item too large",
        ),
    ],
)
def test_an_update_that_cannot_be_applied_cancels_the_transaction(memory: MemoryDynamoDB, update: Any) -> None:
    put(memory, a={"S": "x" * 300_000})
    assert cancelled(write, memory, putting("other"), {"Update": {**LOCKS, "Key": KEY, **update}}) == [
        "None",
        "ValidationError",
    ]
    assert stored(memory) == ["default/"]


@pytest.mark.parametrize(("do", "action"), [(write, putting), (read, getting)])
def test_a_transaction_has_a_hundred_actions_on_distinct_items_at_most(
    memory: MemoryDynamoDB, do: Any, action: Any
) -> None:
    do(memory, *(action(number) for number in range(100)))
    assert "less than or equal to 100" in refused(do, memory, *(action(number) for number in range(101)))
    assert "multiple operations on one item" in refused(do, memory, action(1), action(1))


def sized(total: int) -> list[Any]:
    """Puts of items of this size in total."""

    def of_bytes(sk: str, size: int) -> Any:
        names = sum(len(name) + len(text["S"]) for name, text in key(sk).items())
        return putting(sk, x={"S": "x" * (size - names - 1)})

    return [of_bytes(f"{number:02}", 300_000) for number in range(13)] + [of_bytes("last", total - 13 * 300_000)]


def test_what_is_sent_in_a_transaction_and_not_what_is_stored_has_four_megabytes_at_most(
    memory: MemoryDynamoDB,
) -> None:
    assert "Payload Size: 4194305" in refused(write, memory, *sized(4 * MEGABYTE + 1))
    assert stored(memory) == []
    write(memory, *sized(4 * MEGABYTE))
    write(memory, *(deleting(sk) for sk in stored(memory)), putting("new"))
    assert stored(memory) == ["new"]


def test_of_several_actions_that_do_not_match_their_table_the_first_is_told_and_no_condition_is_judged(
    memory: MemoryDynamoDB,
) -> None:
    wrong: Any = {"Put": {**LOCKS, "Item": {**KEY, "sk": {"N": "1"}}}}
    assert cancelled(write, memory, wrong, wrong, checking()) == ["ValidationError", "None", "None"]


# Reads.


def test_a_transaction_of_reads_finds_the_items_in_the_order_of_their_actions(memory: MemoryDynamoDB) -> None:
    for sk in ("one", "two"):
        put(memory, sk)
    assert read(memory, *map(getting, ("two", "none", "one"))) == [key("two"), None, key("one")]


def test_a_transaction_of_reads_finds_items_of_several_tables(memory: MemoryDynamoDB) -> None:
    put(memory)
    make_table(memory, "orders", {"id": "S"})
    order = {"id": {"S": "42"}}
    memory.put_item(TableName="orders", Item=order)
    assert read(memory, {"Get": {"TableName": "orders", "Key": order}}, getting()) == [order, KEY]


def test_each_read_has_its_own_projection(memory: MemoryDynamoDB) -> None:
    put(memory, "one", a={"N": "1"}, b={"N": "2"})
    put(memory, "two", a={"N": "3"})
    named = getting("one", ProjectionExpression="#b", ExpressionAttributeNames={"#b": "b"})
    assert read(memory, named, getting("two", ProjectionExpression="b")) == [{"b": {"N": "2"}}, {}]


def test_a_transaction_of_reads_finds_four_megabytes_at_most(memory: MemoryDynamoDB) -> None:
    for number in range(14):
        put(memory, number, x={"S": "x" * 304_000})
    assert "cannot exceed 4MB" in refused(read, memory, *map(getting, range(14)))
    assert len(read(memory, *map(getting, range(13)))) == 13


def test_a_transaction_of_reads_meets_the_fault_of_a_conflict(memory: MemoryDynamoDB) -> None:
    memory.faults.append(Fault.CONFLICT)
    assert cancelled(read, memory, getting(1), getting(2)) == ["TransactionConflict", "None"]
    assert read(memory, getting(1)) == [None]


# An engine whose transactions take a while keeps their items until then.


@pytest.fixture
def slow(clock: ManualClock) -> MemoryDynamoDB:
    """One whose only item is being written."""
    memory = MemoryDynamoDB(clock=clock, transactions_take_s=TAKES_S)
    put(memory, a={"N": "1"}, expiresAt={"N": "1"})
    write(memory, adding(), token="once")
    return memory


def test_a_write_of_an_item_of_a_running_transaction_meets_a_conflict_and_others_do_not(
    slow: MemoryDynamoDB, clock: ManualClock
) -> None:
    with pytest.raises(ClientError, match="TransactionConflictException"):
        put(slow)
    put(slow, "other")
    assert value(slow) == "2"
    clock.advance(TAKES_S)
    put(slow, a={"N": "7"})
    assert value(slow) == "7"


def test_a_transaction_beside_a_running_one_is_cancelled_with_a_reason_for_each_of_its_items(
    slow: MemoryDynamoDB, clock: ManualClock
) -> None:
    reasons = cancelled(write, slow, adding(), checking("none"), putting("third"))
    assert reasons == ["TransactionConflict", "ConditionalCheckFailed", "None"]
    assert cancelled(read, slow, getting("other"), getting()) == ["None", "TransactionConflict"]
    assert stored(slow) == ["default/"]
    clock.advance(TAKES_S)
    assert read(slow, getting("other"), getting())[0] is None
    write(slow, adding(), putting("third"))
    assert (stored(slow), value(slow)) == (["default/", "third"], "3")


def test_a_copy_of_a_running_transaction_is_reported_as_in_progress_and_then_as_applied(
    slow: MemoryDynamoDB, clock: ManualClock
) -> None:
    with pytest.raises(ClientError, match="TransactionInProgressException"):
        write(slow, adding(), token="once")
    clock.advance(TAKES_S)
    write(slow, adding(), token="once")
    assert value(slow) == "2"


def test_a_batch_leaves_items_of_a_running_transaction_unprocessed(slow: MemoryDynamoDB, clock: ManualClock) -> None:
    delete: Any = {"DeleteRequest": {"Key": KEY}}
    put_other: Any = {"PutRequest": {"Item": key("other")}}
    reply = slow.batch_write_item(RequestItems={"locks": [put_other, delete]})
    assert reply["UnprocessedItems"] == {"locks": [delete]}
    assert stored(slow) == ["default/", "other"]
    clock.advance(TAKES_S)
    assert slow.batch_write_item(RequestItems=reply["UnprocessedItems"])["UnprocessedItems"] == {}
    assert stored(slow) == ["other"]


def test_time_to_live_deletes_no_item_of_a_running_transaction(slow: MemoryDynamoDB, clock: ManualClock) -> None:
    assert slow.expire() == 0
    clock.advance(TAKES_S)
    assert slow.expire() == 1
