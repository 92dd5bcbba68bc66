"""``make proof``, the simulated world: every broken lock, every schedule of two machines, random schedules with faults.

Each part says how many schedules it ran and what it found; a broken promise comes with the command that shows it again.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field

from kit.invariants import MOST_IDLE_MS
from property.broken import BROKEN_LOCKS, FOUND, BrokenLock
from property.chance import Seeded
from property.every import KINDS, Kind, every
from property.explore import Caught, first_broken, run
from property.failures import FAILURES, again, story_of
from property.stateful import RULED, told_by_hypothesis
from property.world import World
from rich.console import Console
from rich.table import Table

_A_CHUNK = 250
_HUNTED = 10_000
# A command that shows something again is on one line, also in a log.
_LINE = 220
_TOLD = 10_000


@dataclass
class Found:
    """What a part of the search has found.

    Attributes:
        longest_idle_ms: for how long a lock that somebody wanted was left unused at most.
        broken: each with the command that shows it again.
    """

    schedules: int = 0
    steps: int = 0
    grants: int = 0
    longest_idle_ms: float = 0
    broken: list[str] = field(default_factory=list)

    def saw(self, world: World) -> None:
        """A schedule that came to its end."""
        self.schedules += 1
        self.steps += world.steps
        self.grants += world.witness.grants
        self.longest_idle_ms = max(self.longest_idle_ms, world.witness.longest_idle_ms)

    def add(self, other: "Found") -> None:
        self.schedules += other.schedules
        self.steps += other.steps
        self.grants += other.grants
        self.longest_idle_ms = max(self.longest_idle_ms, other.longest_idle_ms)
        self.broken += other.broken


def random_ones(seeds: Iterable[int]) -> Found:
    """Random schedules with faults."""
    found = Found()
    for seed in seeds:
        try:
            found.saw(run(Seeded(seed)))
        except FAILURES as failure:
            found.broken.append(f"{failure}\n{again(seed=seed)}")
    return found


def ruled_ones(seed: int) -> Found:
    """Schedules by Hypothesis' rules, from a seed of its own."""
    found = Found()
    story = told_by_hypothesis(seed, each=found.saw)
    if story is not None:
        found.broken.append(f"{story}\n{again(ruled=seed)}")
    return found


def all_of(kind: Kind) -> Found:
    """Every schedule of two machines of a kind."""
    found = Found()
    try:
        for world in every(kind):
            found.saw(world)
    except FAILURES as failure:
        found.broken.append(story_of(failure))
    return found


def caught(number: int) -> tuple[Caught | None, float]:
    """Whether one of the broken locks is caught, and the time that it took."""
    began = time.perf_counter()
    return first_broken(BROKEN_LOCKS[number], range(_HUNTED)), time.perf_counter() - began


def chunks(schedules: int) -> Iterator[range]:
    """All seeds, in parts."""
    for first in range(0, schedules, _A_CHUNK):
        yield range(first, min(first + _A_CHUNK, schedules))


class Report:
    """What is printed, as it comes, and whether all is well."""

    def __init__(self) -> None:
        self.console = Console() if sys.stdout.isatty() else Console(width=_LINE)
        self.failures: list[str] = []

    def hunts(self, hunts: Sequence[tuple[BrokenLock, Future[tuple[Caught | None, float]]]]) -> None:
        """Every broken lock, and by what it was caught."""
        count = 0
        for title, were_found in (
            ("Broken locks: what others ship, and this one without one of its precautions", False),
            ("Bugs of this lock that the search has found, put back", True),
        ):
            table = Table("broken", "as in", "caught by", "shown again by", title=title)
            for lock, hunt in hunts:
                if (lock in FOUND) is not were_found:
                    continue
                prey, took_s = hunt.result()
                if prey is None:
                    sought = f"{', '.join(sorted(lock.caught_by))} in {_HUNTED:,} schedules, {took_s:.0f} s"
                    self.failures.append(f"not caught by {sought}: {lock.name}")
                    table.add_row(lock.name, lock.seen_in, "NOT CAUGHT", "-")
                else:
                    table.add_row(lock.name, lock.seen_in, prey.promise, again(seed=prey.seed, lock=lock.name))
                    count += 1
            self.console.print(table)
        self.console.print(f"{len(hunts)} broken locks, {count} caught")

    def counts(self, title: str, parts: Iterable[tuple[str, Future[Found]]], *, asked: int | None = None) -> None:
        """How many schedules, and what they found.

        Args:
            asked: how many there have to be at least, told in one line; None for a line of each part.
        """
        unused = f"unused at most, s (of {MOST_IDLE_MS / 1_000:.0f})"
        table = Table("", "schedules", "steps", "grants", unused, "broken", title=title)
        total = Found()
        for name, future in parts:
            found = future.result()
            total.add(found)
            if asked is None:
                table.add_row(*_row(name, found))
            elif total.schedules // _TOLD > (total.schedules - found.schedules) // _TOLD:
                self.console.print(f"{total.schedules:,} schedules, {len(total.broken)} broken", style="dim")
            if not found.grants and not found.broken:
                self.failures.append(f"{title}: nobody was granted anything in {found.schedules:,} schedules {name}")
        table.add_row(*_row("all", total))
        self.console.print(table)
        self.failures += total.broken
        if asked is not None and total.schedules + len(total.broken) < asked:
            self.failures.append(f"{title}: {total.schedules:,} schedules were run, and {asked:,} asked for")


def _row(name: str, found: Found) -> tuple[str, ...]:
    counted = (f"{number:,}" for number in (found.schedules, found.steps, found.grants))
    return name, *counted, f"{found.longest_idle_ms / 1_000:.1f}", str(len(found.broken))


def main() -> None:
    """Search; prints the tables; fails if a promise was broken, or a broken lock was not caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=100_000)
    parser.add_argument("--ruled", type=int, default=5_000)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    report, began = Report(), time.perf_counter()
    with ProcessPoolExecutor(asked.workers) as pool:
        # In one process after the other: each broken lock is put in the place of the real one while it is hunted.
        report.hunts([(lock, pool.submit(caught, number)) for number, lock in enumerate(BROKEN_LOCKS)])
        report.counts(
            "Every schedule of two machines, up to a bound",
            [(kind.name, pool.submit(all_of, kind)) for kind in KINDS],
        )
        report.counts(
            "Schedules by Hypothesis, step by step",
            [("", pool.submit(ruled_ones, seed)) for seed in range(-(-asked.ruled // RULED))],
            asked=asked.ruled,
        )
        report.counts(
            "Random schedules of up to nine machines, with faults",
            [("", pool.submit(random_ones, seeds)) for seeds in chunks(asked.schedules)],
            asked=asked.schedules,
        )
    for failure in report.failures:
        report.console.print(failure, style="red", markup=False)
    report.console.print(f"{len(report.failures)} failures, {time.perf_counter() - began:.0f} s")
    sys.exit(bool(report.failures))


if __name__ == "__main__":
    main()
