"""One try of a unit in the simulated world of units, and what it must see of its own writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from boto3.dynamodb.conditions import Key as KeyOf
from kit.invariants import Broken
from property.units.calls import ELEMENTS, INDEXES, LOCKS, MARKS, RANK, RANKED, UNITS, key_of
from property.units.checker import COMMITTED as REPORTED_COMMITTED
from property.units.checker import NOT_COMMITTED, REPEATED, SAVED, Key, Record, Value
from property.units.machines import BESIDE, Machine
from property.units.world import UnitsWorld

from ticketlock.errors import (
    CommittedUnfinished,
    ConditionFailed,
    InvalidUnitRequest,
    TicketLockError,
    UnitConflict,
    UnitContended,
    UnitRolledBack,
)
from ticketlock.units._commit._commit import Behind, in_front
from ticketlock.units._records._record import _DIGITS
from ticketlock.units._recovery._saved import Resumed
from ticketlock.units._statements._queries import Found, QueryRequest
from ticketlock.units._statements._reading import COMMITTED, READ_LOCK, SERIALIZABLE, UNCOMMITTED, Isolation
from ticketlock.units._statements._settings import Engine, SaveOptions, Terms
from ticketlock.units._statements._statements import StatementRequest
from ticketlock.units._unit_of_work._unit_of_work import UnitOfWork
from ticketlock.units._words._tables import UnitTable
from ticketlock.units._words._values import PYTHON
from ticketlock.wire._actions import Actions, Sleep
from ticketlock.wire._requests import ForkingSteps

# Without faults a unit ends within that time: a lease that it waits for, and its own time-outs.
LONGEST_MS = 120_000
_ONCE_MORE = (UnitConflict, UnitContended, UnitRolledBack)
READS = ("get", "get all", "query", "index", "prefetch")
OF_SEVERAL = ("get all", "prefetch", "put all", "update all", "delete all")
"""Verbs of one item or more."""
OF_RANGES = (SERIALIZABLE, COMMITTED, UNCOMMITTED)
KINDS_DONE = (
    *(f"{verb} at {level!r}" for verb in ("get", "get all") for level in Isolation),
    *(f"{verb} at {level!r}" for verb in ("query", "index", "query outside", "index outside") for level in OF_RANGES),
    *(f"{of} {way}" for of in ("the range", *INDEXES) for way in ("at once", "in pages", "from item to item")),
    *("append", "blind", "check", "put", "delete", "prefetch", "update all", "put all", "delete all"),
    *("a refused put all", "a prefetch of what is blind", "a statement of what is unseen", "a query of what is unseen"),
    *("marks together", "marks together when resumed", "finishes behind", "resumes"),
    *("keeps a result", "is told the first result", "asks for a result", "resumes what has a result"),
)
"""All kinds of reads and statements, and ways to perform them: a search without one of them has not tested it."""
APPEND = "SET #list = list_append(if_not_exists(#list, :none), :new)"
APPEND_RANKED = f"{APPEND}, #rank = :rank"
NAMES = {"#list": ELEMENTS}
SAME_RANK = "all"


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
        statements: verbs, each with its items.
        is_locking: whether it marks what it reads.
        keeping: for how long it is kept, and its owner, if it is saved at the end; None for a unit that is committed.
    """

    statements: tuple[tuple[str, tuple[Key, ...]], ...]
    engine: Engine | None
    name: str | None
    is_under: bool
    timeout_ms: int
    tries: int
    keeping: SaveOptions | None = None
    is_locking: bool = False


def unit_id(world: UnitsWorld, wall_ms: int) -> str:
    """An id in the real form, with numbers in place of random bits."""
    digits, number = _DIGITS, (wall_ms << 80) | world.new_number()
    return "".join(digits[(number >> (5 * place)) & 31] for place in reversed(range(26)))


def value_of(item: Mapping[str, Any] | None) -> Value:
    """The list in an item, from Python values."""
    return None if item is None else tuple(int(each) for each in item[ELEMENTS])


def verbs_of(world: UnitsWorld, terms: Terms, resumed: Resumed | None = None, behind: Behind = in_front) -> UnitOfWork:
    unit_of_work = UnitOfWork(terms, UNITS, world.tables, MARKS, resumed=resumed, behind=behind)
    unit_of_work._meeting._jitter = world.jitter
    return unit_of_work


