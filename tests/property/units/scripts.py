"""What the machines of the simulated world of units do: the clients, and those that run at the end."""

from kit.invariants import Broken
from property.units.casts import Cast
from property.units.machines import Machine
from property.units.resuming import one_that_resumes
from property.units.sweeps import one_sweep
from property.units.tables import OWNERS, key_of
from property.units.tries import Plan, one_try, unit_id, value_of, verbs_of
from property.units.world import Script, UnitsWorld

from ticketlock.units._reading import COMMITTED
from ticketlock.units._settings import SaveOptions, Terms
from ticketlock.units._values import PYTHON
from ticketlock.wire._actions import Actions, Sleep


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
        count = 1 if verb != "get all" else 1 + pick(len(world.keys))
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
    verbs = verbs_of(world, Terms(unit_id(world, 0), 0, 10_000, COMMITTED))
    items = yield from machine.driver.follow(verbs.get(wanted, COMMITTED, PYTHON))
    for key, item in zip(world.keys, items, strict=True):
        if value_of(item) != world.checker.state[key]:
            raise Broken(f"committed reads: at the end {key} reads {item}, and is {world.checker.state[key]}")


def final_sweep(parts: int, time_ms: int | None, found: list[bool]) -> Script:
    """A pass in a world in which nothing fails.

    Args:
        found: called with whether it came to the end of the table.
    """

    def script(world: UnitsWorld, machine: Machine) -> Actions[None]:
        found.append((yield from one_sweep(world, machine, parts, time_ms)).is_whole)

    return script
