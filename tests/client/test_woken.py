"""A release wakes the next waiter of its own process; this is only a hint."""

import asyncio
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from kit.awaited import Awaited
from kit.places import Moved, Wire, meanwhile, outcome, until

from ticketlock import Claim, ClientClosed, Grant, LockClient, LockName, LockTable, Position, aio
from ticketlock.client._waiters import waiters_of_this_process
from ticketlock.testing import ManualClock, MemoryDynamoDB

pytestmark = pytest.mark.shows("order", "mixed queue")

LATE_S = 100
"""Between two polls: a waiter that gets the lock earlier was woken. It leaves the quarter of the lease that a row
needs.
"""
SLOW: dict[str, Any] = {"check_every": (LATE_S, LATE_S), "lease": 600}


class Naps:
    """How a client sleeps: each time it calls the next function of the test at once; then it does nothing."""

    def __init__(self, memory: MemoryDynamoDB, *naps: Callable[[], object]) -> None:
        self._memory = memory
        self._naps = list(naps)

    def __call__(self, _: float) -> None:
        assert self._naps, "it sleeps once more"
        self._naps.pop(0)()
        self._memory.sent.clear()


def nothing() -> None:
    """A whole sleep."""


def client(memory: MemoryDynamoDB, clock: ManualClock, *naps: Callable[[], object]) -> LockClient:
    return LockClient("locks", client=memory.client, clocks=clock, heartbeat=False, sleep=Naps(memory, *naps))


def operations(memory: MemoryDynamoDB) -> list[str]:
    return [sent.operation for sent in memory.sent]


def queued(moved: Moved, entity: str, count: int) -> None:
    """Wait until the queue has this many rows."""
    until(lambda: moved.queue_of(entity) == count, f"row {count} of the queue")


def test_a_waiter_of_the_same_process_is_woken_by_the_release(moved: Moved, entity: str) -> None:
    wire = Wire()
    lease = moved.client(**SLOW).acquire(entity)
    waiting = meanwhile(lambda: moved.client(wire=wire, **SLOW).acquire(entity))
    queued(moved, entity, 1)
    before = len(wire.sent)
    lease.release()
    assert outcome(waiting).is_held()
    assert [sent.operation for sent in wire.sent[before:]] in (
        ["Query", "TransactWriteItems"],
        # Its row was written at this moment, and it polled before it slept.
        ["PutItem", "Query", "TransactWriteItems"],
    )


