"""An hour of traffic on many locks from many machines, with faults, in virtual time.

The machines run ``ticketlock.aio.LockClient`` with its defaults, heartbeats included, on ``ticketlock.testing``'s
DynamoDB. Requests take some milliseconds; some are lost, or their replies, or arrive again up to half a minute later;
machines crash, and others replace them. At the end of the hour all clients leave; then leases end, and TTL deletes.
"""

import asyncio
import logging
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, ReadTimeoutError
from soak_checker import Checker, Left, left_in
from virtual_time import VirtualTimeLoop

from ticketlock.aio import LockClient
from ticketlock.errors import ClientClosed, LockLost, RecordWaitExceeded, TableError
from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB

LEASE_S = 20.0
PERMITS = 3
_WORKERS_A_MACHINE = 3
_FAULTS = 0.01
_CRASHES = 0.5
_READERS = 0.7
_LATE_BY_S = 30.0
_TIME_OUT_S = 0.25
_PATIENCE_S = 600.0
_DAY_S = 86_400.0
_LOCK_ITEMS_STAY_DAYS = 29
_WALL_IS_OFF_S = (0.0, 0.0, 0.0, 0.3, -0.3, 240.0, -240.0)
_READS = ("query", "get_item")
_OF_READS: tuple[Fault | str, ...] = (Fault.REQUEST_LOST, Fault.REPLY_LOST, Fault.THROTTLED)
_OF_WRITES = (*_OF_READS, Fault.CONFLICT, "late", "twice")
_RECORD_WAITS_S = (math.inf, math.inf, math.inf, 0.0, 2.0, 30.0)


@dataclass(frozen=True, slots=True)
class Scale:
    """The size of the run.

    Attributes:
        minutes: of traffic.
        locks: a third of them plain, a third with three permits, a third for readers and writers.
        machines: at every moment, with three tasks each.
        seed: of all random choices.
    """

    minutes: float = 60
    locks: int = 21
    machines: int = 30
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Hour:
    """What was observed.

    Attributes:
        grants: in the table.
        requests, polls: how many requests were sent, and how many of them were polls.
        happened: how acquisitions, requests and machines ended, by name.
        deepest: the most rows in one queue.
        longest_wait_s: of those that got their lock.
        starved: clients that still waited or held when all should have left.
        tasks: of closed clients that still exist.
        remembered: leases and waiters that closed clients still know.
        left: in the table when all had left, when leases had ended and each lock was taken once more, a day after that,
            and four weeks after that.
        broken: the promises that were broken.
    """

    grants: int
    requests: int
    polls: int
    happened: Mapping[str, int]
    deepest: int
    longest_wait_s: float
    starved: int
    tasks: int
    remembered: int
    left: tuple[Left, Left, Left, Left]
    broken: tuple[str, ...]


def hour(scale: Scale) -> Hour:
    """Run it."""
    clock = ManualClock()
    # The clients' jitter too, so that a seed gives one history.
    random.seed(scale.seed)
    with _quiet(logging.getLogger("ticketlock")), asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(clock)) as runner:
        return runner.run(_World(scale, clock).run())


@contextmanager
def _quiet(log: logging.Logger) -> Iterator[None]:
    """Ignore the errors that crashes and faults leave behind."""
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


class Wire:
    """The requests of one machine, in place of its DynamoDB client."""

    def __init__(self, world: "_World") -> None:
        self.meta = world.memory.meta
        self.is_cut = False
        self._world = world
        # The step of the read that a task's next write depends on; each acquisition is a task of its own.
        self._read_steps: dict[str, int] = {}

    def __getattr__(self, operation: str) -> Any:
        async def send(**parameters: Any) -> Any:
            await self._travel()
            try:
                return await self._arrive(operation, parameters)
            finally:
                await self._travel()

        return send

    async def _travel(self) -> None:
        await asyncio.sleep(random.uniform(0.001, 0.008))
        if self.is_cut:
            # The machine has crashed: all of its tasks end here.
            raise asyncio.CancelledError

    async def _arrive(self, operation: str, parameters: Mapping[str, Any]) -> Any:
        world, me = self._world, _name_of_this_task()
        fault = world.fault(operation)
        if fault == "late" or fault == "twice":
            world.later(operation, parameters)
        if fault == "late":
            await asyncio.sleep(_TIME_OUT_S)
            raise ReadTimeoutError(endpoint_url="wire")
        if isinstance(fault, Fault):
            world.memory.faults.append(fault)
        try:
            answer = world.apply(operation, parameters, self._read_steps.get(me))
        except BotoCoreError:
            await asyncio.sleep(_TIME_OUT_S)
            raise
        except ClientError:
            # A refusal returns the stored item.
            if fault is None:
                self._read_steps[me] = world.step
            raise
        if operation == "query" and "ExclusiveStartKey" not in parameters:
            self._read_steps[me] = world.step
        return answer


