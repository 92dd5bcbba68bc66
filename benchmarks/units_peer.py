"""Units of work beside ScalarDB, as published: its consensus commit on DynamoDB, through the same proxy to one engine.

    make bench-peer, or: python benchmarks/units_peer.py [--quick] [--engine NAME ...]

The sides:

- ours: reads one by one; rivals back off.
- ours, get_all: reads by one ``get_all``; rivals take turns.
- ours, together and ours, behind, and both: likewise one by one, with ``mark_together`` and ``finish_behind``, which
  differ for more than 100 items; ``close`` follows, and is not timed.
- ScalarDB: its strictest isolation, which is ours, and otherwise its defaults.
- ScalarDB, fastest: its default isolation, which permits write skew, a commit in one phase, and an answer before the
  items are written.

Maven builds ScalarDB under build/. Its rivals back off by the same rule as ours, since it has none of its own.

What is measured:

- time: a transaction reads and updates N items, or only reads 10. All sides perform one after the other, in turn,
  without a network and with 5 ms before each request; the median counts.
- cost: the requests and capacity units that the proxy saw of one such transaction, after some others, which fill the
  caches of each side.
- rivals: twenty threads update one item, with 20 ms of work between the read and the commit.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Literal

from counting_proxy import CountingProxy, Counts, counting_proxy
from frame import Run, engine, in_turn, main, ratio, timed
from peers.building import java_program
from programs import program
from units_cost import RACE_COLUMNS, RIVALS, WORK_S, Race, Subject, race

from ticketlock import LockClient
from ticketlock.units import Units
from ticketlock.units._statements._work import MOST_ACTIONS

PEER = "ScalarDB"
SIZES = (1, 3, 10, 100, 500)
QUICK_SIZES = (3, 10)
READ_SIZE = 10
NETWORK_S = 0.005
DELAYS_S = (0.0, NETWORK_S)
MOST_OF_SCALARDB = {
    (3, "ours"): 0.75,
    (3, "ours, get_all"): 0.4,
    (100, "ours"): 1.05,
    (100, "ours, get_all"): 0.1,
    (500, "ours, both"): 1.1,
    (500, "ours, get_all"): 0.5,
}
"""By N and side: at most so much of ScalarDB's time, with the delay of a network."""

_NETWORK = f"{NETWORK_S * 1_000:.0f} ms"
_WRITES_AFTER_THE_ANSWER_S = 1.0
_US_A_SECOND = 1_000_000
_SETTINGS = {
    PEER: {"scalar.db.consensus_commit.isolation_level": "SERIALIZABLE"},
    "ScalarDB, fastest": {
        "scalar.db.consensus_commit.isolation_level": "SNAPSHOT",
        "scalar.db.consensus_commit.one_phase_commit.enabled": "true",
        "scalar.db.consensus_commit.async_commit.enabled": "true",
    },
}
_ADD = ("SET balance = if_not_exists(balance, :zero) + :one", {":zero": 0, ":one": 1})

# Where each part's items begin; none overlap.
_SIDE_ITEMS = 1_000  # of each side, from 0 on: more than the largest N
_RIVALS_ITEM = 10_000
_WARM_UP_ITEM = 20_000

_WARM_UP_N = 3
_WARM_UPS, _QUICK_WARM_UPS = 100, 3
_UPDATED_ITEMS, _LEAST_ROUNDS = 60, 5
"""At each N, as many rounds as update so many items, but at least so many rounds."""
_READ_ROUNDS = 20
_QUICK_ROUNDS = 2
_RACE_S, _QUICK_RACE_S = 15, 2

Kind = Literal["update", "read"]


@dataclass(frozen=True)
class Side:
    """One implementation with its settings.

    Attributes:
        name: in the tables of transactions.
        race_name: how it handles conflicts, for the table of the race.
        update: reads and updates ``count`` items from number ``first`` on; returns seconds.
        read: only reads them; returns seconds.
        race: twenty threads update the item of a number for some seconds; None for no race.
        settle: what it does after its answer, before the next side begins.
    """

    name: str
    race_name: str
    update: Callable[[int, int], float]
    read: Callable[[int, int], float]
    race: Callable[[int, int], Race] | None
    settle: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Measured:
    """The result of one side, at one N.

    Attributes:
        counts: of one transaction.
        ms: the median by delay in seconds.
    """

    counts: Counts
    ms: Mapping[float, float]


