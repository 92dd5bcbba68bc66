"""Interrupted operations leave nothing in the table, and take nothing away from other clients; also in the middle of a
release that grants the lock to the next waiter, whose items change one after the other.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from kit.places import Emulated, Moved, Wire, meanwhile, outcome, until

from ticketlock import (
    Claim,
    ClientClosed,
    Grant,
    InvalidLockRequest,
    LockClient,
    LockName,
    LockTable,
    Place,
    Position,
    RecordWaitExceeded,
)
from ticketlock.client._acquire import Wait, leave
from ticketlock.client._waiters import WaitKey, waiters_of_this_process
from ticketlock.errors import RequestNotApplied
from ticketlock.locks._hand_over import Next, release_to
from ticketlock.locks._protocol import Contender
from ticketlock.testing import Fault, InSteps, ManualClock, MemoryDynamoDB

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

    theirs.acquire("e")
    with pytest.raises(type(error)):
        mine.acquire("e", on_wait=waits)
    assert mine.inspect("e").rows == ()


def test_an_error_of_a_signal_handler_in_the_sdk_is_raised_unchanged(place: Emulated, entity: str) -> None:
    class SoftTimeLimitExceeded(Exception):
        """What a signal handler raises, in Celery for example."""

    def interrupt() -> None:
        raise SoftTimeLimitExceeded

    wire = Wire()
    locks = place.client(wire=wire)
    locks.acquire(entity).release()
    wire.before(lambda sent: sent.operation == "UpdateItem", interrupt)
    with pytest.raises(SoftTimeLimitExceeded):
        locks.acquire(entity)


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


def test_a_count_with_a_crashed_waiter_is_healed_though_the_lock_is_busy(
    memory: MemoryDynamoDB, clock: ManualClock, theirs: LockClient
) -> None:
    held = theirs.acquire("e")
    # Two tickets whose owners crashed before they wrote their rows.
    memory.client.put_item(TableName="locks", Item={**memory.items()[0], "waiting": {"N": "2"}})
    held.release()
    # Twenty seconds, in which the lock is taken again and again.
    for _ in range(40):
        clock.advance(0.1)
        theirs.acquire("e").release()
        clock.advance(0.4)
    before = len(memory.sent)
    theirs.acquire("e").release()
    assert [sent.operation for sent in memory.sent[before:]] == ["UpdateItem", "UpdateItem"]


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


# While a release that grants the lock to the next waiter is being applied: its items change one after the other.


LOCK = LockName("order-42")
UNTIL_HALF = 4
"""Both items are reserved, the transaction is decided, and one item is changed."""
FIRST: dict[str, Callable[[int], int]] = {"lock item first": lambda _: 0, "row first": lambda left: left - 1}
SLOW: dict[str, Any] = {"check_every": (100, 100), "lease": 600}


class Halfway:
    """A holder's release to a waiter, half of which is applied; the rest follows when another request is retried."""

    def __init__(self, memory: MemoryDynamoDB, clock: ManualClock) -> None:
        self.memory = memory
        self.table = LockTable("locks", client=memory.client, clocks=clock, sleep=lambda _: self._finishes())
        held, self.claim = (Claim(LOCK, owner, 60_000) for owner in ("alice", "bob"))
        grant, joined = self.table.take_ticket(held, None), self.table.take_ticket(self.claim, None)
        assert isinstance(grant, Grant)
        assert isinstance(joined, Position)
        seen = self.table.check_turn(self.claim, joined.place, None)
        assert isinstance(seen, Position)
        self.place: Place = seen.place
        request = next(release_to(Contender(held, self.table.now()), grant, Next(self.claim, seen)))
        sent: Any = next(request.calls("locks", "alice's release"))
        self.release: InSteps = memory.in_steps("transact_write_items", **sent.parameters)
        for _ in range(UNTIL_HALF):
            assert self.release.step()

    def _finishes(self) -> None:
        while self.release.step():
            pass

    @property
    def left(self) -> tuple[list[str], int]:
        """Who holds the lock, and how many rows there are."""
        self._finishes()
        state = self.table.inspect(LOCK)
        assert state.item is not None
        return [each.owner for each in state.item.holders], len(state.rows)


