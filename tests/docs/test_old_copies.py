"""What docs/guarantees.md says of a restored table and of a cache; on the public API alone."""

from typing import Any

from ticketlock import Claim, Grant, LockClient, LockName, LockTable, Position
from ticketlock.testing import ManualClock, MemoryDynamoDB

LEASE_S = 60
PAST_A_LEASE_S = LEASE_S + 10


def copied(memory: MemoryDynamoDB, clock: ManualClock) -> MemoryDynamoDB:
    """Another table with the same items."""
    copy = MemoryDynamoDB(clock=clock)
    for item in memory.items():
        copy.put_item(TableName="locks", Item=item)
    return copy


def acquired(memory: MemoryDynamoDB, clock: ManualClock) -> int:
    """The token of a grant of the lock, which is released."""
    with LockClient("locks", client=memory.client, clocks=clock, lease=LEASE_S, heartbeat=False) as locks:
        lease = locks.acquire("tea")
        lease.release()
        return lease.fencing_token


def test_in_a_restored_table_tokens_that_were_set_to_the_present_time_keep_rising(
    memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    acquired(memory, clock)
    backup = copied(memory, clock)
    clock.advance(3_600)
    after_it = acquired(memory, clock)
    assert acquired(copied(backup, clock), clock) <= after_it
    backup.update_item(
        TableName="locks",
        Key={"pk": {"S": "tea"}, "sk": {"S": "default/"}},
        UpdateExpression="SET fencingToken = :now",
        ExpressionAttributeValues={":now": {"N": str(clock.wall_ms)}},
    )
    assert acquired(backup, clock) > after_it


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


def test_a_turn_that_only_an_old_copy_shows_is_refused(memory: MemoryDynamoDB, clock: ManualClock) -> None:
    cache: Any = BehindACache(memory, clock)
    table = LockTable("locks", client=memory.client, clocks=clock, sleep=clock.sleep)
    behind_a_cache = LockTable("locks", client=cache, clocks=clock, sleep=clock.sleep)
    before, waiting, after = (Claim(LockName("tea"), owner, LEASE_S * 1_000) for owner in ("before", "waiting", "next"))
    held = table.take_ticket(before, None)
    place = behind_a_cache.take_ticket(waiting, None)
    assert isinstance(held, Grant)
    assert isinstance(place, Position)
    table.release(before, held)
    # From now on the copy shows a free lock, and the waiter as the next one.
    cache.catch_up()
    clock.advance(PAST_A_LEASE_S)
    assert isinstance(table.take_ticket(after, None), Grant)
    memory.sent.clear()
    assert isinstance(behind_a_cache.check_turn(waiting, place.place, None), Position)
    assert "TransactWriteItems" in [sent.operation for sent in memory.sent]
    item = table.inspect(LockName("tea")).item
    assert item is not None
    assert [holder.owner for holder in item.holders] == ["next"]
