"""The part of ``make proof`` that searches units: everything broken, every schedule up to a bound, random schedules."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field

from property.chance import Seeded
from property.failures import FAILURES, again, story_of
from property.report import HUNTED, Report, chunks
from property.units.broken import VARIANTS, Caught, first_broken
from property.units.every import KINDS, Kind, every
from property.units.explore import run
from property.units.mishaps import STRIKES
from property.units.world import UnitsWorld

ENOUGH = 1_000
"""Schedules in which everything should have gone wrong."""


@dataclass
class Found:
    """What a part of the search of units has found.

    Attributes:
        aborts: tries of units that did not end with a commit, as far as they were told.
        struck: how many times what went wrong.
        broken: each with the command that shows it again.
    """

    schedules: int = 0
    steps: int = 0
    commits: int = 0
    aborts: int = 0
    broken: list[str] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)

    def saw(self, world: UnitsWorld) -> None:
        """A schedule that came to its end."""
        self.schedules += 1
        self.steps += world.witness.step
        self.commits += len(world.witness.committed)
        self.aborts += world.witness.aborts
        self.struck += world.struck

    def add(self, other: "Found") -> None:
        self.schedules += other.schedules
        self.steps += other.steps
        self.commits += other.commits
        self.aborts += other.aborts
        self.broken += other.broken
        self.struck += other.struck

    @property
    def never_struck(self) -> list[str]:
        """What should have gone wrong somewhere, and has not; nothing in a search that is too short to tell."""
        return [each for each in STRIKES if not self.struck[each]] if self.schedules >= ENOUGH else []

    @property
    def counted(self) -> Mapping[str, str]:
        return {"steps": f"{self.steps:,}", "commits": f"{self.commits:,}", "aborts": f"{self.aborts:,}"}

    @property
    def is_idle(self) -> bool:
        return not self.commits


def random_ones(seeds: Iterable[int]) -> Found:
    """Random schedules with faults."""
    found = Found()
    for seed in seeds:
        try:
            found.saw(run(Seeded(seed)))
        except FAILURES as failure:
            found.broken.append(f"{failure}\n{again(units=True, seed=seed)}")
    return found


def all_of(kind: Kind) -> Found:
    """Every schedule of two units of a kind."""
    found = Found()
    try:
        for world in every(kind):
            found.saw(world)
    except FAILURES as failure:
        found.broken.append(story_of(failure))
    return found


def caught(name: str) -> tuple[Caught | None, float]:
    """Whether one of the broken ones is caught, and the time that it took."""
    began = time.perf_counter()
    return first_broken(VARIANTS[name], range(HUNTED)), time.perf_counter() - began


def search(report: Report, pool: Executor, schedules: int) -> None:
    """All parts of it."""
    hunts = [(variant, pool.submit(caught, name)) for name, variant in VARIANTS.items()]
    count = report.hunts(
        "Broken units: these without one of their precautions",
        [(variant, "", hunt) for variant, hunt in hunts],
        lambda seed, name: again(seed=seed, variant=name),
    )
    report.console.print(f"{len(hunts)} broken units, {count} caught")
    report.counts(
        "Units: every schedule of two on two items, up to a bound",
        Found,
        [(kind.name, pool.submit(all_of, kind)) for kind in KINDS],
    )
    found = report.counts(
        "Units: random schedules of up to ten machines, with faults",
        Found,
        [("", pool.submit(random_ones, seeds)) for seeds in chunks(schedules)],
        asked=schedules,
    )
    report.console.print(", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in found.struck.most_common()))
    report.failures += [f"in {found.schedules:,} schedules never went wrong: {name}" for name in found.never_struck]
