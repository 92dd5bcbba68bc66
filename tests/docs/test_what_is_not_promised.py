"""What docs/guarantees.md does not promise, each by an example of what happens instead; on the public API alone."""

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from ticketlock import Claim, Grant, Lease, LockClient, LockLost, LockName, LockTable, Position, RecordWaitExceeded
from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB

LOCK = LockName("tea")
LEASE_S = 60
PAST_A_LEASE_S = LEASE_S + 10


def client_of(memory: MemoryDynamoDB, clock: ManualClock) -> LockClient:
    """A process of its own, which renews nothing by itself."""
    return LockClient("locks", client=memory.client, clocks=clock, sleep=clock.sleep, lease=LEASE_S, heartbeat=False)


def claim(owner: str) -> Claim:
    return Claim(LOCK, owner, LEASE_S * 1_000)


def copied(memory: MemoryDynamoDB, clock: ManualClock) -> MemoryDynamoDB:
    """Another table with the same items."""
    copy = MemoryDynamoDB(clock=clock)
    for item in memory.items():
        copy.put_item(TableName="locks", Item=item)
    return copy


class Stock:
    """How many of a product are left, in a table beside the locks."""

    def __init__(self, memory: MemoryDynamoDB) -> None:
        self._memory = memory
        memory.create_table(
            TableName="stock",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        )
        memory.put_item(TableName="stock", Item={"id": {"S": "tea"}, "left": {"N": "10"}})

    def read(self) -> int:
        return int(self._memory.get_item(TableName="stock", Key={"id": {"S": "tea"}})["Item"]["left"]["N"])

    def read_and_leave_the_token(self, lease: Lease) -> int:
        request = lease.fenced_update("SET seen = :yes", ExpressionAttributeValues={":yes": {"BOOL": True}})
        answer = self._memory.update_item(
            TableName="stock", Key={"id": {"S": "tea"}}, ReturnValues="ALL_NEW", **request
        )
        return int(answer["Attributes"]["left"]["N"])

    def write(self, left: int, lease: Lease) -> None:
        self._memory.put_item(TableName="stock", **lease.fenced_put({"id": {"S": "tea"}, "left": {"N": str(left)}}))


class BehindACache:
    """Queries are answered from a copy of the table; other requests, by the table."""

    def __init__(self, memory: MemoryDynamoDB, clock: ManualClock) -> None:
        self.meta = memory.meta
        self._memory = memory
        self._clock = clock
        self.catch_up()

    def catch_up(self) -> None:
        self._copy = copied(self._memory, self._clock)

    def query(self, **parameters: Any) -> Any:
        return self._copy.query(**parameters)

    def __getattr__(self, operation: str) -> Any:
        return getattr(self._memory, operation)


@pytest.fixture
def first(memory: MemoryDynamoDB, clock: ManualClock) -> Iterator[LockClient]:
    with client_of(memory, clock) as locks:
        yield locks


@pytest.fixture
def second(memory: MemoryDynamoDB, clock: ManualClock) -> Iterator[LockClient]:
    with client_of(memory, clock) as locks:
        yield locks


@pytest.fixture
def table(memory: MemoryDynamoDB, clock: ManualClock) -> LockTable:
    return LockTable("locks", client=memory.client, clocks=clock, sleep=clock.sleep)


@pytest.fixture
def cache(memory: MemoryDynamoDB, clock: ManualClock) -> BehindACache:
    return BehindACache(memory, clock)


@pytest.fixture
def table_behind_a_cache(cache: Any, clock: ManualClock) -> LockTable:
    return LockTable("locks", client=cache, clocks=clock, sleep=clock.sleep)


def granted(table: LockTable, owner: str) -> Grant:
    grant = table.take_ticket(claim(owner), None)
    assert isinstance(grant, Grant)
    return grant


def queued(table: LockTable, owner: str, record_wait_ms: int | None = None) -> Position:
    position = table.take_ticket(claim(owner), record_wait_ms)
    assert isinstance(position, Position)
    return position


def holders(table: LockTable) -> list[str]:
    item = table.inspect(LOCK).item
    return [holder.owner for holder in item.holders] if item is not None else []


# Fencing: what a token refuses begins with the read that leaves it.


