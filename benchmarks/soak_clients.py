"""A soak of clients: 500 waiters on one lock, and clients that live long, whose memory must not grow.

    make soak, or: python benchmarks/soak_clients.py [--quick]

- waiters: so many acquisitions of one lock that begin together, half of them by ``LockClient`` from threads, half by
  ``aio.LockClient`` from tasks; before that a tenth of them;
- life: a client of each kind takes one lock after the other for minutes. Most locks have no other user; some are
  contended, and some are held past a heartbeat.

On ``ticketlock.testing``'s DynamoDB behind HTTP (``memory_server.py`` says why).
"""

import asyncio
import math
import random
import sys
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, repeat
from statistics import fmean, median
from typing import Any, NamedTuple

import psutil
from frame import Run, main
from memory_server import memory_server
from peers.locks import overtakers
from peers.sides import Stay
from ticketlock_local.cloud.deploy import client_arguments

from ticketlock import LockClient, Position, RecordWaitExceeded, aio, create_table
from ticketlock.wire._sdk import make_client

WAITERS, QUICK_WAITERS = (50, 500), (10, 50)
WAITER_HOLDS_S = 0.01
MOST_TIMES_THE_REQUESTS = 3
WORKERS = 12
LIFE_S = 120.0
LEASE_S = 8.0
# A client remembers up to a thousand locks, and forgets them all at once; the rest is held or waited for.
MOST_REMEMBERED = 1_100
MOST_GROWTH_KIB = 2_048
# The average of one worker; some locks are held for half of that.
MOST_S_FOR_A_LOCK = 10
_TABLE = "locks"
_CONTENDED = 5
_ENDS_WITHIN_S = 10
_SAMPLE_EVERY_S = 0.5

Jobs = Callable[[], Iterator[tuple[str, float, float]]]
"""The acquisitions of one worker, of each the lock, how long to hold it, and the record wait."""


@dataclass(slots=True)
class Turn:
    """What became of it, in seconds of the monotonic clock: its stay in the queue, when it began, and its token."""

    stay: Stay = field(default_factory=lambda: Stay(0))
    began_s: float = field(default_factory=time.monotonic)
    token: int = 0

    def waits(self, seen: Position) -> None:
        """A poll has found that it is another waiter's turn."""
        if self.stay.number != seen.place.ticket:
            self.stay = Stay(seen.place.ticket, time.monotonic())

    def note_grant(self, lease: Any) -> None:
        """The lock is held."""
        self.stay.granted_s = time.monotonic()
        self.stay.number = self.stay.number or lease._grant.ticket or 0
        self.token = lease.fencing_token


@dataclass
class Soaked:
    """The workers of both clients: what they were granted (a long life keeps only the number), and why they failed."""

    url: str
    keeps_turns: bool = True
    turns: list[Turn] = field(default_factory=list)
    granted: int = 0
    gave_up: int = 0
    failed: list[str] = field(default_factory=list)
    sent: Counter[str] = field(default_factory=Counter)
    clients: list[Any] = field(default_factory=list)

    def run(self, jobs: Jobs, workers: int) -> None:
        """Let so many threads, and so many tasks, each do jobs."""
        tasks = threading.Thread(target=lambda: asyncio.run(self._by_tasks(jobs, workers)))
        tasks.start()
        self._by_threads(jobs, workers)
        tasks.join()

    def _by_threads(self, jobs: Jobs, workers: int) -> None:
        client = make_client(**client_arguments(self.url))
        self._watch(client)
        with LockClient(_TABLE, client=client, lease=LEASE_S) as locks:
            self.clients.append(locks)

            def work() -> None:
                for lock, hold_s, wait_s in jobs():
                    turn = Turn()
                    with (
                        self._ending(turn),
                        locks.acquire(lock, record_wait=wait_s, on_wait=turn.waits) as lease,
                    ):
                        turn.note_grant(lease)
                        time.sleep(hold_s)

            with ThreadPoolExecutor(workers) as pool:
                done = [pool.submit(work) for _ in range(workers)]
            self.failed += [repr(error) for each in done if (error := each.exception()) is not None]

    async def _by_tasks(self, jobs: Jobs, workers: int) -> None:
        async with aio.LockClient(_TABLE, client_options=client_arguments(self.url), lease=LEASE_S) as locks:
            self._watch(locks._client)
            self.clients.append(locks)

            async def work() -> None:
                for lock, hold_s, wait_s in jobs():
                    turn = Turn()
                    with self._ending(turn):
                        async with locks.acquire(lock, record_wait=wait_s, on_wait=turn.waits) as lease:
                            turn.note_grant(lease)
                            await asyncio.sleep(hold_s)

            done = await asyncio.gather(*(work() for _ in range(workers)), return_exceptions=True)
            self.failed += [repr(each) for each in done if each is not None]

    @contextmanager
    def _ending(self, turn: Turn) -> Iterator[None]:
        try:
            yield
        except RecordWaitExceeded:
            self.gave_up += 1
            return
        self.granted += 1
        if self.keeps_turns:
            self.turns.append(turn)

    def _watch(self, client: Any) -> None:
        def note(model: Any, **_: Any) -> None:
            self.sent[model.name] += 1

        client.meta.events.register("before-call.dynamodb", note)


