"""Units of work beside ScalarDB, as published: its consensus commit on DynamoDB, through the same proxy to one engine.

    make bench-peer, or: PYTHONPATH=tests python benchmarks/units_peer.py [--quick] [--engine NAME ...]

- cost and time: a transaction reads and updates N items, or only reads 10. All sides perform one after the other, in
  turn, without a network and with 5 ms before each request; the median counts. Requests and capacity units are those
  that the proxy saw of one transaction after some others, which fill the caches of each side;
- rivals: twenty threads update one item, with 20 ms of work between the read and the commit.

Ours: reads one by one, and by one ``get_all``; rivals with back-off, and in turn. ScalarDB: with its strictest
isolation, which is ours, and otherwise its defaults; and with its fastest settings: its default isolation, which
permits write skew, a commit in one phase, and an answer before the items are written. Maven builds it under build/; its
rivals back off by the same rule as ours, since it has none of its own.
"""

import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from counting_proxy import CountingProxy, Counts, counting_proxy
from kit.units import KEYS, make_table
from moto_server import moto_server
from quick import options_of
from rich.console import Console
from rich.table import Table
from ticketlock_local.checkout import BUILD, exclusive
from ticketlock_local.cloud.deploy import client_environment
from ticketlock_local.engines.dynoxide import dynoxide
from ticketlock_local.engines.emulator import Emulator
from ticketlock_local.errors import LocalCloudError

from ticketlock import LockClient, create_table
from ticketlock.units import Unit, Units
from ticketlock.wire._sdk import make_client

PEER = "ScalarDB"
SIZES = (1, 3, 10, 100, 500)
QUICK_SIZES = (3, 100)
DELAYS_S = (0.0, 0.005)
TARGETS = {(3, "one by one"): 0.75, (3, "get_all"): 0.4, (100, "one by one"): 1.05, (100, "get_all"): 0.1}
"""With 5 ms: at most so much of ScalarDB's time."""

RIVALS, WORK_S = 20, 0.02

_COUNTS_UNITS = ("dynoxide", "ministack")
_SETTLE_S = 1.0
_SOURCES = Path(__file__).with_name("peers") / "scalardb"
_SETTINGS = {
    PEER: {"scalar.db.consensus_commit.isolation_level": "SERIALIZABLE"},
    "ScalarDB, fastest": {
        "scalar.db.consensus_commit.isolation_level": "SNAPSHOT",
        "scalar.db.consensus_commit.one_phase_commit.enabled": "true",
        "scalar.db.consensus_commit.async_commit.enabled": "true",
    },
}
_ADD, _ADDED = "SET balance = if_not_exists(balance, :zero) + :one", {":zero": 0, ":one": 1}


@dataclass(frozen=True)
class Rivals:
    """The result of a race on one item: commits a second, tries a commit, the luckiest and the unluckiest thread."""

    a_second: float
    tries_a_commit: float
    most: int
    least: int

    @classmethod
    def of(cls, commits: Sequence[int], tries: int, seconds: float) -> "Rivals":
        """From the commits of each thread."""
        return cls(sum(commits) / seconds, tries / max(1, sum(commits)), max(commits), min(commits))


@dataclass(frozen=True)
class Side:
    """One way to do it.

    Attributes:
        update: performs one transaction on the items from a number on: first, how many; returns seconds.
        read: the same, without writes.
        rivals: a race on the item of a number, for so many seconds.
    """

    name: str
    update: Callable[[int, int], float]
    read: Callable[[int, int], float]
    rivals: Callable[[int, int], Rivals]


@dataclass
class Found:
    """The result of one side, at one N.

    Attributes:
        seconds: of each transaction, by the delay.
        counts: of one transaction.
    """

    seconds: dict[float, list[float]] = field(default_factory=lambda: {delay: [] for delay in DELAYS_S})
    counts: Counts | None = None

    def median_ms(self, delay_s: float) -> float:
        """The median of one transaction."""
        return statistics.median(self.seconds[delay_s]) * 1_000


@contextmanager
def engine(name: str) -> Iterator[str]:
    """Run an engine that both sides support; yields its URL."""
    if name == "moto":
        with moto_server() as url:
            yield url
    elif name == "dynoxide":
        with dynoxide() as url:
            yield url
    else:
        with Emulator() as running:
            yield running.endpoint


def built() -> Path:
    """ScalarDB and the program that drives it, under build/.

    Raises:
        LocalCloudError: there is no Maven, or it cannot build them.
    """
    maven = shutil.which("mvn")
    if maven is None or shutil.which("java") is None:
        raise LocalCloudError("ScalarDB needs Java and Maven, and there is no `java` or no `mvn`: nothing to race with")
    folder, stamp = BUILD / "peers" / "scalardb", BUILD / "peers" / "scalardb.txt"
    sources = "".join(path.read_text() for path in sorted(_SOURCES.rglob("*")) if path.is_file())
    with exclusive("scalardb"):
        if not (stamp.exists() and stamp.read_text() == sources):
            shutil.rmtree(folder, ignore_errors=True)
            command = [maven, "--quiet", "--batch-mode", f"-Dpeer.folder={folder}", "compile"]
            command += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
            done = subprocess.run(
                command, cwd=_SOURCES, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
            )
            if done.returncode != 0:
                raise LocalCloudError(f"Maven cannot build ScalarDB:\n{done.stdout}")
            stamp.write_text(sources)
    return folder