def _name_of_this_task() -> str:
    task = asyncio.current_task()
    assert task is not None
    return task.get_name()


class _Machine:
    """One machine from its start to its crash or its end."""

    def __init__(self, world: "_World") -> None:
        self.wire = Wire(world)
        clock = world.clock.another_machine(wall_is_off_s=random.choice(_WALL_IS_OFF_S))
        self.client = LockClient("locks", client=self.wire, lease=LEASE_S, clocks=clock)
        self._world = world

    async def live(self, seconds: float) -> None:
        """Work, and crash or be closed; at the end of all traffic, end by itself."""
        await self.client.__aenter__()
        workers = {asyncio.create_task(self._work()) for _ in range(_WORKERS_A_MACHINE)}
        _, busy = await asyncio.wait(workers, timeout=seconds)
        if busy and random.random() < _CRASHES:
            self._world.happened["machines crashed"] += 1
            self.wire.is_cut = True
            for worker in busy:
                worker.cancel()
            await asyncio.wait(busy)
            return
        if busy:
            self._world.happened["machines closed"] += 1
        await self.client.close()
        await asyncio.gather(*workers)

    async def _work(self) -> None:
        world = self._world
        while not world.is_over:
            await asyncio.sleep(random.expovariate(1 / 4))
            number = random.choices(range(len(world.checkers)), world.weights)[0]
            with suppress(ClientClosed):
                await self._take(number)
            if self.client._holdings.is_closed:
                return

    async def _take(self, number: int) -> None:
        world, checker = self._world, self._world.checkers[number]
        shared = number % 3 == 2 and random.random() < _READERS
        began = world.clock.wall_ms
        try:
            async with asyncio.timeout(random.choice((None, None, None, None, None, 10.0))):
                lease = await self.client.acquire(
                    f"lock-{number}",
                    permits=checker.permits,
                    shared=shared,
                    record_wait=random.choice(_RECORD_WAITS_S),
                )
        except RecordWaitExceeded:
            world.happened["record waits over"] += 1
            return
        except TimeoutError:
            world.happened["waits timed out"] += 1
            return
        except TableError:
            world.happened["table errors"] += 1
            return
        world.happened["acquired"] += 1
        world.longest_wait_ms = max(world.longest_wait_ms, world.clock.wall_ms - began)
        checker.sees_holder(lease)
        try:
            # Some hold it for longer than a lease.
            await asyncio.sleep(random.uniform(15, 45) if random.random() < 0.03 else random.expovariate(1 / 1.5))
        finally:
            checker.held.discard(lease)
        try:
            await lease.release()
        except LockLost:
            world.happened["locks lost"] += 1
        except TableError:
            world.happened["table errors"] += 1


