"""``make replay``: what failed, again, in as few and as dull choices as can be found; and what happened before.

    make replay ARGS='--seed 17'                                     a random schedule
    make replay ARGS='--kind "a free lock, one fault" --choices "0 0 3"'   one of every schedule of two machines
    make replay ARGS='--ruled 3'                                     a search by Hypothesis
    make replay ARGS='--from 0 --to 999'                             a search for a random one

With ``--lock NAME`` a broken lock is in the place of the real one.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial

from property import every, explore
from property.broken import BROKEN_LOCKS
from property.chance import Chance, Recorded, Seeded, shrunk
from property.failures import FAILURES, again, kind_of, story_of
from property.stateful import told_by_hypothesis
from property.world import World

Run = Callable[[Chance], World]
"""Runs one schedule to its end."""


def broken_by(run: Run, picked: Sequence[int]) -> str | None:
    """The promise that a recorded schedule breaks, if it breaks one."""
    try:
        run(Recorded(picked))
    except FAILURES as failure:
        return kind_of(failure)
    return None


def shown_again(run: Run, chance: Chance, picked: Sequence[int]) -> str:
    """What a schedule breaks, in as few and as dull choices as break it still; and what happened before.

    Args:
        picked: the choices, at the latest when the schedule has ended.
    """
    try:
        world = run(chance)
    except FAILURES as failure:
        first = failure
    else:
        return f"{world.steps} steps, {world.witness.grants} grants, every promise kept"
    fewer = shrunk(picked, lambda tried: broken_by(run, tried) == kind_of(first))
    told = [str(first), f"after {len(fewer):,} choices in place of {len(picked):,}:"]
    try:
        run(Recorded(fewer))
    except FAILURES as failure:
        told.append(story_of(failure))
    return "\n".join(told)


def main() -> None:
    """Show it again; prints what is seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--kind", choices=[kind.name for kind in every.KINDS])
    parser.add_argument("--choices", default="", help="numbers, in their order; those that are left out are 0")
    parser.add_argument("--ruled", type=int, metavar="SEED")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--to", dest="last", type=int, default=999)
    parser.add_argument("--lock", choices=[lock.name for lock in BROKEN_LOCKS])
    asked = parser.parse_args()
    lock = next((lock for lock in BROKEN_LOCKS if lock.name == asked.lock), None)
    run: Run = explore.run
    if lock is not None:
        run = partial(explore.run, faults=lock.shown_by, limits=lock.caps)
    with lock.instead() if lock is not None else nullcontext():
        if asked.seed is not None:
            chance = Seeded(asked.seed)
            print(shown_again(run, chance, chance.picked))
        elif asked.kind is not None:
            kind = next(kind for kind in every.KINDS if kind.name == asked.kind)
            picked = [int(each) for each in asked.choices.split()]
            print(shown_again(partial(every.run, kind), Recorded(picked), picked))
        elif asked.ruled is not None:
            print(told_by_hypothesis(asked.ruled) or "every promise kept")
        else:
            _search(run, range(asked.first, asked.last + 1), asked.lock)


def _search(run: Run, seeds: Sequence[int], lock: str | None) -> None:
    for seed in seeds:
        try:
            run(Seeded(seed))
        except FAILURES as failure:
            sys.exit(f"{failure}\n{again(seed=seed, lock=lock)}")
    print(f"{len(seeds):,} schedules, every promise kept")


if __name__ == "__main__":
    main()
