"""What a unit of work does, as steps: reads, statements, the commit, saving and the end; for threads and tasks."""

import logging
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import GEN_CLOSED, getgeneratorstate
from typing import Any, TypeVar

from ticketlock._checks import boolean
from ticketlock._expressions._values import MAX_ITEM_BYTES, Attributes, Value
from ticketlock.errors import (
    CommittedUnfinished,
    ConditionFailed,
    InvalidUnitRequest,
    ItemTooLarge,
    OutcomeUnknown,
    TableRefused,
    TicketLockError,
    UnitConflict,
    UnitContended,
    UnitError,
    UnitForgotten,
    UnitTooLarge,
)
from ticketlock.units._commit import Behind, Commit, commit_natively, in_front, may_be_sent_blindly
from ticketlock.units._marked import MarkedCommit
from ticketlock.units._marks import Marks
from ticketlock.units._meeting import Meeting
from ticketlock.units._queries import Found, QueryArguments, Querying, QueryRequest, asked
from ticketlock.units._read_locks import ReadLockLease, ReadLocks
from ticketlock.units._reading import (
    COMMITTED,
    LEVELS,
    READ_LOCK,
    SERIALIZABLE,
    UNCOMMITTED,
    Isolation,
    Reader,
    Wanted,
    are_of_one_instant,
    each_once,
    read_each,
    read_unread,
)
from ticketlock.units._record import UnitRecords
from ticketlock.units._rows import NEVER_USED, Receipt, read_receipt
from ticketlock.units._saved import Resumed, SavedUnit, save
from ticketlock.units._settings import SaveOptions, Terms, check_of, check_room
from ticketlock.units._snapshots import MOST_TRIES, are_too_many_absent, changed_since
from ticketlock.units._state import UnitState
from ticketlock.units._statements import Statement, StatementArguments, StatementRequest, statement
from ticketlock.units._tables import VERSION_BYTES, Tables, UnitTable
from ticketlock.units._turns import PlaceInTurn
from ticketlock.units._values import PYTHON, Python
from ticketlock.units._work import (
    MOST_ACTIONS,
    MOST_BYTES,
    SURELY_TOGETHER,
    Guards,
    ItemState,
    Work,
    check_count,
    check_may_mark,
    chunks,
    conflict,
    has_unknown_sizes,
)
from ticketlock.wire._actions import Actions, Reply, T, is_foreign, raise_if_foreign
from ticketlock.wire._driver import Driver
from ticketlock.wire._item_requests import MOST_TOGETHER
from ticketlock.wire._requests import ForkingSteps, Request, Together

Both = tuple[Attributes | None, Attributes | None]
"""An item before a statement and after it, in AttributeValues; None if there is none, or if it was not read."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What became of one of several statements.

    Attributes:
        before, after: the item, in AttributeValues; None if there is none.
        refused: the condition that does not hold; or why the statement does not fit the item, if each statement is
            evaluated.
    """

    before: Attributes | None
    after: Attributes | None
    refused: ConditionFailed | InvalidUnitRequest | ItemTooLarge | None = None


_log = logging.getLogger("ticketlock")


