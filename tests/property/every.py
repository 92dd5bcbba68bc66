"""Every schedule of two machines, up to a bound: all orders of their steps, with up to two faults at every point.

A step is a request that is applied, or an answer that is received. A machine continues until it sleeps, unless it is
preempted; the number of preemptions is bounded, and so is the number of faults. (Musuvathi and Qadeer, "Iterative
Context Bounding for Systematic Testing of Multithreaded Programs", 2007: few preemptions show most bugs.) Time passes
when both sleep. The search ends with the tree of choices.

Each machine acquires, joins, checks, renews and releases; a third machine has run before. If the two differ, either may
begin. Of a Query that is not a snapshot, each item is in its old or its new state. What is never varied: every clock is
right, a pause takes the longest of ``PAUSES_MS`` and begins when a request is in progress, and TTL deletes nothing.
"""

from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from property.chance import Chance
from property.clocks import Machine
from property.failures import FAILURES, again, noted
from property.faults import ON_A_REQUEST, PAUSES_MS, Faults, may_befall
from property.scripts import crashing, holder, left_to_itself
from property.world import World

Tried = TypeVar("Tried")
Who = TypeVar("Who")


@dataclass
class Enumerated:
    """Choices in order: first the first alternative of each, then the next list, until none is left."""

    picked: list[int] = field(default_factory=list)
    choices: list[int] = field(default_factory=list)
    at: int = 0

    def pick(self, choices: int) -> int:
        if choices == 1:
            return 0
        if self.at == len(self.picked):
            self.picked.append(0)
            self.choices.append(choices)
        self.at += 1
        return self.picked[self.at - 1]

    def next(self) -> bool:
        """Continue with the next list; False if that was the last."""
        self.at = 0
        while self.picked and self.picked[-1] + 1 == self.choices[-1]:
            self.picked.pop()
            self.choices.pop()
        if not self.picked:
            return False
        self.picked[-1] += 1
        return True


def all_schedules(run: Callable[[Chance], Tried], again: Callable[[Sequence[int]], str]) -> Iterator[Tried]:
    """Run all schedules.

    Args:
        run: runs one schedule of these choices to its end.
        again: makes the command that replays a schedule from its choices.

    Raises:
        Broken, Unexpected: a promise was broken, or another error was raised; its notes list the choices.
    """
    chance = Enumerated()
    while True:
        try:
            yield run(chance)
        except FAILURES as failure:
            failure.add_note(again(chance.picked))
            raise
        if not chance.next():
            return


def in_short(picked: Sequence[int]) -> str:
    """Choices in one line, without zeros at the end."""
    last = max((at for at, choice in enumerate(picked) if choice), default=-1)
    return " ".join(map(str, picked[: last + 1]))


class Bounded(Protocol[Who]):
    """A schedule with a bounded number of preemptions and faults."""

    @property
    def late(self) -> Sized:
        """Copies of requests that will arrive later."""

    def ready(self) -> Sequence[Who] | None:
        """Those that may continue; None if all is over."""

    def let_time_pass(self) -> None:
        """Let time pass until one may continue."""

    def go_on(self, who: Who) -> None:
        """Let one of them take one step."""

    def late_one_arrives(self, which: int) -> None:
        """Let one of the copies arrive."""

    def possible(self, who: Who) -> Sequence[str]:
        """The faults that may be injected into one of them now, if they make a difference."""

    def meets(self, who: Who, fault: str) -> None:
        """Inject one of them."""


def to_its_end(schedule: Bounded[Who], chance: Chance, first: Who, *, preemptions: int, faults: int) -> None:
    """Run to the end: each one continues until it sleeps, unless it is preempted.

    Args:
        first: which one begins.
        preemptions: how often at most one is interrupted that could continue.
        faults: how many faults at most.
    """
    current = first
    while (ready := schedule.ready()) is not None:
        if not ready:
            schedule.let_time_pass()
            continue
        others = [each for each in ready if each is not current]
        if current not in ready:
            current = others[chance.pick(len(others))]
            continue
        possible = schedule.possible(current) if faults else ()
        late = len(schedule.late)
        picked = chance.pick(1 + late + len(possible) + (len(others) if preemptions else 0))
        if picked == 0:
            schedule.go_on(current)
        elif picked <= late:
            schedule.late_one_arrives(picked - 1)
        elif picked <= late + len(possible):
            faults -= 1
            schedule.meets(current, possible[picked - late - 1])
        else:
            preemptions -= 1
            current = others[picked - late - len(possible) - 1]


