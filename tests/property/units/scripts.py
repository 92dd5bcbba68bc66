"""What the machines of the simulated world of units do."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from kit.invariants import Broken
from property.units.casts import Cast
from property.units.machines import Machine
from property.units.mishaps import BESIDE
from property.units.witness import COMMITTED as TOLD_COMMITTED
from property.units.witness import NOT_COMMITTED, REPEATED, Key, Record, Value
from property.units.world import ELEMENTS, LOCKS, MARKS, UNITS, Beside, UnitsWorld

from ticketlock.errors import (
    ConditionFailed,
    InvalidUnitRequest,
    TableError,
    TicketLockError,
    UnitConflict,
    UnitContended,
    UnitRolledBack,
)
from ticketlock.units._heads import Heads
from ticketlock.units._ids import _DIGITS
from ticketlock.units._outcomes import outcome_of_name, outcome_of_unit
from ticketlock.units._reading import COMMITTED, SERIALIZABLE, UNCOMMITTED, Isolation
from ticketlock.units._sweeping import sweep
from ticketlock.units._terms import Engine, Terms
from ticketlock.units._values import PYTHON
from ticketlock.units._verbs import Verbs
from ticketlock.wire._actions import Actions, Call, Sleep

Script = Callable[[UnitsWorld, Machine], Actions[None]]

# A unit that nothing is wrong with ends in that time: a lease that it waits for, and its own time-outs.
LONGEST_MS = 120_000
_ONCE_MORE = (UnitConflict, UnitContended, UnitRolledBack)
_APPEND = "SET #list = list_append(if_not_exists(#list, :none), :new)"
_NAMES = {"#list": ELEMENTS}


@dataclass(frozen=True, slots=True)
class Under:
    """A lock that is held with a token."""

    token: int

    def condition_check(self) -> dict[str, Any]:
        return {
            "ConditionCheck": {
                "TableName": LOCKS,
                "Key": {"pk": {"S": "lock"}},
                "ConditionExpression": "#token = :token",
                "ExpressionAttributeNames": {"#token": "token"},
                "ExpressionAttributeValues": {":token": {"N": str(self.token)}},
            }
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """What a unit does, in each of its tries.

    Attributes:
        statements: verbs, and the items that they are about.
    """

    statements: tuple[tuple[str, tuple[Key, ...]], ...]
    engine: Engine | None
    name: str | None
    is_under: bool
    timeout_ms: int
    tries: int


def unit_id(world: UnitsWorld, wall_ms: int) -> str:
    """An id as real ones are, of numbers in place of random bits."""
    digits, number = _DIGITS, (wall_ms << 80) | world.new_number()
    return "".join(digits[(number >> (5 * place)) & 31] for place in reversed(range(26)))


def value_of(item: Mapping[str, Any] | None) -> Value:
    """The list in an item in Python values."""
    return None if item is None else tuple(int(each) for each in item[ELEMENTS])


def verbs_of(world: UnitsWorld, terms: Terms) -> Verbs:
    verbs = Verbs(terms, UNITS, world.tables, MARKS)
    verbs._meeting._jitter = world.jitter
    return verbs


# Units.


def client(cast: Cast) -> Script:
    """Runs units, one after the other, each again after a conflict."""

    def script(world: UnitsWorld, machine: Machine) -> Actions[None]:
        for _ in range(cast.rounds):
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
        statements.append((verb, tuple(some(world, count))))
    engine = cast.engines[pick(len(cast.engines))]
    name = names[pick(len(names))] if names and pick(3) == 2 else None
    return Plan(tuple(statements), engine, name, pick(6) == 5, [10_000, 1_000, 0][pick(3)], [3, 1, 2][pick(3)])


def some(world: UnitsWorld, count: int) -> list[Key]:
    left, found = list(world.keys), []
    for _ in range(count):
        found.append(left.pop(world.chance.pick(len(left))))
    return found


def one_try(world: UnitsWorld, machine: Machine, plan: Plan, born_ms: int) -> Actions[bool]:
    """One try of a unit; whether no other is to be made."""
    witness = world.witness
    unit = unit_id(world, machine.read().wall_ms)
    under = Under(witness.token) if plan.is_under else None
    terms = Terms(unit, born_ms, plan.timeout_ms, SERIALIZABLE, plan.name, under, plan.engine)
    record = Record(unit, world.numbers, witness.step, world.time.now_ms, name=plan.name)
    record.fence = under.token if under is not None else None
    record.machine, record.born_ms = machine.name, born_ms
    quiet = _troubles(world)
    witness.begins(record)
    verbs = verbs_of(world, terms)
    own = OwnUnit(world, machine, verbs, record)
    began_ms = world.time.now_ms
    witness.tells(f"{machine.name} begins {unit}: {plan.statements} {plan.engine} {plan.name} {record.fence}")
    try:
        yield from machine.driver.follow(verbs.begin())
        record.knows_name_at = witness.step
        for verb, keys in () if verbs.repeated else plan.statements:
            yield from own.states(verb, keys)
            yield from _thinks(world)
        yield from machine.driver.follow(verbs.commit())
        told = REPEATED if verbs.repeated else TOLD_COMMITTED
    except InvalidUnitRequest:
        raise
    except TicketLockError as error:
        told = type(error).__name__
        if verbs.state == "open":
            told = "given up"
        witness.sees_end(record, told)
        _in_time(world, began_ms, f"{unit} was told {told}")
        if _troubles(world) == quiet:
            _has_let_go(world, unit, told)
        return not isinstance(error, _ONCE_MORE)
    witness.sees_end(record, told)
    _in_time(world, began_ms, f"{unit} was told {told}")
    return True


def _in_time(world: UnitsWorld, began_ms: float, what: str) -> None:
    took_ms = world.time.now_ms - max(began_ms, world.calm_since_ms)
    if took_ms > LONGEST_MS:
        raise Broken(f"liveness: {what} after {took_ms / 1_000:.0f} s in which nothing failed")


def _thinks(world: UnitsWorld) -> Actions[None]:
    """What a unit's own code does between two statements takes a while, now and then."""
    ms = [0, 0, 0, 20, 1_000][world.chance.pick(5)]
    if ms:
        yield Sleep(ms)


