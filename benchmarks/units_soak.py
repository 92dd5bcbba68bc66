"""A soak of units of work: fifty a second for a minute by several processes, 1 in 50 killed, a sweeper beside.

    make soak, or: python benchmarks/units_soak.py [--quick] [--engine NAME]

Units move money between accounts: natively, by marks, and in turn on a few contended accounts. Each has a name, so that
its outcome can be asked for. One in fifty kills its own process, with SIGKILL, at a random moment within 50 ms of its
first request; another process continues with the next unit. Units that meet the marks or the lock of a killed one wait
for the end of its lease, so there are many more processes than cores. Meanwhile snapshots of groups of accounts show
their sums, and the sweeper sweeps.

At the end the sweeper runs as if every lease had ended and no late copy could arrive any more: the Date of the
replies to it is set forward, since no process is left that could be running. Then the accounts must hold what the
committed units have moved, no mark may be left, no unit open, and only rows that TTL deletes.

On dynoxide, if it is built or cargo is installed; otherwise on ministack.
"""

import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import formatdate, parsedate_to_datetime
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

from frame import Run, engine, main, make_table
from ticketlock_local.cloud.deploy import client_arguments

from ticketlock import LockClient, create_table
from ticketlock.errors import OutcomeUnknown, RequestNotApplied, UnitConflict, UnitContended, UnitRolledBack
from ticketlock.units import SERIALIZABLE, Outcome, Swept, Unit, Units, create_units_table
from ticketlock.wire._sdk import make_client

GROUPS, OF_A_GROUP = 200, 100
CONTENDED_GROUPS, OF_A_CONTENDED = 12, 5
"""Money stays in its group, and a group fits into one snapshot. Marks and locks of a killed unit block others for a
lease: since there are many groups, this blocks few."""

PROCESSES, A_SECOND, TOTAL = 24, 50, 3_000
QUICK_A_SECOND, QUICK_TOTAL = 20, 300
LEASE_S = 4

OPENING = 1_000
WAYS = ("native", "marked", "in turn")
KILLED_ONE_IN = 50
KILLED_WITHIN_S = 0.05
LATER_S = 900
"""By then a lease has ended, and the time in which copies may arrive."""

_MARKED_ITEMS = 5
_MOST_AMOUNT = 9
_TRIES = 30
_EVERY_S = 1.0
_A_BATCH = 25
_ASKED_AT_ONCE = 8
_MARK = "_tluMark"
_MET_OTHERS = (UnitConflict, UnitContended, UnitRolledBack)
_GIVEN_UP = (*_MET_OTHERS, OutcomeUnknown, RequestNotApplied)
_LAST_SWEEPS = 3
_READY = "ready"
_LAST_S, _IN_TIME_SHARE = 1, 0.99
"""How much later how many must have ended; the others wait for the lease of a killed one."""
# Forked from a process that has imported everything: to start Python anew after each kill would take the whole machine.
_FORKED = multiprocessing.get_context("forkserver")

