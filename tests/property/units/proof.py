"""The part of ``make proof`` about units: broken units, every schedule up to a bound, random schedules."""

from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field

from property.failures import Counts, again
from property.report import Hunt, Report, hunted
from property.slices import Slices
from property.units.broken import VARIANTS
from property.units.every import KINDS, Kind, every
from property.units.explore import run
from property.units.machines import STRIKES
from property.units.tries import KINDS_DONE
from property.units.world import UnitsWorld

ENOUGH = 1_000
"""In so many schedules every fault should have been injected, and everything been done."""


@dataclass
class Found(Counts[UnitsWorld]):
    """What a part of the search of units has found.

    Attributes:
        aborts: tries of units that did not end with a commit, as reported to their machines.
        struck: how often each fault was injected.
        done: how often each kind of read and statement was performed.
    """

    commits: int = 0
    aborts: int = 0
    struck: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)

    def saw(self, world: UnitsWorld) -> None:
        self.schedules += 1
        self.steps += world.checker.step
        self.commits += len(world.checker.committed)
        self.aborts += world.checker.aborts
        self.struck += world.struck
        self.done += world.done

    def add(self, other: "Found") -> None:
        super().add(other)
        self.commits += other.commits
        self.aborts += other.aborts
        self.struck += other.struck
        self.done += other.done

    @property
    def never_there(self) -> list[str]:
        """Faults that were never injected, and what was never done; nothing if the search is too short to show it."""
        never = [each for each in STRIKES if not self.struck[each]]
        never += [each for each in KINDS_DONE if not self.done[each]]
        return never if self.schedules >= ENOUGH else []

    @property
    def counted(self) -> Mapping[str, str]:
        return {"steps": f"{self.steps:,}", "commits": f"{self.commits:,}", "aborts": f"{self.aborts:,}"}

    @property
    def is_idle(self) -> bool:
        return not self.commits


def random_ones(seeds: Iterable[int]) -> Found:
    """Random schedules with faults."""
    return Found().after_seeds(run, seeds, units=True)


def all_of(kind: Kind) -> Found:
    """Every schedule of two units of a kind."""
    return Found().after_all(every(kind))


def caught(name: str) -> Hunt:
    """Whether one of the broken units is caught."""
    return hunted(VARIANTS[name])


def search(report: Report, pool: Executor, slices: Slices) -> None:
    """All parts of it."""
    search_all(report, pool)
    search_at_random(report, pool, slices)


def search_all(report: Report, pool: Executor) -> None:
    """Broken units, and every schedule up to a bound."""
    hunts = [(variant, pool.submit(caught, name)) for name, variant in VARIANTS.items()]
    report.hunts(
        "Broken units: these without one of their precautions",
        [(variant, "", hunt) for variant, hunt in hunts],
        lambda seed, name: again(seed=seed, variant=name),
    )
    report.counts(
        "Units: every schedule of two on two items, up to a bound",
        Found,
        [(kind.name, pool.submit(all_of, kind)) for kind in KINDS],
    )


def search_at_random(report: Report, pool: Executor, slices: Slices) -> None:
    """Random schedules."""
    found = report.counts(
        "Units: random schedules of up to ten machines, with faults",
        Found,
        list(slices.parts("units", pool, random_ones, Found.of)),
        asked=slices.schedules,
    )
    report.console.print(", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in found.struck.most_common()))
    report.failures += [f"in {found.schedules:,} schedules there never was: {name}" for name in found.never_there]
