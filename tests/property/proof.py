"""``make proof``: the whole search. Random schedules with faults, every schedule of two machines, every broken lock.

Each part says how many schedules it ran and what it found; a broken promise comes with the command that shows it again.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field

from property.broken import BROKEN_LOCKS, BrokenLock
from property.chance import Seeded
from property.every import KINDS, Kind, every
from property.explore import Caught, first_broken, run
from property.invariants import Broken
from rich.console import Console
from rich.table import Table

_A_CHUNK = 250
_HUNTED = 5_000


@dataclass
class Found:
    """What a part of the search has found.

    Attributes:
        broken: each with the command that shows it again.
    """

    schedules: int = 0
    steps: int = 0
    grants: int = 0
    broken: list[str] = field(default_factory=list)

    def add(self, other: "Found") -> None:
        self.schedules += other.schedules
        self.steps += other.steps
        self.grants += other.grants
        self.broken += other.broken


def random_ones(seeds: Iterable[int]) -> Found:
    """Random schedules with faults."""
    found = Found()
    for seed in seeds:
        found.schedules += 1
        try:
            world = run(Seeded(seed))
        except Broken as broken:
            found.broken.append(f"{broken}: PYTHONPATH=tests python -m property.explore --seed {seed}")
        else:
            found.steps += world.steps
            found.grants += world.grants
    return found


def all_of(kind: Kind) -> Found:
    """Every schedule of two machines of a kind."""
    found = Found()
    try:
        for world in every(kind):
            found.schedules += 1
            found.steps += world.steps
            found.grants += world.grants
    except Broken as broken:
        found.broken.append(f"{kind.name}, schedule {found.schedules}: {broken}")
    return found


def caught(number: int) -> tuple[Caught | None, float]:
    """Whether one of the broken locks is caught, and the time that it took."""
    began = time.perf_counter()
    return first_broken(BROKEN_LOCKS[number], range(_HUNTED)), time.perf_counter() - began


def chunks(schedules: int) -> Iterator[range]:
    """All seeds, in parts."""
    for first in range(0, schedules, _A_CHUNK):
        yield range(first, min(first + _A_CHUNK, schedules))


def main() -> int:
    """Search; prints the tables; 1 if a promise was broken, or a broken lock was not caught."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--schedules", type=int, default=100_000)
    options.add_argument("--workers", type=int, default=2)
    asked = options.parse_args()
    console, began, failed = Console(), time.perf_counter(), False
    with ProcessPoolExecutor(asked.workers) as pool:
        # In one process after the other: each broken lock is put in the place of the real one while it is hunted.
        hunts: list[tuple[BrokenLock, Future[tuple[Caught | None, float]]]] = [
            (lock, pool.submit(caught, number)) for number, lock in enumerate(BROKEN_LOCKS)
        ]
        table = Table("broken lock", "as in", "caught by", "at schedule", "after, s", title="Broken locks")
        for lock, hunt in hunts:
            prey, took_s = hunt.result()
            failed |= prey is None
            name, seed = (prey.promise, str(prey.seed)) if prey is not None else ("NOT CAUGHT", "-")
            table.add_row(lock.name, lock.seen_in, name, seed, f"{took_s:.1f}")
        console.print(table)

        table = Table("two machines", "schedules", "grants", "broken", title="Every schedule")
        total = Found()
        for kind, future in [(kind, pool.submit(all_of, kind)) for kind in KINDS]:
            found = future.result()
            total.add(found)
            table.add_row(kind.name, f"{found.schedules:,}", f"{found.grants:,}", str(len(found.broken)))
        table.add_row("all", f"{total.schedules:,}", f"{total.grants:,}", str(len(total.broken)))
        console.print(table)

        random = Found()
        for future in [pool.submit(random_ones, seeds) for seeds in chunks(asked.schedules)]:
            random.add(future.result())
    table = Table("random schedules", "steps", "grants", "broken", title="Up to eight machines, with faults")
    table.add_row(f"{random.schedules:,}", f"{random.steps:,}", f"{random.grants:,}", str(len(random.broken)))
    console.print(table)
    for line in total.broken + random.broken:
        console.print(line, style="red")
    console.print(f"{time.perf_counter() - began:.0f} s")
    return int(failed or bool(total.broken or random.broken))


if __name__ == "__main__":
    sys.exit(main())
