"""Transactions of the DynamoDB in memory, one step at a time: what others see and meet between any two of them."""

from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError
from hypothesis import given
from hypothesis import strategies as st
from testing.memory_requests import KEY, LOCKS, put

from ticketlock.testing import Fault, InSteps, ManualClock, MemoryDynamoDB


def key(sk: str) -> Any:
    return {**KEY, "sk": {"S": sk}}


def adding(sk: str, condition: str = "attribute_exists(pk)") -> Any:
    """An action that adds one to an item that is there."""
    one = {":one": {"N": "1"}}
    asked = {"UpdateExpression": "SET a = a + :one", "ConditionExpression": condition}
    return {"Update": {**LOCKS, "Key": key(sk), **asked, "ExpressionAttributeValues": one}}


def reading(*sks: str) -> list[Any]:
    return [{"Get": {**LOCKS, "Key": key(sk)}} for sk in sks]


@pytest.fixture
def memory(clock: ManualClock) -> MemoryDynamoDB:
    """An engine with two items, both 0."""
    return with_items(clock)


def with_items(clock: ManualClock) -> MemoryDynamoDB:
    memory = MemoryDynamoDB(clock=clock)
    for sk in "xy":
        put(memory, sk, a={"N": "0"})
    return memory


def begun(memory: MemoryDynamoDB, *actions: Any, **more: Any) -> InSteps:
    return memory.in_steps("transact_write_items", TransactItems=[*actions], **more)


def seen(memory: MemoryDynamoDB) -> str:
    """Both items, each read by itself."""
    found: list[Any] = [memory.get_item(**LOCKS, Key=key(sk)) for sk in "xy"]
    return "".join(each["Item"]["a"]["N"] for each in found)


def meets(do: Any, *arguments: Any, **more: Any) -> str:
    """The error that a request meets; nothing where it meets none."""
    try:
        do(*arguments, **more)
    except ClientError as error:
        return error.response["Error"]["Code"]
    return ""


def write_meets(memory: MemoryDynamoDB, sk: str) -> str:
    return meets(memory.update_item, **LOCKS, Key=key(sk), UpdateExpression="SET a = a")


# Transactions that write.


def test_two_plain_reads_may_see_half_of_it(memory: MemoryDynamoDB) -> None:
    transaction = begun(memory, adding("x"), adding("y"))
    found = [seen(memory)]
    while transaction.step():
        found.append(seen(memory))
    assert [*found, seen(memory)] == ["00", "00", "00", "00", "10", "11"]


def test_a_query_sees_what_plain_reads_see(memory: MemoryDynamoDB) -> None:
    transaction = begun(memory, adding("y"), adding("x"))
    for _ in range(4):
        assert transaction.step()
    page = memory.query(
        **LOCKS, KeyConditionExpression="pk = :pk", ExpressionAttributeValues={":pk": KEY["pk"]}, ConsistentRead=True
    )
    assert [item["a"]["N"] for item in page["Items"]] == ["0", "1"]


def test_an_item_is_taken_from_its_preparation_to_its_own_change(memory: MemoryDynamoDB) -> None:
    transaction = begun(memory, adding("x"), adding("y"))
    met = [(write_meets(memory, "x"), write_meets(memory, "y"))]
    while transaction.step():
        met.append((write_meets(memory, "x"), write_meets(memory, "y")))
    conflict = "TransactionConflictException"
    assert met == [("", ""), (conflict, ""), (conflict, conflict), (conflict, conflict), ("", conflict)]
    assert (write_meets(memory, "x"), write_meets(memory, "y")) == ("", "")


def test_an_item_that_is_only_checked_is_taken_as_well(memory: MemoryDynamoDB) -> None:
    check: Any = {"ConditionCheck": {**LOCKS, "Key": key("x"), "ConditionExpression": "attribute_exists(pk)"}}
    transaction = begun(memory, check, adding("y"))
    transaction.step()
    assert write_meets(memory, "x") == "TransactionConflictException"
    transaction.finish()
    assert (write_meets(memory, "x"), seen(memory)) == ("", "01")


def test_another_transaction_is_refused_on_a_taken_item_and_gives_back_what_it_took(memory: MemoryDynamoDB) -> None:
    first, second = begun(memory, adding("x")), begun(memory, adding("y"), adding("x"))
    first.step()
    with pytest.raises(ClientError, match=r"\[None, TransactionConflict\]"):
        second.finish()
    assert write_meets(memory, "y") == ""
    first.finish()
    assert seen(memory) == "10"


def test_two_transactions_that_take_each_others_items_are_both_refused(memory: MemoryDynamoDB) -> None:
    both = [begun(memory, adding("x"), adding("y")), begun(memory, adding("y"), adding("x"))]
    for each in both * 2:
        each.step()
    assert [meets(each.finish) for each in both] == ["TransactionCanceledException"] * 2
    assert (seen(memory), memory.ongoing) == ("00", [])