def one_try(world: UnitsWorld, machine: Machine, plan: Plan, born_ms: int) -> Actions[bool]:
    """One try of a unit. Returns whether it was the last."""
    checker = world.checker
    unit = unit_id(world, machine.read().wall_ms)
    under = Under(checker.token) if plan.is_under else None
    level = READ_LOCK if plan.is_locking else SERIALIZABLE
    together = world.marks_together()
    terms = Terms(unit, born_ms, plan.timeout_ms, level, plan.name, under, plan.engine, marks_together=together)
    terms = replace(terms, names_kept_s=checker.names_kept_s)
    record = Record(unit, world.numbers, checker.step, world.time.now_ms, name=plan.name)
    record.fence = under.token if under is not None else None
    record.machine, record.born_ms = machine.name, born_ms
    checker.begins(record)
    left = list[ForkingSteps[None]]()
    unit_of_work = verbs_of(world, terms, behind=behind(world, left))
    world.done["marks together"] += together and plan.engine == "marked"
    checker.notes(f"{machine.name} begins {unit}: {plan.statements} {plan.engine} {plan.name} {record.fence}")
    is_last = yield from to_its_end(world, machine, unit_of_work, record, plan)
    yield from finishes_behind(world, machine, unit, left)
    return is_last


def behind(world: UnitsWorld, left: list[ForkingSteps[None]]) -> Behind:
    """What takes the rest of a commit, and adds it to ``left`` if the unit's items are finished behind its caller."""

    def goes_on(steps: ForkingSteps[None]) -> bool:
        left.append(steps)
        return True

    return goes_on if world.finishes_behind() else in_front


def finishes_behind(
    world: UnitsWorld, machine: Machine, unit: str, left: Sequence[ForkingSteps[None]]
) -> Actions[None]:
    """Finish the items of a unit whose commit is reported."""
    for steps in left:
        world.done["finishes behind"] += 1
        yield from _thinks(world)
        yield from _tells(world, machine, unit, steps)


def to_its_end(
    world: UnitsWorld, machine: Machine, unit_of_work: UnitOfWork, record: Record, plan: Plan
) -> Actions[bool]:
    """The statements of a unit, and its end. Returns whether this try was the last."""
    checker, unit, began_ms, quiet = world.checker, record.id, world.time.now_ms, _troubles(world)
    own, perform = OwnUnit(world, machine, unit_of_work, record), machine.driver.perform_steps
    try:
        yield from perform(unit_of_work.begin())
        if record.knows_name_at is None:
            record.knows_name_at = checker.step
        for verb, keys in plan.statements:
            if unit_of_work.repeated and verb not in READS:
                yield from states_nothing(world, machine, unit_of_work, keys[0])
            else:
                yield from own.states(verb, keys)
            yield from _thinks(world)
        if plan.keeping is not None:
            # Another machine may resume it before this one learns that it is saved.
            record.saved_as = unit_of_work.terms.id
            world.saved[unit] = record
            yield from perform(unit_of_work.save(plan.keeping))
            end = SAVED
        else:
            _keeps_a_result(world, unit_of_work, record)
            record.ends_at, record.ends_ms = checker.step, world.time.now_ms
            yield from _tells(world, machine, unit_of_work.terms.unit, unit_of_work.commit())
            end = REPEATED if unit_of_work.repeated else REPORTED_COMMITTED
    except InvalidUnitRequest:
        raise
    except TicketLockError as error:
        end = type(error).__name__
        if unit_of_work.state.is_open:
            end = "given up"
        checker.sees_end(record, end)
        in_time(world, began_ms, f"{unit} ended as {end}")
        if _troubles(world) == quiet:
            _has_let_go(world, unit, end)
        return not isinstance(error, _ONCE_MORE)
    checker.sees_end(record, end)
    if record.name is not None and end != SAVED:
        world.done["is told the first result"] += end == REPEATED and unit_of_work.result is not None
        checker.sees_result(unit, record.name, unit_of_work.result, record.began)
    if end == REPEATED and world.service.head(unit) is not None:
        raise Broken(f"exactly once: {unit} is repeated, and has written a record")
    in_time(world, began_ms, f"{unit} ended as {end}")
    return True


