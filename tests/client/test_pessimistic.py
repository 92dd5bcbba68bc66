"""Pessimistic locking as in the article, with the article's test cases."""

from collections.abc import Callable
from typing import Any

import pytest

from ticketlock import LockClient, Pessimistic, pessimistic
from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB

Step = Callable[[Pessimistic, ManualClock], Any]
TIMEOUT_S = 30


@pytest.fixture
def locks(memory: MemoryDynamoDB, clock: ManualClock) -> Pessimistic:
    return pessimistic(LockClient("locks", client=memory.client, clocks=clock))


def acquires(transaction: str) -> Step:
    return lambda locks, _: locks.acquire_lock("resource", TIMEOUT_S, transaction)


def releases(transaction: str) -> Step:
    return lambda locks, _: locks.release_lock("resource", transaction)


def extends(transaction: str) -> Step:
    return lambda locks, _: locks.extend_lock("resource", TIMEOUT_S, transaction)


def passes(seconds: float) -> Step:
    return lambda _, clock: clock.advance(seconds)


LATER = passes(TIMEOUT_S * 2 / 3)


CASES: dict[str, tuple[list[Step], bool]] = {
    "a lock can be acquired if none exists": ([acquires("tx")], True),
    "a lock can be acquired if the old is expired": ([acquires("old"), passes(TIMEOUT_S + 4), acquires("new")], True),
    "a lock is rejected if another exists": ([acquires("tx"), acquires("another")], False),
    "a lock can be released with the tx id": ([acquires("tx"), releases("tx")], True),
    "a lock can't be released that doesn't exist": ([releases("tx")], False),
    "a lock can't be released if the tx doesn't match": ([acquires("tx"), releases("another")], False),
    "a release with another tx id keeps the lock": ([acquires("tx"), releases("another"), acquires("another")], False),
    "a lock can't be released twice": ([acquires("tx"), releases("tx"), releases("tx")], False),
    "a lock can be acquired after its release": ([acquires("tx"), releases("tx"), acquires("another")], True),
    "the same transaction id may acquire again": ([acquires("tx"), LATER, acquires("tx")], True),
    "acquired again, it is held longer": ([acquires("tx"), LATER, acquires("tx"), LATER, acquires("another")], False),
    "a lock can be extended by its transaction": ([acquires("tx"), LATER, extends("tx")], True),
    "extended, it is held longer": ([acquires("tx"), LATER, extends("tx"), LATER, acquires("another")], False),
    "a lock can't be extended by another transaction": ([acquires("tx"), extends("another")], False),
    "a lock can't be extended that doesn't exist": ([extends("tx")], False),
    "a lock can't be extended that is expired": ([acquires("tx"), passes(TIMEOUT_S + 1), extends("tx")], False),
}


@pytest.mark.parametrize("case", CASES)
def test_the_last_step_of_each_case_is_answered_as_in_the_article(
    locks: Pessimistic, clock: ManualClock, case: str
) -> None:
    steps, answer = CASES[case]
    assert [step(locks, clock) for step in steps][-1] == answer


def test_a_lock_is_released_though_the_reply_was_lost(locks: Pessimistic, memory: MemoryDynamoDB) -> None:
    locks.acquire_lock("resource", TIMEOUT_S, "tx")
    memory.faults += [None, Fault.REPLY_LOST]
    assert locks.release_lock("resource", "tx")
    assert not memory.faults


def test_a_lock_of_the_functions_is_one_of_the_clients_and_not_renewed_and_a_rejection_leaves_nothing_behind(
    locks: Pessimistic, memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    locks.acquire_lock("resource", TIMEOUT_S, "tx")
    locks.acquire_lock("resource", TIMEOUT_S, "another")
    assert locks.client._heartbeat.threads == 0
    assert len(memory.items()) == 1
    other = LockClient("locks", client=memory.client, clocks=clock)
    assert other.try_acquire("resource") is None
    item = other.inspect("resource").item
    assert item is not None
    assert [holder.owner for holder in item.holders] == ["tx"]


@pytest.mark.parametrize("wrong", [0, 0.5, float("nan"), True, "30"])
def test_a_timeout_out_of_its_bounds_is_refused_and_nothing_is_sent(
    locks: Pessimistic, memory: MemoryDynamoDB, wrong: Any
) -> None:
    with pytest.raises(ValueError, match="timeout_in_seconds"):
        locks.acquire_lock("resource", wrong, "tx")
    assert memory.sent == []


def test_a_table_that_does_not_exist_has_no_lock_to_release(memory: MemoryDynamoDB, clock: ManualClock) -> None:
    locks = pessimistic(LockClient("no-such-table", client=memory.client, clocks=clock))
    assert not locks.release_lock("resource", "tx")


def test_the_functions_take_the_articles_keyword_arguments_without_their_object(locks: Pessimistic) -> None:
    acquire_lock, release_lock = locks.acquire_lock, locks.release_lock
    assert acquire_lock(resource_name="resource", timeout_in_seconds=TIMEOUT_S, transaction_id="tx")
    assert release_lock(resource_name="resource", transaction_id="tx")
