"""What a unit of work reads, as steps, for threads and tasks."""

import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from ticketlock._expressions import Attributes, Value
from ticketlock.errors import (
    InvalidUnitRequest,
    TicketLockError,
    UnitConflict,
    UnitContended,
    UnitTooLarge,
)
from ticketlock.units._again import PlaceInTurn
from ticketlock.units._commit import (
    Behind,
    Commit,
    MarkedCommit,
    ReadLockLease,
    ReadLocks,
    UnitState,
    in_front,
)
from ticketlock.units._records import (
    NEVER_USED,
    Marks,
    Meeting,
    Receipt,
    UnitRecords,
    read_receipt,
    result_of,
    result_told,
)
from ticketlock.units._recovery import Resumed, SavedUnit
from ticketlock.units._statements import (
    COMMITTED,
    LEVELS,
    MOST_TRIES,
    READ_LOCK,
    SERIALIZABLE,
    SURELY_TOGETHER,
    UNCOMMITTED,
    Found,
    Guards,
    Isolation,
    ItemState,
    QueryArguments,
    Querying,
    QueryRequest,
    Reader,
    Terms,
    Wanted,
    Work,
    are_of_one_instant,
    are_too_many_absent,
    asked,
    changed_since,
    chunks,
    conflict,
    each_once,
    read_each,
    read_unread,
)
from ticketlock.units._words import PYTHON, Python, Tables, UnitTable
from ticketlock.wire import (
    MOST_TOGETHER,
    ForkingSteps,
    Item,
    Reply,
    raise_if_foreign,
)

_T = TypeVar("_T")


