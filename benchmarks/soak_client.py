"""One long-lived client: its threads, files and memory, while it takes thousands of locks.

Its one argument is the run as JSON, and it prints as JSON the means of the first and of the last quarter, and what has
failed.
"""

import asyncio
import json
import math
import os
import random
import sys
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import psutil
from soak_crowd import Kind
from ticketlock_local.cloud.deploy import client_arguments

from ticketlock import LockClient, RecordWaitExceeded, aio
from ticketlock.wire._sdk import make_client

WORKERS = 12
LEASE_S = 8.0
_CONTENDED = 5
_SAMPLE_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Life:
    """A client's life.

    Attributes:
        endpoint, table: where.
        kind: of the client.
        seconds: how long.
    """

    endpoint: str
    table: str
    kind: Kind
    seconds: float


@dataclass(frozen=True, slots=True)
class Used:
    """The resources of a process.

    Attributes:
        threads, files: how many; sockets are files.
        traced_kib: allocated by Python.
        rss_kib: resident memory.
        remembered: entries in the client's maps.
    """

    threads: float
    files: float
    traced_kib: float
    rss_kib: float
    remembered: float


@dataclass(frozen=True, slots=True)
class Lived:
    """The result.

    Attributes:
        cycles: locks acquired and released.
        gave_up: record waits that were over.
        failed: other reasons why a worker ended early.
        first, last: the means of the first quarter, and of the last.
        closed: after the client was closed.
    """

    cycles: int
    gave_up: int
    failed: Sequence[str]
    first: Used
    last: Used
    closed: Used


def read(said: str) -> Lived:
    """What a process has printed."""
    fields = json.loads(said)
    first, last, closed = (Used(**fields[name]) for name in ("first", "last", "closed"))
    return Lived(fields["cycles"], fields["gave_up"], fields["failed"], first, last, closed)


@contextmanager
def _watched(client: Any) -> Iterator[list[Used]]:
    """Measure the process, in a thread of its own, which is not counted."""
    seen: list[Used] = []
    over = threading.Event()

    def watch() -> None:
        seen.append(_usage(client, watchers=1))
        while not over.wait(_SAMPLE_EVERY_S):
            seen.append(_usage(client, watchers=1))

    tracemalloc.start()
    with ThreadPoolExecutor(1) as pool:
        watcher = pool.submit(watch)
        try:
            yield seen
        finally:
            over.set()
    # If the watcher failed, it has measured only a part.
    watcher.result()


def _usage(client: Any, watchers: int = 0) -> Used:
    asking = client._holdings
    process = psutil.Process(os.getpid())
    return Used(
        # asyncio's threads for host names stay until its loop ends.
        threads=sum(not each.name.startswith("asyncio_") for each in threading.enumerate()) - watchers,
        files=process.num_fds(),
        traced_kib=tracemalloc.get_traced_memory()[0] / 1_024,
        rss_kib=process.memory_info().rss / 1_024,
        remembered=sum(map(len, (asking._held, asking.known._locks, _under_way(client)))),
    )


def _under_way(client: Any) -> Collection[object]:
    """Acquisitions that have not ended, and releases of a client for threads."""
    return list(client._under_way._began) if isinstance(client, LockClient) else client._waiters


def _lived(workers: Sequence[Counter[str] | BaseException], seen: Sequence[Used], closed: Used) -> Lived:
    """The result of each worker, and the measurements."""
    became = sum((each for each in workers if isinstance(each, Counter)), Counter[str]())
    failed = [repr(each) for each in workers if isinstance(each, BaseException)]
    # The first moments fill pools, maps and caches.
    seen = seen[len(seen) // 5 :]
    quarter = max(1, len(seen) // 4)
    return Lived(became["taken"], became["gave up"], failed, _mean(seen[:quarter]), _mean(seen[-quarter:]), closed)


def _mean(seen: Sequence[Used]) -> Used:
    return Used(*(fmean(each) for each in zip(*(asdict(used).values() for used in seen), strict=True)))


def _wish() -> tuple[str, float, float]:
    """A lock, a record wait and a hold: mostly a lock without other users, sometimes held past a heartbeat."""
    if random.random() < 0.005:
        return f"long-{random.getrandbits(64)}", math.inf, LEASE_S * 0.7
    if random.random() < 0.2:
        return f"contended-{random.randrange(_CONTENDED)}", random.choice((math.inf, 0.02)), 0.005
    return f"once-{random.getrandbits(64)}", math.inf, 0.0


def by_threads(life: Life) -> Lived:
    """Run a client for threads."""
    ends_at = time.monotonic() + life.seconds
    with LockClient(life.table, client=make_client(**client_arguments(life.endpoint)), lease=LEASE_S) as locks:

        def work() -> Counter[str]:
            became = Counter[str]()
            while time.monotonic() < ends_at:
                lock, record_wait, hold_s = _wish()
                try:
                    with locks.acquire(lock, record_wait=record_wait):
                        time.sleep(hold_s)
                    became["taken"] += 1
                except RecordWaitExceeded:
                    became["gave up"] += 1
            return became

        with _watched(locks) as seen, ThreadPoolExecutor(WORKERS) as pool:
            workers = [pool.submit(work) for _ in range(WORKERS)]
    return _lived([worker.exception() or worker.result() for worker in workers], seen, _usage(locks))


async def by_tasks(life: Life) -> Lived:
    """Run a client for tasks."""
    ends_at = time.monotonic() + life.seconds
    options = client_arguments(life.endpoint)
    async with aio.LockClient(life.table, client_options=options, lease=LEASE_S) as locks:

        async def work() -> Counter[str]:
            became = Counter[str]()
            while time.monotonic() < ends_at:
                lock, record_wait, hold_s = _wish()
                try:
                    async with locks.acquire(lock, record_wait=record_wait):
                        await asyncio.sleep(hold_s)
                    became["taken"] += 1
                except RecordWaitExceeded:
                    became["gave up"] += 1
            return became

        with _watched(locks) as seen:
            workers = await asyncio.gather(*(work() for _ in range(WORKERS)), return_exceptions=True)
    return _lived(workers, seen, _usage(locks))


_BY: dict[Kind, Callable[[Life], Lived]] = {
    "threads": by_threads,
    "tasks": lambda life: asyncio.run(by_tasks(life)),
}


if __name__ == "__main__":
    life = Life(**json.loads(sys.argv[1]))
    print(json.dumps(asdict(_BY[life.kind](life))), flush=True)
