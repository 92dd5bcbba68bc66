"""Transactions of the DynamoDB in memory, one step at a time: what others see and meet between any two of them."""

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, ParamValidationError, ReadTimeoutError
from hypothesis import given
from hypothesis import strategies as st
from testing.memory_requests import KEY, LOCKS, adding, cancelled, checking, getting, key, put, write

from ticketlock.testing import Fault, InSteps, ManualClock, MemoryDynamoDB

CONFLICT = "TransactionConflictException"


@pytest.fixture
def memory(clock: ManualClock) -> MemoryDynamoDB:
    """An engine with two items, both 0."""
    return with_items(clock)


def with_items(clock: ManualClock) -> MemoryDynamoDB:
    memory = MemoryDynamoDB(clock=clock)
    for sk in "xy":
        put(memory, sk, a={"N": "0"})
    return memory


def writing(memory: MemoryDynamoDB, *actions: Any, steps: int = 0, token: str | None = None) -> InSteps:
    """A TransactWriteItems that has performed so many steps."""
    more = {} if token is None else {"ClientRequestToken": token}
    return moved(memory.in_steps("transact_write_items", TransactItems=[*actions], **more), steps)


def reading(memory: MemoryDynamoDB, *sks: str, steps: int = 0) -> InSteps:
    return moved(memory.in_steps("transact_get_items", TransactItems=[*map(getting, sks)]), steps)


def moved(transaction: InSteps, steps: int) -> InSteps:
    for _ in range(steps):
        assert transaction.step()
    return transaction


def seen(memory: MemoryDynamoDB) -> str:
    """Both items, each read by itself."""
    found: list[Any] = [memory.get_item(**LOCKS, Key=key(sk)) for sk in "xy"]
    return "".join(each["Item"]["a"]["N"] for each in found)


def queried(memory: MemoryDynamoDB) -> str:
    """Both items, read by one Query."""
    values = {":pk": KEY["pk"]}
    page = memory.query(**LOCKS, KeyConditionExpression="pk = :pk", ExpressionAttributeValues=values)
    return "".join(item["a"]["N"] for item in page["Items"])


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


@pytest.mark.parametrize("see", [seen, queried])
def test_plain_reads_may_see_half_of_a_transaction(memory: MemoryDynamoDB, see: Callable[..., str]) -> None:
    transaction = writing(memory, adding("x"), adding("y"))
    found = [see(memory)]
    while transaction.step():
        found.append(see(memory))
    assert [*found, see(memory)] == ["00", "00", "00", "00", "10", "11"]


def test_an_item_is_taken_from_its_preparation_to_its_own_change(memory: MemoryDynamoDB) -> None:
    transaction = writing(memory, adding("x"), adding("y"))
    met = [(write_meets(memory, "x"), write_meets(memory, "y"))]
    while transaction.step():
        met.append((write_meets(memory, "x"), write_meets(memory, "y")))
    assert met == [("", ""), (CONFLICT, ""), (CONFLICT, CONFLICT), (CONFLICT, CONFLICT), ("", CONFLICT)]
    assert (write_meets(memory, "x"), write_meets(memory, "y")) == ("", "")


def test_an_item_that_is_only_checked_is_taken_as_well(memory: MemoryDynamoDB) -> None:
    transaction = writing(memory, checking("x"), adding("y"), steps=1)
    assert write_meets(memory, "x") == CONFLICT
    transaction.finish()
    assert (write_meets(memory, "x"), seen(memory)) == ("", "01")


def test_another_transaction_is_refused_on_a_taken_item_and_gives_back_what_it_took(memory: MemoryDynamoDB) -> None:
    first, second = writing(memory, adding("x"), steps=1), writing(memory, adding("y"), adding("x"))
    assert cancelled(second.finish) == ["None", "TransactionConflict"]
    assert write_meets(memory, "y") == ""
    first.finish()
    assert seen(memory) == "10"


