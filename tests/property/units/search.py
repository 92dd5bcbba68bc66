"""Searches schedules of the simulated world of units; shows one again.

python -m property.units.search --seeds 0:1000        searches; prints counts, and for what is broken the command
python -m property.units.search --seed 17             shows one again, in as few choices as can be found
python -m property.units.search --variants            searches in units that are broken on purpose, each until it is
                                                      caught; prints by which promise, and the command that shows it
python -m property.units.search --variant "closed before applied" --seed 9      shows that again
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from property.chance import Chance, Recorded, Seeded, shrunk
from property.failures import FAILURES, kind_of, story_of
from property.units.broken import VARIANTS, Caught, Variant, first_broken
from property.units.explore import run
from property.units.mishaps import STRIKES
from property.units.world import UnitsWorld

HUNTED = 2_000
"""Schedules in which a variant has to be caught."""
ENOUGH = 1_000
"""Schedules in which everything should have gone wrong."""


@dataclass
class Found:
    """What a search has found.

    Attributes:
        struck: how many times what went wrong.
    """

    schedules: int = 0
    steps: int = 0
    commits: int = 0
    aborts: int = 0
    broken: list[tuple[int, str]] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)

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

    def __str__(self) -> str:
        return (
            f"{self.schedules:,} schedules, {self.steps:,} steps, {self.commits:,} commits, {self.aborts:,} aborts, "
            f"{len(self.broken)} broken"
        )


def searched(seeds: Sequence[int]) -> Found:
    """Runs schedules of these seeds."""
    found = Found()
    for seed in seeds:
        found.schedules += 1
        try:
            world = run(Seeded(seed))
        except FAILURES as failure:
            found.broken.append((seed, str(failure)))
            continue
        found.steps += world.witness.step
        found.commits += len(world.witness.committed)
        found.aborts += world.witness.aborts
        found.struck += world.struck
    return found


def hunted(name: str) -> Caught | None:
    """A variant, until it is caught."""
    return first_broken(VARIANTS[name], range(HUNTED))


def shown(seed: int, *, shorter: bool, variant: Variant | None = None) -> str:
    """What a schedule breaks, and what happened before.

    Args:
        variant: of units that are broken on purpose; None for those that are not.
    """
    if variant is None:
        return _shown(seed, run, shorter=shorter)
    with variant.instead():
        return _shown(
            seed, partial(run, mishaps=variant.shown_by, caps=variant.caps, cast=variant.cast), shorter=shorter
        )


def _shown(seed: int, run: Callable[[Chance], UnitsWorld], *, shorter: bool) -> str:
    chance = Seeded(seed)
    try:
        world = run(chance)
    except FAILURES as failure:
        first, story = kind_of(failure), story_of(failure)
    else:
        return f"{world.witness.step} steps, {len(world.witness.committed)} commits, every promise kept"
    if not shorter:
        return story

    def fails(picked: Sequence[int]) -> bool:
        try:
            run(Recorded(picked))
        except FAILURES as failure:
            return kind_of(failure) == first
        return False

    fewer = shrunk(chance.picked, fails)
    try:
        run(Recorded(fewer))
    except FAILURES as failure:
        return f"{len(fewer)} choices in place of {len(chance.picked)}\n{story_of(failure)}"
    return story


def main() -> None:
    """Searches, or shows one again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:1000", metavar="FROM:TO")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--variant", choices=VARIANTS, metavar="NAME")
    parser.add_argument("--variants", action="store_true")
    parser.add_argument("--whole", action="store_true", help="shows it as it is, not shorter")
    parser.add_argument("--workers", type=int, default=1)
    asked = parser.parse_args()
    if asked.seed is not None:
        print(shown(asked.seed, shorter=not asked.whole, variant=VARIANTS[asked.variant] if asked.variant else None))
        return
    if asked.variants:
        _hunts(asked.workers)
        return
    first, last = map(int, asked.seeds.split(":"))
    began, total, kinds = time.perf_counter(), Found(), Counter[str]()
    chunks = [range(at, min(at + 100, last)) for at in range(first, last, 100)]
    with ProcessPoolExecutor(asked.workers) as pool:
        for found in pool.map(searched, chunks):
            total.add(found)
            for seed, broken in found.broken:
                kinds[broken.partition(":")[0]] += 1
                print(f"{broken}\n  {again(seed)}", flush=True)
    print(f"{total}, {time.perf_counter() - began:.0f} s; {dict(kinds)}")
    print(", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in total.struck.most_common()))
    for name in total.never_struck:
        print(f"never struck: {name}")
    sys.exit(bool(total.broken or total.never_struck))


def _hunts(workers: int) -> None:
    """Every variant, and by what it is caught."""
    with ProcessPoolExecutor(workers) as pool:
        caught = list(zip(VARIANTS, pool.map(hunted, VARIANTS), strict=True))
    for name, prey in caught:
        told = f"{prey.promise} | {again(prey.seed, name)}" if prey is not None else "NOT CAUGHT |"
        print(f"{name} | {told}")
    missing = sum(prey is None for _, prey in caught)
    print(f"{len(caught)} units broken on purpose, {len(caught) - missing} caught")
    sys.exit(bool(missing))


def again(seed: int, variant: str | None = None) -> str:
    """The command that shows a schedule again."""
    which = f'--variant "{variant}" ' if variant is not None else ""
    return f"python -m property.units.search {which}--seed {seed}"


if __name__ == "__main__":
    main()
