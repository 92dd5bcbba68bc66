"""Units of work beside ScalarDB, as published: its consensus commit on DynamoDB, through the same proxy to one engine.

    make bench-peer, or: python benchmarks/units_peer.py [--quick] [--engine NAME ...]

- cost and time: a transaction reads and updates N items, or only reads 10. All sides perform one after the other, in
  turn, without a network and with 5 ms before each request; the median counts. Requests and capacity units are those
  that the proxy saw of one transaction after some others, which fill the caches of each side;
- rivals: twenty threads update one item, with 20 ms of work between the read and the commit.

Ours: reads one by one, and by one ``get_all``; rivals with back-off, and in turn. ScalarDB: with its strictest
isolation, which is ours, and otherwise its defaults; and with its fastest settings: its default isolation, which
permits write skew, a commit in one phase, and an answer before the items are written. Maven builds it under build/; its
rivals back off by the same rule as ours, since it has none of its own.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from counting_proxy import CountingProxy, Counts, counting_proxy
from frame import Run, engine, in_turn, main, median, ratio, timed
from peers.building import java_program
from programs import program
from units_cost import RACE_COLUMNS, RIVALS, WORK_S, Race, Subject, race

from ticketlock import LockClient
from ticketlock.units import Units

PEER = "ScalarDB"
SIZES = (1, 3, 10, 100, 500)
QUICK_SIZES = (3, 100)
DELAYS_S = (0.0, 0.005)
TARGETS = {(3, "ours"): 0.75, (3, "ours, get_all"): 0.4, (100, "ours"): 1.05, (100, "ours, get_all"): 0.1}
"""With 5 ms: at most so much of ScalarDB's time."""

_COUNTS_UNITS = ("dynoxide", "ministack")
_SETTLE_S = 1.0
_SETTINGS = {
    PEER: {"scalar.db.consensus_commit.isolation_level": "SERIALIZABLE"},
    "ScalarDB, fastest": {
        "scalar.db.consensus_commit.isolation_level": "SNAPSHOT",
        "scalar.db.consensus_commit.one_phase_commit.enabled": "true",
        "scalar.db.consensus_commit.async_commit.enabled": "true",
    },
}
_ADD = ("SET balance = if_not_exists(balance, :zero) + :one", {":zero": 0, ":one": 1})
_RIVALS_ITEM = 10_000
_NAMES_OF_RIVALS = {"ours": "ours, backing off", "ours, get_all": "ours, in turn"}


@dataclass(frozen=True)
class Side:
    """One way to perform a transaction on the items from a number on, so many, which returns its seconds; to only read
    them; and to race on the item of a number, for so many seconds.
    """

    name: str
    update: Callable[[int, int], float]
    read: Callable[[int, int], float]
    rivals: Callable[[int, int], Race]


@dataclass(frozen=True)
class Found:
    """The result of one side, at one N: of one transaction, its counts, and the milliseconds by the delay."""

    counts: Counts
    ms: Mapping[float, float]


@contextmanager
def scalardb(name: str, settings: Mapping[str, str], url: str) -> Iterator[Side]:
    """Start a Java process that creates its tables, and then performs commands."""
    command = [*java_program("scalardb"), url, *(f"{key}={to}" for key, to in settings.items())]
    with program(name, command) as running:

        def perform(what: str, first: int, many: int) -> float:
            return int(running.ask(what, first, many)) / 1_000_000

        def rivals(item: int, seconds: int) -> Race:
            answer = running.ask("rivals", item, RIVALS, round(WORK_S * 1_000), seconds)
            commits, tries, most, least = map(int, answer.split())
            return Race(commits / seconds, tries / max(1, commits), most, least)

        assert running.line() == "ready"
        yield Side(name, partial(perform, "update"), partial(perform, "read"), rivals)


@contextmanager
def ours(url: str) -> Iterator[Sequence[Side]]:
    """Both ways to read, and with them both ways to handle conflicts, on tables of their own."""
    subject = Subject(url)
    with LockClient(subject.names["locks"], client=subject.client) as locks:
        in_turns = Units(subject.names["units"], client=subject.client, locks=locks)

        def side(name: str, units: Units, *, together: bool) -> Side:
            accounts = units.table(subject.names["accounts"])

            def update(first: int, many: int) -> float:
                return timed(lambda: subject.update(_keys(first, many), together=together, update=_ADD))

            def read(first: int, many: int) -> float:
                return timed(lambda: subject.read_only(_keys(first, many), together=together))

            return Side(name, update, read, lambda item, seconds: race(units, accounts, _keys(item, 1)[0], seconds))

        yield [
            side("ours", subject.units, together=False),
            side("ours, get_all", in_turns, together=True),
        ]