@pytest.fixture(params=FIRST)
def halfway(memory: MemoryDynamoDB, clock: ManualClock, request: pytest.FixtureRequest) -> Halfway:
    memory.comes_next = FIRST[request.param]
    return Halfway(memory, clock)


def test_a_poll_of_the_waiter_finds_the_grant_and_writes_no_second_row(halfway: Halfway) -> None:
    assert isinstance(halfway.table.check_turn(halfway.claim, halfway.place, None), Grant)
    assert halfway.left == (["bob"], 0)


def test_a_waiter_whose_record_wait_ends_gets_the_grant(halfway: Halfway) -> None:
    assert halfway.table.withdraw(halfway.claim, halfway.place.ticket) is not None
    assert halfway.left == (["bob"], 0)


def test_a_waiter_that_is_interrupted_releases_the_grant(halfway: Halfway) -> None:
    halfway.table.contend(halfway.claim, lambda me: leave(me, {halfway.place.ticket}))
    assert halfway.left == ([], 0)


def test_a_waiter_that_is_interrupted_while_its_row_is_being_written_leaves_none(
    memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    joins: list[InSteps] = []
    table = LockTable("locks", client=memory.client, clocks=clock, sleep=lambda _: [each.step() for each in joins])
    claim = Claim(LOCK, "bob", 60_000)
    table.take_ticket(replace(claim, owner="alice"), None)
    waiting = Contender(claim, table.now())
    # The row comes too late for its ticket: another ticket and its row are one transaction.
    steps = waiting.join()
    steps.send(table.perform(next(steps)))
    request = steps.send(table.perform(steps.throw(RequestNotApplied("throttled"))))
    sent: Any = next(request.calls("locks", "bob joins"))
    joins.append(memory.in_steps("transact_write_items", **sent.parameters))
    joins[0].step()
    ticket = waiting.last_ticket
    assert ticket is not None
    table.contend(claim, lambda me: leave(me, {ticket}))
    assert joins[0].is_over
    assert table.inspect(LOCK).rows == ()


class PausedHalfway:
    """A table that applies half of the next release that grants the lock, and the rest when it is let go on."""

    def __init__(self, memory: MemoryDynamoDB) -> None:
        self._memory = memory
        self._performs = memory.transact_write_items
        self.is_applied, self.goes_on, self.is_met = threading.Event(), threading.Event(), threading.Event()

    def transact_write_items(self, **parameters: Any) -> Any:
        if self.is_applied.is_set():
            try:
                return self._performs(**parameters)
            except ClientError:
                self.is_met.set()
                raise
        release = self._memory.in_steps("transact_write_items", **parameters)
        for _ in range(UNTIL_HALF):
            release.step()
        self.is_applied.set()
        until(self.goes_on.is_set)
        return release.finish()


def _is_next_or_woken(wait: Wait | None) -> bool:
    """Whether it sleeps after a poll that found it next in line; it is woken to poll once more otherwise."""
    if wait is not None and wait.following is None:
        wait.wake()
    return wait is not None and wait.following is not None


@pytest.mark.parametrize("first", FIRST)
def test_a_client_that_is_closed_meanwhile_leaves_neither_a_row_nor_a_holder(
    moved: Moved, entity: str, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    moved.memory.comes_next = FIRST[first]
    lease, locks = moved.client(**SLOW).acquire(entity), moved.client(**SLOW)
    waiting = meanwhile(lambda: locks.acquire(entity))
    line = WaitKey(moved.table.identity, LockName(entity))
    until(lambda: _is_next_or_woken(waiters_of_this_process().first(line)), "its poll")
    paused = PausedHalfway(moved.memory)
    monkeypatch.setattr(moved.memory, "transact_write_items", paused.transact_write_items)
    releasing = meanwhile(lease.release)
    until(paused.is_applied.is_set, "half of the release")
    closing = meanwhile(locks.close)
    # It waits for the end of the release, or has left too early.
    until(lambda: paused.is_met.is_set() or waiting.done(), "the end of the wait")
    paused.goes_on.set()
    for done in (releasing, closing):
        outcome(done)
    with pytest.raises(ClientClosed):
        outcome(waiting)
    assert (moved.holders_of(entity), moved.queue_of(entity)) == (0, 0)
