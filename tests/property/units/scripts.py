"""What the machines of the simulated world of units do: clients, sweeps, operators, and those that run at the end.

A sweep that runs out of time, or whose machine crashes, has stored its position. The next sweep of as many parts
continues there, on another machine, or on two at once.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any

from kit.invariants import Broken
from property.units.calls import ELEMENTS, MARKS, OWNERS, UNITS, elements, key_of
from property.units.casts import Cast
from property.units.checker import COMMITTED as REPORTED_COMMITTED
from property.units.checker import Key, Record, Value
from property.units.machines import Machine
from property.units.tries import (
    OF_SEVERAL,
    Plan,
    behind,
    finishes_behind,
    one_try,
    states_nothing,
    to_its_end,
    unit_id,
    value_of,
    verbs_of,
)
from property.units.world import Script, UnitsWorld

from ticketlock.errors import InvalidUnitRequest, TableError, TicketLockError
from ticketlock.units._records._record import UnitRecords
from ticketlock.units._recovery._operators import Correction, correct, unfinished
from ticketlock.units._recovery._saved import Resumed, resume
from ticketlock.units._recovery._sweeping import SWEEP, Swept, sweep
from ticketlock.units._statements._reading import COMMITTED
from ticketlock.units._statements._settings import SavedStep, SaveOptions, Terms
from ticketlock.units._unit_of_work._unit_of_work import UnitOfWork
from ticketlock.units._words._values import PYTHON
from ticketlock.wire._actions import Actions, Sleep
from ticketlock.wire._requests import ForkingSteps


def one_that_resumes(world: UnitsWorld, machine: Machine, plan: Plan) -> Actions[None]:
    """Resume a unit that a machine has saved, or was about to save; then commit it, save it again or roll it back.

    Args:
        plan: its further statements.
    """
    saved = sorted({str(each.saved_as) for each in world.saved.values()})
    unit, own = saved[world.chance.pick(len(saved))], unit_id(world, machine.read().wall_ms)
    checker, wall_ms = world.checker, machine.read().wall_ms
    record = Record(own, 0, checker.step, world.time.now_ms, machine=machine.name, born_ms=wall_ms, saved_as=unit)
    step = _step_of(plan)
    record.step = None if step is None else step.name
    checker.begins(record)
    checker.notes(f"{machine.name} resumes {unit} as {own}: {plan.statements} {plan.keeping} {record.step}")
    together = world.marks_together()
    terms = Terms(own, wall_ms, 10_000, step=step, names_kept_s=checker.names_kept_s, marks_together=together)
    steps = resume(unit, terms, UNITS, MARKS, world.tables)
    try:
        resumed = yield from machine.driver.perform_steps(steps)
    except InvalidUnitRequest:
        raise
    except TicketLockError as error:
        checker.sees_end(record, type(error).__name__)
        return
    if resumed.is_committed:
        if unit not in checker.saves.committed:
            raise Broken(f"outcomes: {own} finds {unit} committed, and it is not")
        told = verbs_of(world, resumed.terms, resumed).result
        world.done["resumes what has a result"] += told is not None
        checker.sees_result_of_saved(unit, told)
        return
    if resumed.terms.marks_together != together:
        raise Broken(f"resumed: {own} does not mark its items as the client that resumes {unit} was told to")
    world.done["resumes"] += 1
    world.done["marks together when resumed"] += together and resumed.terms.engine == "marked"
    left: list[ForkingSteps[None]] = []
    unit_of_work = verbs_of(world, resumed.terms, resumed, behind=behind(world, left))
    if resumed.terms.repeats_step:
        yield from _repeats(world, machine, unit_of_work, record, plan)
        return
    _takes_up(record, resumed, world)
    if plan.statements and world.chance.pick(6) == 5:
        yield from _rolls_back(world, machine, unit_of_work, record)
    else:
        yield from to_its_end(world, machine, unit_of_work, record, plan)
        yield from finishes_behind(world, machine, own, left)


def _takes_up(record: Record, resumed: Resumed, world: UnitsWorld) -> None:
    """Take over what the earlier coordinator has read and written."""
    assert resumed.terms.saved is not None
    before = world.saved[resumed.terms.saved.attempt]
    record.number, record.name, record.fence = before.number, before.name, before.fence
    record.knows_name_at, record.born_ms = before.knows_name_at, before.born_ms
    record.seen, record.writes, record.blind = copy(before.seen), copy(before.writes), copy(before.blind)
    record.missed, record.unseen, record.resumed_from = copy(before.missed), copy(before.unseen), before
    record.asserted = copy(before.asserted)


def _step_of(plan: Plan) -> SavedStep | None:
    """Its step, if it saves the unit again: plans of two statements with the same first verb share one."""
    if plan.keeping is None or len(plan.statements) != 2:
        return None
    return SavedStep(plan.statements[0][0])


def _repeats(
    world: UnitsWorld, machine: Machine, unit_of_work: UnitOfWork, record: Record, plan: Plan
) -> Actions[None]:
    """Run a step again after its save: nothing of it is written."""
    assert plan.keeping is not None
    world.checker.saves.sees_repeated_step(str(record.saved_as), record.step)
    for _, (key, *_) in plan.statements:
        yield from states_nothing(world, machine, unit_of_work, key)
    assert (yield from machine.driver.perform_steps(unit_of_work.save(plan.keeping))) == record.saved_as
    world.checker.sees_end(record, "saved before")


def _rolls_back(world: UnitsWorld, machine: Machine, unit_of_work: UnitOfWork, record: Record) -> Actions[None]:
    """Roll it back for every coordinator."""
    try:
        yield from machine.driver.perform_steps(unit_of_work.rollback())
    except TicketLockError as error:
        world.checker.sees_end(record, type(error).__name__)
        return
    world.checker.sees_end(record, "rolled back")
    world.checker.rolled_back.add(str(record.saved_as))


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
    swept: Swept = yield from machine.driver.perform_steps(sweep(UnitRecords(UNITS), parts=parts, until_ms=until_ms))
    world.struck[CUT_SHORT] += not swept.is_whole
    world.checker.notes(f"{machine.name} has swept {parts} parts for {time_ms} ms: {swept}")
    return swept


def _kept(world: UnitsWorld) -> set[int]:
    """Of sweeps of how many parts a place is kept."""
    rows = [row["row"]["S"] for row in world.service.memory.items(UNITS) if row["unit"]["S"] == SWEEP]
    return {int(row.rpartition("of")[2]) for row in rows}


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
    checker, table, records = world.checker, world.table_of(key), UnitRecords(UNITS)
    where = {name: {"S": part} for name, part in key_of(key).items()}
    began = checker.step
    try:
        left = yield from machine.driver.perform_steps(unfinished(records, unit, table, where))
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
        done = yield from machine.driver.perform_steps(
            correct(records, unit, table, where, Correction(record.id, image, machine.name, "refused"))
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


def client(cast: Cast) -> Script:
    """Runs units one after the other, each again after a conflict."""

    def script(world: UnitsWorld, machine: Machine) -> Actions[None]:
        for _ in range(cast.rounds):
            if cast.saves and world.saved and world.chance.pick(2):
                yield from one_that_resumes(world, machine, drawn_plan(world, cast))
                continue
            plan = drawn_plan(world, cast)
            born_ms = machine.read().wall_ms
            for _ in range(plan.tries):
                if (yield from one_try(world, machine, plan, born_ms)):
                    break
            yield Sleep(cast.rests_ms[world.chance.pick(len(cast.rests_ms))])

    return script


def drawn_plan(world: UnitsWorld, cast: Cast) -> Plan:
    pick, verbs, names = world.chance.pick, cast.verbs, cast.names
    statements = []
    for _ in range([1, 2, 2, 3, 4][pick(5)]):
        verb = verbs[pick(len(verbs))]
        count = 1 + pick(len(world.keys)) if verb in OF_SEVERAL else 1
        statements.append((verb, tuple(world.some(count))))
    engine = cast.engines[pick(len(cast.engines))]
    if cast.is_guarded and engine == "native":
        # Inserts into the range cannot be native.
        engine = None
    name = names[pick(len(names))] if names and pick(3) == 2 else None
    under, timeout_ms, tries = pick(6) == 5, [10_000, 1_000, 0][pick(3)], [3, 1, 2][pick(3)]
    keeps_ms = [None, 12 * 3_600_000, None, [100_000, 5_000][pick(2)]][pick(4)] if cast.saves else None
    keeping = None if keeps_ms is None else SaveOptions(keeps_ms, [None, *OWNERS][pick(1 + len(OWNERS))])
    is_locking = cast.locking and keeping is None and pick(2) == 1
    return Plan(tuple(statements), engine, name, under, timeout_ms, tries, keeping, is_locking)


# At the end.


def final_unit(world: UnitsWorld, machine: Machine) -> Actions[None]:
    """One unit that appends to every item, in a world without faults: it must be committed."""
    plan = Plan(tuple(("append", (key,)) for key in world.keys), "marked", None, False, 100_000, 4)
    if not (yield from one_try(world, machine, plan, 0)):
        raise Broken("liveness: the oldest unit was not committed, and nothing failed")


def final_reader(world: UnitsWorld, machine: Machine) -> Actions[None]:
    wanted = [(world.table_of(each), key_of(each)) for each in world.keys]
    unit_of_work = verbs_of(world, Terms(unit_id(world, 0), 0, 10_000, COMMITTED))
    items = yield from machine.driver.perform_steps(unit_of_work.get(wanted, COMMITTED, PYTHON))
    for key, item in zip(world.keys, items, strict=True):
        if value_of(item) != world.checker.state[key]:
            raise Broken(f"committed reads: at the end {key} reads {item}, and is {world.checker.state[key]}")


def final_sweep(parts: int, time_ms: int | None, found: list[bool]) -> Script:
    """A pass in a world in which nothing fails.

    Args:
        found: to it is added whether the pass came to the end of the table.
    """

    def script(world: UnitsWorld, machine: Machine) -> Actions[None]:
        found.append((yield from one_sweep(world, machine, parts, time_ms)).is_whole)

    return script