@dataclass(frozen=True)
class Kind:
    """One exhaustive search.

    Attributes:
        preemptions: how often at most a machine is interrupted that could continue.
        faults: how many at most, of those in ``of``.
        of: the faults.
        before: what the third machine has left: nothing, or it crashed while it held the lock, or in the queue, or
            between its ticket and its row.
        shared: whether the machines share the lock.
        permits: the limit.
        wakes: whether a release wakes the next waiter, which is parked until then.
    """

    name: str
    preemptions: int
    faults: int
    of: tuple[str, ...] = (*ON_A_REQUEST, "crash", "pause", "freeze")
    before: str | None = None
    shared: tuple[bool, bool] = (False, False)
    permits: int = 1
    wakes: bool = False


KINDS = (
    Kind("a free lock, no fault", 5, 0),
    Kind("a free lock, one fault", 2, 1),
    Kind("a free lock, two faults", 0, 2, ("reply_lost", "late", "crash")),
    Kind("a crashed holder", 4, 0, before="holder"),
    Kind("a crashed holder, one fault", 1, 1, before="holder"),
    Kind("a crashed waiter", 4, 0, before="waiter"),
    Kind("a crashed waiter, one fault", 1, 1, before="waiter"),
    Kind("a ticket without a row", 4, 0, before="joiner"),
    Kind("a ticket without a row, one fault", 1, 1, before="joiner"),
    Kind("a reader and a writer", 4, 0, shared=(True, False)),
    Kind("a reader and a writer, one fault", 2, 1, shared=(True, False)),
    Kind("two readers", 3, 0, shared=(True, True)),
    Kind("two readers, one fault", 2, 1, shared=(True, True)),
    Kind("two permits and a crashed holder", 4, 0, before="holder", permits=2),
    Kind("two permits and a crashed holder, one fault", 1, 1, before="holder", permits=2),
    Kind("workflows that are woken", 3, 0, wakes=True),
    Kind("workflows that are woken, one fault", 1, 1, wakes=True),
)


def run(kind: Kind, chance: Chance) -> World:
    """One schedule of two machines.

    Raises:
        Broken, Unexpected: a promise was broken, or something else was raised; its notes say what happened before.
    """
    world = World(chance, Faults(), kind.permits, wakes=kind.wakes)
    with noted(world.checker.log):
        _continues_to_its_end(world, kind, chance)
    return world


def _continues_to_its_end(world: World, kind: Kind, chance: Chance) -> None:
    world.checker.is_fair = kind.faults == 0 and kind.before is None
    if kind.before is not None:
        world.add("c", crashing(kind.before), rate=1, wall_is_off_ms=0)
        while not world.is_over:
            world.go_on(world.machines[0])
        world.checker.struck()
    for name, shared in zip("ab", kind.shared, strict=True):
        world.add(name, holder(shared=shared), rate=1, wall_is_off_ms=0)
    # If the two are alike, the first begins: schedules that the other begins are the same.
    first = world.machines[-2 + chance.pick(1 + (kind.shared[0] != kind.shared[1]))]
    to_its_end(_Schedule(world, kind), chance, first, preemptions=kind.preemptions, faults=kind.faults)
    left_to_itself(world)


@dataclass(frozen=True)
class _Schedule:
    """The machines of a world, and the faults of a kind."""

    world: World
    kind: Kind

    @property
    def late(self) -> Sized:
        return self.world.late

    def ready(self) -> Sequence[Machine] | None:
        return None if self.world.is_over else self.world.ready()

    def let_time_pass(self) -> None:
        self.world.let_time_pass()

    def go_on(self, who: Machine) -> None:
        self.world.go_on(who)

    def late_one_arrives(self, which: int) -> None:
        self.world.late_one_arrives(which)

    def possible(self, who: Machine) -> Sequence[str]:
        pending, of = who.pending, self.kind.of
        if pending is None:
            return ()
        if pending.applied:
            return [fault for fault in ("crash", "pause", "freeze") if fault in of]
        return [fault for fault in of if fault not in ON_A_REQUEST or may_befall(fault, pending.call.operation)]

    def meets(self, who: Machine, fault: str) -> None:
        if fault in ON_A_REQUEST:
            self.world.befalls(fault, who)
        else:
            self.world.strikes(fault, who, len(PAUSES_MS) - 1)


def every(kind: Kind) -> Iterator[World]:
    """All schedules of a kind.

    Raises:
        Broken, Unexpected: a promise was broken, or another error was raised; its notes list the choices.
    """
    return all_schedules(partial(run, kind), lambda picked: again(kind=kind.name, choices=in_short(picked)))
