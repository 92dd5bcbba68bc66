"""Random schedules of the simulated world.

``python -m property.explore --from 0 --to 1000`` searches, ``--seed 17`` runs one again and makes it shorter.
"""

import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from property.broken import BrokenLock
from property.chance import Chance, Recorded, Seeded, shrunk
from property.invariants import Broken, nothing_left
from property.scripts import LEASE_MS, client, operator
from property.world import OPERATOR, TABLE, Faults, World

# How often, in thousandths, when it happens at all.
_RATES = Faults(
    request_lost=10,
    reply_lost=20,
    late=15,
    twice=15,
    throttled=10,
    conflict=15,
    crash=2,
    pause=4,
    jump=1,
    freeze=1,
    expire=1,
)
_MOST_STEPS = 20_000


def mixed(chance: Chance) -> Faults:
    """Some faults never, some as usual, some often: what all of them at once would hide shows itself.

    Groce et al., "Swarm Testing" (2012).
    """
    return Faults(**{name: rate * [1, 0, 5][chance.pick(3)] for name, rate in asdict(_RATES).items()})


def run(chance: Chance) -> World:
    """One schedule, to its end.

    Raises:
        Broken: a promise was broken.
    """
    permits = [1, 1, 1, 2, 3][chance.pick(5)]
    world = World(chance, mixed(chance), permits)
    rounds = 1 + chance.pick(3)
    for number in range(2 + chance.pick(7)):
        world.add("abcdefgh"[number], client(rounds))
    if chance.pick(8) == 7:
        world.add(OPERATOR, operator())
    while world.step():
        if world.steps == _MOST_STEPS // 2:
            # From here on nothing fails any more: everybody has to come to an end.
            world.faults = Faults()
            world.late.clear()
        if world.steps > _MOST_STEPS:
            raise Broken(f"liveness: after {_MOST_STEPS} steps somebody is still waiting")
    world.time.now_ms += LEASE_MS + 5_000
    nothing_left(world.memory.items(TABLE), world.time.now_ms)
    return world


def fails(picked: Sequence[int]) -> bool:
    """Whether a recorded schedule breaks a promise."""
    try:
        run(Recorded(picked))
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
                run(Seeded(seed))
            except Broken as broken:
                return Caught(seed, str(broken).partition(":")[0])
    return None


def main(arguments: Sequence[str]) -> int:
    """Explore; prints what was found."""
    options = dict(zip(arguments[::2], map(int, arguments[1::2]), strict=True))
    first, last = (options["--seed"],) * 2 if "--seed" in options else (options["--from"], options["--to"])
    began, steps, grants, broken = time.perf_counter(), 0, 0, 0
    for seed in range(first, last + 1):
        chance = Seeded(seed)
        try:
            world = run(chance)
        except Broken as error:
            broken += 1
            print(f"seed {seed}: {error}")
            if "--seed" in options:
                picked = shrunk(chance.picked, fails)
                print(f"shrunk to {len(picked)} choices: {picked}")
                try:
                    run(Recorded(picked))
                except Broken as again:
                    print(again)
        else:
            steps, grants = steps + world.steps, grants + world.grants
    count = last - first + 1
    print(f"{count} schedules, {steps} steps, {grants} grants, {broken} broken, {time.perf_counter() - began:.1f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
