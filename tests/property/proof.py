"""``make proof``, the simulated worlds: broken code, every schedule up to a bound, random schedules with faults.

Each part says how many schedules it ran and what it found; a broken promise comes with the command that replays it.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kit.invariants import ROW_LEASE_MS, most_idle_ms
from property.broken import BROKEN_LOCKS, FOUND
from property.every import KINDS, Kind, every
from property.explore import run
from property.failures import Counts, again
from property.report import Hunt, Report, hunted
from property.slices import WORLDS, Slices, digest_of_code, imported_by
from property.stateful import RULED, found_by_hypothesis
from property.units import proof as units
from property.world import World
from ticketlock_local.checkout import ROOT
from ticketlock_local.release.commit import git

_RANDOM_FOR_EACH_RULED = 20


@dataclass
class Found(Counts[World]):
    """What a part of the search of locks has found.

    Attributes:
        longest_idle_ms: how long at most a lock with a waiter was unused.
    """

    grants: int = 0
    longest_idle_ms: float = 0

    def saw(self, world: World) -> None:
        self.schedules += 1
        self.steps += world.steps
        self.grants += world.checker.grants
        self.longest_idle_ms = max(self.longest_idle_ms, world.checker.longest_idle_ms)

    def add(self, other: "Found") -> None:
        super().add(other)
        self.grants += other.grants
        self.longest_idle_ms = max(self.longest_idle_ms, other.longest_idle_ms)

    @property
    def counted(self) -> Mapping[str, str]:
        return {
            "steps": f"{self.steps:,}",
            "grants": f"{self.grants:,}",
            f"unused at most, s (of {most_idle_ms(ROW_LEASE_MS) / 1_000:.0f})": f"{self.longest_idle_ms / 1_000:.1f}",
        }

    @property
    def is_idle(self) -> bool:
        return not self.grants


def random_ones(seeds: Iterable[int]) -> Found:
    """Random schedules with faults."""
    return Found().after_seeds(run, seeds)


def ruled_ones(seed: int) -> Found:
    """Schedules that Hypothesis' rules make from a seed of their own."""
    found = Found()
    story = found_by_hypothesis(seed, each=found.saw)
    if story is not None:
        found.broken.append(f"{story}\n{again(ruled=seed)}")
    return found


def all_of(kind: Kind) -> Found:
    """Every schedule of two machines of a kind."""
    return Found().after_all(every(kind))


def caught(number: int) -> Hunt:
    """Whether one of the broken locks is caught."""
    return hunted(BROKEN_LOCKS[number])


def locks(report: Report, pool: Executor, slices: Slices) -> None:
    """All parts of the search of locks."""
    locks_all(report, pool, -(-slices.schedules // _RANDOM_FOR_EACH_RULED))
    locks_at_random(report, pool, slices)


def locks_all(report: Report, pool: Executor, ruled: int) -> None:
    """Broken locks, every schedule up to a bound, and schedules by Hypothesis."""
    # In one process after the other: each broken lock replaces the real one while it is searched.
    hunts = [(lock, lock.seen_in, pool.submit(caught, number)) for number, lock in enumerate(BROKEN_LOCKS)]
    for title, were_found in (
        ("Broken locks: what others ship, and this one without one of its precautions", False),
        ("Bugs of this lock that the search has found, put back", True),
    ):
        some = [hunt for hunt in hunts if (hunt[0] in FOUND) is were_found]
        report.hunts(title, some, lambda seed, name: again(seed=seed, lock=name))
    report.counts(
        "Locks: every schedule of two machines, up to a bound",
        Found,
        [(kind.name, pool.submit(all_of, kind)) for kind in KINDS],
    )
    report.counts(
        "Locks: schedules by Hypothesis, step by step",
        Found,
        [("", pool.submit(ruled_ones, seed)) for seed in range(-(-ruled // RULED))],
        asked=ruled,
    )


def locks_at_random(report: Report, pool: Executor, slices: Slices) -> None:
    """Random schedules."""
    report.counts(
        "Locks: random schedules of up to nine machines, with faults",
        Found,
        list(slices.parts("locks", pool, random_ones, Found.of)),
        asked=slices.schedules,
    )


def main() -> None:
    """Search; print the tables; fail if a promise was broken, or if broken code was not caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["locks", "units"], help="one of the worlds; both without it")
    parser.add_argument("--schedules", type=int, default=100_000, help="random ones of each world")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed of those")
    parser.add_argument("--random", action="store_true", help="these alone, without all other parts")
    parser.add_argument("--slices", type=Path, help="a file that keeps their results, as long as the code is the same")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--figures", type=Path, help="a file for the figures, written if nothing failed")
    asked = parser.parse_args()
    report, began = Report(), time.perf_counter()
    worlds = {} if asked.slices is None else WORLDS
    code = {name: digest_of_code(ROOT, imported_by(module, ROOT)) for name, module in worlds.items()}
    slices = Slices(asked.first, asked.schedules, asked.slices, code)
    with ProcessPoolExecutor(asked.workers) as pool:
        if asked.only != "units":
            (locks_at_random if asked.random else locks)(report, pool, slices)
        if asked.only != "locks":
            (units.search_at_random if asked.random else units.search)(report, pool, slices)
    slices.join({"locks": Found.of, "units": units.Found.of}, git(ROOT, "rev-parse", "HEAD"))
    for failure in report.failures:
        report.console.print(failure, style="red", markup=False)
    report.console.print(f"{len(report.failures)} failures, {time.perf_counter() - began:.0f} s")
    if asked.figures is not None and not report.failures:
        asked.figures.write_text(json.dumps(report.figures))
    sys.exit(bool(report.failures))


if __name__ == "__main__":
    main()