# The names of the accounts: those of the contended groups' units take turns.
_WIDE = [[f"account-{number}-{each}" for each in range(OF_A_GROUP)] for number in range(GROUPS)]
_CONTENDED = [[f"contended-{number}-{each}" for each in range(OF_A_CONTENDED)] for number in range(CONTENDED_GROUPS)]
_GROUPS = [*_WIDE, *_CONTENDED]
_NAMES = [name for each in _GROUPS for name in each]


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of every process: the engine, how many processes and units there are, how many units all processes
    begin in a second, and the seed, from which the units follow and after which the tables are named.
    """

    endpoint: str
    processes: int
    total: int
    a_second: float
    seed: str

    def table(self, use: str) -> str:
        """The name of the table of ``units``, ``accounts`` or ``locks``."""
        return f"{use}-{self.seed}"

    def name(self, number: int) -> str:
        """The name of the unit with this number."""
        return f"{self.seed}/{number}"

    def way(self, number: int) -> str:
        """How it is committed."""
        return WAYS[number % len(WAYS)]

    def transfer(self, number: int) -> dict[str, int]:
        """What it adds to which accounts; the sum is 0."""
        chance, way = random.Random(self.name(number)), self.way(number)
        groups = _CONTENDED if way == "in turn" else _WIDE
        names = chance.sample(chance.choice(groups), _MARKED_ITEMS if way == "marked" else 2)
        amounts = [chance.randint(1, _MOST_AMOUNT) for _ in names[1:]]
        return dict(zip(names, [-sum(amounts), *amounts], strict=True))

    def dies_after_s(self, number: int) -> float | None:
        """How long after its first request its process is killed; None for most."""
        fifty, place = divmod(number, KILLED_ONE_IN)
        chance = random.Random(f"{self.name(fifty)} dies")
        return chance.uniform(0, KILLED_WITHIN_S) if chance.randrange(KILLED_ONE_IN) == place else None


class Worker:
    """Runs units, until one of them kills it."""

    def __init__(self, plan: Plan, parent: Connection) -> None:
        self._plan = plan
        self._parent = parent
        self._dies_after_s: float | None = None
        client = make_client(**client_arguments(plan.endpoint))
        client.meta.events.register("before-send.dynamodb", self._sends)
        self._units = Units(plan.table("units"), client=client)
        self._in_turn = Units(
            plan.table("units"), client=client, locks=LockClient(plan.table("locks"), client=client, lease=LEASE_S)
        )

    def work(self) -> None:
        """Run the units whose numbers it gets, one after the other, until it gets none."""
        self._parent.send(_READY)
        while (number := self._parent.recv()) is not None:
            self._dies_after_s = self._plan.dies_after_s(number)
            self._parent.send(self._run(number))

    def _run(self, number: int) -> str:
        name, way = self._plan.name(number), self._plan.way(number)
        try:
            if way == "marked":
                return self._by_marks(number)
            units = self._in_turn if way == "in turn" else self._units

            @units.transactional(name=lambda: name, tries=_TRIES)
            def transfer(unit: Unit) -> None:
                self._move(units, unit, number)

            transfer()
        except _GIVEN_UP as error:
            return type(error).__name__
        return "committed"

    def _by_marks(self, number: int) -> str:
        for attempt in count(1):
            try:
                with self._units.begin(name=self._plan.name(number), engine="marked") as unit:
                    if not unit.repeated:
                        self._move(self._units, unit, number)
                break
            except _MET_OTHERS:
                if attempt == _TRIES:
                    raise
                time.sleep(random.uniform(0, 0.05))
        return "committed"

    def _move(self, units: Units, unit: Unit, number: int) -> None:
        transfer, accounts = self._plan.transfer(number), units.table(self._plan.table("accounts"))
        found = unit.get_all([(accounts, {"id": name}) for name in transfer])
        for (name, amount), item in zip(transfer.items(), found, strict=True):
            assert item is not None
            unit.update(accounts, {"id": name}, "SET balance = :n", {":n": int(item["balance"]) + amount})

    def _sends(self, **_: Any) -> None:
        if self._dies_after_s is not None:
            timer = threading.Timer(self._dies_after_s, os.kill, (os.getpid(), signal.SIGKILL))
            timer.daemon, self._dies_after_s = True, None
            timer.start()


def _work(plan: Plan, parent: Connection) -> None:
    Worker(plan, parent).work()


class Soak:
    """Runs the processes, sweeps, and reads.

    Attributes:
        became: what the processes reported, by the way of the commit.
        snapshots, missed, wrong_sums: how many were read, met conflicts, and showed another sum.
        swept: what the sweeper has done during the run, and at the end.
        took_s: how long the units took, from when all processes were ready.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.became: dict[str, Counter[str]] = {way: Counter() for way in WAYS}
        self.killed = self.snapshots = self.missed = self.wrong_sums = 0
        self.took_s = 0.0
        self.swept: list[Swept] = []
        self.failed: list[str] = []
        self._reported_committed: list[int] = []
        self._client: Any = make_client(**client_arguments(plan.endpoint))
        self._units = Units(plan.table("units"), client=self._client)
        self._lock, self._over = threading.Lock(), threading.Event()
        # Each thread takes the next one.
        self._numbers = iter(range(plan.total))
        self._ended_s: list[float] = []
        # A start reads the exit codes of other processes too, and each can be read once.
        self._forking = threading.Lock()
        self._all_ready, self._began_s = threading.Barrier(plan.processes, action=self._begin), 0.0
        create_units_table(plan.table("units"), client=self._client)
        make_table(self._client, plan.table("accounts"), "id")
        create_table(plan.table("locks"), client=self._client)
        for first in range(0, len(_NAMES), _A_BATCH):
            puts: list[Any] = [
                {"PutRequest": {"Item": {"id": {"S": name}, "balance": {"N": f"{OPENING}"}}}}
                for name in _NAMES[first : first + _A_BATCH]
            ]
            self._client.batch_write_item(RequestItems={plan.table("accounts"): puts})

    def run(self) -> None:
        """Run all units."""
        beside = [threading.Thread(target=self._again, args=(each,)) for each in (self._sweep, self._check_sums)]
        runs = [threading.Thread(target=self._run) for _ in range(self.plan.processes)]
        for thread in [*beside, *runs]:
            thread.start()
        for thread in runs:
            thread.join()
        self.took_s = time.monotonic() - self._began_s
        self._over.set()
        for thread in beside:
            thread.join()

    def judge(self, run: Run) -> None:
        """Sweep once more, and check what is left."""
        for passes in range(1, 1 + _LAST_SWEEPS):
            with _later(passes * LATER_S, self.plan.endpoint) as client:
                self.swept.append(Units(self.plan.table("units"), client=client).sweep(parts=4))
        units = self._units
        due = Counter(dict.fromkeys(_NAMES, OPENING))
        numbers = range(self.plan.total)
        with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
            outcomes = [*pool.map(lambda number: units.outcome(name=self.plan.name(number)).state, numbers)]
        for number, outcome in enumerate(outcomes):
            if outcome is Outcome.COMMITTED:
                due.update(self.plan.transfer(number))
        wrong = [number for number in self._reported_committed if outcomes[number] is not Outcome.COMMITTED]
        items = self._scan(self.plan.table("accounts"))
        balances = {item["id"]["S"]: int(item["balance"]["N"]) for item in items}
        rows = [row for row in self._scan(self.plan.table("units")) if "expiresAt" not in row]
        run.check("every unit has an outcome", Outcome.PENDING not in outcomes)
        run.check("what was reported as committed is", not wrong)
        run.check("the sum is kept", sum(balances.values()) == OPENING * len(due))
        run.check("each account holds what the committed units have moved", balances == dict(due))
        run.check("no mark is left", not any(_MARK in item for item in items))
        run.check("no unit is open", not units.open_units())
        run.check("only rows that TTL deletes are left", not rows)
        run.check("every snapshot beside them showed the sum", self.wrong_sums == 0 and self.snapshots > 0)
        run.check("some processes were killed", self.killed > 0)
        run.fail("failed, and must not", self.failed)
        # All but those that waited for a lease ended as fast as they came.
        in_time_s = self.plan.total / self.plan.a_second + _LAST_S
        share = sum(each <= in_time_s for each in self._ended_s) / self.plan.total
        text = f"{self.plan.a_second:g} a second: the share that has ended within {in_time_s:g} s"
        run.compare(text, share, least=_IN_TIME_SHARE)

    def _scan(self, table: str) -> list[Any]:
        pages = self._client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
        return [item for page in pages for item in page["Items"]]

    def _begin(self) -> None:
        self._began_s = time.monotonic()

    def _run(self) -> None:
        """Run units in one process after the other: a killed one is replaced."""
        is_first = True
        while self._see_to_its_end(is_first=is_first) == -signal.SIGKILL:
            with self._lock:
                self.killed += 1
            is_first = False

    def _see_to_its_end(self, *, is_first: bool) -> int | None:
        """Run units in one process; the first ones begin together. Returns its exit code."""
        process, theirs = _FORKED.Pipe()
        running = _FORKED.Process(target=_work, args=(self.plan, theirs))
        with self._forking:
            running.start()
        theirs.close()
        # A killed process reports nothing more.
        with process, suppress(EOFError, OSError):
            assert process.recv() == _READY
            if is_first:
                self._all_ready.wait()
            for number in self._numbers:
                time.sleep(max(0.0, self._began_s + number / self.plan.a_second - time.monotonic()))
                try:
                    process.send(number)
                    self._became(number, process.recv())
                finally:
                    self._ended_s.append(time.monotonic() - self._began_s)
            process.send(None)
        with self._forking:
            running.join()
        if running.exitcode not in (0, -signal.SIGKILL):
            self.failed.append(f"a process has ended with {running.exitcode}")
            # The others need not wait for one that cannot begin.
            self._all_ready.abort()
        return running.exitcode

    def _became(self, number: int, what: str) -> None:
        with self._lock:
            self.became[self.plan.way(number)][what] += 1
            if what == "committed":
                self._reported_committed.append(number)

    def _again(self, what: Callable[[], None]) -> None:
        while not self._over.wait(_EVERY_S):
            try:
                what()
            except _MET_OTHERS:
                # A snapshot met a conflict: the next one may not.
                self.missed += 1
            except Exception as error:
                self.failed.append(repr(error))

    def _sweep(self) -> None:
        self.swept.append(self._units.sweep(parts=2, timeout=10))

    def _check_sums(self) -> None:
        accounts = self._units.table(self.plan.table("accounts"))
        names = random.choice(_GROUPS)
        found = self._units.get_all([(accounts, {"id": name}) for name in names], isolation=SERIALIZABLE)
        self.snapshots += 1
        self.wrong_sums += sum(int(item["balance"]) for item in found if item) != OPENING * len(found)