def test_the_condition_is_that_of_the_moment_in_which_the_item_is_taken(memory: MemoryDynamoDB) -> None:
    transaction = begun(memory, adding("x"), adding("y"))
    transaction.step()
    memory.delete_item(**LOCKS, Key=key("y"))
    with pytest.raises(ClientError, match=r"\[None, ConditionalCheckFailed\]"):
        transaction.finish()
    assert memory.get_item(**LOCKS, Key=key("x"))["Item"]["a"] == {"N": "0"}
    assert write_meets(memory, "x") == ""


def test_a_copy_of_one_in_progress_is_reported_as_such_and_then_as_applied(memory: MemoryDynamoDB) -> None:
    transaction = begun(memory, adding("x"), ClientRequestToken="once")
    again: Any = {"TransactItems": [adding("x")], "ClientRequestToken": "once"}
    transaction.step()
    assert meets(memory.transact_write_items, **again) == "TransactionInProgressException"
    other: Any = {"TransactItems": [adding("y")], "ClientRequestToken": "once"}
    assert meets(memory.transact_write_items, **other) == "IdempotentParameterMismatchException"
    transaction.finish()
    memory.transact_write_items(**again)
    assert seen(memory) == "10"


def test_a_token_is_valid_for_ten_minutes_from_the_end_of_its_transaction(
    memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    transaction = begun(memory, adding("x"), ClientRequestToken="once")
    transaction.step()
    clock.advance(3_600)
    transaction.finish()
    clock.advance(599)
    memory.transact_write_items(TransactItems=[adding("x")], ClientRequestToken="once")
    assert seen(memory) == "10"
    clock.advance(1)
    memory.transact_write_items(TransactItems=[adding("x")], ClientRequestToken="once")
    assert seen(memory) == "20"


def test_the_service_completes_it_without_its_sender(memory: MemoryDynamoDB) -> None:
    begun(memory, adding("x"), adding("y")).step()
    (left,) = memory.ongoing
    while left.step():
        pass
    assert (left.is_over, left.step(), memory.ongoing, seen(memory)) == (True, False, [], "11")


def test_an_invalid_request_ends_at_its_first_step(memory: MemoryDynamoDB) -> None:
    transaction = begun(memory, adding("x"), adding("x"))
    assert not transaction.step()
    with pytest.raises(ClientError, match="multiple operations on one item"):
        transaction.finish()
    assert memory.ongoing == []


def test_an_unknown_request_ends_at_its_first_step_too(memory: MemoryDynamoDB) -> None:
    transaction = begun(memory, {"Get": {**LOCKS, "Key": key("x")}})
    with pytest.raises(NotImplementedError, match="Get in a transaction"):
        transaction.step()
    assert (transaction.is_over, memory.ongoing) == (True, [])


def test_other_operations_have_no_steps(memory: MemoryDynamoDB) -> None:
    with pytest.raises(ValueError, match=r"PutItem .* TransactWriteItems, TransactGetItems"):
        memory.in_steps("put_item", **LOCKS, Item=key("x"))
    assert [sent.operation for sent in memory.sent] == ["PutItem"] * 2


# Transactions that read.


@pytest.mark.parametrize("steps", range(1, 4))
def test_one_that_reads_is_refused_if_an_item_changes_before_its_second_read(
    memory: MemoryDynamoDB, steps: int
) -> None:
    transaction = memory.in_steps("transact_get_items", TransactItems=reading("y", "x"))
    for _ in range(steps):
        assert transaction.step()
    memory.transact_write_items(TransactItems=[adding("x")])
    if steps == 1:
        assert transaction.finish()["Responses"][1]["Item"]["a"] == {"N": "1"}
    else:
        with pytest.raises(ClientError, match=r"\[None, TransactionConflict\]"):
            transaction.finish()


def test_one_that_reads_notices_an_item_that_came_and_went(memory: MemoryDynamoDB) -> None:
    transaction = memory.in_steps("transact_get_items", TransactItems=reading("x", "none"))
    for _ in range(2):
        transaction.step()
    put(memory, "none")
    memory.delete_item(**LOCKS, Key=key("none"))
    with pytest.raises(ClientError, match=r"\[None, TransactionConflict\]"):
        transaction.finish()


def test_one_that_reads_notices_an_item_that_is_taken_in_between(memory: MemoryDynamoDB) -> None:
    reads = memory.in_steps("transact_get_items", TransactItems=reading("x", "y"))
    for _ in range(2):
        reads.step()
    writes = begun(memory, adding("y"))
    writes.step()
    with pytest.raises(ClientError, match=r"\[None, TransactionConflict\]"):
        reads.finish()
    writes.finish()


def test_one_that_reads_a_taken_item_is_refused_though_nothing_comes_of_it(memory: MemoryDynamoDB) -> None:
    writes = begun(memory, adding("x"), adding("y", "attribute_not_exists(pk)"))
    writes.step()
    reads = memory.in_steps("transact_get_items", TransactItems=reading("x", "y"))
    for _ in range(2):
        reads.step()
    assert meets(writes.finish) == "TransactionCanceledException"
    with pytest.raises(ClientError, match=r"\[TransactionConflict, None\]"):
        reads.finish()


def test_one_that_reads_blocks_no_other_request(memory: MemoryDynamoDB) -> None:
    transaction = memory.in_steps("transact_get_items", TransactItems=reading("x", "y"))
    for _ in range(3):
        transaction.step()
    memory.transact_write_items(TransactItems=[adding("x"), adding("y")])
    assert seen(memory) == "11"


@given(st.lists(st.sampled_from(["read", "write", "write again", "plain"]), max_size=20), st.permutations("xy"))
def test_a_transaction_that_reads_sees_all_or_nothing_of_concurrent_transactions(turns: Any, order: Any) -> None:
    memory = with_items(ManualClock())
    both = [adding("x"), adding("y")]
    parties: dict[str, Any] = {
        "write": begun(memory, *both, ClientRequestToken="one"),
        "write again": begun(memory, *reversed(both), ClientRequestToken="two"),
        "read": memory.in_steps("transact_get_items", TransactItems=reading(*order)),
    }
    for turn in turns:
        if turn == "plain":
            # A request for an item that a transaction has taken is refused, and changes nothing.
            assert write_meets(memory, "x") in ("", "TransactionConflictException")
        else:
            parties[turn].step()
    for party in ("read", "write", "write again"):
        try:
            reply = parties[party].finish()
        except ClientError:
            continue
        if party == "read":
            numbers = {each["Item"]["a"]["N"] for each in reply["Responses"]}
            assert len(numbers) == 1
    assert seen(memory) in ("00", "11", "22")
    assert memory.ongoing == []


# Faults.


def test_the_fault_that_its_reply_is_lost_applies_it(memory: MemoryDynamoDB) -> None:
    memory.faults.append(Fault.REPLY_LOST)
    transaction = begun(memory, adding("x"))
    with pytest.raises(ReadTimeoutError):
        transaction.finish()
    assert seen(memory) == "10"


def test_the_fault_that_the_request_is_lost_begins_nothing(memory: MemoryDynamoDB) -> None:
    memory.faults.append(Fault.REQUEST_LOST)
    with pytest.raises(ConnectTimeoutError):
        begun(memory, adding("x"))
    assert (memory.ongoing, seen(memory)) == ([], "00")


def test_a_fault_that_refuses_it_ends_it_at_its_first_step(memory: MemoryDynamoDB) -> None:
    memory.faults.append(Fault.THROTTLED)
    transaction = begun(memory, adding("x"))
    assert not transaction.step()
    assert meets(transaction.finish) == "ThrottlingException"
    assert seen(memory) == "00"


def test_a_request_that_arrives_too_late_is_refused_and_not_applied(memory: MemoryDynamoDB) -> None:
    memory.faults.append(Fault.SIGNATURE_EXPIRED)
    with pytest.raises(ClientError) as caught:
        memory.transact_write_items(TransactItems=[adding("x")])
    error: Any = caught.value.response
    assert (error["Error"]["Code"], error["ResponseMetadata"]["HTTPStatusCode"]) == ("InvalidSignatureException", 400)
    assert error["Error"]["Message"].startswith("Signature expired: ")
    assert seen(memory) == "00"


def test_a_token_that_is_forgotten_lets_a_transaction_be_applied_again(memory: MemoryDynamoDB) -> None:
    again: Any = {"TransactItems": [adding("x")], "ClientRequestToken": "once"}
    for fault in (None, None, Fault.TOKEN_FORGOTTEN, None):
        memory.faults.append(fault)
        memory.transact_write_items(**again)
    assert seen(memory) == "20"


def test_an_engine_that_knows_no_tokens_applies_every_copy(memory: MemoryDynamoDB) -> None:
    with memory.outage(Fault.TOKEN_FORGOTTEN):
        for _ in range(3):
            memory.transact_write_items(TransactItems=[adding("x")], ClientRequestToken="once")
        put(memory, "z")
    assert seen(memory) == "30"


def test_a_token_that_is_forgotten_waits_for_the_next_transaction(memory: MemoryDynamoDB) -> None:
    memory.faults.append(Fault.TOKEN_FORGOTTEN)
    put(memory, "z")
    assert list(memory.faults) == [Fault.TOKEN_FORGOTTEN]
