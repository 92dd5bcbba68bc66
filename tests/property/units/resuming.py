"""A coordinator that resumes a saved unit in the simulated world of units."""

from copy import copy

from kit.invariants import Broken
from property.units.checker import Record
from property.units.machines import Machine
from property.units.tables import MARKS, UNITS
from property.units.tries import Plan, states_nothing, to_its_end, unit_id, verbs_of
from property.units.world import UnitsWorld

from ticketlock.errors import InvalidUnitRequest, TicketLockError
from ticketlock.units._saved import Resumed, resume
from ticketlock.units._settings import SavedStep, Terms
from ticketlock.units._unit_of_work import UnitOfWork
from ticketlock.wire._actions import Actions


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
    steps = resume(unit, Terms(own, wall_ms, 10_000, step=step), UNITS, MARKS, world.tables)
    try:
        resumed = yield from machine.driver.follow(steps)
    except InvalidUnitRequest:
        raise
    except TicketLockError as error:
        checker.sees_end(record, type(error).__name__)
        return
    if resumed.is_committed:
        if unit not in checker.saves.committed:
            raise Broken(f"outcomes: {own} finds {unit} committed, and it is not")
        return
    verbs = verbs_of(world, resumed.terms, resumed)
    if resumed.terms.repeats_step:
        yield from _repeats(world, machine, verbs, record, plan)
        return
    _takes_up(record, resumed, world)
    if plan.statements and world.chance.pick(6) == 5:
        yield from _rolls_back(world, machine, verbs, record)
    else:
        yield from to_its_end(world, machine, verbs, record, plan)


def _takes_up(record: Record, resumed: Resumed, world: UnitsWorld) -> None:
    """Take over what the earlier coordinator has read and written."""
    assert resumed.terms.saved is not None
    before = world.saved[resumed.terms.saved.attempt]
    record.number, record.name, record.fence = before.number, before.name, before.fence
    record.knows_name_at, record.born_ms = before.knows_name_at, before.born_ms
    record.seen, record.writes, record.blind = copy(before.seen), copy(before.writes), copy(before.blind)
    record.missed, record.resumed_from = copy(before.missed), before


def _step_of(plan: Plan) -> SavedStep | None:
    """Its step, if it saves the unit again: plans of two statements with the same first verb share one."""
    if plan.keeping is None or len(plan.statements) != 2:
        return None
    return SavedStep(plan.statements[0][0])


def _repeats(world: UnitsWorld, machine: Machine, verbs: UnitOfWork, record: Record, plan: Plan) -> Actions[None]:
    """Run a step again after its save: nothing of it is written."""
    assert plan.keeping is not None
    world.checker.saves.sees_repeated_step(str(record.saved_as), record.step)
    for _, (key, *_) in plan.statements:
        yield from states_nothing(world, machine, verbs, key)
    assert (yield from machine.driver.follow(verbs.save(plan.keeping))) == record.saved_as
    world.checker.sees_end(record, "saved before")


def _rolls_back(world: UnitsWorld, machine: Machine, verbs: UnitOfWork, record: Record) -> Actions[None]:
    """Roll it back for every coordinator."""
    try:
        yield from machine.driver.follow(verbs.rollback())
    except TicketLockError as error:
        world.checker.sees_end(record, type(error).__name__)
        return
    world.checker.sees_end(record, "rolled back")
    world.checker.rolled_back.add(str(record.saved_as))