def waiters(run: Run, number: int) -> float:
    """So many clients take one lock, each once. Returns the requests of each grant."""
    with memory_server() as url:
        client: Any = make_client(**client_arguments(url))
        create_table(_TABLE, client=client)
        seen = Soaked(url)
        seen.run(lambda: repeat(("lock", WAITER_HOLDS_S, math.inf), 1), number // 2)
        pages = client.get_paginator("scan").paginate(TableName=_TABLE)
        left = [item for page in pages for item in page["Items"]]
    judge_waiters(run, number, seen, left)
    turns, grants = seen.turns, max(1, len(seen.turns))
    requests = seen.sent.total() / grants
    if turns:
        waits = sorted((turn.stay.granted_s or 0) - turn.began_s for turn in turns)
        seconds = max(turn.stay.granted_s or 0 for turn in turns) - min(turn.began_s for turn in turns)
        rows = [
            ["grants a second", f"{grants / seconds:.1f}"],
            ["requests a grant", f"{requests:.2f}"],
            ["of these, polls", f"{seen.sent['Query'] / grants:.2f}"],
            ["wait, median and longest", f"{median(waits):.2f} s, {waits[-1]:.2f} s"],
        ]
        run.table(f"{number} waiters, one lock, all at once", ["figure", ""], rows)
    return requests


def judge_waiters(run: Run, number: int, seen: Soaked, left: Sequence[Any]) -> None:
    """The checks of a crowd of waiters, and of what it leaves in the table."""
    turns = sorted(seen.turns, key=lambda turn: turn.stay.granted_s or 0)
    stays = [turn.stay for turn in turns]
    slips = sum(max(0, len(overtakers(stay, stays)) - 1) for stay in stays)
    counts = [int(item[name]["N"]) for item in left for name in ("held", "waiting") if name in item]
    name = f"{number} waiters"
    run.fail(name, seen.failed)
    run.check(f"{name}: every waiter gets the lock", len(turns) == number)
    run.check(f"{name}: no one is overtaken more than once", slips == 0)
    are_rising = all(one.token < other.token for one, other in pairwise(turns))
    run.check(f"{name}: tokens rise from grant to grant", are_rising)
    run.check(f"{name}: only the lock item is left, and no holder", len(left) == 1 and not any(counts))


class Used(NamedTuple):
    """The resources of this process; sockets are files, and entries are those of the maps of one client."""

    threads: float
    files: float
    kib: float
    entries: float


def used(clients: Sequence[LockClient | aio.LockClient], others: Collection[threading.Thread]) -> Used:
    """What is used now, but for the threads of others."""
    # asyncio's threads for host names stay until its loop ends.
    threads = {each for each in threading.enumerate() if not each.name.startswith("asyncio_")}
    entries = [
        len(each._holdings._held._leases)
        + len(each._holdings.known._locks)
        + len(each._under_way._began if isinstance(each, LockClient) else each._waiters)
        for each in clients
    ]
    kib = tracemalloc.get_traced_memory()[0] / 1_024
    return Used(len(threads.difference(others)), psutil.Process().num_fds(), kib, max(entries, default=0))


def life(run: Run, seconds: float) -> None:
    """A client of each kind, for so many seconds."""
    ends_at_s = time.monotonic() + seconds
    with memory_server() as url:
        create_table(_TABLE, client=make_client(**client_arguments(url)))
        soaked, samples, over = Soaked(url, keeps_turns=False), list[Used](), threading.Event()

        def watch() -> None:
            while not over.wait(_SAMPLE_EVERY_S) and time.monotonic() < ends_at_s:
                samples.append(used(soaked.clients, others))

        watcher = threading.Thread(target=watch)
        # A worker of pytest, for one, has threads of its own.
        others = {*threading.enumerate(), watcher}
        tracemalloc.start()
        watcher.start()
        soaked.run(lambda: _jobs(ends_at_s), WORKERS)
        over.set()
        watcher.join()
        # A thread of a closed client may still be on its way out.
        gone_by_s = time.monotonic() + _ENDS_WITHIN_S
        while (closed := used([], others)).threads and time.monotonic() < gone_by_s:
            time.sleep(_SAMPLE_EVERY_S)
        tracemalloc.stop()
    # The first moments fill pools, maps and caches.
    steady = samples[len(samples) // 5 :]
    quarter = max(1, len(steady) // 4)
    first, last = (Used(*map(fmean, zip(*part, strict=True))) for part in (steady[:quarter], steady[-quarter:]))
    names = ("threads", "files", "KiB that Python allocated", "entries of a client's maps")
    rows = [[name, *(f"{each:,.1f}" for each in of)] for name, *of in zip(names, first, last, closed, strict=True)]
    title = f"a client of each kind, {WORKERS} workers each, {seconds:.0f} s"
    run.table(title, ["figure", "first quarter", "last quarter", "closed"], rows)
    run.print(f"{soaked.granted:,} locks taken, {soaked.gave_up:,} waits over")
    judge_life(run, soaked, seconds, first, last, closed)


def judge_life(run: Run, soaked: Soaked, seconds: float, first: Used, last: Used, closed: Used) -> None:
    """The checks of a long life."""
    run.fail("life: a worker fails", soaked.failed)
    run.check("life: no thread outlives the clients", closed.threads == 0)
    run.check("life: what is remembered is bounded", last.entries <= MOST_REMEMBERED)
    a_lock_s = 2 * WORKERS * seconds / max(1, soaked.granted)
    run.compare("life: seconds of a worker for a lock", a_lock_s, most=MOST_S_FOR_A_LOCK, room=1)
    # A short life has less steady time.
    run.compare("life: KiB more at the end", last.kib - first.kib, most=MOST_GROWTH_KIB, room=2)
    run.compare("life: threads more at the end", last.threads - first.threads, most=1, room=2)
    # The pools fill until each worker has had a connection, which a short life may not see.
    full = closed.files + 2 * WORKERS if run.quick else 0
    run.compare("life: files more at the end", last.files - max(first.files, full), most=1, room=2)


def _jobs(ends_at_s: float) -> Iterator[tuple[str, float, float]]:
    """Mostly a lock without other users, sometimes held past a heartbeat."""
    while time.monotonic() < ends_at_s:
        if random.random() < 0.005:
            yield f"long-{random.getrandbits(64)}", LEASE_S * 0.7, math.inf
        elif random.random() < 0.2:
            yield f"contended-{random.randrange(_CONTENDED)}", 0.005, random.choice((math.inf, 0.02))
        else:
            yield f"once-{random.getrandbits(64)}", 0.0, math.inf


def measure(run: Run) -> None:
    """Waiters, few and many; and a long life."""
    few, many = QUICK_WAITERS if run.quick else WAITERS

    def crowds() -> None:
        requests = [waiters(run, number) for number in (few, many)]
        text = f"requests a grant of {many} waiters, of those of {few}"
        run.compare(text, requests[1] / requests[0], most=MOST_TIMES_THE_REQUESTS, room=1)

    run.part(crowds)
    run.part(partial(life, run, LIFE_S / 10 if run.quick else LIFE_S))


if __name__ == "__main__":
    sys.exit(main(measure, __doc__, "a tenth of it"))
