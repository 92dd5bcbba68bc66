"""Random schedules of the simulated world.

``make replay ARGS='--seed 17'`` runs one again, and makes it shorter if it breaks a promise.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass

from property import scripts
from property.broken import BROKEN_LOCKS, BrokenLock
from property.chance import Chance, Recorded, Seeded, shrunk
from property.faults import Faults
from property.invariants import Broken
from property.world import OPERATOR, World

# How often, in thousandths, when it happens at all.
_RATES = Faults(
    request_lost=10,
    reply_lost=20,
    late=15,
    twice=15,
    torn=40,
    throttled=10,
    conflict=15,
    crash=2,
    pause=4,
    freeze=1,
    jump=1,
    expire=1,
)
_MOST_STEPS = 20_000


def mixed(chance: Chance) -> Faults:
    """Some faults never, some as usual, some often: what all of them at once would hide shows itself. Or none at all.

    Groce et al., "Swarm Testing" (2012).
    """
    if chance.pick(8) == 0:
        return Faults()
    return Faults(**{name: rate * [1, 0, 5][chance.pick(3)] for name, rate in asdict(_RATES).items()})


def begun(chance: Chance, faults: Faults) -> World:
    """A world with its machines, about to begin."""
    permits = [1, 1, 1, 2, 3][chance.pick(5)]
    world = World(chance, faults, permits, calls=chance.pick(2) == 1)
    rounds = [1, 1, 2, 2, 3][chance.pick(5)]
    for number in range([2, 3, 3, 4, 4, 5, 6, 8][chance.pick(8)]):
        world.add("abcdefgh"[number], scripts.client(rounds))
    if chance.pick(8) == 7:
        world.add(OPERATOR, scripts.operator())
    return world


def run(chance: Chance, faults: Faults | None = None) -> World:
    """One schedule, to its end.

    Args:
        faults: what goes wrong; None for a mixture.

    Raises:
        Broken: a promise was broken; its note tells what went wrong before, and who was granted.
    """
    world = begun(chance, faults or mixed(chance))
    world.witness.is_fair = world.faults == Faults()
    try:
        _goes_on_to_its_end(world)
        world.witness.is_left_to_itself()
    except Broken as broken:
        broken.add_note("\n".join(world.witness.log))
        raise
    except Exception as error:
        unexpected = Broken(f"an error that nobody expected: {error!r}")
        unexpected.add_note("\n".join(world.witness.log))
        raise unexpected from error
    return world


def _goes_on_to_its_end(world: World) -> None:
    while world.step():
        if world.steps > _MOST_STEPS // 2:
            # From here on nothing fails any more: everybody has to come to an end.
            world.faults = Faults()
            world.late.clear()
        if world.steps > _MOST_STEPS:
            raise Broken(f"liveness: after {_MOST_STEPS} steps somebody is still waiting")


def fails(picked: Sequence[int], faults: Faults | None = None) -> bool:
    """Whether a recorded schedule breaks a promise."""
    try:
        run(Recorded(picked), faults)
    except Broken:
        return True
    return False


@dataclass(frozen=True, slots=True)
class Caught:
    """The first schedule on which a broken lock breaks a promise."""

    seed: int
    promise: str


def first_broken(lock: BrokenLock, seeds: Iterable[int]) -> Caught | None:
    """Search for the first schedule on which a broken lock breaks a promise."""
    with lock.instead():
        for seed in seeds:
            try:
                run(Seeded(seed), lock.shown_by)
            except Broken as broken:
                return Caught(seed, str(broken).partition(":")[0])
    return None


def replay(seed: int, lock: str | None = None) -> str:
    """The command that shows a broken promise again, and makes its schedule shorter."""
    named = f' --lock "{lock}"' if lock is not None else ""
    return f"make replay ARGS='--seed {seed}{named}'"


def shown_again(seed: int, faults: Faults | None = None) -> str:
    """What a schedule breaks, in as few and as dull choices as can be found; and what happened before."""
    chance = Seeded(seed)
    try:
        world = run(chance, faults)
    except Broken as broken:
        picked = shrunk(chance.picked, lambda tried: fails(tried, faults))
        told = [f"seed {seed}: {broken}", f"after {len(picked):,} choices in place of {len(chance.picked):,}:"]
    else:
        return f"seed {seed}: {world.steps} steps, {world.witness.grants} grants, every promise kept"
    try:
        run(Recorded(picked), faults)
    except Broken as again:
        told += [str(again), *again.__notes__]
    return "\n".join(told)


def main() -> None:
    """Explore; prints what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--to", dest="last", type=int, default=999)
    parser.add_argument("--seed", type=int, help="run this one again, and make it shorter")
    parser.add_argument("--lock", choices=[lock.name for lock in BROKEN_LOCKS], help="a broken lock in its place")
    asked = parser.parse_args()
    lock = next((lock for lock in BROKEN_LOCKS if lock.name == asked.lock), None)
    faults = lock.shown_by if lock is not None else None
    with lock.instead() if lock is not None else nullcontext():
        if asked.seed is not None:
            print(shown_again(asked.seed, faults))
            return
        for seed in range(asked.first, asked.last + 1):
            try:
                run(Seeded(seed), faults)
            except Broken as broken:
                sys.exit(f"{broken}\n{replay(seed, asked.lock)}")
        print(f"{asked.last + 1 - asked.first:,} schedules, every promise kept")


if __name__ == "__main__":
    main()
