"""The clients beside units in the simulated world: readers, sweepers, plain writers, and other holders of the lock."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from botocore.exceptions import BotoCoreError, ClientError
from property.units.calls import (
    FOR_A_VERSION,
    FOR_NO_ITEM,
    FOR_NO_VERSION,
    LOCKS,
    MARKS,
    OWNERS,
    UNITS,
    Beside,
    elements,
    key_of,
)
from property.units.checker import COMMITTED as REPORTED_COMMITTED
from property.units.checker import Key, Record
from property.units.machines import Machine
from property.units.scripts import operator, sweeper, sweeper_in_parts
from property.units.tries import (
    APPEND,
    NAMES,
    OF_RANGES,
    THE_RANGE,
    drawn_index,
    in_the_range,
    in_time,
    is_refused,
    sees_in_index,
    unit_id,
    value_of,
    verbs_of,
)
from property.units.world import Script, UnitsWorld

from ticketlock.errors import TableError, TicketLockError
from ticketlock.units._records._record import UnitRecords
from ticketlock.units._recovery import _saved
from ticketlock.units._recovery._operators import Outcome, outcome_of_name, outcome_of_unit, roll_back
from ticketlock.units._statements._reading import COMMITTED, SERIALIZABLE, UNCOMMITTED, Isolation
from ticketlock.units._statements._settings import Terms
from ticketlock.units._words._values import PYTHON
from ticketlock.wire._actions import Actions, Call, Sleep


def watcher(rounds: int, _: Sequence[str] = ()) -> Script:
    """Reads all items together, repeatedly."""

    def script(world: UnitsWorld, machine: Machine) -> Actions[None]:
        for _ in range(rounds):
            yield from read_beside(world, machine, world.keys, COMMITTED)

    return script


def reader(rounds: int, _: Sequence[str] = ()) -> Script:
    """Reads single items, and several of one instant, outside of units."""

    def script(world: UnitsWorld, machine: Machine) -> Actions[None]:
        for _ in range(rounds):
            pick = world.chance.pick
            keys = world.some(1 + pick(len(world.keys)))
            if pick(4) == 3:
                yield from _read_all_at_once(world, machine, keys)
            else:
                yield from read_beside(world, machine, keys, [COMMITTED, COMMITTED, UNCOMMITTED][pick(3)])
            yield Sleep([0, 10, 1_000, 40_000][pick(4)])

    return script


def read_beside(world: UnitsWorld, machine: Machine, keys: Sequence[Key], level: Isolation) -> Actions[None]:
    checker, began = world.checker, world.checker.step
    wall_ms, began_ms = machine.read().wall_ms, world.time.now_ms
    unit_of_work = verbs_of(world, Terms(unit_id(world, wall_ms), wall_ms, 10_000, level))
    wanted = [(world.table_of(each), key_of(each)) for each in keys]
    try:
        items = yield from machine.driver.perform_steps(unit_of_work.get(wanted, level, PYTHON))
    except TableError:
        return
    in_time(world, began_ms, f"{machine.name} read")
    found = {key: value_of(item) for key, item in zip(keys, items, strict=True)}
    who = f"the reader {machine.name}"
    if level is COMMITTED:
        checker.sees_cut(who, found, began, is_one_instant=world.cuts_are_whole)
        if world.cuts_are_whole:
            checker.sees_plain_read(who, found, began)
    else:
        for key, value in found.items():
            checker.sees_uncommitted(who, key, value)


def range_reader(rounds: int, _: Sequence[str] = ()) -> Script:
    """Queries the range, and its indexes, outside of units."""

    def script(world: UnitsWorld, machine: Machine) -> Actions[None]:
        for _ in range(rounds):
            pick = world.chance.pick
            level, index = OF_RANGES[pick(len(OF_RANGES))], drawn_index(world) if pick(2) else None
            yield from _query_beside(world, machine, level, index)
            yield Sleep([0, 10, 1_000, 40_000][pick(4)])

    return script


def _query_beside(world: UnitsWorld, machine: Machine, level: Isolation, index: str | None) -> Actions[None]:
    """What `units.query` does; of an index there is no level above COMMITTED."""
    checker, record, who = world.checker, _beside(world, machine), f"the reader {machine.name}"
    world.done[f"{'query' if index is None else 'index'} outside at {level!r}"] += 1
    unit_of_work = verbs_of(world, Terms(record.id, record.born_ms, 10_000, level, is_outside=True))
    try:
        if index is not None and level is SERIALIZABLE:
            steps = unit_of_work.query(world.table_of(("lines", "")), replace(THE_RANGE, index=index), None)
            yield from is_refused(machine, steps, f"{who} queries an index at {level!r}")
            return
        there = yield from in_the_range(world, machine, unit_of_work, level, index)
    except TicketLockError:
        return
    keys = [key for key in world.keys if key[0] == "lines"]
    if index is not None:
        for key, value in there.items():
            sees_in_index(world, who, index, key, value, record.began)
    elif level is UNCOMMITTED:
        for key in keys:
            checker.sees_uncommitted(who, key, there.get(key))
    elif level is COMMITTED:
        checker.sees_cut(who, {key: there.get(key) for key in keys}, record.began, is_one_instant=False)
    else:
        # In a table that is not guarded an insert may have gone unnoticed.
        record.seen = {key: there.get(key) for key in keys if key in there or world.is_guarded}
        checker.begins(record)
        checker.sees_end(record, REPORTED_COMMITTED)


def _beside(world: UnitsWorld, machine: Machine) -> Record:
    """A read outside of units, which begins now."""
    wall_ms = machine.read().wall_ms
    record = Record(unit_id(world, wall_ms), world.numbers, world.checker.step, world.time.now_ms)
    record.machine, record.born_ms = machine.name, wall_ms
    return record


def snapshots(rounds: int, _: Sequence[str] = ()) -> Script:
    """Reads all items of one instant, repeatedly."""

    def script(world: UnitsWorld, machine: Machine) -> Actions[None]:
        for _ in range(rounds):
            yield from _read_all_at_once(world, machine, world.keys)

    return script


def _read_all_at_once(world: UnitsWorld, machine: Machine, keys: Sequence[Key]) -> Actions[None]:
    """What `units.get_all` does at SERIALIZABLE: all are of one instant, however many requests read them."""
    checker, record = world.checker, _beside(world, machine)
    checker.begins(record)
    unit_of_work = verbs_of(world, Terms(record.id, record.born_ms, 10_000, SERIALIZABLE, is_outside=True))
    wanted = [(world.table_of(each), key_of(each)) for each in keys]
    try:
        items = yield from machine.driver.perform_steps(unit_of_work.get(wanted, SERIALIZABLE, PYTHON))
    except TicketLockError as error:
        checker.sees_end(record, type(error).__name__)
        return
    record.seen = {key: value_of(item) for key, item in zip(keys, items, strict=True)}
    checker.sees_end(record, REPORTED_COMMITTED)


def asker(rounds: int, names: Sequence[str], rests_ms: Sequence[int] = (10, 1_000, 30_000, 70_000, 700_000)) -> Script:
    """Asks for the outcomes of units and of names."""

    def script(world: UnitsWorld, machine: Machine) -> Actions[None]:
        for _ in range(rounds):
            yield Sleep(rests_ms[world.chance.pick(len(rests_ms))])
            asked_at, asked_ms, checker = world.checker.step, world.time.now_ms, world.checker
            units = [each for each, record in checker.records.items() if not record.is_plain]
            name = names[world.chance.pick(len(names))] if names and world.chance.pick(2) else None
            if name is None and not units:
                continue
            unit = units[world.chance.pick(len(units))] if name is None else None
            own = unit_id(world, machine.read().wall_ms)
            if name is not None:
                steps = outcome_of_name(UNITS, name, own, checker.names_kept_s)
            else:
                steps = outcome_of_unit(UNITS, unit or "")
            try:
                outcome = yield from machine.driver.perform_steps(steps)
            except TableError:
                continue
            world.done["asks for a result"] += outcome.result is not None
            checker.sees_outcome(outcome.state.name, asked_at, name=name, unit=unit, asked_ms=asked_ms)
            if outcome.state is not Outcome.COMMITTED:
                continue
            if name is not None:
                checker.sees_result("one that asks", name, outcome.result, asked_at)
            else:
                checker.sees_result_of_saved(unit or "", outcome.result)

    return script


def ender(rounds: int, _: Sequence[str] = ()) -> Script:
    """Rolls back saved units, by their ids or by their owners."""

    def script(world: UnitsWorld, machine: Machine) -> Actions[None]:
        for _ in range(rounds):
            yield Sleep([10, 100, 1_000, 30_000][world.chance.pick(4)])
            if world.chance.pick(2):
                yield from _ends_an_owner(world, machine)
                continue
            asked_at, units = world.checker.step, sorted({str(each.saved_as) for each in world.saved.values()})
            if not units:
                continue
            unit = units[world.chance.pick(len(units))]
            try:
                settled = yield from machine.driver.perform_steps(roll_back(UnitRecords(UNITS), unit))
            except TableError:
                continue
            world.checker.sees_outcome(settled.outcome.name, asked_at, unit=unit)

    return script


def _ends_an_owner(world: UnitsWorld, machine: Machine) -> Actions[None]:
    owner = OWNERS[world.chance.pick(len(OWNERS))]
    try:
        rolled_back = yield from machine.driver.perform_steps(_saved.end_owner(UnitRecords(UNITS), owner))
    except TableError:
        return
    world.checker.saves.ended.add(owner)
    world.checker.notes(f"{machine.name} has ended {owner}, and rolled back {rolled_back}")


def plain_writer(rounds: int, _: Sequence[str] = ()) -> Script:
    """Writes beside units by the rules of docs/units.md: on condition of what it has read, and with a new version."""

    def script(world: UnitsWorld, machine: Machine) -> Actions[None]:
        for _ in range(rounds):
            yield Sleep([0, 100, 5_000][world.chance.pick(3)])
            key = world.some(1)[0]
            try:
                yield from _plain_write(world, machine, key)
            except (BotoCoreError, ClientError):
                continue

    return script


def _plain_write(world: UnitsWorld, machine: Machine, key: Key) -> Actions[None]:
    checker = world.checker
    began = checker.step
    where = {"TableName": key[0], "Key": {name: {"S": part} for name, part in key_of(key).items()}}
    item = (yield Call("dynamodb", "get_item", {**where, "ConsistentRead": True})).get("Item")
    if item is not None and MARKS.mark in item:
        return
    if item is None and world.table_of(key).is_guarded:
        # Only units insert into a guarded table.
        return
    unit = unit_id(world, machine.read().wall_ms)
    record = Record(unit, world.numbers, began, is_plain=True)
    seen = record.seen[key] = None if item is None else elements(item)
    names, values = {"#mark": MARKS.mark, "#version": MARKS.version, "#key": next(iter(where["Key"]))}, {}
    if item is None:
        condition = FOR_NO_ITEM
    elif MARKS.version in item:
        condition, values = FOR_A_VERSION, {":seen": item[MARKS.version]}
    else:
        condition = FOR_NO_VERSION
    asked = {**where, "ConditionExpression": condition}
    if item is not None and not world.is_append_only and world.chance.pick(4) == 3:
        record.writes[key], operation = None, "delete_item"
    else:
        record.writes[key], operation = (*(seen or ()), record.number), "update_item"
        asked["UpdateExpression"] = f"{APPEND}, #version = :unit"
        names |= NAMES
        values |= {":unit": {"S": unit}, ":new": {"L": [{"N": str(record.number)}]}, ":none": {"L": []}}
    said = f"{condition} {asked.get('UpdateExpression', '')}"
    asked["ExpressionAttributeNames"] = {name: each for name, each in names.items() if name in said}
    if values:
        asked["ExpressionAttributeValues"] = values
    checker.begins(record)
    checker.notes(f"{machine.name} writes {unit} to {key} beside units")
    yield Beside("dynamodb", operation, asked, record)
    record.reported, record.reported_at = REPORTED_COMMITTED, checker.step


def grantor(rounds: int, _: Sequence[str] = ()) -> Script:
    """Grants the lock to another holder, with a new token."""

    def script(world: UnitsWorld, _machine: Machine) -> Actions[None]:
        for token in range(1, rounds + 1):
            yield Sleep([100, 2_000, 30_000][world.chance.pick(3)])
            asked = {
                "TableName": LOCKS,
                "Item": {"pk": {"S": "lock"}, "token": {"N": str(token)}},
                "ConditionExpression": "#token < :token",
                "ExpressionAttributeNames": {"#token": "token"},
                "ExpressionAttributeValues": {":token": {"N": str(token)}},
            }
            try:
                yield Beside("dynamodb", "put_item", asked, token=token)
            except (BotoCoreError, ClientError):
                continue

    return script


BESIDE_CLIENTS: Mapping[str, Callable[[int, Sequence[str]], Script]] = {
    "reader": reader,
    "range reader": range_reader,
    "watcher": watcher,
    "snapshots": snapshots,
    "sweeper": sweeper,
    "sweeper in parts": sweeper_in_parts,
    "another in parts": sweeper_in_parts,
    "asker": asker,
    "patient asker": partial(asker, rests_ms=(70_000, 100_000, 700_000)),
    "ender": ender,
    "plain": plain_writer,
    "grantor": grantor,
    "operator": operator,
    "another operator": operator,
}
"""Each client by its name; made from a number of rounds, and the names in use."""
