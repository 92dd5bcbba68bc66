"""Every operation of the lock, with the capacity units of its requests: by the rules, and as the engine reports."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
from kit.capacity import Bill, Billed
from kit.stopped import LATE_MS, Execution
from kit.world import LEASE_MS, Process, World

from ticketlock import Grant, LockName, Position, RecordWaitExceeded

TASK_TOKEN = "t" * 1_000
"""As long as those of Step Functions."""
DATA = "d" * 256
MANY = 100
OTHERS = 40
"""Other holders of the semaphore, in the second life that is counted."""
_LONG_LEASE_MS = 3_600_000


@dataclass
class MeteredWorld(World):
    """A world that counts the units of every request of its processes; ours in memory has no count of its own."""

    billed: list[Billed] = field(default_factory=list)

    def process(self, *, wall_is_off_ms: int = 0, cold: bool = False) -> Process:
        process = Process(self, wall_is_off_ms, cold=True)
        Bill(self.engine.client(), self.engine.memory is None, self.billed).watch(process.client)
        if not cold:
            process.table.now()
        return process


@dataclass(frozen=True)
class Step:
    """The requests of one step in a lock's life."""

    name: str
    requests: Sequence[Billed]

    @property
    def writes(self) -> list[Billed]:
        """The writes that were applied."""
        return [request for request in self.requests if not request.reads and not request.refused]

    @property
    def refused(self) -> list[Billed]:
        """The writes that were refused."""
        return [request for request in self.requests if request.refused]

    @property
    def reads(self) -> list[Billed]:
        return [request for request in self.requests if request.reads]


def figure(units: Iterable[float | None]) -> str:
    """A sum, as the tables show it: empty for 0."""
    total = sum(each or 0 for each in units)
    return f"{total:g}" if total else ""


Counted = Callable[[str, Callable[[], object]], Step]


def life_of_a_lock(world: MeteredWorld, others: int) -> Iterator[Step]:
    """Every operation once, on locks with so many other holders: each write bills the whole lock item."""

    def counted(name: str, do: Callable[[], object]) -> Step:
        before = len(world.billed)
        do()
        return Step(name, world.billed[before:])

    yield counted("ask for the time, when cold", lambda: world.process(cold=True).table.now())
    yield from _of_processes(world, others, counted)
    yield from _of_executions(world, others, counted)
    yield from _of_many_waiters(world, others, counted)


def _lock_of_many(world: World, others: int) -> LockName:
    lock, process = world.lock(), world.process()
    for _ in range(others):
        process.granted(process.claim(lock, permits=others + 1, lease_ms=_LONG_LEASE_MS, data=DATA))
    return lock


def _of_processes(world: World, others: int, counted: Counted) -> Iterator[Step]:
    lock, permits = _lock_of_many(world, others), others + 1
    alice, bob, carol, dave = (world.process() for _ in range(4))
    first, second, third, fourth = (each.claim(lock, permits=permits) for each in (alice, bob, carol, dave))
    grants: list[Grant] = []
    places: list[Position] = []

    yield counted("acquire at once", lambda: grants.append(alice.granted(first)))
    (at_once,) = grants
    yield counted("a try that must not wait", lambda: _is_refused(lambda: bob.take(second, record_wait_ms=0)))
    yield counted("join: a try, the ticket, the row", lambda: places.append(bob.queued(second)))
    (waiting,) = places
    yield counted("a poll", lambda: bob.poll(second, waiting))
    leaving = carol.queued(third)
    yield counted("withdraw", lambda: carol.table.withdraw(third, leaving.place.ticket))
    world.advance(LEASE_MS * 2 // 3)
    yield counted("renew", lambda: alice.table.renew(first, at_once.fencing_token))
    yield counted("a poll that renews the queue row", lambda: bob.poll(second, waiting))
    yield counted("set data", lambda: alice.table.set_data(first, at_once.fencing_token, DATA))
    yield counted("release", lambda: alice.table.release(first, at_once))
    yield counted("a poll that takes the lock", lambda: _is_granted(bob.poll(second, waiting)))
    world.advance(LATE_MS)
    longer = replace(third, lease_ms=_LONG_LEASE_MS)
    yield counted("acquire past an expired holder", lambda: grants.append(carol.granted(longer)))
    _, past_an_expired = grants
    dave.queued(fourth)
    world.advance(LATE_MS)
    behind = alice.claim(lock, permits=permits)
    last = alice.queued(behind)
    yield counted("a poll that sweeps an expired row", lambda: alice.poll(behind, last))
    yield counted("show the lock and its queue", lambda: alice.table.inspect(lock))
    yield counted("set the limit", lambda: alice.table.set_limit(lock, permits))
    yield counted("release by force", lambda: alice.table.force_release(lock, past_an_expired.fencing_token))
    alice.table.withdraw(behind, last.place.ticket)


def _of_executions(world: World, others: int, counted: Counted) -> Iterator[Step]:
    lock = _lock_of_many(world, others)
    processes = [world.process() for _ in range(2)]
    holder, waiter, third = (Execution(processes, lock, name=name) for name in ("holder", "waiter", "third"))
    for execution in (holder, waiter, third):
        execution.claim = replace(execution.claim, permits=others + 1)
        execution.service = holder.service

    yield counted("an execution acquires", holder.holds)
    yield counted("... leaves its task token", holder.beats(0, TASK_TOKEN).run)
    waiter.waits()
    yield counted("... parks", lambda: waiter.parks(TASK_TOKEN))
    world.advance(LEASE_MS // 2)
    yield counted("... renews at a later heartbeat", holder.beats(1, TASK_TOKEN).run)
    yield counted("... releases, and wakes the next", holder.finishes().run)
    yield counted("... is woken, and takes the lock", lambda: _is_granted(waiter.polls()))
    third.waits().parks(TASK_TOKEN)
    yield counted("... is stopped while it waits", third.cleaned_up)
    yield counted("... is stopped while it holds", waiter.cleaned_up)


def _of_many_waiters(world: World, others: int, counted: Counted) -> Iterator[Step]:
    lock, process = _lock_of_many(world, others), world.process()
    process.granted(process.claim(lock, permits=others + 1))
    claims = [process.claim(lock, permits=others + 1) for _ in range(MANY)]
    places = [process.queued(claim) for claim in claims]
    yield counted(f"a poll behind {MANY - 1} waiters", lambda: process.poll(claims[-1], places[-1]))


def _is_refused(do: Callable[[], object]) -> None:
    with pytest.raises(RecordWaitExceeded):
        do()


def _is_granted(found: object) -> None:
    assert isinstance(found, Grant), found
