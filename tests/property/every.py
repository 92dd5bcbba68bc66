"""Every schedule of two machines, up to a bound: all orders of their steps, with up to two faults at every point.

A step is a request that is applied, or an answer that is received. A machine continues until it sleeps, unless it is
preempted; the number of preemptions is bounded, and so is the number of faults. (Musuvathi and Qadeer, "Iterative
Context Bounding for Systematic Testing of Multithreaded Programs", 2007: few preemptions show most bugs.) Time passes
when both sleep. The search ends with the tree of choices.

Each machine acquires, joins, checks, renews and releases; a third machine has run before. If the two differ, either may
begin. Of a Query that is not a snapshot, each item is in its old or its new state. What is never varied: every clock is
right, a pause takes the longest of ``PAUSES_MS`` and begins when a request is in progress, and TTL deletes nothing.
"""

from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass
from functools import partial

from property.chance import Chance
from property.clocks import Machine
from property.enumerated import all_schedules, in_short, to_its_end
from property.failures import again, noted
from property.faults import ON_A_REQUEST, PAUSES_MS, Faults, may_befall
from property.scripts import crashing, holder, left_to_itself
from property.world import World


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