def test_a_plain_read_before_a_fenced_write_loses_an_update(
    first: LockClient, second: LockClient, memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    stock = Stock(memory)
    paused = first.acquire("tea")
    found = stock.read()
    clock.suspend(PAST_A_LEASE_S)
    with second.acquire("tea") as lease:
        found_by_the_next = stock.read()
        stock.write(found - 1, paused)
        stock.write(found_by_the_next - 1, lease)
    assert stock.read() == 9


def test_a_read_that_leaves_the_token_has_the_late_write_refused(
    first: LockClient, second: LockClient, memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    stock = Stock(memory)
    paused = first.acquire("tea")
    found = stock.read_and_leave_the_token(paused)
    clock.suspend(PAST_A_LEASE_S)
    with second.acquire("tea") as lease:
        stock.read_and_leave_the_token(lease)
        with pytest.raises(ClientError, match="ConditionalCheckFailed"):
            stock.write(found - 1, paused)


# What the table is taken for: one, in one Region, of which nothing is taken away or brought back.


def test_a_restored_table_brings_back_tokens_and_holders(
    first: LockClient, memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    first.acquire("tea").release()
    at_the_backup = first.acquire("coffee")
    backup = copied(memory, clock)
    after_it = first.acquire("tea")
    after_it.release()
    at_the_backup.release()
    with client_of(backup, clock) as restored:
        assert restored.acquire("tea").fencing_token == after_it.fencing_token
        assert restored.try_acquire("coffee") is None


def test_in_a_restored_table_tokens_that_were_set_to_the_present_time_keep_rising(
    first: LockClient, memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    first.acquire("tea").release()
    backup = copied(memory, clock)
    clock.advance(3_600)
    after_it = first.acquire("tea")
    backup.update_item(
        TableName="locks",
        Key={"pk": {"S": "tea"}, "sk": {"S": "default/"}},
        UpdateExpression="SET fencingToken = :now",
        ExpressionAttributeValues={":now": {"N": str(clock.wall_ms)}},
    )
    with client_of(backup, clock) as restored:
        assert restored.acquire("tea").fencing_token > after_it.fencing_token


def test_in_two_regions_two_hold_one_lock_with_one_token(first: LockClient, clock: ManualClock) -> None:
    with client_of(MemoryDynamoDB(clock=clock), clock) as elsewhere:
        here, there = first.acquire("tea"), elsewhere.acquire("tea")
        assert (here.is_held(), there.is_held()) == (True, True)
        assert here.fencing_token == there.fencing_token


def test_a_lock_item_that_is_deleted_by_hand_makes_a_second_holder_until_the_first_ones_heartbeat(
    first: LockClient, second: LockClient, memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    held = first.acquire("tea")
    memory.delete_all("tea")
    clock.advance(10)
    next_one = second.acquire("tea")
    assert (held.is_held(), next_one.is_held()) == (True, True)
    assert next_one.fencing_token > held.fencing_token
    with pytest.raises(LockLost):
        held.renew()


def test_a_lock_item_that_is_deleted_by_hand_within_its_first_second_may_give_a_token_again(
    first: LockClient, second: LockClient, memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    held = first.acquire("tea")
    memory.delete_all("tea")
    clock.advance(0.9)
    assert second.acquire("tea").fencing_token == held.fencing_token


def test_a_turn_that_only_an_old_copy_shows_is_refused(
    table: LockTable,
    table_behind_a_cache: LockTable,
    cache: BehindACache,
    memory: MemoryDynamoDB,
    clock: ManualClock,
) -> None:
    before = granted(table, "before")
    waiting = queued(table_behind_a_cache, "waiting")
    table.release(claim("before"), before)
    cache.catch_up()  # From now on it says: free, and it is the turn of the one that waits.
    clock.advance(PAST_A_LEASE_S)
    granted(table, "next")
    memory.sent.clear()
    found = table_behind_a_cache.check_turn(claim("waiting"), waiting.place, None)
    assert "TransactWriteItems" in [sent.operation for sent in memory.sent]
    assert isinstance(found, Position)
    assert holders(table) == ["next"]


def test_a_waiter_that_reads_an_old_copy_keeps_everybody_waiting_for_a_free_lock(
    table: LockTable, table_behind_a_cache: LockTable, cache: BehindACache
) -> None:
    holder = granted(table, "holder")
    waiting, behind = queued(table_behind_a_cache, "waiting"), queued(table, "behind")
    cache.catch_up()
    table.release(claim("holder"), holder)
    assert isinstance(table_behind_a_cache.check_turn(claim("waiting"), waiting.place, None), Position)
    assert isinstance(table.check_turn(claim("behind"), behind.place, None), Position)
    assert holders(table) == []


def test_a_waiter_that_reads_a_copy_from_before_it_came_takes_its_place_for_lost(
    table: LockTable, table_behind_a_cache: LockTable, cache: BehindACache
) -> None:
    granted(table, "holder")
    cache.catch_up()
    waiting, behind = queued(table_behind_a_cache, "waiting"), queued(table, "behind")
    found = table_behind_a_cache.check_turn(claim("waiting"), waiting.place, None)
    assert isinstance(found, Position)
    assert found.place_lost
    assert found.place.ticket > behind.place.ticket


# Who is next.


def test_the_first_caller_may_be_the_second_to_get_a_ticket(
    table: LockTable, memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    granted(table, "holder")
    meanwhile: list[Position] = []

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if not meanwhile:
            meanwhile.append(queued(table, "called second"))

    memory.faults.append(Fault.REQUEST_LOST)
    slow = LockTable("locks", client=memory.client, clocks=clock, sleep=sleep)
    assert queued(slow, "called first").place.ticket > meanwhile[0].place.ticket


def test_a_holder_that_fails_lets_the_next_one_in(first: LockClient, table: LockTable) -> None:
    held = first.acquire("tea")
    waiting = queued(table, "next")
    with pytest.raises(RuntimeError), held:
        raise RuntimeError
    assert isinstance(table.check_turn(claim("next"), waiting.place, None), Grant)


def test_a_short_record_wait_gets_the_lock_no_sooner_than_a_long_one_before_it(
    table: LockTable, clock: ManualClock
) -> None:
    holder = granted(table, "holder")
    queued(table, "patient")
    record_wait_ms = 1_000
    hurried = queued(table, "in a hurry", record_wait_ms)
    until_ms = hurried.now.likely_ms + record_wait_ms
    table.release(claim("holder"), holder)
    assert isinstance(table.check_turn(claim("in a hurry"), hurried.place, until_ms), Position)
    clock.advance(2)
    with pytest.raises(RecordWaitExceeded):
        table.check_turn(claim("in a hurry"), hurried.place, until_ms)


def test_a_queue_grows_for_as_long_as_owners_join_it(table: LockTable) -> None:
    many = 300
    granted(table, "holder")
    for number in range(many):
        queued(table, f"waiter {number}")
    assert len(table.inspect(LOCK).rows) == many
