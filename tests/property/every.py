"""Every schedule of two machines, as far as a bound: all orders of their steps, with a fault or two at every place.

A step is a request that is applied, or an answer that is heard. Whoever goes on goes on until it sleeps, unless it is
preempted; how often that happens is bounded, and so is the number of faults. (Musuvathi and Qadeer, "Iterative Context
Bounding for Systematic Testing of Multithreaded Programs", 2007: few preemptions show most bugs.) Time passes when both
sleep. The search is over when the tree of choices is.

Each machine acquires, joins, checks, renews and releases; a third one has been there before.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from property.chance import Chance, Recorded
from property.clocks import Machine
from property.faults import ON_A_REQUEST, Faults, may_befall
from property.invariants import Broken
from property.scripts import dead, holder
from property.world import World

_PAUSE = 3
"""The longest: three leases and a half."""


@dataclass
class Enumerated:
    """Choices in their order: the first of each at first, then the next list, until none is left."""

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
    """One exhaustive search.

    Attributes:
        preemptions: how often at most a machine is interrupted that could go on.
        faults: how many at most, of those named.
        of: the faults.
        before: what the third machine has left: nothing, or it died while it held the lock, or in the queue, or
            between its ticket and its row.
        shared: whether the machines share the lock.
    """

    name: str
    preemptions: int
    faults: int
    of: tuple[str, ...] = (*ON_A_REQUEST, "crash", "pause", "freeze")
    before: str | None = None
    shared: tuple[bool, bool] = (False, False)


KINDS = (
    Kind("a free lock, no fault", 5, 0),
    Kind("a free lock, one fault", 2, 1),
    Kind("a free lock, two faults", 0, 2, ("reply_lost", "late", "crash")),
    Kind("a dead holder", 4, 0, before="holder"),
    Kind("a dead holder, one fault", 1, 1, before="holder"),
    Kind("a dead waiter", 4, 0, before="waiter"),
    Kind("a dead waiter, one fault", 1, 1, before="waiter"),
    Kind("a ticket without a row", 4, 0, before="joiner"),
    Kind("a ticket without a row, one fault", 1, 1, before="joiner"),
    Kind("a reader and a writer", 4, 0, shared=(True, False)),
    Kind("a reader and a writer, one fault", 2, 1, shared=(True, False)),
    Kind("two readers", 3, 0, shared=(True, True)),
    Kind("two readers, one fault", 2, 1, shared=(True, True)),
)


@dataclass
class _Budget:
    preemptions: int
    faults: int


def run(kind: Kind, chance: Chance) -> World:
    """One schedule of two machines.

    Raises:
        Broken: a promise was broken.
    """
    # Whatever else is drawn is dull.
    world = World(Recorded([]), Faults())
    world.witness.is_fair = kind.faults == 0 and kind.before is None
    if kind.before is not None:
        world.add("c", dead(kind.before), rate=1, wall_is_off_ms=0)
        while not world.is_over:
            world.go_on(world.machines[0])
    for name, shared in zip("ab", kind.shared, strict=True):
        world.add(name, holder(shared=shared), rate=1, wall_is_off_ms=0)
    left = _Budget(kind.preemptions, kind.faults)
    current = world.machines[-2]
    while not world.is_over:
        ready = world.ready()
        if not ready:
            world.let_time_pass()
            continue
        others = [machine for machine in ready if machine is not current]
        if current not in ready:
            current = others[chance.pick(len(others))]
            continue
        faults = _possible(kind, current) if left.faults else ()
        picked = chance.pick(1 + len(world.late) + len(faults) + (len(others) if left.preemptions else 0))
        if picked == 0:
            world.go_on(current)
        elif picked <= len(world.late):
            world.late_one_arrives(picked - 1)
        elif picked <= len(world.late) + len(faults):
            left.faults -= 1
            _meets(world, current, faults[picked - len(world.late) - 1])
        else:
            left.preemptions -= 1
            current = others[picked - len(world.late) - len(faults) - 1]
    while world.late:
        world.late_one_arrives(0)
    world.witness.is_left_to_itself()
    return world


def _possible(kind: Kind, machine: Machine) -> tuple[str, ...]:
    """The faults that may meet a machine now, each where it makes a difference."""
    pending = machine.pending
    if pending is None:
        return ()
    if pending.applied:
        return tuple(fault for fault in ("crash", "pause", "freeze") if fault in kind.of)
    return tuple(fault for fault in kind.of if fault not in ON_A_REQUEST or may_befall(fault, pending.call.operation))


def _meets(world: World, machine: Machine, fault: str) -> None:
    if fault in ON_A_REQUEST:
        world.befalls(fault, machine)
    else:
        world.strikes(fault, machine, _PAUSE)


def every(kind: Kind, stop_after: int | None = None) -> Iterator[World]:
    """All schedules of a kind.

    Raises:
        Broken: a promise was broken; its note says by which choices.
    """
    chance = Enumerated()
    count = 0
    while True:
        try:
            yield run(kind, chance)
        except Broken as broken:
            broken.add_note(f"{kind.name}: {chance.picked}")
            raise
        count += 1
        if not chance.next() or count == stop_after:
            return