class UnitReads:
    """What one unit has read, and how it reads.

    Attributes:
        state: whether it is open, or how it has ended.
        repeated: whether its name was committed before, or its step saved: then it writes nothing.
        kept: its read locks, for a heartbeat; None at another level.
    """

    def __init__(
        self,
        terms: Terms,
        units_table: str,
        tables: Tables,
        marks: Marks,
        *,
        turn: PlaceInTurn | None = None,
        resumed: Resumed | None = None,
        behind: Behind = in_front,
    ) -> None:
        self.terms = terms
        self._behind = behind
        self._turn = turn
        self.state = UnitState(terms.id)
        self.repeated = resumed is not None and resumed.is_repeated
        self._tables = tables
        self._work = Work(marks) if resumed is None else resumed.work
        self._records = UnitRecords(units_table)
        self._meeting = Meeting(marks, self._records, (terms.born_ms, terms.unit), terms.timeout_ms, random.random)
        self._reading = Reader(marks, self._records, self._meeting)
        self._guards = Guards(units_table)
        self._receipt = None if resumed is None else resumed.receipt
        self._kept: Item = {} if resumed is None else resumed.kept
        self._record = None if terms.saved is None else SavedUnit(terms.saved, self._records)
        self._saves = 0
        # Whether a statement of this object writes.
        self._has_written = False
        self._marked: MarkedCommit | None = None
        self._read_locks: ReadLocks | None = None
        self.kept: ReadLockLease | None = None
        if terms.isolation is READ_LOCK:
            begun = Commit(terms, units_table, self.state)
            # Without a reference to this object: nothing but the last reference to the unit keeps its read locks.
            read = partial(read_unread, work=self._work, reading=self._reading)
            self._read_locks = ReadLocks(begun, marks, self._records, self._meeting, read)
            self.kept = ReadLockLease(self._read_locks)
        if resumed is not None and resumed.is_committed:
            self.state.note("resumes a committed unit")

    @property
    def is_waiting_for_its_end(self) -> bool:
        """Whether it is open and would write, or has read locks."""
        if not self.state.is_open or not self.state.is_of_this_process:
            return False
        return self._has_written or (self._read_locks is not None and self._read_locks.record.has_to_be_kept)

    def begin(self) -> ForkingSteps[None]:
        """Find out whether the name was committed before; without a name, no request is sent."""
        self.state.check_process()
        if self.terms.name is not None and self._receipt is None:
            reply: Reply = yield read_receipt(self._records.table, self.terms.name)
            self._receipt = Receipt.of(reply.item)
            self.repeated = self._receipt.is_committed
            if self.repeated:
                self._kept = self._receipt.row
                if self.terms.payload is not None:
                    self.terms.payload.check(self.terms.name, self._receipt)

    @property
    def result(self) -> Any:
        """What is kept with its commit; of a repeated one, with that of the first one."""
        return result_of(self._kept)

    def keep(self, result: Any) -> None:
        """Keep a result with the commit; a repeated unit has one."""
        self.state.check_open()
        if self.terms.name is None and self.terms.saved is None:
            allowed = "set for a unit with a name, or one that was saved: nobody could ask for another one's"
            raise InvalidUnitRequest("result", result, allowed)
        told = result_told(result)
        if not self.repeated:
            self._kept = told

    def returned(self, result: Any) -> Any:
        """What a call returns whose function has returned this: with a name, what later calls will return, too."""
        if self.terms.name is None or not (self.state.is_open or self.state.is_committed):
            return result
        if self.state.is_open:
            self.keep(result)
        return self.result

    def table(self, given: str) -> ForkingSteps[UnitTable]:
        return (yield from self._tables.table(given, "TableName"))

    def _alone(self, steps: ForkingSteps[_T]) -> ForkingSteps[_T]:
        """One method, while no other one is running. A conflict ends the unit, which frees what it has marked."""
        with self.state.alone():
            try:
                return (yield from steps)
            except UnitConflict as error:
                raise_if_foreign(error)
                yield from self._let_go()
                yield from self._explain(error)
                raise

    def get(
        self,
        wanted: Sequence[tuple[Any, Any]],
        isolation: Isolation | None,
        python: Python,
        *,
        of_one_item_each: str | None = None,
    ) -> ForkingSteps[list[Any]]:
        """Items with the unit's own writes, None for each that does not exist; new ones are read as of one instant.

        Args:
            of_one_item_each: the caller's name for a list in which no item may occur twice.
        """
        if self.terms.is_outside:
            return (yield from self._at_one_instant(lambda: self._get(wanted, isolation, python)))
        return (yield from self._alone(self._get(wanted, isolation, python, of_one_item_each)))

    def _get(
        self,
        wanted: Sequence[tuple[Any, Any]],
        isolation: Isolation | None,
        python: Python,
        of_one_item_each: str | None = None,
    ) -> ForkingSteps[list[Any]]:
        level = self._level(isolation)
        places = self._wanted(wanted, python)
        if of_one_item_each is not None:
            check_once(of_one_item_each, places)
        yield from self.begin()
        if level in (SERIALIZABLE, READ_LOCK):
            # Outside of units more than one transaction reads are read again, so that the first reads may be plain.
            is_twice = self.terms.is_outside and len(places) > MOST_TOGETHER
            yield from self._read_each(places) if is_twice else self._read_unread(places)
            for place in places:
                place.is_checked, place.glimpse = True, None
            return [python.to_caller(place.image) for place in places]
        images = yield from self._newest(places, level)
        return [python.to_caller(place.image if place.is_written else images[id(place)]) for place in places]

    def prefetch(self, wanted: Sequence[tuple[Any, Any]], python: Python) -> ForkingSteps[None]:
        """Read items that later statements use."""
        yield from self._alone(self._prefetch(wanted, python))

    def _prefetch(self, wanted: Sequence[tuple[Any, Any]], python: Python) -> ForkingSteps[None]:
        places = self._wanted(wanted, python)
        yield from self.begin()
        if not self.repeated:
            yield from self._read_each(places)

    def _wanted(self, wanted: Sequence[tuple[Any, Any]], python: Python) -> list[ItemState]:
        return [self._place(table, python.item("key", key)) for table, key in wanted]

    def _newest(self, places: Sequence[ItemState], level: Isolation) -> ForkingSteps[dict[int, Attributes | None]]:
        """Images as they are now, by the places' identities; those that the unit has written are not shown.

        Raises:
            UnitConflict: what the unit has written has changed, and is to be shown beside items of this instant.
        """
        yield from self._read_unread([place for place in places if place.blind is not None])
        once = each_once(places)
        own = [place for place in once if place.is_written]
        if level is UNCOMMITTED or self.repeated or (len(own) == len(once) and are_of_one_instant(own)):
            once = [place for place in once if not place.is_written]
        read = self._reading.eventually if level is UNCOMMITTED else self._reading.committed
        images = yield from read([Wanted(place.table, place.key) for place in once])
        found = list(zip(once, images, strict=True))
        changed = [place for place, image in found if place.is_written and image != place.before]
        if changed:
            self.state.note("fails")
            raise conflict(changed)
        for place, image in found:
            if not place.is_written:
                place.glimpse = (image,)
        return {id(place): image for place, image in found}

    def items(
        self, table: Any, request: QueryRequest, isolation: Isolation | None
    ) -> ForkingSteps[list[dict[str, Any]]]:
        found = yield from self.query(table, request.arguments(), isolation)
        return [PYTHON.to_caller(item) or {} for item in found.items]

    def query(self, table: Any, given: QueryArguments, isolation: Isolation | None) -> ForkingSteps[Found]:
        """The items of a range with the unit's own writes; those of an index at COMMITTED at most."""
        if self.terms.is_outside:
            return (yield from self._at_one_instant(lambda: self._query(table, given, isolation)))
        return (yield from self._alone(self._query(table, given, isolation)))

    def _query(self, table: Any, given: QueryArguments, isolation: Isolation | None) -> ForkingSteps[Found]:
        level, own = self._level(isolation), self._tables.check_own(table)
        if self._read_locks is not None and level in (SERIALIZABLE, READ_LOCK):
            at_committed = "COMMITTED or UNCOMMITTED for a query of such a unit: unit.query(..., isolation=COMMITTED)"
            allowed = f"{at_committed}; get_all marks what it has shown"
            raise InvalidUnitRequest("isolation", level, allowed, is_of_units=True)
        checked = asked(own, given, self._work.marks)
        if checked.index is not None and level is SERIALIZABLE:
            # Within a unit that has this level itself, the caller has not asked for it here.
            if isolation is not None or self.terms.is_outside:
                allowed = f"COMMITTED or UNCOMMITTED: the index {checked.index.name!r} is eventually consistent"
                raise InvalidUnitRequest("isolation", level, allowed)
            level = COMMITTED
        yield from self.begin()
        blind = [place for place in self._work.places.values() if place.blind is not None and place.table is own]
        yield from self._read_blind(blind)
        if level is SERIALIZABLE and own.is_guarded:
            # Before the items, so that an insert in between is detected.
            yield from self._read_guard(own, checked.range.partition[0])
        querying = Querying(checked, level, self._work, self._reading, self._approach, self.repeated)
        try:
            return (yield from querying.steps())
        except UnitConflict:
            self.state.note("fails")
            raise

    def _read_guard(self, table: UnitTable, partition: Value) -> ForkingSteps[None]:
        guard = self._guards.of(table, partition, self._work)
        yield from read_unread([guard], self._work, self._reading)
        self._guards.check(guard)
        guard.is_checked = True

    def _level(self, isolation: Isolation | None) -> Isolation:
        level = self.terms.isolation if isolation is None else isolation
        if not isinstance(level, Isolation):
            raise InvalidUnitRequest("isolation", isolation, LEVELS)
        if level is READ_LOCK and self._read_locks is None:
            raise InvalidUnitRequest("isolation", isolation, "another level, or a unit that was begun with READ_LOCK")
        return level

    def _touched(self) -> list[ItemState]:
        return [place for place in self._work.places.values() if place.is_touched]

    def _is_of_one_instant(self, places: Sequence[ItemState]) -> bool:
        is_asserted = any(place.is_asserted for place in places)
        return are_of_one_instant(places) and not is_asserted and not self._guards.are_among(places)

    def _at_one_instant(self, read: Callable[[], ForkingSteps[_T]]) -> ForkingSteps[_T]:
        """Outside of units, read until what is returned is of one instant, if that is its level."""
        for _ in range(MOST_TRIES):
            self._work.places.clear()
            found = yield from read()
            places = self._touched()
            if self._is_of_one_instant(places):
                return found
            if are_too_many_absent(places):
                raise UnitTooLarge(
                    f"more than {MOST_TOGETHER} of the {len(places):,} items do not exist, and only so many can be "
                    "read at one instant without writing: read fewer at once, or within a unit, which marks them"
                )
            if not (yield from changed_since(places, self._work.marks, self._reading)):
                return found
        raise UnitContended(f"items have changed at each of {MOST_TRIES} tries to read them at one instant: try again")

    def _read_unread(self, places: Sequence[ItemState]) -> ForkingSteps[None]:
        self._approach(places)
        if self._read_locks is None or self.repeated:
            # What a single item's statement needs was often read before.
            if len(places) != 1 or not places[0].is_read:
                yield from self._read_in(places)
            return
        try:
            yield from self._read_locks.lock_all(places)
        finally:
            if self._read_locks.record.is_ending:
                self.state.note("fails")

    def _read_each(self, places: Sequence[ItemState]) -> ForkingSteps[None]:
        """Read those that were not read yet, each by itself; or mark them, if the unit marks what it reads."""
        unread = [place for place in places if not place.is_read]
        if self._read_locks is not None:
            yield from self._read_unread(unread)
        elif unread:
            self._approach(unread)
            yield from read_each(unread, self._work, self._reading)

    def _read_blind(self, places: Iterable[ItemState]) -> ForkingSteps[None]:
        """Read the targets of blind updates, so few at once that one transaction can hold items of any sizes."""
        for batch in chunks([place for place in places if place.blind is not None], SURELY_TOGETHER):
            yield from self._read_unread(batch)

    def _read_in(self, places: Sequence[ItemState]) -> ForkingSteps[None]:
        if self.repeated:
            # What it has read need not be as it was: it writes nothing, and may have written that itself.
            places = [place for place in places if not place.is_read]
        try:
            yield from read_unread(places, self._work, self._reading)
        except UnitConflict:
            self.state.note("fails")
            raise

    def _explain(self, error: TicketLockError) -> ForkingSteps[None]:
        """Raise another error if another coordinator of the same saved unit is the cause of this one."""
        if self._record is not None:
            yield from self._record.explain(error, self.terms.name, self._receipt or NEVER_USED)

    def _let_go(self) -> ForkingSteps[None]:
        if self._read_locks is not None:
            yield from self._read_locks.release_marks()

    def _approach(self, places: Sequence[ItemState]) -> None:
        """Step back if calls are queueing for these items, before the unit has used them."""
        try:
            if self._turn is not None:
                self._turn.check([place for place in places if not place.is_read])
        except UnitConflict:
            self.state.note("fails")
            raise

    def _place(self, table: Any, given: Attributes) -> ItemState:
        own = self._tables.check_own(table)
        return self._work.place(own, own.key_alone("key", given))


def check_once(field: str, places: Sequence[ItemState]) -> None:
    """Refuse a list that has an item twice."""
    seen = set[int]()
    for place in places:
        if id(place) in seen:
            raise InvalidUnitRequest(field, {place.table.name: PYTHON.to_caller(place.key)}, "each item once")
        seen.add(id(place))