def _troubles(world: UnitsWorld) -> int:
    """How much has gone wrong but for refusals."""
    return sum(count for name, count in world.struck.items() if name != "refused" and name not in BESIDE)


def _has_let_go(world: UnitsWorld, unit: str, told: str) -> None:
    """Whoever is told that a unit is not committed, while its requests are answered, has rolled it back."""
    head = world.head(unit)
    if head is not None and head["state"]["S"] == "pending" and told in NOT_COMMITTED:
        raise Broken(f"let go: {unit} was told {told}, and whoever meets its marks waits for its lease")


class OwnUnit:
    """A unit, with what it should see of its own."""

    def __init__(self, world: UnitsWorld, machine: Machine, verbs: Verbs, record: Record) -> None:
        self.world, self.machine, self.verbs, self.record = world, machine, verbs, record
        self.new = {":new": [record.number], ":none": []}

    def states(self, verb: str, keys: Sequence[Key]) -> Actions[None]:
        """One statement."""
        world, (key, *_) = self.world, keys
        table, python_key = world.table_of(key), world.key_of(key)
        began, follow, verbs = self.world.witness.step, self.machine.driver.follow, self.verbs
        if verb in ("get", "get all"):
            levels = [SERIALIZABLE, SERIALIZABLE, COMMITTED, UNCOMMITTED]
            level = levels[world.chance.pick(4)]
            wanted = [(world.table_of(each), world.key_of(each)) for each in keys]
            found = yield from follow(verbs.get(wanted, level, PYTHON))
            self._reads(level, {each: value_of(item) for each, item in zip(keys, found, strict=True)}, began)
        elif verb == "blind":
            if self._number_is_in(key):
                return
            yield from follow(verbs.update(table, python_key, _APPEND, None, self.new, _NAMES, PYTHON, blind=True))
            if key in self.record.seen:
                self.record.writes[key] = (*(self._own(key) or ()), self.record.number)
            else:
                self.record.blind.add(key)
        elif verb == "append":
            if self._number_is_in(key):
                return
            steps = verbs.update(table, python_key, _APPEND, None, self.new, _NAMES, PYTHON)
            before, after = yield from follow(steps)
            self._meets(key, value_of(PYTHON.back(before)), began)
            self._writes(key, (*(self._own(key) or ()), self.record.number), value_of(PYTHON.back(after)))
        elif verb == "put":
            item = {**python_key, ELEMENTS: [self.record.number]}
            before, after = yield from follow(verbs.put(table, item, None, None, None, PYTHON))
            self._meets(key, value_of(PYTHON.back(before)), began)
            self._writes(key, (self.record.number,), value_of(PYTHON.back(after)))
        elif verb == "delete":
            before, _ = yield from follow(verbs.delete(table, python_key, None, None, None, PYTHON))
            self._meets(key, value_of(PYTHON.back(before)), began)
            self._writes(key, None, None)
        else:
            conditions = ["attribute_exists(#list)", "attribute_not_exists(#list)"]
            try:
                before, _ = yield from follow(verbs.check(table, python_key, conditions[0], None, _NAMES, PYTHON))
            except ConditionFailed:
                before, _ = yield from follow(verbs.check(table, python_key, conditions[1], None, _NAMES, PYTHON))
            self._meets(key, value_of(PYTHON.back(before)), began)

    def _number_is_in(self, key: Key) -> bool:
        return key in self.record.blind or self.record.number in (self._own(key) or ())

    def _own(self, key: Key) -> Value:
        return self.record.writes.get(key, self.record.seen.get(key))

    def _reads(self, level: Isolation, found: Mapping[Key, Value], began: int) -> None:
        record, witness = self.record, self.world.witness
        for key in list(found):
            if key in record.blind and level is not UNCOMMITTED:
                self._meets(key, found[key], began)
        of_others = {key: value for key, value in found.items() if key not in record.seen and key not in record.writes}
        for key in found.keys() - of_others.keys():
            if found[key] != self._own(key):
                raise Broken(f"own reads: {record.id} has {self._own(key)} in {key}, and read {found[key]}")
        if level is UNCOMMITTED:
            for key, value in of_others.items():
                if key not in record.blind:
                    witness.sees_uncommitted(record.id, key, value)
        elif of_others:
            witness.sees_cut(record.id, of_others, began, is_one_instant=self.world.cuts_are_whole)
        if level is SERIALIZABLE:
            record.seen.update(of_others)

    def _meets(self, key: Key, value: Value, began: int) -> None:
        """What a statement found: for the first time, or as the unit left it."""
        record, witness = self.record, self.world.witness
        if key in record.blind:
            if value is None or value[-1] != record.number:
                raise Broken(f"own reads: {record.id} has appended to {key} blindly, and read {value}")
            record.blind.discard(key)
            before: Value = value[:-1]
            if not before and self.world.stored(key) is None:
                before = None
            record.seen[key], record.writes[key] = before or _nothing(witness.state[key]), value
        elif key not in record.seen:
            record.seen[key] = value
            witness.sees_cut(record.id, {key: value}, began, is_one_instant=True)
        elif value != self._own(key):
            raise Broken(f"own reads: {record.id} has {self._own(key)} in {key}, and met {value}")

    def _writes(self, key: Key, value: Value, told: Value) -> None:
        if value != told:
            raise Broken(f"own reads: {self.record.id} wrote {value} to {key}, and is told {told}")
        self.record.writes[key] = value


