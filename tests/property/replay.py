"""``make replay``: replays a failure with as few and as simple choices as possible, and shows what happened before.

    make replay ARGS='--seed 17'                                     a random schedule
    make replay ARGS='--kind "a free lock, one fault" --choices "0 0 3"'   one of every schedule of two machines
    make replay ARGS='--ruled 3'                                     a search by Hypothesis
    make replay ARGS='--from 0 --to 999'                             a search for a random one

With ``--lock NAME`` a broken lock replaces the real one. With ``--units`` the world of units replaces that of locks,
and ``--variant NAME`` replaces the real units by broken ones.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

from property import every, explore
from property.broken import BROKEN_LOCKS
from property.chance import Chance, Recorded, Seeded, shrunk
from property.failures import FAILURES, again, kind_of, story_of
from property.stateful import found_by_hypothesis
from property.units import every as every_of_units
from property.units import explore as explore_units
from property.units.broken import VARIANTS
from property.units.world import UnitsWorld
from property.world import World

Run = Callable[[Chance], World | UnitsWorld]
"""Runs one schedule to its end."""


@dataclass(frozen=True)
class Searched:
    """One of the worlds, with the broken code in it.

    Attributes:
        run: runs a random schedule.
        kinds: the kinds of "every schedule".
        instead: within it the broken code replaces the real code.
        is_units: whether it is the world of units.
        named: the arguments that name it in a command.
        caught_by: the promises that the broken code is known to break; empty for the real code.
    """

    run: Run
    kinds: Mapping[str, Run]
    instead: AbstractContextManager[None]
    is_units: bool
    named: Mapping[str, str | bool]
    caught_by: frozenset[str] = frozenset()


def searched(asked: argparse.Namespace) -> Searched:
    """The world that the arguments name."""
    if asked.units or asked.variant is not None:
        units: Mapping[str, Run] = {kind.name: partial(every_of_units.run, kind) for kind in every_of_units.KINDS}
        if asked.variant is None:
            return Searched(explore_units.run, units, nullcontext(), True, {"units": True})
        variant = VARIANTS[asked.variant]
        return Searched(variant.run, units, variant.instead(), True, {"variant": variant.name}, variant.caught_by)
    locks: Mapping[str, Run] = {kind.name: partial(every.run, kind) for kind in every.KINDS}
    if asked.lock is None:
        return Searched(explore.run, locks, nullcontext(), False, {})
    lock = next(lock for lock in BROKEN_LOCKS if lock.name == asked.lock)
    return Searched(lock.run, locks, lock.instead(), False, {"lock": lock.name}, lock.caught_by)


def broken_by(run: Run, picked: Sequence[int]) -> str | None:
    """The promise that a recorded schedule breaks; None if it breaks none."""
    try:
        run(Recorded(picked))
    except FAILURES as failure:
        return kind_of(failure)
    return None


def shown_again(run: Run, chance: Chance, picked: Sequence[int]) -> str:
    """What a schedule breaks, with as few and as simple choices as still break it; and what happened before.

    Args:
        picked: the choices, complete when the schedule has ended.
    """
    try:
        world = run(chance)
    except FAILURES as failure:
        first = failure
    else:
        return f"{_counted(world)}, every promise kept"
    fewer = shrunk(picked, lambda tried: broken_by(run, tried) == kind_of(first))
    lines = [str(first), f"after {len(fewer):,} choices in place of {len(picked):,}:"]
    try:
        run(Recorded(fewer))
    except FAILURES as failure:
        lines.append(story_of(failure))
    return "\n".join(lines)


def _counted(world: World | UnitsWorld) -> str:
    if isinstance(world, UnitsWorld):
        return f"{world.checker.step} steps, {len(world.checker.committed)} commits"
    return f"{world.steps} steps, {world.checker.grants} grants"


def main() -> None:
    """Replay, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", action="store_true")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--kind", help="one of every schedule: its kind")
    parser.add_argument("--choices", default="", help="numbers, in their order; those that are left out are 0")
    parser.add_argument("--ruled", type=int, metavar="SEED")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--to", dest="last", type=int, default=999)
    parser.add_argument("--lock", metavar="NAME", choices=[lock.name for lock in BROKEN_LOCKS])
    parser.add_argument("--variant", metavar="NAME", choices=list(VARIANTS))
    asked = parser.parse_args()
    which = searched(asked)
    if asked.kind is not None and asked.kind not in which.kinds:
        parser.error(f"--kind {asked.kind!r} is none of {', '.join(map(repr, which.kinds))}")
    if named := [name for name in ("lock", "ruled") if which.is_units and getattr(asked, name) is not None]:
        parser.error(f"--{named[0]} is of the world of locks")
    with which.instead:
        if asked.seed is not None:
            chance = Seeded(asked.seed)
            print(shown_again(which.run, chance, chance.picked))
        elif asked.kind is not None:
            picked = [int(each) for each in asked.choices.split()]
            print(shown_again(which.kinds[asked.kind], Recorded(picked), picked))
        elif asked.ruled is not None:
            print(found_by_hypothesis(asked.ruled) or "every promise kept")
        else:
            _search(which, range(asked.first, asked.last + 1))


def _search(which: Searched, seeds: Sequence[int]) -> None:
    for seed in seeds:
        try:
            which.run(Seeded(seed))
        except FAILURES as failure:
            # As in `make proof`: another promise, or an unexpected error, does not catch broken code.
            if which.caught_by and kind_of(failure) not in which.caught_by:
                continue
            sys.exit(f"{failure}\n{again(seed=seed, **which.named)}")
    print(f"{len(seeds):,} schedules, {'not caught' if which.caught_by else 'every promise kept'}")


if __name__ == "__main__":
    main()
