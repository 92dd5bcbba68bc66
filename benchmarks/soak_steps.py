"""A soak of hand-overs: threads and tasks that take few locks, while transactions are applied item by item.

    python benchmarks/soak_steps.py [--minutes 10] [--quick]

Workers of one process, half of them threads and half tasks, take a few locks again and again. Most are patient; others
give up after some milliseconds, are cancelled, or have a client of their own that is closed while they wait. So a
release usually grants the lock to the next waiter, and often to one that is just leaving. The table is in memory: it
applies a transaction one item after the other, and anything may be read in between, as on DynamoDB.

It fails if a lock that someone waited for was in nobody's hands for longer than 1.5 s (a row or a grant that no one
knows of blocks a lock for a lease), or if a row or a holder is left at the end.
"""

import asyncio
import math
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from frame import Run, main

from ticketlock import ClientClosed, LockClient, RecordWaitExceeded, aio
from ticketlock.testing import InSteps, MemoryDynamoDB

LOCKS = 4
THREADS_A_LOCK = TASKS_A_LOCK = 3
LEASE_S = 20.0
MOST_IDLE_S = 1.5
MINUTES, QUICK_S = 10.0, 8.0
# A step of a transaction, and a hold, take up to so long.
_STEP_S = 0.003
_HOLD_S = 0.02
_IMPATIENT_S = 0.5
_SAMPLE_EVERY_S = 0.01
# On a busy machine the process stands still now and then: the lock is not idle for that.
_COUNTED_AT_MOST_S = 2 * _SAMPLE_EVERY_S
_WAYS = (*["patient"] * 5, "impatient", "cancelled", "closed")
# The first one is a TimeoutError, too.
_ENDS = {RecordWaitExceeded: "record waits over", ClientClosed: "closed", TimeoutError: "cancelled"}


class ItemByItem(MemoryDynamoDB):
    """Applies each transaction of a thread item by item.

    Attributes:
        handed: how many releases have granted a lock.
    """

    def __init__(self) -> None:
        super().__init__()
        self.handed = 0
        self.comes_next = random.randrange

    def transact_write_items(self, **parameters: Any) -> Any:
        """TransactWriteItems."""
        transaction = self.in_steps("transact_write_items", **parameters)
        while transaction.step():
            time.sleep(random.uniform(0, _STEP_S))
        return self.finished(transaction, parameters)

    def finished(self, transaction: InSteps, parameters: Any) -> Any:
        """The reply to a transaction whose steps are all performed."""
        reply = transaction.finish()
        update = parameters["TransactItems"][0].get("Update", {})
        self.handed += "#last" in update.get("ExpressionAttributeNames", ())
        return reply


class ForTasks:
    """The same for tasks. The service continues with a request whose task is cancelled."""

    def __init__(self, memory: ItemByItem) -> None:
        self.meta = memory.meta
        self._memory = memory

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(**parameters: Any) -> Any:
            performing = asyncio.ensure_future(self._performed(name, parameters))
            # Nobody may be left to hear that it was refused.
            performing.add_done_callback(lambda done: done.cancelled() or done.exception())
            return await asyncio.shield(performing)

        return call

    async def _performed(self, name: str, parameters: Any) -> Any:
        if name != "transact_write_items":
            return getattr(self._memory, name)(**parameters)
        transaction = self._memory.in_steps(name, **parameters)
        while transaction.step():
            await asyncio.sleep(random.uniform(0, _STEP_S))
        return self._memory.finished(transaction, parameters)


@dataclass
class Use:
    """How many wait for a lock, and have it; for how long, until now, someone has waited and no one has had it."""

    waiting: int = 0
    having: int = 0
    idle_s: float = 0.0
    longest_idle_s: float = 0.0


@dataclass
class Soaked:
    """How acquisitions ended, how many grants a release wrote, what is left in the table, and why workers failed."""

    became: Counter[str] = field(default_factory=Counter)
    handed: int = 0
    longest_idle_s: float = 0.0
    rows: int = 0
    holders: int = 0
    failed: list[str] = field(default_factory=list)


