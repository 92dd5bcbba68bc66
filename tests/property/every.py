"""Every schedule of two machines: all orders of their requests, and with each of them one fault at every place.

A choice is which of two requests is applied next, and what becomes of it. Time passes only when both sleep. The search
is over when the tree of choices is; its depth is bounded by what the machines do: acquire, join, check, renew, release.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from property.chance import Chance
from property.invariants import nothing_left
from property.scripts import LEASE_MS, holder
from property.world import TABLE, Faults, World


@dataclass
class Enumerated:
    """Choices in their order: the first of each at first, then the next list, until none is left."""

    picked: list[int] = field(default_factory=list)
    choices: list[int] = field(default_factory=list)
    at: int = 0

    def pick(self, choices: int) -> int:
        if self.at == len(self.picked):
            self.picked.append(0)
            self.choices.append(choices)
        self.at += 1
        return self.picked[self.at - 1]

    def next(self) -> bool:
        """Go on to the next list; False when that was the last."""
        self.at = 0
        while self.picked and self.picked[-1] + 1 == self.choices[-1]:
            self.picked.pop()
            self.choices.pop()
        if not self.picked:
            return False
        self.picked[-1] += 1
        return True


@dataclass(frozen=True)
class Kind:
    """One exhaustive search: what may befall one request of a schedule, and whether the machines share the lock."""

    name: str
    fault: str | None
    shared: tuple[bool, bool] = (False, False)


KINDS = (
    Kind("no fault", None),
    Kind("one crash", "crash"),
    Kind("one lost request", "request_lost"),
    Kind("one lost reply", "reply_lost"),
    Kind("one late request", "late"),
    Kind("one request twice", "twice"),
    Kind("a reader and a writer", None, (True, False)),
    Kind("two readers", None, (True, True)),
    Kind("a reader and a writer, one crash", "crash", (True, False)),
    Kind("a reader and a writer, one lost reply", "reply_lost", (True, False)),
)


def run(kind: Kind, chance: Chance) -> World:
    """One schedule of two machines.

    Raises:
        Broken: a promise was broken.
    """
    world = World(chance, Faults())
    for name, shared in zip("ab", kind.shared, strict=True):
        world.add(name, holder(shared=shared), rate=1, wall_is_off_ms=0)
    left = 1 if kind.fault is not None else 0
    while True:
        ready = world.ready()
        if not ready:
            if world.late:
                world.late_one_arrives(0)
                continue
            if not world.let_time_pass():
                break
            continue
        machine = ready[chance.pick(len(ready)) if len(ready) > 1 else 0]
        befalls = left > 0 and machine.pending is not None and bool(chance.pick(2))
        left -= befalls
        world.go_on_at_once(machine, kind.fault if befalls else None)
    world.time.now_ms += LEASE_MS + 5_000
    nothing_left(world.memory.items(TABLE), world.time.now_ms)
    return world


def every(kind: Kind, stop_after: int | None = None) -> Iterator[World]:
    """All schedules of a kind."""
    chance = Enumerated()
    count = 0
    while True:
        yield run(kind, chance)
        count += 1
        if not chance.next() or count == stop_after:
            return


def counted(kind: Kind, each: Callable[[int], None] = lambda _: None) -> int:
    """Run all schedules of a kind; returns how many there are.

    Raises:
        Broken: a promise was broken on one of them.
    """
    count = 0
    for _ in every(kind):
        count += 1
        each(count)
    return count