@contextmanager
def _later(seconds: float, endpoint: str) -> Iterator[Any]:
    """A client for which the service's clock seems to be so much ahead."""
    client = make_client(**client_arguments(endpoint))

    def set_forward(parsed: dict[str, Any], **_: Any) -> None:
        headers = parsed["ResponseMetadata"]["HTTPHeaders"]
        moment = parsedate_to_datetime(headers["date"]).timestamp() + seconds
        headers["date"] = formatdate(moment, usegmt=True)

    client.meta.events.register("after-call.dynamodb", set_forward)
    yield client
    client.close()


def soak(url: str, *, total: int, processes: int, a_second: float) -> Soak:
    """Run so many units. Returns the result."""
    soaked = Soak(Plan(url, processes, total, a_second, uuid.uuid4().hex[:8]))
    soaked.run()
    return soaked


def show(run: Run, soaked: Soak) -> None:
    """Print the counts."""
    plan, swept = soaked.plan, sum(soaked.swept, Swept())
    outcomes = sorted({what for each in soaked.became.values() for what in each})
    rows = [[way, *(became[what] for what in outcomes)] for way, became in soaked.became.items()]
    title = f"{plan.total} units by {plan.processes} processes in {soaked.took_s:.0f} s"
    run.table(title, ["way", *outcomes], rows)
    run.print(
        f"{soaked.killed} processes killed; the sweeper rolled back {swept.rolled_back} units, finished "
        f"{swept.finished} items and closed {swept.closed} units in {len(soaked.swept)} sweeps; "
        f"{soaked.snapshots} snapshots, {soaked.missed} that met conflicts"
    )


def measure(run: Run) -> None:
    """Run, and judge what is left."""
    total, a_second = (QUICK_TOTAL, QUICK_A_SECOND) if run.quick else (TOTAL, A_SECOND)
    chosen = [run.flags.engine] if run.flags.engine else ["dynoxide", "ministack"]
    with engine(*chosen) as (_, url):

        def soaks() -> None:
            soaked = soak(url, total=total, processes=PROCESSES, a_second=a_second)
            soaked.judge(run)
            show(run, soaked)

        run.part(soaks)


if __name__ == "__main__":
    options = {"choices": ("dynoxide", "ministack"), "help": "default: dynoxide, if it can be had"}
    sys.exit(main(measure, __doc__, "a tenth of it, at less than half the pace", ("--engine", options)))