@contextmanager
def scalardb(name: str, settings: Mapping[str, str], url: str) -> Iterator[Side]:
    """Start a Java process that creates its tables, and then performs commands.

    Each command is a line, and so is its answer:

    - update or read, first, count: microseconds.
    - rivals, item, threads, milliseconds of work, seconds: the commits, the tries, and the most and the least commits
      of a thread.

    Yields:
        The side that sends it commands.
    """
    command = [*java_program("scalardb"), url, *(f"{key}={to}" for key, to in settings.items())]
    with program(name, command) as running:

        def perform(kind: Kind, first: int, count: int) -> float:
            return int(running.ask(kind, first, count)) / _US_A_SECOND

        def race_peer(item: int, seconds: int) -> Race:
            answer = running.ask("rivals", item, RIVALS, round(WORK_S * 1_000), seconds)
            commits, tries, most, least = map(int, answer.split())
            return Race(commits / seconds, tries / max(1, commits), most, least)

        assert running.line() == "ready"
        yield Side(name, name, partial(perform, "update"), partial(perform, "read"), race_peer)


@contextmanager
def ours(url: str) -> Iterator[Sequence[Side]]:
    """Both ways to read, and with them both ways to handle conflicts, on tables of their own.

    Yields:
        The two sides.
    """
    subject = Subject(url)
    with LockClient(subject.names["locks"], client=subject.client) as locks:
        units_in_turn = Units(subject.names["units"], client=subject.client, locks=locks)

        def side(name: str, race_name: str, race_units: Units, *, together: bool) -> Side:
            accounts = race_units.table(subject.names["accounts"])

            def update(first: int, count: int) -> float:
                return timed(lambda: subject.update(_keys(first, count), together=together, update=_ADD))

            def read(first: int, count: int) -> float:
                return timed(lambda: subject.read_only(_keys(first, count), together=together))

            def race_ours(item: int, seconds: int) -> Race:
                return race(race_units, accounts, _keys(item, 1)[0], seconds)

            return Side(name, race_name, update, read, race_ours)

        def choice(name: str, *, mark_together: bool = False, finish_behind: bool = False) -> Side:
            other, table = Subject(url, subject.names), subject.names["units"]
            other.units = Units(table, client=other.client, mark_together=mark_together, finish_behind=finish_behind)
            other.accounts = other.units.table(other.names["accounts"])

            def update(first: int, count: int) -> float:
                return timed(lambda: other.update(_keys(first, count), together=False, update=_ADD))

            return Side(name, name, update, update, None, other.units.close)

        yield [
            side("ours", "ours, backing off", subject.units, together=False),
            side("ours, get_all", "ours, in turn", units_in_turn, together=True),
            choice("ours, together", mark_together=True),
            choice("ours, behind", finish_behind=True),
            choice("ours, both", mark_together=True, finish_behind=True),
        ]


def _keys(first: int, count: int) -> list[dict[str, str]]:
    return [{"id": f"account-{number}"} for number in range(first, first + count)]


def warm_up(run: Run, sides: Sequence[Side]) -> None:
    """Let Java's virtual machine compile what it will run, and all sides open their connections."""
    for side in sides:
        for _ in range(_QUICK_WARM_UPS if run.quick else _WARM_UPS):
            side.update(_WARM_UP_ITEM, _WARM_UP_N)


def compared(
    sides: Sequence[Side], proxy: CountingProxy, kind: Kind, count: int, rounds: int
) -> Mapping[str, Measured]:
    """All sides, each on items of its own: the results by the side's name."""
    counts, does = {}, {}
    for number, side in enumerate(sides):
        first = number * _SIDE_ITEMS
        # The first transaction may insert, and the next one finishes what others have left.
        for _ in range(2):
            side.update(first, count)
            side.settle()
        does[side.name] = do = partial(_settled, side, kind, first, count)
        counts[side.name] = _counts(proxy, do)
    ms = _ms(proxy, does, rounds)
    return {name: Measured(counts[name], ms[name]) for name in does}


def _settled(side: Side, kind: Kind, first: int, count: int) -> float:
    seconds = (side.update if kind == "update" else side.read)(first, count)
    side.settle()
    return seconds


def _counts(proxy: CountingProxy, do: Callable[[], object]) -> Counts:
    """What the proxy sees of one transaction, after another one of its kind."""
    do()
    proxy.counts()
    do()
    # Writes after the answer count, too.
    time.sleep(_WRITES_AFTER_THE_ANSWER_S)
    return proxy.counts()