def test_two_transactions_that_take_each_others_items_are_both_refused(memory: MemoryDynamoDB) -> None:
    both = [writing(memory, adding("x"), adding("y")), writing(memory, adding("y"), adding("x"))]
    for each in both * 2:
        each.step()
    assert [cancelled(each.finish) for each in both] == [["None", "TransactionConflict"]] * 2
    assert (seen(memory), memory.ongoing) == ("00", [])


def test_the_condition_is_that_of_the_moment_in_which_the_item_is_taken(memory: MemoryDynamoDB) -> None:
    transaction = writing(memory, adding("x"), adding("y"), steps=1)
    memory.delete_item(**LOCKS, Key=key("y"))
    assert cancelled(transaction.finish) == ["None", "ConditionalCheckFailed"]
    assert memory.get_item(**LOCKS, Key=key("x"))["Item"]["a"] == {"N": "0"}
    assert write_meets(memory, "x") == ""


def test_a_copy_of_a_transaction_in_progress_is_reported_as_such_and_then_as_applied(memory: MemoryDynamoDB) -> None:
    transaction = writing(memory, adding("x"), token="once", steps=1)
    assert meets(write, memory, adding("x"), token="once") == "TransactionInProgressException"
    assert meets(write, memory, adding("y"), token="once") == "IdempotentParameterMismatchException"
    transaction.finish()
    write(memory, adding("x"), token="once")
    assert seen(memory) == "10"