@contextmanager
def scalardb(name: str, settings: Mapping[str, str], url: str) -> Iterator[Side]:
    """Start a Java process that creates its tables, and then performs commands."""
    folder = built()
    path = os.pathsep.join([str(folder / "classes"), str(folder / "dependency" / "*")])
    command = ["java", "-Dpeer.key=test", "-cp", path, "Peer", url, *(f"{key}={to}" for key, to in settings.items())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        requests, replies = process.stdin, process.stdout

        def answer() -> str:
            line = replies.readline().strip()
            if not line:
                raise LocalCloudError(f"{name} has ended, with {process.wait()}")
            return line

        def ask(*words: object) -> str:
            print(*words, file=requests, flush=True)
            return answer()

        def rivals(item: int, seconds: int) -> Rivals:
            commits, tries, most, least = map(int, ask("rivals", item, RIVALS, round(WORK_S * 1_000), seconds).split())
            return Rivals(commits / seconds, tries / max(1, commits), most, least)

        def update(first: int, many: int) -> float:
            return int(ask("update", first, many)) / 1_000_000

        def read(first: int, many: int) -> float:
            return int(ask("read", first, many)) / 1_000_000

        try:
            assert answer() == "ready"
            yield Side(name, update, read, rivals)
        finally:
            requests.close()


class Ours:
    """Units through the proxy, on tables of their own."""

    def __init__(self, url: str) -> None:
        self.client = make_client(endpoint_url=url)
        names = {use: f"{use}-{uuid.uuid4().hex[:8]}" for use in ("units", "accounts", "locks")}
        for use in ("units", "accounts"):
            make_table(self.client, names[use], KEYS[use])
        create_table(names["locks"], client=self.client)
        self.locks = LockClient(names["locks"], client=self.client)
        self.units = Units(names["units"], client=self.client)
        self.in_turn = Units(names["units"], client=self.client, locks=self.locks)
        self.accounts = self.units.table(names["accounts"])

    def sides(self) -> Sequence[Side]:
        """Both ways to read, and with them both ways to handle conflicts."""
        return [
            Side(
                name,
                partial(self._timed, self._update, together=together),
                partial(self._timed, self._read, together=together),
                partial(self._rivals, units),
            )
            for name, together, units in (("ours", False, self.units), ("ours, get_all", True, self.in_turn))
        ]

    def _timed(
        self, do: Callable[[Unit, Sequence[Any], bool], None], first: int, many: int, *, together: bool
    ) -> float:
        keys = [{"id": f"account-{number}"} for number in range(first, first + many)]
        began = time.perf_counter()
        with self.units.begin() as unit:
            do(unit, keys, together)
        return time.perf_counter() - began

    def _read(self, unit: Unit, keys: Sequence[Any], together: bool) -> None:
        if together:
            unit.get_all([(self.accounts, key) for key in keys])
        else:
            for key in keys:
                unit.get(self.accounts, key)

    def _update(self, unit: Unit, keys: Sequence[Any], together: bool) -> None:
        self._read(unit, keys, together)
        for key in keys:
            unit.update(self.accounts, key, _ADD, _ADDED)

    def _rivals(self, units: Units, item: int, seconds: int) -> Rivals:
        accounts = units.table(self.accounts.name)
        key, over, commits, tries = {"id": f"account-{item}"}, threading.Event(), [0] * RIVALS, [0] * RIVALS

        @units.transactional(tries=1_000)
        def once(number: int, *, unit: Unit) -> None:
            tries[number] += 1
            unit.get(accounts, key)
            time.sleep(WORK_S)  # the work
            unit.update(accounts, key, _ADD, _ADDED)

        def again_and_again(number: int) -> None:
            while not over.is_set():
                once(number)
                commits[number] += 1

        threads = [threading.Thread(target=again_and_again, args=(number,)) for number in range(RIVALS)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        over.wait(seconds)
        over.set()
        for thread in threads:
            thread.join()
        return Rivals.of(commits, sum(tries), time.perf_counter() - began)


def warm(sides: Sequence[Side], rounds: int) -> None:
    """Let the virtual machine compile what it will run, and open connections."""
    for side in sides:
        for _ in range(rounds):
            side.update(20_000, 3)


def race(
    sides: Sequence[Side],
    proxy: CountingProxy,
    what: Callable[[Side], Callable[[int, int], float]],
    many: int,
    rounds: int,
) -> Mapping[str, Found]:
    """All sides in turn, on items of their own."""
    found = {side.name: Found() for side in sides}
    firsts = {side.name: number * 1_000 for number, side in enumerate(sides)}
    for side in sides:
        # The first transaction may insert, and the next one finishes what others have left.
        for _ in range(2):
            side.update(firsts[side.name], many)
        what(side)(firsts[side.name], many)
        proxy.counts()
        what(side)(firsts[side.name], many)
        # Writes after the answer count, too.
        time.sleep(_SETTLE_S)
        found[side.name].counts = proxy.counts()
    for delay_s in DELAYS_S:
        proxy.delay(delay_s)
        for _ in range(rounds):
            for side in sides:
                found[side.name].seconds[delay_s].append(what(side)(firsts[side.name], many))
    proxy.delay(0)
    return found


def show(console: Console, title: str, engine_name: str, results: Mapping[int, Mapping[str, Found]]) -> None:
    """Print the results."""
    table = Table(title=f"{title}, on {engine_name}", title_justify="left")
    table.add_column("N", justify="right")
    table.add_column("side")
    for column in ("requests", "write units", "read units", "ms", "ms, 5 ms network", "ratio", "ratio, 5 ms"):
        table.add_column(column, justify="right")
    for many, found in results.items():
        for name, each in found.items():
            assert each.counts is not None
            units = (each.counts.write_units, each.counts.read_units) if engine_name in _COUNTS_UNITS else (None, None)
            table.add_row(
                f"{many}",
                name,
                f"{each.counts.in_all}",
                *("-" if figure is None else f"{figure:g}" for figure in units),
                *(f"{each.median_ms(delay):.1f}" for delay in DELAYS_S),
                *(f"{each.median_ms(delay) / found[PEER].median_ms(delay):.2f}" for delay in DELAYS_S),
            )
        table.add_section()
    console.print(table)


def rivals(console: Console, engine_name: str, sides: Sequence[Side], seconds: int) -> None:
    """Race on one item, one side after the other, and print the results."""
    table = Table(title=f"{RIVALS} rivals, {WORK_S * 1_000:.0f} ms of work, on {engine_name}", title_justify="left")
    table.add_column("side")
    for column in ("commits a second", "tries a commit", "luckiest", "unluckiest"):
        table.add_column(column, justify="right")
    named = {"ours": "ours, backing off", "ours, get_all": "ours, in turn"}
    for number, side in enumerate(sides):
        side.update(10_000 + number, 1)
        found = side.rivals(10_000 + number, seconds)
        figures = (f"{found.a_second:.1f}", f"{found.tries_a_commit:.2f}", f"{found.most}", f"{found.least}")
        table.add_row(named.get(side.name, side.name), *figures)
    console.print(table)


def judged(console: Console, results: Mapping[int, Mapping[str, Found]]) -> bool:
    """Print each target, and return whether all are met."""
    all_met = True
    for (many, how), most in TARGETS.items():
        if many in results:
            found = results[many]
            mine = found["ours" if how == "one by one" else "ours, get_all"]
            ratio = mine.median_ms(DELAYS_S[1]) / found[PEER].median_ms(DELAYS_S[1])
            all_met = all_met and ratio <= most
            verdict = "met    " if ratio <= most else "NOT MET"
            text = f"N = {many}, {how}, 5 ms: {ratio:.2f} of ScalarDB's time, at most {most}"
            console.print(f"{verdict}  {text}", highlight=False)
    return all_met


def main() -> int:
    """Race and print; 1 if a target is not met, or one side cannot run."""
    options = options_of(__doc__, "two rounds, N of 3 and 100; a target that is not met is no failure")
    options.add_argument(
        "--engine", action="append", choices=("moto", "ministack", "dynoxide"), help="default: moto and ministack"
    )
    chosen = options.parse_args()
    console, met = Console(width=120), True
    try:
        built()
        for name in chosen.engine or ("moto", "ministack"):
            with ExitStack() as stack:
                url = stack.enter_context(engine(name))
                os.environ |= client_environment(url)
                proxy = stack.enter_context(counting_proxy(url))
                peers = [stack.enter_context(scalardb(*each, proxy.url)) for each in _SETTINGS.items()]
                ours = Ours(proxy.url)
                stack.enter_context(ours.locks)
                sides = [*ours.sides(), *peers]
                warm(sides, 3 if chosen.quick else 100)
                sizes = QUICK_SIZES if chosen.quick else SIZES
                updates = {
                    many: race(sides, proxy, lambda side: side.update, many, 2 if chosen.quick else max(5, 60 // many))
                    for many in sizes
                }
                reads = {10: race(sides, proxy, lambda side: side.read, 10, 2 if chosen.quick else 20)}
                show(console, "a transaction that reads and updates N items", name, updates)
                show(console, "a transaction that only reads 10 items", name, reads)
                rivals(console, name, sides, 2 if chosen.quick else 15)
                met = judged(console, updates) and met
    except LocalCloudError as error:
        print(error, file=sys.stderr)
        return 1
    return int(not (met or chosen.quick))


if __name__ == "__main__":
    sys.exit(main())
