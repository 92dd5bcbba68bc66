"""Our lock and those for Python, Java and Go, each in a program of its own, and what is measured of each."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import boto3
from counting_proxy import counting_proxy
from frame import Run, in_turn, make_table
from memory_server import memory_server
from peers.building import BENCHMARKS, built, installed, java_program
from peers.sides import Stay
from programs import Program, program
from ticketlock_local.cloud.deploy import client_arguments, client_environment
from ticketlock_local.errors import LocalCloudError

from ticketlock import create_table

CLIENTS, PROCESSES = 50, 10
POLLS_S = (0.1, 0.5, 2.0)
OURS, OURS_APART = "ours", "ours, apart"
PYTHON, JAVA, GO = "python_dynamodb_lock", "Java", "Go"
LOCKS = (OURS, PYTHON, JAVA, GO)
PINS = BENCHMARKS / "clients-peer-requirements.txt"

_TABLE = "locks"
_TIMEOUT_S = 240
_NS = 1_000_000_000
_AS_FAST = 0.98


@dataclass(frozen=True, slots=True)
class Plan:
    """One kind of crowd, in seconds: the work, the time before counting, the time of counting, and the network's delay
    of each request.
    """

    work_s: float
    settle_s: float
    counted_s: float
    network_s: float = 0

    @property
    def title(self) -> str:
        """What the clients do."""
        network = f", {self.network_s * 1_000:.0f} ms of network" if self.network_s else ""
        return f"{self.work_s * 1_000:.0f} ms of work{network}"


@dataclass(frozen=True, slots=True)
class Crowd:
    """The result of many clients on one lock.

    Attributes:
        grants: a second.
        out_of_order: grants that overtook a client that had come before.
        beyond_one: overtakings of waiters in the queue, without the first of each.
        requests: for each grant; None if the program does not count them.
        longest_wait_s: in the queue, among the granted.
    """

    grants: float
    out_of_order: int
    beyond_one: int
    requests: float | None
    longest_wait_s: float


@dataclass(frozen=True, slots=True)
class Lock:
    """One lock: the command that runs its program, the key attributes of its table (none for ours), and its poll
    intervals (0 for one with a pace of its own).
    """

    name: str
    command: Sequence[str]
    keys: Sequence[str] = ()
    polls_s: Sequence[float] = POLLS_S
    environment: Mapping[str, str] = field(default_factory=dict)

    def make_table(self, url: str, name: str) -> None:
        """Create a table for it."""
        client: Any = boto3.client("dynamodb", **client_arguments(url))
        if self.keys:
            make_table(client, name, *self.keys)
        else:
            create_table(name, client=client)

    def start(self, url: str, table: str, *words: object) -> AbstractContextManager[Program]:
        """Start its program."""
        environment = {**os.environ, **client_environment(url), **self.environment}
        return program(self.name, [*self.command, url, table, *map(str, words)], env=environment)


def _of_python(name: str, *folders: object) -> tuple[list[str], Mapping[str, str]]:
    path = os.pathsep.join(map(str, (BENCHMARKS, *folders, os.environ.get("PYTHONPATH", ""))))
    return [sys.executable, "-m", "peers.lock_program", name], {"PYTHONPATH": path}


def ours() -> Lock:
    """``LockClient``."""
    command, environment = _of_python("ours")
    return Lock(OURS, command, polls_s=(0,), environment=environment)


def of_python() -> Lock:
    """python_dynamodb_lock, from PyPI."""
    command, environment = _of_python(PYTHON, installed("clients-peer", PINS))
    return Lock(PYTHON, command, ("lock_key", "sort_key"), environment=environment)


def _of_java() -> Lock:
    return Lock(JAVA, java_program("java-lock-client"), ("key",))


def _of_go() -> Lock:
    go = shutil.which("go")
    if go is None:
        raise LocalCloudError("There is no `go` here.")
    folder = built("dynamolock", lambda folder: [go, "build", "-o", str(folder / "peer"), "."])
    return Lock(GO, [str(folder / "peer")], ("key",))


def locks(names: Iterable[str], run: Run) -> list[Lock]:
    """Those that can run here; the others are reported."""
    makers = {OURS: ours, PYTHON: of_python, JAVA: _of_java, GO: _of_go}
    found = []
    for name in names:
        try:
            found.append(makers[name]())
        except LocalCloudError as error:
            run.print(f"NOT RACED: {name}. {error}")
    return found


def cycle(lock: Lock, cycles: int, delay_s: float = 0) -> tuple[float, float]:
    """Uncontended: the requests of a cycle, and its milliseconds."""
    with memory_server(delay_s) as engine, counting_proxy(engine) as proxy:
        lock.make_table(engine, _TABLE)
        with lock.start(proxy.url, _TABLE, "cycles", cycles) as running:
            running.line()
            proxy.counts()
            took_ms = int(running.ask("go")) / 1_000
            return proxy.counts().requests.total() / cycles, took_ms


def crowd(
    lock: Lock, plan: Plan, poll_s: float, *, clients: int = CLIENTS, processes: int = 1, lease: str = ""
) -> Crowd:
    """Many clients on one lock, in so many processes; ``lease`` is in milliseconds, and 0 for the lock's own."""
    times = [round(each * 1_000) for each in (plan.work_s, poll_s, plan.settle_s, plan.counted_s)]
    words = [clients // processes, *times, *([lease] if lease else [])]
    with memory_server(plan.network_s) as url, ExitStack() as stack:
        lock.make_table(url, _TABLE)
        running = [stack.enter_context(lock.start(url, _TABLE, "crowd", *words)) for _ in range(processes)]
        outputs = [each.rest(_TIMEOUT_S) for each in running]
    counted = [[int(word) for word in lines[0].split()] for lines in outputs]
    stays = [_stay(line) for lines in outputs for line in lines[1:]]
    began, ended = max(each[0] for each in counted) / _NS, min(each[1] for each in counted) / _NS
    granted = [stay for stay in stays if stay.granted_s is not None and began <= stay.granted_s < ended]
    overtaken = [overtakers(stay, stays) for stay in stays]
    # Of several processes, each counts what it has sent during its own counting time.
    sent = [each[2] * (ended - began) / ((each[1] - each[0]) / _NS) for each in counted if len(each) > 2]
    return Crowd(
        grants=len(granted) / (ended - began),
        out_of_order=len({id(other) for others in overtaken for other in others}),
        beyond_one=sum(max(0, len(others) - 1) for others in overtaken),
        requests=sum(sent) / max(1, len(granted)) if sent else None,
        longest_wait_s=max((stay.granted_s or 0) - (stay.stood_s or stay.granted_s or 0) for stay in granted),
    )


def _stay(line: str) -> Stay:
    number, stood, granted = map(int, line.split())
    return Stay(number, stood / _NS if stood else None, granted / _NS if granted else None)


def overtakers(stay: Stay, stays: Sequence[Stay]) -> list[Stay]:
    """Those that came later, and got the lock while this one was in the queue."""
    if stay.stood_s is None:
        return []
    until = stay.granted_s if stay.granted_s is not None else float("inf")
    return [
        other
        for other in stays
        if other.granted_s is not None and other.number > stay.number and stay.stood_s < other.granted_s < until
    ]


def race(
    run: Run, found: Sequence[Lock], plan: Plan, *, apart: bool = False, lease: str = ""
) -> Mapping[str, list[Crowd]]:
    """Fifty clients with each lock: each peer at the best of its poll intervals, then all in turn.

    With ``apart``, ours from ten processes too. A short run counts half as long.
    """
    if run.quick:
        plan = Plan(plan.work_s, plan.settle_s, plan.counted_s / 2, plan.network_s)
    best, sides = dict[str, float](), dict[str, Callable[[], Crowd]]()
    for lock in found:
        polls_s = lock.polls_s[1:2] if run.quick and len(lock.polls_s) > 1 else lock.polls_s
        best[lock.name] = poll_s = _best_poll_s(run, lock, plan, polls_s, lease)
        sides[lock.name] = lambda lock=lock, poll_s=poll_s: crowd(lock, plan, poll_s, lease=lease)  # type: ignore[misc]
        if apart and lock.name == OURS:
            sides[OURS_APART] = lambda lock=lock: crowd(lock, plan, 0, processes=PROCESSES)  # type: ignore[misc]
    done = in_turn(sides, 1 if run.quick else 3)
    grants = {name: median(each.grants for each in crowds) for name, crowds in done.items()}
    best_peers = max((each for name, each in grants.items() if name not in (OURS, OURS_APART)), default=None)
    rows = []
    for name, crowds in done.items():
        requests = [each.requests for each in crowds if each.requests is not None]
        rows.append(
            [
                name,
                f"{best[name]}" if best.get(name) else "-",
                f"{grants[name]:.2f}",
                f"{grants[name] / best_peers:.2f}" if best_peers else "-",
                f"{median(each.out_of_order for each in crowds):g}",
                f"{sum(each.beyond_one for each in crowds)}" if name in (OURS, OURS_APART) else "-",
                f"{median(requests):.2f}" if requests else "-",
                f"{median(each.longest_wait_s for each in crowds):.2f}",
            ]
        )
    columns = ["lock", "poll, s", "grants a second", "to the best peer's", "out of order"]
    columns += ["overtaken twice", "requests a grant", "longest wait, s"]
    run.table(f"{CLIENTS} clients, {plan.title}: at most {1 / plan.work_s:g} grants a second", columns, rows)
    slips = sum(each.beyond_one for name in (OURS, OURS_APART) for each in done.get(name, ()))
    run.check(f"{plan.title}: no client of ours is overtaken more than once", slips == 0)
    return done


def _best_poll_s(run: Run, lock: Lock, plan: Plan, polls_s: Sequence[float], lease: str) -> float:
    """The longest of the poll intervals that are as fast as the fastest: it sends the fewest requests."""
    if len(polls_s) == 1:
        return polls_s[0]
    tried = {poll_s: crowd(lock, plan, poll_s, lease=lease).grants for poll_s in polls_s}
    rates = ", ".join(f"{grants:.2f} at {poll_s} s" for poll_s, grants in tried.items())
    run.print(f"{lock.name}: grants a second by its poll interval: {rates}")
    return max(poll_s for poll_s, grants in tried.items() if grants >= max(tried.values()) * _AS_FAST)


def killed(found: Sequence[Lock], lease_s: int, after_s: float) -> Mapping[str, float]:
    """For each lock, the seconds from the kill of its holder to its take-over, all at the same time."""
    lease_ms = lease_s * 1_000
    with memory_server() as url, ExitStack() as stack:
        holders, waiters = [], []
        tables = {lock.name: f"{_TABLE}-{lock.name}" for lock in found}
        for lock in found:
            lock.make_table(url, tables[lock.name])
            holders.append(stack.enter_context(lock.start(url, tables[lock.name], "hold", lease_ms)))
            holders[-1].line()
        for lock in found:
            poll_ms = round((lock.polls_s[0] or POLLS_S[0]) * 1_000)
            waiters.append(stack.enter_context(lock.start(url, tables[lock.name], "wait", lease_ms, poll_ms)))
            waiters[-1].line()

        def held_at(waiter: Program) -> float:
            waiter.line()
            return time.monotonic()

        with ThreadPoolExecutor(len(found)) as pool:
            held = [pool.submit(held_at, waiter) for waiter in waiters]
            # The waiters see their holders, and renewals by them.
            time.sleep(after_s)
            for holder in holders:
                holder.process.kill()
            killed_at = time.monotonic()
            return {lock.name: each.result() - killed_at for lock, each in zip(found, held, strict=True)}
