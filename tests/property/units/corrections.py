"""An operator in the simulated world of units, who ends the items whose new values the service refuses for good."""

from collections.abc import Sequence
from typing import Any

from kit.invariants import Broken
from property.units.checker import COMMITTED as REPORTED_COMMITTED
from property.units.checker import Key, Record, Value
from property.units.machines import Machine
from property.units.tables import ELEMENTS, MARKS, UNITS, elements, key_of
from property.units.tries import unit_id
from property.units.world import Script, UnitsWorld

from ticketlock.errors import InvalidUnitRequest, TableError
from ticketlock.units._operators import Correction, correct, unfinished
from ticketlock.units._record import UnitRecords
from ticketlock.wire._actions import Actions, Sleep

CORRECTED = "corrected"


def operator(rounds: int, _: Sequence[str] = ()) -> Script:
    """Looks now and then for items that the service refuses, and corrects one."""

    def script(world: UnitsWorld, machine: Machine) -> Actions[None]:
        for _ in range(rounds):
            yield Sleep([10, 1_000, 30_000][world.chance.pick(3)])
            refused = sorted(world.service.refuses)
            if refused:
                yield from _corrects(world, machine, *refused[world.chance.pick(len(refused))])

    return script


def last_operator(world: UnitsWorld, machine: Machine) -> Actions[None]:
    """Corrects all of them, in a world in which nothing fails."""
    for unit, key in sorted(world.service.refuses):
        yield from _corrects(world, machine, unit, key)


def _corrects(world: UnitsWorld, machine: Machine, unit: str, key: Key) -> Actions[None]:
    checker, table, heads = world.checker, world.table_of(key), UnitRecords(UNITS)
    where = {name: {"S": part} for name, part in key_of(key).items()}
    began = checker.step
    try:
        left = yield from machine.driver.follow(unfinished(heads, MARKS, unit, table, where))
    except (InvalidUnitRequest, TableError):
        return
    record = Record(unit_id(world, machine.read().wall_ms), world.numbers, began, is_plain=True)
    record.seen[key] = committed = None if left.image is None else elements(left.image)
    image: Any = None
    if not world.is_append_only and world.chance.pick(2):
        record.writes[key] = _old_value(world, key)
    else:
        record.writes[key] = (*(committed or ()), record.number)
        image = {**where, ELEMENTS: {"L": [{"N": str(each)} for each in (*(committed or ()), record.number)]}}
    checker.begins(record)
    checker.notes(f"{machine.name} corrects {unit} in {key} as {record.id}: {record.writes[key]}")
    try:
        done = yield from machine.driver.follow(
            correct(heads, MARKS, unit, table, where, Correction(record.id, image, machine.name, "refused"))
        )
    except InvalidUnitRequest:
        # It was finished, or corrected by another one, meanwhile.
        checker.sees_end(record, "given up")
        return
    except TableError:
        return
    if done == "finished":
        checker.sees_end(record, "given up")
        return
    if record.id not in checker.committed:
        raise Broken(f"outcomes: {unit} is reported as corrected in {key}, and is not")
    record.reported, record.reported_at = REPORTED_COMMITTED, checker.step
    world.struck[CORRECTED] += 1


def _old_value(world: UnitsWorld, key: Key) -> Value:
    stored = world.service.stored(key)
    return None if stored is None or MARKS.is_placeholder(stored) else elements(stored)