def _keys(first: int, many: int) -> list[dict[str, str]]:
    return [{"id": f"account-{number}"} for number in range(first, first + many)]


def compared(sides: Sequence[Side], proxy: CountingProxy, what: str, many: int, rounds: int) -> Mapping[str, Found]:
    """All sides in turn, on items of their own; ``what`` is ``update`` or ``read``."""
    counts, does = {}, {}
    for number, side in enumerate(sides):
        first = number * 1_000
        does[side.name] = do = partial(getattr(side, what), first, many)
        # The first transaction may insert, and the next one finishes what others have left.
        for _ in range(2):
            side.update(first, many)
        do()
        proxy.counts()
        do()
        # Writes after the answer count, too.
        time.sleep(_SETTLE_S)
        counts[side.name] = proxy.counts()
    seconds = {}
    for delay_s in DELAYS_S:
        proxy.delay(delay_s)
        seconds[delay_s] = in_turn(does, rounds)
    proxy.delay(0)
    return {
        name: Found(counts[name], {delay_s: median(took[name]) * 1_000 for delay_s, took in seconds.items()})
        for name in does
    }


def show(run: Run, title: str, on: str, results: Mapping[int, Mapping[str, Found]]) -> None:
    """Print the results."""
    rows: list[list[object]] = []
    for many, found in results.items():
        for name, each in found.items():
            units = (each.counts.write_units, each.counts.read_units) if on in _COUNTS_UNITS else (None, None)
            ratios = [ratio(each.ms[delay_s], found[PEER].ms[delay_s]) for delay_s in DELAYS_S]
            counts = [each.counts.requests.total(), *("-" if figure is None else float(figure) for figure in units)]
            rows.append([many, name, *counts, *(f"{ms:.1f}" for ms in each.ms.values()), *ratios])
        rows.append([])
    columns = ("N", "side", "requests", "write units", "read units", "ms", "ms, 5 ms network", "ratio", "ratio, 5 ms")
    run.table(f"{title}, on {on}", columns, rows, texts=2)


def rivals(run: Run, on: str, sides: Sequence[Side]) -> None:
    """Race on one item, one side after the other, and print the results."""
    rows = []
    for item, side in enumerate(sides, _RIVALS_ITEM):
        side.update(item, 1)
        found = side.rivals(item, 2 if run.quick else 15)
        rows.append([_NAMES_OF_RIVALS.get(side.name, side.name), *found.cells])
    run.table(f"{RIVALS} rivals, {WORK_S * 1_000:.0f} ms of work, on {on}", RACE_COLUMNS, rows)


def measure(run: Run) -> None:
    """Both kinds of transactions, and the race, on each engine."""
    java_program("scalardb")
    for name in run.flags.engine or ("moto", "ministack"):
        with engine(name) as (_, url), counting_proxy(url) as proxy, ExitStack() as stack:
            mine = stack.enter_context(ours(proxy.url))
            sides = [*mine, *(stack.enter_context(scalardb(*each, proxy.url)) for each in _SETTINGS.items())]
            for side in sides:
                # The virtual machine compiles what it will run, and connections are opened.
                for _ in range(3 if run.quick else 100):
                    side.update(20_000, 3)
            updates = {
                many: compared(sides, proxy, "update", many, 2 if run.quick else max(5, 60 // many))
                for many in (QUICK_SIZES if run.quick else SIZES)
            }
            reads = {10: compared(sides, proxy, "read", 10, 2 if run.quick else 20)}
            show(run, "a transaction that reads and updates N items", name, updates)
            show(run, "a transaction that only reads 10 items", name, reads)
            rivals(run, name, sides)
            for (many, side_name), most in TARGETS.items():
                if many in updates:
                    took = [updates[many][each].ms[DELAYS_S[1]] for each in (side_name, PEER)]
                    text = f"{name}: N = {many}, {side_name}, 5 ms: {ratio(*took)} of ScalarDB's time, at most {most}"
                    run.check(text, took[0] <= most * took[1], of_speed=True)


if __name__ == "__main__":
    engines = {"action": "append", "choices": ("moto", "ministack", "dynoxide"), "help": "default: moto and ministack"}
    quick = "two rounds, N of 3 and 100; a target that is not met is no failure"
    sys.exit(main(measure, __doc__, quick, ("--engine", engines)))