def test_a_lock_that_is_free_again_after_a_grant_by_a_release_costs_one_request(
    memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    """Whichever client of the process has freed it."""
    first = client(memory, clock, nothing)
    lease = first.acquire("e")

    def release() -> None:
        clock.advance(0.5)
        lease.release()

    client(memory, clock, nothing, release).acquire("e").release()
    memory.sent.clear()
    assert first.acquire("e").is_held()
    assert operations(memory) == ["UpdateItem"]


def test_a_waiter_that_leaves_wakes_the_next_which_then_sleeps_as_the_first_in_line(moved: Moved, entity: str) -> None:
    lease = moved.client(**SLOW).acquire(entity)
    leaves, next_wire = moved.client(**SLOW), Wire()
    leaving = meanwhile(lambda: leaves.acquire(entity))
    queued(moved, entity, 1)
    waiting = meanwhile(lambda: moved.client(wire=next_wire, **SLOW).acquire(entity))
    queued(moved, entity, 2)
    leaves.close()
    until(lambda: next_wire.sent[-1].operation == "Query", "its poll")
    lease.release()
    assert outcome(waiting).is_held()
    with pytest.raises(ClientClosed):
        outcome(leaving)


def test_a_waiter_in_a_table_of_the_same_name_in_another_account_is_not_granted_the_lock(
    memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    other = MemoryDynamoDB(clock=clock)
    lease, held = client(memory, clock).acquire("e"), client(other, clock).acquire("e")

    def release() -> None:
        memory.sent.clear()
        lease.release()
        assert operations(memory) == ["UpdateItem"]
        held.release()

    assert client(other, clock, nothing, release).acquire("e").is_held()


@pytest.mark.parametrize("shared", [False, True], ids=["in order", "together"])
def test_waiters_are_woken_one_after_the_other_in_order_or_together_if_they_share(
    moved: Moved, entity: str, shared: bool
) -> None:
    lease = moved.client(**SLOW).acquire(entity)
    waiters = range(4)
    entered: list[int] = []
    waiting = []

    def wait(number: int) -> None:
        with moved.client(**SLOW).acquire(entity, shared=shared):
            entered.append(number)
            if shared:
                until(lambda: len(entered) == len(waiters), "the others")

    for number in waiters:
        waiting.append(meanwhile(partial(wait, number)))
        queued(moved, entity, number + 1)
    lease.release()
    for each in waiting:
        outcome(each)
    assert (sorted(entered) if shared else entered) == list(waiters)


def test_a_release_grants_the_lock_to_the_next_by_its_last_poll(memory: MemoryDynamoDB, clock: ManualClock) -> None:
    lease = client(memory, clock).acquire("e")

    def release() -> None:
        memory.sent.clear()
        lease.release(data_left="done")
        assert operations(memory) == ["TransactWriteItems"]

    taken = client(memory, clock, nothing, release).acquire("e")
    assert operations(memory) == []
    assert (taken.data_left, taken.fencing_token, taken.is_held()) == ("done", lease.fencing_token + 1, True)


def test_the_first_in_line_does_not_poll_when_a_release_of_its_process_is_expected(
    memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    """A release cannot grant the lock to a waiter that is polling."""
    elsewhere = LockTable("locks", client=memory.client, clocks=clock)
    elsewhere.take_ticket(Claim(LockName("elsewhere"), "theirs", 60_000), None)
    here, detached = (client(memory, clock).acquire(entity) for entity in ("here", "detached"))
    # The same owner holds another lock here: that says nothing of the first one.
    other = client(memory, clock).acquire("other", owner="theirs")
    detached.detach()

    def sleeps_s(entity: str, owner: str) -> float:
        slept_s = []

        def sleep(seconds: float) -> None:
            slept_s.append(seconds)
            elsewhere.release_as(LockName(entity), owner)

        LockClient("locks", client=memory.client, clocks=clock, heartbeat=False, sleep=sleep).acquire(entity)
        return slept_s[-1]

    usual_s = max(sleeps_s("elsewhere", "theirs"), sleeps_s("detached", detached.owner))
    assert sleeps_s("here", here.owner) > usual_s + 0.015
    other.release()


class Meeting:
    """An SDK client that holds transactions back until they may be sent, and runs a function once after a query."""

    def __init__(self, memory: MemoryDynamoDB) -> None:
        self._memory = memory
        self.asked, self.may_be_sent = threading.Event(), threading.Event()
        self.after_query: list[Callable[[], object]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory.client, name)

    def transact_write_items(self, **parameters: Any) -> Any:
        self.asked.set()
        until(self.may_be_sent.is_set)
        return self._memory.client.transact_write_items(**parameters)

    def query(self, **parameters: Any) -> Any:
        reply = self._memory.client.query(**parameters)
        while self.after_query:
            self.after_query.pop()()
        return reply


def test_a_waiter_that_is_granted_the_lock_while_it_leaves_releases_it_too(
    memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    """While it leaves, its poll precedes the release and its withdrawal follows it."""
    theirs: Any = Meeting(memory)
    its: Any = Meeting(memory)
    its.may_be_sent.set()
    lease = LockClient("locks", client=theirs, clocks=clock, heartbeat=False).acquire("e")

    def interrupted() -> None:
        releasing = meanwhile(lease.release)
        until(theirs.asked.is_set)
        its.after_query += [lambda: outcome(releasing), theirs.may_be_sent.set]
        raise KeyboardInterrupt

    naps = Naps(memory, nothing, interrupted)
    with pytest.raises(KeyboardInterrupt):
        LockClient("locks", client=its, clocks=clock, heartbeat=False, sleep=naps).acquire("e")
    item = LockTable("locks", client=memory.client, clocks=clock).inspect(LockName("e")).item
    assert item is not None
    assert (item.fencing_token, item.holders) == (lease.fencing_token + 1, ())


def test_a_release_of_a_lock_in_another_namespace_wakes_no_one(memory: MemoryDynamoDB, clock: ManualClock) -> None:
    lease, other = client(memory, clock).acquire("e"), client(memory, clock).acquire("e", namespace="other")

    def releases_the_other() -> None:
        memory.sent.clear()
        other.release()
        assert operations(memory) == ["UpdateItem"]

    assert client(memory, clock, nothing, releases_the_other, lease.release).acquire("e").is_held()


def test_no_waiter_is_woken_before_one_of_another_process_that_came_first(
    memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    """It polls at its usual pace."""
    holder, elsewhere = client(memory, clock), LockTable("locks", client=memory.client, clocks=clock)
    lease, theirs = holder.acquire("e"), Claim(LockName("e"), "elsewhere", 60_000)
    place = elsewhere.take_ticket(theirs, None)
    assert isinstance(place, Position)
    told: list[Grant | Position] = []

    def they_take() -> None:
        assert operations(memory) == ["Query"]
        told.append(elsewhere.check_turn(theirs, place.place, None))

    def they_release() -> None:
        assert operations(memory) == ["Query"]
        grant = told[0]
        assert isinstance(grant, Grant)
        elsewhere.release(theirs, grant)

    waiter = client(memory, clock, nothing, lease.release, they_take, they_release)
    waiter.acquire("e")
    assert operations(memory) == ["Query", "TransactWriteItems"]


def test_a_waiter_whose_row_was_removed_is_woken_and_joins_again(memory: MemoryDynamoDB, clock: ManualClock) -> None:
    lease, operator = client(memory, clock).acquire("e"), LockTable("locks", client=memory.client, clocks=clock)

    def removed_and_released() -> None:
        operator.remove_waiter(LockName("e"), operator.inspect(LockName("e")).rows[0].ticket)
        memory.sent.clear()
        lease.release()
        assert operations(memory) == ["TransactWriteItems", "UpdateItem"]

    taken = client(memory, clock, nothing, removed_and_released, nothing).acquire("e")
    assert taken.fencing_token == lease.fencing_token + 1


def test_tasks_of_loops_in_several_threads_wake_each_other(memory: MemoryDynamoDB, clock: ManualClock) -> None:
    release, stands = threading.Event(), threading.Event()

    async def hold() -> None:
        async with aio.LockClient("locks", client=Awaited(memory), clocks=clock, **SLOW) as locks:
            lease = await locks.acquire("e")
            stands.set()
            await asyncio.to_thread(release.wait)
            await lease.release()

    async def wait() -> bool:
        async with (
            aio.LockClient("locks", client=Awaited(memory), clocks=clock, **SLOW) as locks,
            locks.acquire("e") as lease,
        ):
            return lease.is_held()

    holding = meanwhile(lambda: asyncio.run(hold()))
    until(stands.is_set, "a holder")
    waiting = meanwhile(lambda: asyncio.run(wait()))
    # A row, and the lock item.
    until(lambda: len(memory.items()) == 2, "a waiter")
    release.set()
    outcome(holding)
    assert outcome(waiting)


def test_a_forked_child_has_no_waiters_of_its_parent(memory: MemoryDynamoDB, clock: ManualClock) -> None:
    """Their threads do not run there: a release there would wake a waiter that does not exist."""
    lease = client(memory, clock).acquire("e")
    parents = waiters_of_this_process()

    def in_a_fork() -> None:
        child = os.fork()
        if child == 0:
            os._exit(0 if waiters_of_this_process() is not parents and not waiters_of_this_process()._waiting else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert parents._waiting != {}
        lease.release()

    client(memory, clock, nothing, in_a_fork).acquire("e")
    assert operations(memory) == []
