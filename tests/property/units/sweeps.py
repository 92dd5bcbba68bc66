"""Sweeps in the simulated world of units: of the whole table, or of parts at once; to the end, or for a time.

A sweep that runs out of time, or whose machine crashes, has stored its position. The next sweep of as many parts
continues there, on another machine, or on two at once.
"""

from collections.abc import Sequence

from property.units.machines import Machine
from property.units.tables import MARKS, UNITS
from property.units.world import Script, UnitsWorld

from ticketlock.errors import TableError
from ticketlock.units._record import UnitRecords
from ticketlock.units._sweeping import SWEEP, Swept, sweep
from ticketlock.wire._actions import Actions, Sleep

CUT_SHORT, SWEPT_ON = "sweep cut short", "swept on by another"


def sweeper(rounds: int, _: Sequence[str] = (), *, in_parts: bool = False) -> Script:
    """Sweeps now and then."""

    def script(world: UnitsWorld, machine: Machine) -> Actions[None]:
        pick = world.chance.pick
        for _ in range(rounds):
            yield Sleep([100, 5_000, 70_000, 700_000][pick(4)])
            parts, time_ms = ([1, 2, 3][pick(3)], [0, 0, 20, 1_000][pick(4)]) if in_parts else (1, None)
            try:
                yield from one_sweep(world, machine, parts, time_ms)
            except TableError:
                continue

    return script


def sweeper_in_parts(rounds: int, names: Sequence[str] = ()) -> Script:
    """The same, for a short time, and some in parts."""
    return sweeper(rounds, names, in_parts=True)


def one_sweep(world: UnitsWorld, machine: Machine, parts: int, time_ms: int | None) -> Actions[Swept]:
    """One pass.

    Args:
        time_ms: for how long; None for as long as it takes.
    """
    until_ms = None if time_ms is None else machine.read().local_ms + time_ms
    if until_ms is not None:
        before, world.swept_by[parts] = world.swept_by.get(parts, machine.name), machine.name
        world.struck[SWEPT_ON] += before != machine.name and parts in _kept(world)
    swept: Swept = yield from machine.driver.follow(sweep(UnitRecords(UNITS), MARKS, parts=parts, until_ms=until_ms))
    world.struck[CUT_SHORT] += not swept.is_whole
    world.checker.notes(f"{machine.name} has swept {parts} parts for {time_ms} ms: {swept}")
    return swept


def _kept(world: UnitsWorld) -> set[int]:
    """Of sweeps of how many parts a place is kept."""
    rows = [row["row"]["S"] for row in world.service.memory.items(UNITS) if row["unit"]["S"] == SWEEP]
    return {int(row.rpartition("of")[2]) for row in rows}