def test_a_token_is_valid_for_ten_minutes_from_the_end_of_its_transaction(
    memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    transaction = writing(memory, adding("x"), token="once", steps=1)
    clock.advance(3_600)
    transaction.finish()
    for passes_s, after in ((599, "10"), (1, "20"), (599, "20"), (1, "30")):
        clock.advance(passes_s)
        write(memory, adding("x"), token="once")
        assert seen(memory) == after


def test_the_service_completes_a_transaction_without_its_sender(memory: MemoryDynamoDB) -> None:
    writing(memory, adding("x"), adding("y"), steps=1)
    (left,) = memory.ongoing
    while left.step():
        pass
    assert (left.is_over, left.step(), memory.ongoing, seen(memory)) == (True, False, [], "11")


def test_an_invalid_request_ends_at_its_first_step(memory: MemoryDynamoDB) -> None:
    transaction = writing(memory, adding("x"), adding("x"))
    assert not transaction.step()
    assert meets(transaction.finish) == "ValidationException"
    assert memory.ongoing == []


def test_what_the_sdk_does_not_send_has_no_steps(memory: MemoryDynamoDB) -> None:
    with pytest.raises(ParamValidationError, match="Get"):
        writing(memory, getting("x"))
    assert memory.ongoing == []


def test_other_operations_have_no_steps(memory: MemoryDynamoDB) -> None:
    with pytest.raises(ValueError, match=r"PutItem .* TransactWriteItems, TransactGetItems"):
        memory.in_steps("put_item", **LOCKS, Item=key("x"))
    assert [sent.operation for sent in memory.sent] == ["PutItem"] * 2


# Transactions that read.


@pytest.mark.parametrize("steps", range(1, 4))
def test_a_transaction_that_reads_is_refused_if_an_item_changes_before_its_second_read(
    memory: MemoryDynamoDB, steps: int
) -> None:
    transaction = reading(memory, "y", "x", steps=steps)
    write(memory, adding("x"))
    if steps == 1:
        assert transaction.finish()["Responses"][1]["Item"]["a"] == {"N": "1"}
    else:
        assert cancelled(transaction.finish) == ["None", "TransactionConflict"]


def comes_and_goes(memory: MemoryDynamoDB) -> None:
    put(memory, "z")
    memory.delete_item(**LOCKS, Key=key("z"))


def is_taken(memory: MemoryDynamoDB) -> None:
    writing(memory, checking("z", "attribute_not_exists(pk)"), steps=1)


@pytest.mark.parametrize("an_item", [comes_and_goes, is_taken])
def test_a_transaction_that_reads_notices_what_happens_to_an_item_that_is_as_it_was(
    memory: MemoryDynamoDB, an_item: Callable[[MemoryDynamoDB], None]
) -> None:
    transaction = reading(memory, "x", "z", steps=2)
    an_item(memory)
    assert cancelled(transaction.finish) == ["None", "TransactionConflict"]


def test_a_transaction_that_reads_a_taken_item_is_refused_though_nothing_comes_of_it(memory: MemoryDynamoDB) -> None:
    writes = writing(memory, adding("x"), adding("y", "attribute_not_exists(pk)"), steps=1)
    reads = reading(memory, "x", "y", steps=2)
    assert cancelled(writes.finish) == ["None", "ConditionalCheckFailed"]
    assert cancelled(reads.finish) == ["TransactionConflict", "None"]


def test_a_transaction_that_reads_blocks_no_other_request(memory: MemoryDynamoDB) -> None:
    reading(memory, "x", "y", steps=3)
    write(memory, adding("x"), adding("y"))
    assert seen(memory) == "11"


@given(st.lists(st.sampled_from(["read", "write", "write again", "plain"]), max_size=20), st.permutations("xy"))
def test_a_transaction_that_reads_sees_all_or_nothing_of_concurrent_transactions(turns: Any, order: Any) -> None:
    memory = with_items(ManualClock())
    parties = {
        "write": writing(memory, adding("x"), adding("y"), token="one"),
        "write again": writing(memory, adding("y"), adding("x"), token="two"),
        "read": reading(memory, *order),
    }
    for turn in turns:
        if turn == "plain":
            # A request for an item that a transaction has taken is refused, and changes nothing.
            assert write_meets(memory, "x") in ("", CONFLICT)
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


def test_a_transaction_whose_reply_is_lost_is_applied(memory: MemoryDynamoDB) -> None:
    memory.faults.append(Fault.REPLY_LOST)
    transaction = writing(memory, adding("x"))
    with pytest.raises(ReadTimeoutError):
        transaction.finish()
    assert seen(memory) == "10"


def test_a_transaction_whose_request_is_lost_does_not_begin(memory: MemoryDynamoDB) -> None:
    memory.faults.append(Fault.REQUEST_LOST)
    with pytest.raises(ConnectTimeoutError):
        writing(memory, adding("x"))
    assert (memory.ongoing, seen(memory)) == ([], "00")


def test_a_fault_that_refuses_a_transaction_ends_it_at_its_first_step(memory: MemoryDynamoDB) -> None:
    memory.faults.append(Fault.THROTTLED)
    transaction = writing(memory, adding("x"))
    assert not transaction.step()
    assert meets(transaction.finish) == "ThrottlingException"
    assert seen(memory) == "00"


def test_a_request_that_arrives_too_late_is_refused_and_not_applied(memory: MemoryDynamoDB) -> None:
    memory.faults.append(Fault.SIGNATURE_EXPIRED)
    with pytest.raises(ClientError) as caught:
        write(memory, adding("x"))
    error: Any = caught.value.response
    assert (error["Error"]["Code"], error["ResponseMetadata"]["HTTPStatusCode"]) == ("InvalidSignatureException", 400)
    assert error["Error"]["Message"].startswith("Signature expired: ")
    assert seen(memory) == "00"


def test_a_token_that_is_forgotten_lets_a_transaction_be_applied_again(memory: MemoryDynamoDB) -> None:
    for fault in (None, None, Fault.TOKEN_FORGOTTEN, None):
        memory.faults.append(fault)
        write(memory, adding("x"), token="once")
    assert seen(memory) == "20"


def test_an_engine_that_knows_no_tokens_applies_every_copy(memory: MemoryDynamoDB) -> None:
    with memory.outage(Fault.TOKEN_FORGOTTEN):
        for _ in range(3):
            write(memory, adding("x"), token="once")
        put(memory, "z")
    assert seen(memory) == "30"


def test_a_token_that_is_forgotten_waits_for_the_next_transaction(memory: MemoryDynamoDB) -> None:
    memory.faults.append(Fault.TOKEN_FORGOTTEN)
    put(memory, "z")
    assert list(memory.faults) == [Fault.TOKEN_FORGOTTEN]
