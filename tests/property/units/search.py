"""Searches schedules of the simulated world of units; shows one again.

python -m property.units.search --seeds 0:1000        searches; prints counts, and for what is broken the command
python -m property.units.search --seed 17             shows one again, in as few choices as can be found
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from property.chance import Recorded, Seeded, shrunk
from property.failures import FAILURES, kind_of, story_of
from property.units.explore import run


@dataclass
class Found:
    """What a search has found."""

    schedules: int = 0
    steps: int = 0
    commits: int = 0
    aborts: int = 0
    broken: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: "Found") -> None:
        self.schedules += other.schedules
        self.steps += other.steps
        self.commits += other.commits
        self.aborts += other.aborts
        self.broken += other.broken

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
    return found


def shown(seed: int, *, shorter: bool) -> str:
    """What a schedule breaks, and what happened before."""
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
    parser.add_argument("--whole", action="store_true", help="shows it as it is, not shorter")
    parser.add_argument("--workers", type=int, default=1)
    asked = parser.parse_args()
    if asked.seed is not None:
        print(shown(asked.seed, shorter=not asked.whole))
        return
    first, last = map(int, asked.seeds.split(":"))
    began, total, kinds = time.perf_counter(), Found(), Counter[str]()
    chunks = [range(at, min(at + 100, last)) for at in range(first, last, 100)]
    with ProcessPoolExecutor(asked.workers) as pool:
        for found in pool.map(searched, chunks):
            total.add(found)
            for seed, broken in found.broken:
                kinds[broken.partition(":")[0]] += 1
                print(f"{broken}\n  python -m property.units.search --seed {seed}", flush=True)
    print(f"{total}, {time.perf_counter() - began:.0f} s; {dict(kinds)}")
    sys.exit(bool(total.broken))


if __name__ == "__main__":
    main()