def _keeps_a_result(world: UnitsWorld, unit_of_work: UnitOfWork, record: Record) -> None:
    """Two of three units keep one that no other unit has; a repeated one tries to."""
    terms = unit_of_work.terms
    if record.number % 3 and (terms.name is not None or terms.saved is not None):
        record.result = f"{record.id} was here"
        unit_of_work.keep(record.result)
        world.done["keeps a result"] += not unit_of_work.repeated


def _tells(world: UnitsWorld, machine: Machine, unit: str, steps: ForkingSteps[None]) -> Actions[None]:
    """A commit, or what is left of it: reports what the service refuses after the decision."""
    told = False
    try:
        yield from machine.driver.perform_steps(steps)
    except CommittedUnfinished as error:
        told = True
        if error.unit != unit or not error.keys:
            raise Broken(f"told: {unit} is reported as {error.unit}, with {error.keys}") from error
    may_know = world.network.told.get((machine.name, unit))
    if told and may_know is None:
        raise Broken(f"told: the commit of {unit} has reported an item that is not refused")
    if may_know and not told:
        raise Broken(f"told: the commit of {unit} has not reported an item that is refused")


def states_nothing(world: UnitsWorld, machine: Machine, unit_of_work: UnitOfWork, key: Key) -> Actions[None]:
    """A statement of a repeated unit: it does nothing."""
    request = StatementRequest("delete", world.table_of(key), key_of(key))
    found = yield from machine.driver.perform_steps(unit_of_work.evaluate(request))
    if found != (None, None):
        raise Broken(
            f"exactly once: {unit_of_work.terms.unit} is repeated, and its statement has evaluated {key}: {found}"
        )


def in_time(world: UnitsWorld, began_ms: float, what: str) -> None:
    took_ms = world.time.now_ms - max(began_ms, world.calm_since_ms)
    if took_ms > LONGEST_MS:
        raise Broken(f"liveness: {what} after {took_ms / 1_000:.0f} s in which nothing failed")


def _thinks(world: UnitsWorld) -> Actions[None]:
    """Sometimes the unit's own code takes a while between two statements."""
    ms = [0, 0, 0, 20, 1_000][world.chance.pick(5)]
    if ms:
        yield Sleep(ms)


def _troubles(world: UnitsWorld) -> int:
    """How many faults were injected, except refusals."""
    return sum(count for name, count in world.struck.items() if name != "refused" and name not in BESIDE)


def _has_let_go(world: UnitsWorld, unit: str, end: str) -> None:
    """A machine whose unit ends uncommitted, while its requests are answered, has rolled it back."""
    head = world.service.head(unit)
    if head is not None and head["state"]["S"] == "pending" and end in NOT_COMMITTED:
        raise Broken(f"let go: {unit} ended as {end}, and other units that meet its marks wait for its lease")


THE_RANGE = QueryRequest(key_condition=KeyOf("pk").eq("p")).arguments()
AT_ONCE: Mapping[str, Any] = {}
IN_PAGES = ({"most_read": 1, "is_one_page": True}, {"most_read": 2, "is_one_page": True})
FROM_ITEM_TO_ITEM = {"most_shown": 1}
_MOST_PAGES = 20


def drawn_index(world: UnitsWorld) -> str:
    names = tuple(INDEXES)
    return names[world.chance.pick(len(names))]


def in_the_range(
    world: UnitsWorld, machine: Machine, unit_of_work: UnitOfWork, level: Isolation, index: str | None = None
) -> Actions[dict[Key, Value]]:
    """What a query returns: at once, in the pages of ``unit.client``, or from item to item; in one of both orders."""
    # Outside of units, each page would be of an instant of its own.
    is_whole = unit_of_work.terms.is_outside and level is SERIALIZABLE
    ways = (AT_ONCE,) if is_whole else (AT_ONCE, AT_ONCE, *IN_PAGES, FROM_ITEM_TO_ITEM)
    way = ways[world.chance.pick(len(ways))]
    named = "at once" if way is AT_ONCE else "in pages" if way in IN_PAGES else "from item to item"
    world.done[f"{index or 'the range'} {named}"] += 1
    given = replace(THE_RANGE, index=index, is_forward=world.chance.pick(2) == 0, **way)
    there, pages = dict[Key, Value](), 0
    while True:
        steps = unit_of_work.query(world.table_of(("lines", "")), given, level)
        found: Found = yield from machine.driver.perform_steps(steps)
        for item in found.items:
            key = ("lines", item["sk"]["S"])
            if key in there:
                raise Broken(f"pages: {unit_of_work.terms.id} has found {key} twice by one query of {index}")
            there[key] = value_of(PYTHON.to_caller(item))
        if found.last_key is None:
            return there
        pages += 1
        if pages == _MOST_PAGES:
            raise Broken(f"pages: {unit_of_work.terms.id} reads {index} without coming to its end: {pages} pages")
        after = found.items[-1] if way is FROM_ITEM_TO_ITEM else found.last_key
        given = replace(given, after=after)