class Soak:
    """The workers and what they share."""

    def __init__(self, seconds: float) -> None:
        self.memory = ItemByItem()
        self.uses = {f"lock-{number}": Use() for number in range(LOCKS)}
        self._ends_at_s = time.monotonic() + seconds
        self.seen = Soaked()
        self._mutex = threading.Lock()

    def run(self) -> Soaked:
        """Run to the end."""
        over = threading.Event()
        with ThreadPoolExecutor(2 + LOCKS * THREADS_A_LOCK) as pool:
            watching = pool.submit(self._watches, over)
            done: list[Future[None]] = [pool.submit(asyncio.run, self._tasks())]
            threads = self._client()
            done += [pool.submit(self._by_thread, threads, lock) for lock in self.uses for _ in range(THREADS_A_LOCK)]
            self.seen.failed = [repr(error) for each in done if (error := each.exception()) is not None]
            threads.close()
            over.set()
            watching.result()
        for item in self.memory.items():
            self.seen.rows += not item["sk"]["S"].endswith("/")
            self.seen.holders += int(item.get("held", {"N": "0"})["N"])
        self.seen.handed = self.memory.handed
        self.seen.longest_idle_s = max(use.longest_idle_s for use in self.uses.values())
        return self.seen

    def _client(self) -> LockClient:
        return LockClient("locks", client=self.memory.client, lease=LEASE_S, record_wait=math.inf)

    def _client_of_tasks(self) -> aio.LockClient:
        return aio.LockClient("locks", client=ForTasks(self.memory), lease=LEASE_S, record_wait=math.inf)

    def _by_thread(self, shared: LockClient, lock: str) -> None:
        while time.monotonic() < self._ends_at_s:
            way = random.choice(_WAYS)
            locks = self._client() if way == "closed" else shared
            closing = threading.Timer(_impatient_s(), locks.close, kwargs={"wait": LEASE_S})
            wait_s = _impatient_s() if way in ("impatient", "cancelled") else None
            with self._waits(lock) as holds:
                if way == "closed":
                    closing.start()
                with locks.acquire(lock, record_wait=wait_s):
                    holds()
                    time.sleep(random.uniform(0, _HOLD_S))
            if way == "closed":
                closing.cancel()
                locks.close()

    async def _tasks(self) -> None:
        async with self._client_of_tasks() as locks, asyncio.TaskGroup() as group:
            for lock in self.uses:
                for _ in range(TASKS_A_LOCK):
                    group.create_task(self._by_task(locks, lock))

    async def _by_task(self, shared: aio.LockClient, lock: str) -> None:
        while time.monotonic() < self._ends_at_s:
            way = random.choice(_WAYS)
            if way == "closed":
                async with self._client_of_tasks() as locks:
                    await asyncio.gather(self._one(locks, lock, way), _closes(locks))
            else:
                await self._one(shared, lock, way)

    async def _one(self, locks: aio.LockClient, lock: str, way: str) -> None:
        with self._waits(lock) as holds:
            async with (
                asyncio.timeout(_impatient_s() if way == "cancelled" else None) as limit,
                locks.acquire(lock, record_wait=_impatient_s() if way == "impatient" else None),
            ):
                limit.reschedule(None)
                holds()
                await asyncio.sleep(random.uniform(0, _HOLD_S))

    @contextmanager
    def _waits(self, lock: str) -> Iterator[Callable[[], None]]:
        """Within the block it waits for the lock; from a call on it has it."""
        use, has = self.uses[lock], False

        def holds() -> None:
            nonlocal has
            with self._mutex:
                use.waiting, use.having, has = use.waiting - 1, use.having + 1, True
                # A hold may be shorter than the time between two samples.
                use.idle_s = 0.0

        with self._mutex:
            use.waiting += 1
        how = "failed"
        try:
            yield holds
            how = "grants"
        except (RecordWaitExceeded, ClientClosed, TimeoutError) as error:
            how = next(name for kind, name in _ENDS.items() if isinstance(error, kind))
        finally:
            with self._mutex:
                use.waiting -= not has
                use.having -= has
                self.seen.became[how] += 1

    def _watches(self, over: threading.Event) -> None:
        last_s = time.monotonic()
        while not over.wait(_SAMPLE_EVERY_S):
            now_s = time.monotonic()
            with self._mutex:
                for use in self.uses.values():
                    is_idle = use.waiting > 0 and use.having == 0
                    use.idle_s = use.idle_s + min(now_s - last_s, _COUNTED_AT_MOST_S) if is_idle else 0.0
                    use.longest_idle_s = max(use.longest_idle_s, use.idle_s)
            last_s = now_s


def _impatient_s() -> float:
    return random.uniform(0, _IMPATIENT_S)


async def _closes(locks: aio.LockClient) -> None:
    await asyncio.sleep(_impatient_s())
    await locks.close(wait=LEASE_S)


def measure(run: Run) -> None:
    """Run, and judge what was seen."""
    seconds = QUICK_S if run.quick else run.flags.minutes * 60
    seen = Soak(seconds).run()
    rows = {
        "grants": f"{seen.became['grants']:,}",
        "of these, by a release": f"{seen.handed:,}",
        "closed while they waited": f"{seen.became['closed']:,}",
        "record waits over": f"{seen.became['record waits over']:,}",
        "cancelled": f"{seen.became['cancelled']:,}",
        "longest idle": f"{seen.longest_idle_s:.2f} s",
        "left: rows, holders": f"{seen.rows}, {seen.holders}",
    }
    title = f"{LOCKS} locks, {LOCKS * (THREADS_A_LOCK + TASKS_A_LOCK)} workers, {seconds:.0f} s"
    run.table(title, ["", "count"], list(rows.items()))
    judge(run, seen)


def judge(run: Run, seen: Soaked) -> None:
    """The checks of a run."""
    run.fail("a worker fails", seen.failed)
    run.check("releases grant locks, and waiters leave in each way", seen.handed > 0 and len(seen.became) == 4)
    idle = f"no lock is idle for {MOST_IDLE_S} s while someone waits for it"
    run.check(idle, seen.longest_idle_s < MOST_IDLE_S)
    run.check("no row is left, and no holder", (seen.rows, seen.holders) == (0, 0))


if __name__ == "__main__":
    minutes = ("--minutes", {"type": float, "default": MINUTES})
    sys.exit(main(measure, __doc__, f"{QUICK_S:.0f} seconds", minutes))