def _ms(
    proxy: CountingProxy, does: Mapping[str, Callable[[], float]], rounds: int
) -> Mapping[str, Mapping[float, float]]:
    """All sides in turn, with each delay: the median milliseconds, by side and by delay in seconds."""
    ms: dict[str, dict[float, float]] = {name: {} for name in does}
    for delay_s in DELAYS_S:
        proxy.delay(delay_s)
        for name, seconds in in_turn(does, rounds).items():
            ms[name][delay_s] = median(seconds) * 1_000
    proxy.delay(0)
    return ms


def show(run: Run, title: str, on: str, results: Mapping[int, Mapping[str, Measured]]) -> None:
    """Print the results."""
    rows: list[list[object]] = []
    for count, measured in results.items():
        for name, each in measured.items():
            capacity = (each.counts.write_units, each.counts.read_units)
            ratios = [ratio(each.ms[delay_s], measured[PEER].ms[delay_s]) for delay_s in DELAYS_S]
            counts = [each.counts.requests.total(), *("-" if figure is None else float(figure) for figure in capacity)]
            rows.append([count, name, *counts, *(f"{ms:.1f}" for ms in each.ms.values()), *ratios])
        rows.append([])
    times = ("ms", f"ms, {_NETWORK} network", "ratio", f"ratio, {_NETWORK}")
    run.table(f"{title}, on {on}", ("N", "side", "requests", "write units", "read units", *times), rows, texts=2)


def print_race(run: Run, on: str, sides: Sequence[Side]) -> None:
    """Race on one item, one side after the other, and print the results."""
    rows = []
    for item, side in enumerate(sides, _RIVALS_ITEM):
        if side.race is not None:
            side.update(item, 1)
            rows.append([side.race_name, *side.race(item, _QUICK_RACE_S if run.quick else _RACE_S).cells])
    run.table(f"{RIVALS} rivals, {WORK_S * 1_000:.0f} ms of work, on {on}", RACE_COLUMNS, rows)


def check_targets(run: Run, on: str, updates: Mapping[int, Mapping[str, Measured]]) -> None:
    """Compare our times with ScalarDB's, at each N that was measured."""
    for (count, name), most in MOST_OF_SCALARDB.items():
        if count in updates:
            took, peer_took = (updates[count][each].ms[NETWORK_S] for each in (name, PEER))
            run.compare(f"{on}: N = {count}, {name}, {_NETWORK}, of {PEER}'s time", took / peer_took, most=most)


def measure(run: Run) -> None:
    """Both kinds of transactions, and the race, on each engine."""
    # Before the engines start: to build it takes minutes.
    java_program("scalardb")
    for name in run.flags.engine or ("ministack",):
        with engine(name) as (_, url), counting_proxy(url) as proxy, ExitStack() as stack:
            mine = stack.enter_context(ours(proxy.url))
            sides = [*mine, *(stack.enter_context(scalardb(*each, proxy.url)) for each in _SETTINGS.items())]
            warm_up(run, sides)
            # The choices differ only where units are committed by marks.
            few = [side for side in sides if side.race is not None]
            run.part(partial(_updates, run, name, sides, few, proxy))
            read_rounds = _QUICK_ROUNDS if run.quick else _READ_ROUNDS
            reads = {READ_SIZE: compared(few, proxy, "read", READ_SIZE, read_rounds)}
            show(run, f"a transaction that only reads {READ_SIZE} items", name, reads)
            print_race(run, name, sides)


def _updates(run: Run, on: str, sides: Sequence[Side], few: Sequence[Side], proxy: CountingProxy) -> None:
    updates = {
        count: compared(few if count <= MOST_ACTIONS else sides, proxy, "update", count, _rounds(run, count))
        for count in (QUICK_SIZES if run.quick else SIZES)
    }
    show(run, "a transaction that reads and updates N items", on, updates)
    check_targets(run, on, updates)


def _rounds(run: Run, count: int) -> int:
    return _QUICK_ROUNDS if run.quick else max(_LEAST_ROUNDS, _UPDATED_ITEMS // count)


if __name__ == "__main__":
    engines = {"action": "append", "choices": ("ministack", "dynoxide"), "help": "default: ministack"}
    quick = f"two rounds, N of {' and '.join(map(str, QUICK_SIZES))}"
    sys.exit(main(measure, __doc__, quick, ("--engine", engines)))