class UnitOfWork:
    """One unit's statements, reads and ends.

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

    # Reading.

    def get(
        self, wanted: Sequence[tuple[Any, Any]], isolation: Isolation | None, python: Python
    ) -> ForkingSteps[list[Any]]:
        """Items with the unit's own writes, None for each that does not exist; new ones are read as of one instant."""
        if self.terms.is_outside:
            return (yield from self._at_one_instant(lambda: self._get(wanted, isolation, python)))
        return (yield from self._alone(self._get(wanted, isolation, python)))

    def _get(
        self, wanted: Sequence[tuple[Any, Any]], isolation: Isolation | None, python: Python
    ) -> ForkingSteps[list[Any]]:
        level = self._level(isolation)
        places = self._wanted(wanted, python)
        yield from self.begin()
        if level in (SERIALIZABLE, READ_LOCK):
            # Outside of units more than one transaction reads are read again, so that the first reads may be plain.
            is_twice = self.terms.is_outside and len(places) > MOST_TOGETHER
            yield from self._read_each(places) if is_twice else self._read_unread(places)
            for place in places:
                place.is_checked, place.glimpse = True, None
            return [python.back(place.image) for place in places]
        images = yield from self._newest(places, level)
        return [python.back(place.image if place.is_written else images[id(place)]) for place in places]

    def prefetch(self, wanted: Sequence[tuple[Any, Any]], python: Python) -> ForkingSteps[None]:
        """Read items that later statements use."""
        yield from self._alone(self._prefetch(wanted, python))

    def _prefetch(self, wanted: Sequence[tuple[Any, Any]], python: Python) -> ForkingSteps[None]:
        places = self._wanted(wanted, python)
        yield from self.begin()
        if not self.repeated:
            yield from self._read_each(places)

    def _wanted(self, wanted: Sequence[tuple[Any, Any]], python: Python) -> list[ItemState]:
        if not isinstance(wanted, Sequence) or not all(isinstance(each, tuple) and len(each) == 2 for each in wanted):
            raise InvalidUnitRequest("wanted", wanted, "a list of pairs of a table and a key: [(table, {...}), ...]")
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
        return [PYTHON.back(item) or {} for item in found.items]

    def query(self, table: Any, given: QueryArguments, isolation: Isolation | None) -> ForkingSteps[Found]:
        """The items of a range with the unit's own writes; those of an index at COMMITTED at most."""
        if self.terms.is_outside:
            return (yield from self._at_one_instant(lambda: self._query(table, given, isolation)))
        return (yield from self._alone(self._query(table, given, isolation)))

    def _query(self, table: Any, given: QueryArguments, isolation: Isolation | None) -> ForkingSteps[Found]:
        level, own = self._level(isolation), self._tables.check_own(table)
        if self._read_locks is not None and level in (SERIALIZABLE, READ_LOCK):
            allowed = "COMMITTED or UNCOMMITTED for a query of such a unit: `get_all` marks what it has shown"
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

    # Statements.

    def evaluate(self, request: StatementRequest, *, blind: bool = False) -> ForkingSteps[Both]:
        """One statement, evaluated at once: the item before it and after it. A blind update may be sent unread."""
        boolean("blind", blind, InvalidUnitRequest)
        arguments = request.arguments()
        return (yield from self._alone(self._evaluate(request, arguments, blind=blind and self._read_locks is None)))

    def item_before(self, request: StatementRequest) -> ForkingSteps[Any]:
        """The item before a statement, as its caller has values; converted in the steps: an interrupt ends the unit."""
        before, _ = yield from self.evaluate(request)
        return request.python.back(before)

    def item_after(self, request: StatementRequest, *, blind: bool) -> ForkingSteps[Any]:
        """The item after a statement, likewise."""
        _, after = yield from self.evaluate(request, blind=blind)
        return request.python.back(after)

    def _evaluate(self, request: StatementRequest, given: StatementArguments, *, blind: bool) -> ForkingSteps[Both]:
        made = statement(request, self._tables.check_own(request.table), given, self._work.marks)
        yield from self.begin()
        if self.repeated:
            return None, None
        place = self._work.place(made.table, made.key)
        is_new = not place.is_read and place.blind is None
        if blind and is_new and not made.table.is_guarded and may_be_sent_blindly(made):
            place.blind, self._has_written = made, True
            return None, None
        if not place.is_read or self._read_locks is not None:
            yield from self._read_unread([place])
        # An error in another task may have ended the block meanwhile.
        self.state.check_open()
        self._check_as_glimpsed(place)
        before = place.image
        after = self._after(made, place, before)
        self._add([(made, place, after)])
        return before, after

    def _add(self, evaluated: Iterable[tuple[Statement, ItemState, Attributes | None]]) -> None:
        """Add statements to the unit, with the items after them."""
        for made, place, after in evaluated:
            place.image = after
            if made.kind != "check":
                place.is_written = self._has_written = True

    def _after(self, made: Statement, place: ItemState, before: Attributes | None) -> Attributes | None:
        """The item after a statement, which is not in the unit yet."""
        # Also if the condition fails: what the caller does next depends on the item as it was read.
        place.is_checked = True
        place.is_asserted |= made.kind == "check"
        after = made.applied_to(before)
        if made.kind == "update" and after is not None:
            made.table.check_item(after, "statement", VERSION_BYTES)
        if made.table.is_guarded and place.before is None and after is not None and self.terms.engine == "native":
            allowed = f'"marked", or None: {made.table.name} is guarded, and inserts into it are committed by marks'
            raise InvalidUnitRequest("engine", "native", allowed, is_of_units=True)
        return after

    def items_before(self, requests: Sequence[StatementRequest]) -> ForkingSteps[list[Any]]:
        """The items before statements that are added to the unit together, or not at all."""
        found = yield from self._evaluate_all(requests)
        return [PYTHON.back(each.before) for each in found]

    def items_after(self, requests: Sequence[StatementRequest]) -> ForkingSteps[list[Any]]:
        """The items after them, likewise."""
        found = yield from self._evaluate_all(requests)
        return [PYTHON.back(each.after) for each in found]

    def _evaluate_all(self, requests: Sequence[StatementRequest]) -> ForkingSteps[list[Evaluated]]:
        found = yield from self.evaluate_together(requests)
        if found and found[-1].refused is not None:
            raise found[-1].refused
        return found

    def evaluate_together(
        self, requests: Sequence[StatementRequest], *, of_one_item_each: str | None = None
    ) -> ForkingSteps[list[Evaluated]]:
        """Statements that are added to the unit together, or not at all if a condition does not hold.

        Args:
            of_one_item_each: the caller's name for a list in which no item may occur twice, and of which each statement
                is evaluated. None: items may occur again, and the first condition that does not hold is the last one.
        """
        given = [(request, request.arguments()) for request in requests]
        return (yield from self._alone(self._evaluate_each(given, of_one_item_each)))

    def _evaluate_each(
        self, given: Sequence[tuple[StatementRequest, StatementArguments]], of_one_item_each: str | None
    ) -> ForkingSteps[list[Evaluated]]:
        marks, own = self._work.marks, self._tables.check_own
        made = [statement(request, own(request.table), arguments, marks) for request, arguments in given]
        places = [self._work.place(each.table, each.key) for each in made]
        if of_one_item_each is not None:
            _check_once(of_one_item_each, places)
        yield from self.begin()
        if self.repeated:
            return [Evaluated(None, None)] * len(made)
        yield from self._read_each(places)
        # An error in another task may have ended the block meanwhile.
        self.state.check_open()
        found, images = list[Evaluated](), dict[int, Attributes | None]()
        for (request, _), each, place in zip(given, made, places, strict=True):
            self._check_as_glimpsed(place)
            before = images.get(id(place), place.image)
            try:
                after = images[id(place)] = self._after(each, place, before)
            except ConditionFailed as error:
                raise_if_foreign(error)
                error.at = request.at
                found.append(Evaluated(before, before, error))
                if of_one_item_each is None:
                    break
            except (InvalidUnitRequest, ItemTooLarge) as error:
                raise_if_foreign(error)
                if of_one_item_each is None or (isinstance(error, InvalidUnitRequest) and error.is_of_units):
                    raise
                found.append(Evaluated(before, before, error))
            else:
                found.append(Evaluated(before, after))
        if any(each.refused is not None for each in found):
            return found
        self._add([(each, place, images[id(place)]) for each, place in zip(made, places, strict=True)])
        return found

    def _check_as_glimpsed(self, place: ItemState) -> None:
        """End the unit if an item differs from what a lower level has shown: the caller may depend on what it saw."""
        glimpse, place.glimpse = place.glimpse, None
        if glimpse is not None and glimpse[0] != place.before:
            self.state.note("fails")
            raise conflict([place])

    # Ends.

    def commit(self) -> ForkingSteps[None]:
        if self.state.is_finished:
            return
        with self.state.alone():
            if self.terms.step is not None and self.terms.repeats_step:
                allowed = "for a commit another step, or none: this one has saved the unit before, so end with `save()`"
                raise InvalidUnitRequest("step", self.terms.step.name, allowed)
            yield from self._commit_or_end()

    def _commit_or_end(self) -> ForkingSteps[None]:
        # From now on: even if the caller is gone, the commit may still be running.
        self.state.note("begins to commit")
        try:
            yield from self.begin()
            if not self.repeated:
                yield from self._commit()
        except TicketLockError as error:
            raise_if_foreign(error)
            if self.state.is_committed:
                # What DynamoDB refuses is not finished.
                yield from self._note_committed()
            elif isinstance(error, OutcomeUnknown | UnitForgotten):
                self.state.note("is of unknown outcome")
            else:
                self.state.note("fails")
                yield from self._let_go()
                yield from self._explain(error)
            raise
        yield from self._note_committed()

    def _explain(self, error: TicketLockError) -> ForkingSteps[None]:
        """Raise another error if another coordinator of the same saved unit is the cause of this one."""
        if self._record is not None:
            yield from self._record.explain(error, self.terms.name, self._receipt or NEVER_USED)

    def _note_committed(self) -> ForkingSteps[None]:
        self.state.note("is committed")
        if self._record is not None and not self.repeated:
            yield from self._record.forget()

    def _commit(self) -> ForkingSteps[None]:
        lock_check = check_of(self.terms.under) if self.terms.under is not None else None
        commit = Commit(
            self.terms, self._records.table, self.state, self._receipt or NEVER_USED, lock_check, self._behind
        )
        touched = self._touched()
        guards = self._guards.of_inserts(touched, self._work)
        if guards:
            touched = yield from self._with(guards)
        if self._read_locks is not None and self._read_locks.record.may_exist:
            yield from self._check_may_mark(touched)
            yield from self._read_locks.commits(commit)
            return
        if not any(place.writes for place in touched) and not self.terms.beside:
            yield from self._validate(touched, commit)
            return
        if not self._has_to_mark(guards) and self._fits_one_request(touched):
            try:
                yield from commit_natively(touched, self._work.marks, commit, self._meeting)
                return
            except TableRefused as error:
                raise_if_foreign(error)
                # Nothing was written. The cause may be the sizes of items that were not read.
                if not has_unknown_sizes(touched):
                    raise
                yield from self._read_blind(touched)
                if self._fits_one_request(touched):
                    raise
        yield from self._read_blind(touched)
        yield from self._commit_by_marks(touched, commit)

    def _touched(self) -> list[ItemState]:
        return [place for place in self._work.places.values() if place.is_touched]

    def _with(self, guards: Sequence[ItemState]) -> ForkingSteps[list[ItemState]]:
        """The items of the commit, with the guards of those that it inserts."""
        if self._read_locks is None:
            yield from read_unread([guard for guard in guards if not guard.is_read], self._work, self._reading)
        else:
            yield from self._read_locks.lock_all(guards)
        for guard in guards:
            self._guards.check(guard)
            guard.image, guard.is_written = self._guards.image(guard), True
        return self._touched()

    def _has_to_mark(self, guards: Sequence[ItemState]) -> bool:
        # A process that finds the guard of a committed unit must find its items too.
        return bool(guards) or self.terms.engine == "marked"

    def _fits_one_request(self, touched: Sequence[ItemState]) -> bool:
        """Whether one request can commit all, as far as the sizes of items are known; raises if nothing else may."""
        terms = self.terms
        count = len(touched) + terms.beside
        if count <= SURELY_TOGETHER:
            return True
        # The lock's item counts too, and ticketlock does not read it.
        size = sum(place.size_bytes for place in touched) + (terms.under is not None) * MAX_ITEM_BYTES
        fits = count <= MOST_ACTIONS and size <= MOST_BYTES
        if terms.engine == "native" and not fits:
            raise UnitTooLarge(
                f"the commit has {count} actions, one for each item, the name, the lock and the saved record, of "
                f"{size:,} bytes; one request of DynamoDB takes {MOST_ACTIONS} actions of {MOST_BYTES:,} bytes: leave "
                "out `engine`, so that the unit can be committed by marks"
            )
        return fits

    def _commit_by_marks(self, places: Sequence[ItemState], commit: Commit) -> ForkingSteps[None]:
        yield from self._check_may_mark(places)
        self._marked = MarkedCommit(commit, self._work.marks, self._records, self._meeting, places)
        yield from self._marked.steps()

    def _check_may_mark(self, places: Sequence[ItemState]) -> ForkingSteps[None]:
        check_count(places)
        yield from self._tables.describe_again(place.table for place in places)
        check_may_mark(places)

    def _validate(self, places: Sequence[ItemState], commit: Commit) -> ForkingSteps[None]:
        """Check that all that was read is unchanged at one instant; what one request has read is of one instant."""
        if self._is_of_one_instant(places):
            return
        # Raises if the unit may have no more than one request takes.
        self._fits_one_request(places)
        if are_too_many_absent(places):
            # Marked commits check them at one instant as well.
            yield from self._commit_by_marks(places, commit)
            return
        changed = yield from changed_since(places, self._work.marks, self._reading)
        if changed:
            raise conflict(changed)

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

    def leave(self, error: BaseException | None) -> ForkingSteps[None]:
        """End the block: commit, or roll back after an exception.

        A forked child leaves the block too, and the unit to its parent.
        """
        if not self.state.is_of_this_process:
            return
        if self.state.is_open:
            try:
                if error is None:
                    self.state.check_can_end()
                    yield from self.commit()
            finally:
                # Another method may still be running when a task's error ends the block: its statement is not in the
                # unit.
                if self.state.is_open:
                    self.state.note("is interrupted")
                    yield from self._let_go()
        elif error is None:
            self.state.check_committed_or_reported()

    def rollback(self) -> ForkingSteps[None]:
        """End the unit; nothing is written. A saved unit ends with it."""
        if not self.state.is_rolled_back:
            with self.state.alone():
                self.state.note("is interrupted")
                if self.state.is_finished:
                    self.state.check_open()
        self.state.is_reported = True
        yield from self._let_go()
        if self._record is not None:
            yield from self._record.roll_back()

    def save(self, keeping: SaveOptions) -> ForkingSteps[str]:
        """Write down what it has read and written, for `resume`: this object is over."""
        with self.state.alone():
            if self._read_locks is not None:
                raise InvalidUnitRequest("isolation", READ_LOCK, "another level for a unit that is saved")
            yield from self.begin()
            if self._record is None or not self.repeated:
                yield from self._save(keeping)
            self.state.note("is saved")
            if self._record is not None and not self.repeated:
                yield from self._record.forget_rows()
            return self.terms.id

    def _save(self, keeping: SaveOptions) -> ForkingSteps[None]:
        if self.terms.saved is not None:
            check_room(self.terms.saved.steps, self.terms.step)
        check_count([place for place in self._work.places.values() if place.is_touched])
        yield from self._read_blind(self._work.places.values())
        self._saves += 1
        keeping = replace(keeping, tries=self._saves)
        try:
            yield from save(self.terms, self._work, self._receipt, self._records, keeping, self.state)
        except (OutcomeUnknown, UnitError):
            # After other errors the unit is unchanged, and may continue.
            self.state.note("is interrupted")
            raise

    # Interrupts.

    def abandon(self) -> None:
        """End the unit: something else than its own error was raised within one of its methods."""
        self.state.note("is interrupted")

    def end_after_interrupt(self) -> ForkingSteps[None]:
        """The same, and leave nothing behind if possible: a marked commit is rolled back, or finished.

        Calling it again does nothing.
        """
        marked: MarkedCommit | None = None if self.state.is_over else self._marked
        if self._read_locks is not None:
            # A rollback may have been interrupted, too, or the last writes of a commit.
            marked = self._read_locks if self._read_locks.record.may_exist else None
        self.abandon()
        if marked is not None:
            try:
                yield from marked.end_after_interrupt()
            except TicketLockError as error:
                raise_if_foreign(error)
                if isinstance(error, CommittedUnfinished):
                    _log.warning("%s", error)
                else:
                    _log.warning("the interrupted unit %s is left to its lease: %s", self.terms.unit, error)

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


def _check_once(field: str, places: Sequence[ItemState]) -> None:
    seen = set[int]()
    for place in places:
        if id(place) in seen:
            raise InvalidUnitRequest(field, {place.table.name: PYTHON.back(place.key)}, "each item once")
        seen.add(id(place))


def ending(
    unit_of_work: UnitOfWork, driver: Driver, steps: ForkingSteps[T], begun_with: Request | Together | None = None
) -> Actions[T]:
    """Perform steps of a unit. If anything else than their own error is raised meanwhile, end the unit.

    The exception is raised again, with every outcome of the unit.
    """
    try:
        return (yield from driver.perform_steps(steps, begun_with=begun_with))
    except GeneratorExit:
        raise
    except BaseException as error:
        if is_of_steps(error, steps):
            raise
        yield from driver.perform_steps(unit_of_work.end_after_interrupt())
        raise


def is_of_steps(error: BaseException, steps: ForkingSteps[Any]) -> bool:
    """Whether an error is the steps' own: they have ended with it, and no other code has raised it."""
    is_told = isinstance(error, TicketLockError) and getgeneratorstate(steps) == GEN_CLOSED
    return is_told and not is_foreign(error)