class _World:
    """The table, its time, and the machines that use it."""

    def __init__(self, scale: Scale, clock: ManualClock) -> None:
        self.clock = clock
        self.memory = MemoryDynamoDB(clock=clock)
        self.checkers = [Checker(PERMITS if number % 3 == 1 else 1) for number in range(scale.locks)]
        # Many clients want a few of them.
        self.weights = [1 / (1 + number // 3) for number in range(scale.locks)]
        self.step = 0
        self.polls = 0
        self.happened: Counter[str] = Counter()
        self.longest_wait_ms = 0
        self.is_over = False
        self._scale = scale
        self._late: set[asyncio.Task[None]] = set()
        self._machines: list[_Machine] = []

    async def run(self) -> Hour:
        """The traffic, and what comes after it."""
        places = {asyncio.create_task(self._place()) for _ in range(self._scale.machines)}
        await asyncio.sleep(self._scale.minutes * 60)
        self.is_over = True
        ended, starved = await asyncio.wait(places, timeout=_PATIENCE_S)
        for place in ended:
            place.result()
        while self._late:
            await asyncio.wait(self._late)
        left = left_in(self.memory.items())
        # Heartbeats of machines that have crashed notice that by themselves.
        await asyncio.sleep(3 * LEASE_S)
        tasks = len(asyncio.all_tasks()) - 1 - len(starved)
        requests, polls = self.step, self.polls
        await self._take_each_once()
        after_leases = left_in(self.memory.items())
        self.clock.advance(_DAY_S + 2 * LEASE_S)
        self.memory.expire()
        after_a_day = left_in(self.memory.items())
        self.clock.advance(_LOCK_ITEMS_STAY_DAYS * _DAY_S)
        self.memory.expire()
        after_weeks = left_in(self.memory.items())
        # The invariant checkers see whether tokens rise across the deletion.
        await self._take_each_once()
        return Hour(
            grants=sum(checker.grants for checker in self.checkers),
            requests=requests,
            polls=polls,
            happened=self.happened,
            deepest=max(checker.deepest for checker in self.checkers),
            longest_wait_s=self.longest_wait_ms / 1_000,
            starved=len(starved),
            tasks=tasks,
            remembered=sum(_remembers(machine.client) for machine in self._machines if not machine.wire.is_cut),
            left=(left, after_leases, after_a_day, after_weeks),
            broken=tuple(broken for checker in self.checkers for broken in checker.broken),
        )

    async def _place(self) -> None:
        """Run one machine after the other."""
        while not self.is_over:
            machine = _Machine(self)
            self._machines.append(machine)
            await machine.live(random.uniform(30, 600))
            await asyncio.sleep(random.uniform(0, 10))

    async def _take_each_once(self) -> None:
        machine = _Machine(self)
        async with machine.client:
            for number, checker in enumerate(self.checkers):
                # As many as permitted: this replaces crashed holders.
                asked = [machine.client.acquire(f"lock-{number}", permits=checker.permits)] * checker.permits
                for lease in [await each for each in asked]:
                    await lease.release()

    # Fault injection.

    def fault(self, operation: str) -> Fault | str | None:
        """The fault of the next request."""
        if self.is_over or random.random() >= _FAULTS:
            return None
        self.happened["requests that met a fault"] += 1
        return random.choice(_OF_READS if operation in _READS else _OF_WRITES)

    def later(self, operation: str, parameters: Mapping[str, Any]) -> None:
        """A copy arrives, perhaps when its sender no longer waits for it."""

        async def arrive() -> None:
            await asyncio.sleep(random.uniform(0.1, _LATE_BY_S))
            with suppress(ClientError):
                self.apply(operation, parameters, None, late=True)

        copy = asyncio.create_task(arrive())
        self._late.add(copy)
        copy.add_done_callback(self._late.discard)

    def apply(self, operation: str, parameters: Mapping[str, Any], read_step: int | None, *, late: bool = False) -> Any:
        """Let the table answer, and its lock's invariant checker see what has changed."""
        self.step += 1
        self.polls += operation == "query"
        try:
            return getattr(self.memory, operation)(**parameters)
        finally:
            # The list of all sent requests is for tests.
            self.memory.sent.clear()
            if operation not in _READS:
                entity = _entity_of(parameters)
                now_ms = self.clock.wall_ms
                checker = self.checkers[int(entity.partition("-")[2])]
                # Without a poll it is based on the state at the write itself.
                read_step = self.step if read_step is None else read_step
                checker.sees_write(self._partition(entity), self.step, read_step, now_ms, late=late)

    def _partition(self, entity: str) -> Any:
        found: Any = self.memory.query(
            TableName="locks",
            KeyConditionExpression="pk = :pk",
            ExpressionAttributeValues={":pk": {"S": entity}},
        )
        return found["Items"]


def _entity_of(write: Mapping[str, Any]) -> str:
    if "TransactItems" in write:
        (write,) = write["TransactItems"][0].values()
    key: Mapping[str, Any] = write["Key"] if "Key" in write else write["Item"]
    return str(key["pk"]["S"])


def _remembers(client: LockClient) -> int:
    """What a client remembers that it no longer needs."""
    return (
        len(client._holdings._held)
        + len(client._waiters)
        + len(client._to_the_end.under_way)
        + len(client._heartbeat._callbacks)
    )
