"""Interrupted operations leave nothing in the table, and take nothing away from other clients."""

import pytest
from kit.places import Emulated, Moved, until

from ticketlock import (
    Claim,
    InvalidLockRequest,
    LockClient,
    LockLost,
    OutcomeUnknown,
    RecordWaitExceeded,
)
from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB

pytestmark = pytest.mark.shows("left queue")


class Sleep:
    """How a client waits between retries: once, if a test says so, by being interrupted."""

    def __init__(self, clock: ManualClock) -> None:
        self.is_interrupted = False
        self._clock = clock

    def __call__(self, seconds: float) -> None:
        if self.is_interrupted:
            self.is_interrupted = False
            raise KeyboardInterrupt
        self._clock.sleep(seconds)


@pytest.fixture
def sleep(clock: ManualClock) -> Sleep:
    return Sleep(clock)


@pytest.fixture
def mine(memory: MemoryDynamoDB, clock: ManualClock, sleep: Sleep) -> LockClient:
    """A client that can be interrupted; its leases are not renewed."""
    return LockClient("locks", client=memory.client, clocks=clock, heartbeat=False, sleep=sleep)


@pytest.fixture
def theirs(memory: MemoryDynamoDB, clock: ManualClock) -> LockClient:
    return LockClient("locks", client=memory.client, clocks=clock, heartbeat=False, sleep=clock.sleep)


@pytest.mark.parametrize(
    "error", [KeyError(), RecordWaitExceeded(), InvalidLockRequest("field", 1, "2"), KeyboardInterrupt()], ids=repr
)
def test_any_error_of_on_wait_ends_the_wait_and_leaves_the_queue(
    mine: LockClient, theirs: LockClient, error: BaseException
) -> None:
    def waits(_: object) -> None:
        raise error

    lease = theirs.acquire("e")
    with pytest.raises(type(error)):
        mine.acquire("e", on_wait=waits)
    assert mine.inspect("e").rows == ()
    lease.release()


def test_an_interrupted_second_acquisition_of_an_owner_keeps_the_first_ones_grant(
    memory: MemoryDynamoDB, mine: LockClient, theirs: LockClient, sleep: Sleep
) -> None:
    lease = theirs.acquire("e", owner="job-1")
    mine.table.now()
    memory.faults.append(Fault.REPLY_LOST)
    sleep.is_interrupted = True
    with pytest.raises(KeyboardInterrupt):
        mine.acquire("e", owner="job-1")
    assert lease.is_held()
    assert mine.try_acquire("e") is None


def test_an_interrupted_release_may_be_retried(
    memory: MemoryDynamoDB, mine: LockClient, theirs: LockClient, sleep: Sleep
) -> None:
    lease = mine.acquire("e")
    memory.faults.append(Fault.THROTTLED)
    sleep.is_interrupted = True
    with pytest.raises(KeyboardInterrupt):
        lease.release()
    assert not lease.is_held()
    lease.release()
    assert theirs.try_acquire("e") is not None


def test_a_group_whose_end_is_interrupted_frees_the_other_locks(
    memory: MemoryDynamoDB, mine: LockClient, theirs: LockClient, sleep: Sleep
) -> None:
    group = mine.acquire_all(["a", "b", "c"])
    memory.faults.append(Fault.THROTTLED)
    sleep.is_interrupted = True
    with pytest.raises(KeyboardInterrupt):
        group.release()
    assert [theirs.try_acquire(each) is not None for each in "abc"] == [True, True, False]


def test_data_for_the_next_holder_survives_grants_that_were_never_used(mine: LockClient, theirs: LockClient) -> None:
    mine.acquire("a").release(data_left="checkpoint 7")
    busy = theirs.acquire("b")
    for _ in range(3):
        with pytest.raises(RecordWaitExceeded):
            mine.acquire_all(["a", "b"], record_wait=0)
    stuck = mine.acquire("a")
    theirs.table.force_release(theirs.lock("a"), stuck.fencing_token)
    busy.release()
    assert theirs.acquire("a").data_left == "checkpoint 7"


def test_a_count_with_a_crashed_waiter_is_healed_though_the_lock_is_busy(
    memory: MemoryDynamoDB, clock: ManualClock, theirs: LockClient
) -> None:
    # Two tickets whose owners crashed before they wrote their rows.
    held = theirs.acquire("e")
    for number in range(2):
        item = memory.items()[0]
        memory.client.put_item(TableName="locks", Item={**item, "waiting": {"N": str(number + 1)}})
    held.release()
    for _ in range(40):
        clock.advance(0.1)
        theirs.acquire("e").release()
        clock.advance(0.4)
    before = len(memory.sent)
    theirs.acquire("e").release()
    assert len(memory.sent) - before == 2


def test_an_owner_that_saw_waiters_at_its_release_joins_the_queue_without_a_try(
    memory: MemoryDynamoDB, clock: ManualClock, theirs: LockClient
) -> None:
    lease = theirs.acquire("e", lease=60)
    for number in range(2):
        theirs.table.take_ticket(Claim(theirs.lock("e"), f"waiter {number}", 60_000), None)
    clock.advance(5)
    lease.release()
    before = len(memory.sent)
    with pytest.raises(RecordWaitExceeded):
        theirs.acquire("e", record_wait=1)
    assert [sent.operation for sent in memory.sent[before:]][:2] == ["UpdateItem", "PutItem"]


def test_the_thread_of_many_leases_in_a_row_ends_a_moment_after_the_last(memory: MemoryDynamoDB) -> None:
    locks = LockClient("locks", client=memory.client)
    for _ in range(10):
        locks.acquire("e").release()
    until(lambda: locks._heartbeat.threads == 0)


def test_a_lease_that_was_released_is_not_entered_again(locks: LockClient, entity: str) -> None:
    with locks.acquire(entity) as lease:
        pass
    with pytest.raises(LockLost, match="has ended"), lease:
        pytest.fail("entered")


def test_a_lease_whose_release_failed_is_not_entered(moved: Moved, entity: str) -> None:
    lease = moved.client().acquire(entity)
    with moved.memory.outage(Fault.REPLY_LOST), moved.time_flies(), pytest.raises(OutcomeUnknown):
        lease.release()
    with pytest.raises(LockLost), lease:
        pytest.fail("entered")


def test_a_lease_that_was_lost_is_not_entered(place: Emulated, locks: LockClient, entity: str) -> None:
    lease = locks.acquire(entity)
    place.lose(entity)
    with pytest.raises(LockLost):
        lease.renew()
    with pytest.raises(LockLost), lease:
        pytest.fail("entered")


def test_a_machine_that_was_frozen_asks_the_table_and_reports_the_loss(moved: Moved, entity: str) -> None:
    told: list[object] = []
    lease = moved.client(lease=60).acquire(entity, on_lost=told.append)
    moved.lose(entity)
    moved.clock.freeze(600)
    until(lambda: told)
    assert not lease.is_held()