def is_refused(machine: Machine, steps: ForkingSteps[Found], what: str) -> Actions[None]:
    """A read at a level that it cannot have."""
    try:
        yield from machine.driver.perform_steps(steps)
    except InvalidUnitRequest:
        return
    raise Broken(f"levels: {what}, which is not refused")


def sees_in_index(world: UnitsWorld, who: str, index: str, key: Key, value: Value, began: int) -> None:
    """Judge an item that an index has shown: it may be an old one, unless it had to be read by its key."""
    if index == "listed":
        world.checker.sees_cut(who, {key: value}, began, is_one_instant=False)
    else:
        world.checker.sees_uncommitted(who, key, value)


class OwnUnit:
    """A unit, with what it must see of its own writes."""

    def __init__(self, world: UnitsWorld, machine: Machine, unit_of_work: UnitOfWork, record: Record) -> None:
        self.world, self.machine, self.unit_of_work, self.record = world, machine, unit_of_work, record
        self.new = {":new": [record.number], ":none": []}
        self.ranked = set[Key]()

    def states(self, verb: str, keys: Sequence[Key]) -> Actions[None]:
        """One statement."""
        world, (key, *_) = self.world, keys
        began, perform, unit_of_work = self.world.checker.step, self.machine.driver.perform_steps, self.unit_of_work
        if verb in ("get", "get all"):
            own = unit_of_work.terms.isolation
            levels = [own, own, COMMITTED, UNCOMMITTED]
            level = levels[world.chance.pick(4)]
            world.done[f"{verb} at {level!r}"] += 1
            found = yield from perform(unit_of_work.get(self._wanted(keys), level, PYTHON))
            self._reads(level, {each: value_of(item) for each, item in zip(keys, found, strict=True)}, began)
        elif verb == "query":
            yield from self._queries(began)
        elif verb == "index":
            yield from self._queries_an_index(began)
        elif verb == "prefetch":
            world.done[verb] += 1
            world.done["a prefetch of what is blind"] += not self.record.blind.isdisjoint(keys)
            yield from perform(unit_of_work.prefetch(self._wanted(keys), PYTHON))
            self._has_unseen(keys, began)
        elif verb in ("blind", "append"):
            if self._number_is_in(key):
                return
            world.done[verb] += 1
            steps = unit_of_work.evaluate(self._statement(verb, key), blind=verb == "blind")
            before, after = yield from perform(steps)
            if after is None:
                self.record.blind.add(key)
            else:
                self._became(verb, key, before, after, began)
        elif verb == "check":
            world.done[verb] += 1
            there, not_there = "attribute_exists(#list)", "attribute_not_exists(#list)"
            try:
                before, after = yield from perform(unit_of_work.evaluate(self._statement(verb, key, there)))
            except ConditionFailed:
                before, after = yield from perform(unit_of_work.evaluate(self._statement(verb, key, not_there)))
            self._became(verb, key, before, after, began)
        elif verb in OF_SEVERAL:
            world.done[verb] += 1
            yield from self._states_all(verb, keys, began)
        else:
            world.done[verb] += 1
            before, after = yield from perform(unit_of_work.evaluate(self._statement(verb, key)))
            self._became(verb, key, before, after, began)

    def _wanted(self, keys: Sequence[Key]) -> list[tuple[UnitTable, dict[str, str]]]:
        return [(self.world.table_of(each), key_of(each)) for each in keys]

    def _states_all(self, verb: str, keys: Sequence[Key], began: int) -> Actions[None]:
        """One statement about several items; of a condition that does not hold for one of them nothing is left."""
        kind = {"put all": "put", "update all": "append", "delete all": "delete"}[verb]
        if kind == "append":
            keys = [key for key in keys if not self._number_is_in(key)]
        condition = [None, "attribute_not_exists(#list)"][self.world.chance.pick(2)] if kind == "put" else None
        requests = [self._statement(kind, key, condition) for key in keys]
        found = yield from self.machine.driver.perform_steps(self.unit_of_work.evaluate_together(requests))
        refused = any(each.refused is not None for each in found)
        self.world.done[f"a refused {verb}"] += refused
        for key, each in zip(keys, found, strict=False):
            self._became(None if refused else kind, key, each.before, each.after, began)
        # The first condition that does not hold is the last one that is evaluated.
        self._has_unseen(keys[len(found) :], began)

    def _statement(self, kind: str, key: Key, condition: str | None = None) -> StatementRequest:
        table, python_key = self.world.table_of(key), key_of(key)
        names = None if condition is None else NAMES
        if kind == "blind":
            # One that writes the key of an index is never sent blindly.
            return StatementRequest("update", table, python_key, update=APPEND, values=self.new, names=NAMES)
        if kind == "append":
            names, values = {**NAMES, "#rank": RANK}, {**self.new, ":rank": SAME_RANK}
            return StatementRequest("update", table, python_key, update=APPEND_RANKED, values=values, names=names)
        if kind == "put":
            item = {**python_key, RANK: SAME_RANK, ELEMENTS: [self.record.number]}
            return StatementRequest("put", table, item, condition=condition, names=names)
        if kind == "delete":
            return StatementRequest("delete", table, python_key)
        return StatementRequest("check", table, python_key, condition=condition, names=names)

    def _became(self, kind: str | None, key: Key, before: Any, after: Any, began: int) -> None:
        """Judge what a statement has found and made; the kind is None of one that was not added to the unit."""
        self.world.done["a statement of what is unseen"] += key in self.record.unseen
        self._meets(key, value_of(PYTHON.to_caller(before)), began)
        written = value_of(PYTHON.to_caller(after))
        if kind in ("append", "put"):
            self.ranked.add(key)
        elif kind == "delete":
            self.ranked.discard(key)
        if kind in ("append", "blind"):
            self._writes(key, (*(self._own(key) or ()), self.record.number), written)
        elif kind == "put":
            self._writes(key, (self.record.number,), written)
        elif kind == "delete":
            self._writes(key, None, written)
        elif kind == "check":
            self.record.asserted.add(key)

    def _has_unseen(self, keys: Sequence[Key], began: int) -> None:
        """These were read for the unit, if they were not before, and not shown to it."""
        if not self.unit_of_work.repeated:
            for key in keys:
                if key not in self.record.seen:
                    self.record.unseen.setdefault(key, began)

    def _since(self, key: Key, began: int) -> int:
        """The step since which an item may have been read that the unit uses now for the first time."""
        return min(began, self.record.unseen.get(key, began))

    def _queries(self, began: int) -> Actions[None]:
        """Query the range, and note missing keys. Only in a guarded table the commit checks that they stay missing."""
        world, record = self.world, self.record
        level = [SERIALIZABLE, SERIALIZABLE, SERIALIZABLE, COMMITTED, UNCOMMITTED][world.chance.pick(5)]
        if self.unit_of_work.terms.isolation is READ_LOCK and level is SERIALIZABLE:
            level = COMMITTED
        world.done[f"query at {level!r}"] += 1
        there = yield from in_the_range(world, self.machine, self.unit_of_work, level)
        keys = [key for key in world.keys if key[0] == "lines"]
        own = {key for key in keys if key in record.seen or key in record.writes or key in record.blind}
        missed = {key for key in keys if key not in there and key not in own}
        if level is not SERIALIZABLE:
            self._reads(level, {key: there.get(key) for key in keys}, began, is_one_instant=False)
            return
        world.done["a query of what is unseen"] += not (record.unseen.keys() - own).isdisjoint(keys)
        self._reads(level, {key: there.get(key) for key in keys if key not in missed}, began, is_one_instant=False)
        world.checker.sees_cut(record.id, dict.fromkeys(missed), began, is_one_instant=False)
        if world.is_guarded:
            record.missed |= missed

    def _queries_an_index(self, began: int) -> Actions[None]:
        """Query an index of the range. It may be behind; what it does not have is read as the range itself is."""
        world, record = self.world, self.record
        level, index = [COMMITTED, UNCOMMITTED, SERIALIZABLE][world.chance.pick(3)], drawn_index(world)
        world.done[f"index at {level!r}"] += 1
        if level is SERIALIZABLE:
            steps = self.unit_of_work.query(world.table_of(("lines", "")), replace(THE_RANGE, index=index), level)
            yield from is_refused(self.machine, steps, f"{record.id} queries an index at {level!r}")
            return
        there = yield from in_the_range(world, self.machine, self.unit_of_work, level, index)
        for key in record.blind & there.keys():
            self._meets(key, there[key], began)
        new = (key for key in record.writes if key[0] == "lines" and record.seen.get(key, ()) is None)
        for key in new:
            if record.writes[key] != there.get(key) and (index != RANKED or key in self.ranked):
                raise Broken(f"own reads: {record.id} has {record.writes[key]} in {key}, and read {there.get(key)}")
        for key, value in there.items():
            if key in record.writes or key in record.seen:
                if value != self._own(key):
                    raise Broken(f"own reads: {record.id} has {self._own(key)} in {key}, and read {value}")
            else:
                sees_in_index(world, record.id, index, key, value, began)

    def _number_is_in(self, key: Key) -> bool:
        return key in self.record.blind or self.record.number in (self._own(key) or ())

    def _own(self, key: Key) -> Value:
        return self.record.writes.get(key, self.record.seen.get(key))

    def _reads(
        self, level: Isolation, found: Mapping[Key, Value], began: int, *, is_one_instant: bool | None = None
    ) -> None:
        """Judge what a read has found: at SERIALIZABLE what the unit has read stays, below that only what it writes."""
        if is_one_instant is None:
            is_one_instant = self.world.cuts_are_whole
        record, checker = self.record, self.world.checker
        blind = {key for key in found if key in record.blind and level is not UNCOMMITTED}
        for key in blind:
            self._meets(key, found[key], began)
        stays = level in (SERIALIZABLE, READ_LOCK)
        own = {key for key in found if key in record.writes or (stays and key in record.seen)}
        for key in own:
            if found[key] != self._own(key):
                raise Broken(f"own reads: {record.id} has {self._own(key)} in {key}, and read {found[key]}")
        of_others = {key: value for key, value in found.items() if key not in own}
        if level is UNCOMMITTED:
            for key, value in of_others.items():
                if key not in record.blind:
                    checker.sees_uncommitted(record.id, key, value)
        elif is_one_instant and len(found) > 1 and not self.unit_of_work.repeated:
            # What it has read or written before is unchanged at the instant of the others; without others it is of any
            # one instant since the unit began, which may have been before a save.
            before = {key: record.seen[key] for key in own - blind if key in record.seen}
            since = began if of_others else record.reads_since
            checker.sees_cut(record.id, {**of_others, **before}, since, is_one_instant=True)
        elif stays and (len(of_others) == 1 or not is_one_instant):
            for key, value in of_others.items():
                checker.sees_cut(record.id, {key: value}, self._since(key, began), is_one_instant=False)
        elif of_others:
            checker.sees_cut(record.id, of_others, began, is_one_instant=is_one_instant)
        if stays:
            record.seen.update(of_others)

    def _meets(self, key: Key, value: Value, began: int) -> None:
        """Judge what a statement has found: for the first time, or as the unit left it."""
        record, checker = self.record, self.world.checker
        if key in record.blind:
            if value is None or value[-1] != record.number:
                raise Broken(f"own reads: {record.id} has appended to {key} blindly, and read {value}")
            record.blind.discard(key)
            before: Value = value[:-1]
            if not before and self.world.service.stored(key) is None:
                before = None
            record.seen[key], record.writes[key] = before or _nothing(checker.state[key]), value
        elif key not in record.seen:
            record.seen[key] = value
            checker.sees_cut(record.id, {key: value}, self._since(key, began), is_one_instant=True)
        elif value != self._own(key):
            raise Broken(f"own reads: {record.id} has {self._own(key)} in {key}, and met {value}")

    def _writes(self, key: Key, value: Value, returned: Value) -> None:
        if value != returned:
            raise Broken(f"own reads: {self.record.id} wrote {value} to {key}, and {returned} was returned")
        self.record.writes[key] = value


def _nothing(state: Value) -> Value:
    """No item, or one without elements: a read after a blind append does not show which."""
    return () if state == () else None
