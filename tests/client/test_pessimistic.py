"""Pessimistic locking as in the article, with the article's test cases."""

from typing import Any

import pytest

from ticketlock import LockClient, LockTable, Pessimistic, pessimistic
from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB


@pytest.fixture
def locks(memory: MemoryDynamoDB, clock: ManualClock) -> Pessimistic:
    return pessimistic(LockClient("locks", client=memory.client, clocks=clock))


def test_that_a_lock_can_be_acquired_if_none_exists(locks: Pessimistic) -> None:
    assert locks.acquire_lock("resource", 30, "tx")


def test_that_a_lock_can_be_acquired_if_the_old_is_expired(locks: Pessimistic, clock: ManualClock) -> None:
    locks.acquire_lock("resource", 30, "old")
    clock.advance(34)
    assert locks.acquire_lock("resource", 30, "new")


def test_that_a_lock_is_rejected_if_another_exists(locks: Pessimistic) -> None:
    locks.acquire_lock("resource", 30, "tx")
    assert not locks.acquire_lock("resource", 30, "another")


def test_that_a_lock_can_be_release_with_the_tx_id(locks: Pessimistic) -> None:
    locks.acquire_lock("resource", 30, "tx")
    assert locks.release_lock("resource", "tx")


def test_that_a_lock_is_released_though_the_reply_was_lost(locks: Pessimistic, memory: MemoryDynamoDB) -> None:
    locks.acquire_lock("resource", 30, "tx")
    memory.faults += [None, Fault.REPLY_LOST]
    assert locks.release_lock("resource", "tx")
    assert not memory.faults


def test_that_a_lock_cant_be_released_that_doesnt_exist(locks: Pessimistic) -> None:
    assert not locks.release_lock("resource", "tx")


def test_that_a_lock_cant_be_released_if_the_tx_doesnt_match(locks: Pessimistic) -> None:
    locks.acquire_lock("resource", 30, "tx")
    assert not locks.release_lock("resource", "another")
    assert not locks.acquire_lock("resource", 30, "another")


def test_that_the_same_transaction_id_may_acquire_again(locks: Pessimistic, clock: ManualClock) -> None:
    locks.acquire_lock("resource", 30, "tx")
    clock.advance(20)
    assert locks.acquire_lock("resource", 30, "tx")
    clock.advance(20)
    assert not locks.acquire_lock("resource", 30, "another")


def test_that_a_lock_can_be_acquired_after_its_release(locks: Pessimistic) -> None:
    locks.acquire_lock("resource", 30, "tx")
    locks.release_lock("resource", "tx")
    assert locks.acquire_lock("resource", 30, "another")


def test_that_a_lock_cant_be_released_twice(locks: Pessimistic) -> None:
    locks.acquire_lock("resource", 30, "tx")
    locks.release_lock("resource", "tx")
    assert not locks.release_lock("resource", "tx")


def test_that_a_lock_can_be_extended_by_its_transaction(locks: Pessimistic, clock: ManualClock) -> None:
    locks.acquire_lock("resource", 30, "tx")
    clock.advance(20)
    assert locks.extend_lock("resource", 30, "tx")
    clock.advance(20)
    assert not locks.acquire_lock("resource", 30, "another")


def test_that_a_lock_cant_be_extended_by_another_transaction(locks: Pessimistic) -> None:
    locks.acquire_lock("resource", 30, "tx")
    assert not locks.extend_lock("resource", 30, "another")


def test_that_a_lock_cant_be_extended_that_doesnt_exist(locks: Pessimistic) -> None:
    assert not locks.extend_lock("resource", 30, "tx")


def test_that_a_lock_cant_be_extended_that_is_expired(locks: Pessimistic, clock: ManualClock) -> None:
    locks.acquire_lock("resource", 30, "tx")
    clock.advance(31)
    assert not locks.extend_lock("resource", 30, "tx")


def test_that_a_lock_is_not_renewed_by_itself(locks: Pessimistic) -> None:
    locks.acquire_lock("resource", 30, "tx")
    assert locks.client._heartbeat.threads == 0


def test_that_a_rejected_lock_leaves_nothing_behind(locks: Pessimistic, memory: MemoryDynamoDB) -> None:
    locks.acquire_lock("resource", 30, "tx")
    locks.acquire_lock("resource", 30, "another")
    assert len(memory.items()) == 1


def test_that_a_lock_of_the_article_excludes_the_clients_locks(
    locks: Pessimistic, memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    locks.acquire_lock("resource", 30, "tx")
    other = LockClient("locks", client=memory.client, clocks=clock)
    assert other.try_acquire("resource") is None


@pytest.mark.parametrize("wrong", [0, 0.5, float("nan"), True, "30"])
def test_that_a_timeout_has_its_bounds(locks: Pessimistic, memory: MemoryDynamoDB, wrong: Any) -> None:
    with pytest.raises(ValueError, match="timeout_in_seconds"):
        locks.acquire_lock("resource", wrong, "tx")
    assert memory.sent == []


def test_that_a_table_that_does_not_exist_has_no_lock_to_release(memory: MemoryDynamoDB, clock: ManualClock) -> None:
    locks = pessimistic(LockClient("no-such-table", client=memory.client, clocks=clock))
    assert not locks.release_lock("resource", "tx")


def test_that_the_functions_can_be_used_as_functions(locks: Pessimistic) -> None:
    acquire_lock, release_lock = locks.acquire_lock, locks.release_lock
    assert acquire_lock(resource_name="resource", timeout_in_seconds=30, transaction_id="tx")
    assert release_lock(resource_name="resource", transaction_id="tx")


def test_that_another_process_sees_the_lock(locks: Pessimistic, memory: MemoryDynamoDB, clock: ManualClock) -> None:
    locks.acquire_lock("resource", 30, "tx")
    table = LockTable("locks", client=memory.client, clocks=clock, sleep=clock.sleep)
    item = table.inspect(locks.client.lock("resource")).item
    assert item is not None
    assert [holder.owner for holder in item.holders] == ["tx"]