def _nothing(state: Value) -> Value:
    """No item, or one without elements: a read of what was appended to it does not tell which."""
    return () if state == () else None


# Beside units.


def watcher(rounds: int, _: Sequence[str] = ()) -> Script:
    """Reads all items together, again and again."""

    def script(world: UnitsWorld, machine: Machine) -> Actions[None]:
        for _ in range(rounds):
            yield from read_beside(world, machine, world.keys, COMMITTED)

    return script


def reader(rounds: int, _: Sequence[str] = ()) -> Script:
    """Reads items and cuts outside of units."""

    def script(world: UnitsWorld, machine: Machine) -> Actions[None]:
        for _ in range(rounds):
            pick = world.chance.pick
            keys = some(world, 1 + pick(len(world.keys)))
            yield from read_beside(world, machine, keys, [COMMITTED, COMMITTED, UNCOMMITTED][pick(3)])
            yield Sleep([0, 10, 1_000, 40_000][pick(4)])

    return script


def read_beside(world: UnitsWorld, machine: Machine, keys: Sequence[Key], level: Isolation) -> Actions[None]:
    witness, began = world.witness, world.witness.step
    wall_ms, began_ms = machine.read().wall_ms, world.time.now_ms
    verbs = verbs_of(world, Terms(unit_id(world, wall_ms), wall_ms, 10_000, level))
    wanted = [(world.table_of(each), world.key_of(each)) for each in keys]
    try:
        items = yield from machine.driver.follow(verbs.get(wanted, level, PYTHON))
    except TableError:
        return
    _in_time(world, began_ms, f"{machine.name} read")
    found = {key: value_of(item) for key, item in zip(keys, items, strict=True)}
    who = f"the reader {machine.name}"
    if level is COMMITTED:
        witness.sees_cut(who, found, began, is_one_instant=world.cuts_are_whole)
        if world.cuts_are_whole:
            witness.sees_plain_read(who, found, began)
    else:
        for key, value in found.items():
            witness.sees_uncommitted(who, key, value)


def sweeper(rounds: int, _: Sequence[str] = ()) -> Script:
    """Sweeps now and then."""

    def script(world: UnitsWorld, machine: Machine) -> Actions[None]:
        for _ in range(rounds):
            yield Sleep([100, 5_000, 70_000, 700_000][world.chance.pick(4)])
            try:
                yield from machine.driver.follow(sweep(Heads(UNITS), MARKS))
            except TableError:
                continue

    return script


def asker(rounds: int, names: Sequence[str]) -> Script:
    """Asks what has become of units and of names."""

    def script(world: UnitsWorld, machine: Machine) -> Actions[None]:
        for _ in range(rounds):
            yield Sleep([10, 1_000, 30_000, 70_000][world.chance.pick(4)])
            asked_at, witness = world.witness.step, world.witness
            units = [each for each, record in witness.records.items() if not record.is_plain]
            name = names[world.chance.pick(len(names))] if names and world.chance.pick(2) else None
            if name is None and not units:
                continue
            unit = units[world.chance.pick(len(units))] if name is None else None
            steps = outcome_of_name(UNITS, name) if name is not None else outcome_of_unit(UNITS, unit or "")
            try:
                told = yield from machine.driver.follow(steps)
            except TableError:
                continue
            witness.sees_outcome(told.name, asked_at, name=name, unit=unit)

    return script


def plain_writer(rounds: int, _: Sequence[str] = ()) -> Script:
    """Writes beside units as they ask for it: only what nobody has marked, at the version that it saw."""

    def script(world: UnitsWorld, machine: Machine) -> Actions[None]:
        for _ in range(rounds):
            yield Sleep([0, 100, 5_000][world.chance.pick(3)])
            key = some(world, 1)[0]
            try:
                yield from _plain_write(world, machine, key)
            except (BotoCoreError, ClientError):
                continue

    return script


def _plain_write(world: UnitsWorld, machine: Machine, key: Key) -> Actions[None]:
    witness = world.witness
    began = witness.step
    where = {"TableName": key[0], "Key": {name: {"S": part} for name, part in world.key_of(key).items()}}
    item = (yield Call("dynamodb", "get_item", {**where, "ConsistentRead": True})).get("Item")
    if item is None or MARKS.mark in item:
        return
    unit = unit_id(world, machine.read().wall_ms)
    record = Record(unit, world.numbers, began, is_plain=True)
    seen = tuple(int(each["N"]) for each in item[ELEMENTS]["L"])
    names = {"#mark": MARKS.mark, "#version": MARKS.version}
    condition = "attribute_not_exists(#mark) AND #version = :seen"
    values = {":seen": {"S": item[MARKS.version]["S"]}}
    record.seen[key] = seen
    if not world.is_append_only and world.chance.pick(4) == 3:
        record.writes[key] = None
        operation, asked = "delete_item", {**where}
    else:
        record.writes[key] = (*seen, record.number)
        operation = "update_item"
        asked = {**where, "UpdateExpression": "SET #list = list_append(#list, :new), #version = :unit"}
        names |= _NAMES
        values |= {":unit": {"S": unit}, ":new": {"L": [{"N": str(record.number)}]}}
    asked |= {
        "ConditionExpression": condition,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }
    witness.begins(record)
    witness.tells(f"{machine.name} writes {unit} to {key} beside units")
    yield Beside("dynamodb", operation, asked, record)
    record.told, record.told_at = TOLD_COMMITTED, witness.step


def grantor(rounds: int, _: Sequence[str] = ()) -> Script:
    """Grants the lock to somebody else, with a new token."""

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
    "watcher": watcher,
    "sweeper": sweeper,
    "asker": asker,
    "plain": plain_writer,
    "grantor": grantor,
}
"""What each is called; of how many rounds, and with which names in use."""


# In the end.


def final_unit(world: UnitsWorld, machine: Machine) -> Actions[None]:
    """One unit that appends to everything, in a world in which nothing fails: it is committed in the end."""
    plan = Plan(tuple(("append", (key,)) for key in world.keys), "marked", None, False, 100_000, 4)
    if not (yield from one_try(world, machine, plan, 0)):
        raise Broken("liveness: the oldest unit was not committed, and nothing failed")


def final_reader(world: UnitsWorld, machine: Machine) -> Actions[None]:
    wanted = [(world.table_of(each), world.key_of(each)) for each in world.keys]
    verbs = verbs_of(world, Terms(unit_id(world, 0), 0, 10_000, COMMITTED))
    items = yield from machine.driver.follow(verbs.get(wanted, COMMITTED, PYTHON))
    for key, item in zip(world.keys, items, strict=True):
        if value_of(item) != world.witness.state[key]:
            raise Broken(f"committed reads: in the end {key} reads {item}, and is {world.witness.state[key]}")


def one_sweep(world: UnitsWorld, machine: Machine) -> Actions[None]:
    swept = yield from machine.driver.follow(sweep(Heads(UNITS), MARKS))
    world.witness.tells(f"{swept}")
