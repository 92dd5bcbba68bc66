"""What a unit can do, as steps: threads and tasks perform the same. No I/O, no clock."""

import logging
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ticketlock._checks import boolean
from ticketlock._expressions._values import MAX_ITEM_BYTES, canonical_item
from ticketlock._expressions._values import Item as Attributes
from ticketlock.errors import (
    InvalidUnitRequest,
    OutcomeUnknown,
    TableRefused,
    TicketLockError,
    UnitFinished,
    UnitForgotten,
    UnitTooLarge,
)
from ticketlock.units._batches import SURELY_TOGETHER, cut, has_unknown_sizes
from ticketlock.units._commit import MOST_ACTIONS, MOST_BYTES, Commit, Fate, conflict
from ticketlock.units._heads import Heads
from ticketlock.units._marked import MarkedCommit
from ticketlock.units._marks import Marks
from ticketlock.units._meeting import Meeting
from ticketlock.units._native import commit_natively
from ticketlock.units._reading import (
    SERIALIZABLE,
    UNCOMMITTED,
    Isolation,
    Reading,
    Wanted,
    image_of,
    is_as_seen,
)
from ticketlock.units._rows import NEVER_USED, Receipt, read_receipt
from ticketlock.units._statements import Given, Kind, Statement, field_of_target, refusing, statement
from ticketlock.units._tables import Tables, UnitTable
from ticketlock.units._values import PYTHON, Python
from ticketlock.units._work import OURS_BYTES, Place, Work
from ticketlock.units._writes import may_be_sent_blindly
from ticketlock.wire._attributes import Item
from ticketlock.wire._item_requests import MOST_TOGETHER
from ticketlock.wire._requests import ForkingSteps, Reply

_log = logging.getLogger("ticketlock")

_VERSION_BYTES = 64
"""Room for the id of the unit that wrote an item, and the attribute's name."""


class HeldLock(Protocol):
    """What a unit commits under: a lease of ``ticketlock``, for example."""

    def condition_check(self) -> dict[str, Any]:
        """The check that it is held, as an item of ``TransactWriteItems``."""
        ...


Engine = Literal["native", "marked"]


@dataclass(frozen=True, slots=True)
class Terms:
    """What a unit is begun with.

    Attributes:
        unit: its id.
        born_ms: when its first try began, by a wall clock; kept by those that follow.
        timeout_ms: for how long it waits for other units.
        isolation: of reads that say nothing else.
        name: for exactly once.
        under: a lock that has to be held at the commit.
        engine: how it is committed; None for natively, where it fits.
    """

    unit: str
    born_ms: int
    timeout_ms: int
    isolation: Isolation = SERIALIZABLE
    name: str | None = None
    under: HeldLock | None = None
    engine: Engine | None = None


State = Literal["open", "committing", "committed", "rolled back", "unknown"]
_TOLD = {"committing": "on its way to be committed", "unknown": "over, and its outcome unknown"}
Both = tuple[Attributes | None, Attributes | None]
"""An item before a statement and after it, in AttributeValues; None where there is none, or it was not looked at."""


def item_before(steps: ForkingSteps[Both]) -> ForkingSteps[dict[str, Any] | None]:
    """The item before a statement, in Python values: a step of it, so that an interrupt here ends the unit too."""
    before, _ = yield from steps
    return PYTHON.back(before)


def item_after(steps: ForkingSteps[Both]) -> ForkingSteps[dict[str, Any] | None]:
    """The same of the item after it."""
    _, after = yield from steps
    return PYTHON.back(after)


class Verbs:
    """One unit's statements, reads and ends.

    Attributes:
        terms: what it was begun with.
        state: whether it goes on, or how it has ended.
        repeated: whether its name was committed before: then it writes nothing.
    """

    def __init__(self, terms: Terms, units_table: str, tables: Tables, marks: Marks) -> None:
        self.terms = terms
        self.state: State = "open"
        self.repeated = False
        self._tables = tables
        self._work = Work(marks)
        self._heads = Heads(units_table)
        self._meeting = Meeting(marks, self._heads, (terms.born_ms, terms.unit), terms.timeout_ms, random.random)
        self._reading = Reading(marks, self._heads, self._meeting)
        self._receipt: Receipt | None = None
        self._fate = Fate()
        self._is_told = False
        self._in_use = threading.Lock()
        self._marked: MarkedCommit | None = None

    def begin(self) -> ForkingSteps[None]:
        """Find out whether the name was committed before; without a name nothing is sent."""
        if self.terms.name is not None and self._receipt is None:
            reply: Reply = yield read_receipt(self._heads.table, self.terms.name)
            self._receipt = Receipt.of(reply.item)
            self.repeated = self._receipt.is_committed

    def table(self, given: str) -> ForkingSteps[UnitTable]:
        """A table by its name or its ARN, as the low-level API takes them."""
        return (yield from self._tables.table(given, "TableName"))

    # Reading.

    def get(
        self, wanted: Sequence[tuple[Any, Any]], isolation: Isolation | None, python: Python
    ) -> ForkingSteps[list[Any]]:
        """Items with the unit's own writes, None where there is none: those that it has not read yet of one instant."""
        with self._alone():
            return (yield from self._get(wanted, isolation, python))

    def _get(
        self, wanted: Sequence[tuple[Any, Any]], isolation: Isolation | None, python: Python
    ) -> ForkingSteps[list[Any]]:
        level = self.terms.isolation if isolation is None else isolation
        if not isinstance(level, Isolation):
            raise InvalidUnitRequest("isolation", isolation, "UNCOMMITTED, COMMITTED or SERIALIZABLE")
        if not isinstance(wanted, Sequence) or not all(isinstance(each, tuple) and len(each) == 2 for each in wanted):
            raise InvalidUnitRequest("wanted", wanted, "a list of pairs: a table and a key")
        places = [self._place(table, python.item("key", key)) for table, key in wanted]
        yield from self.begin()
        if level is SERIALIZABLE:
            yield from self._read(places)
            for place in places:
                place.is_checked, place.glimpse = True, None
            return [python.back(place.image) for place in places]
        yield from self._read([place for place in places if place.blind is not None])
        # DynamoDB takes each key once.
        unread = {id(place): place for place in places if not place.is_read}
        read = self._reading.eventually if level is UNCOMMITTED else self._reading.committed
        found = yield from read([Wanted(place.table, place.key) for place in unread.values()])
        images = dict(zip(unread, found, strict=True))
        for name, place in unread.items():
            place.glimpse = (images[name],)
        return [python.back(place.image if place.is_read else images[id(place)]) for place in places]

    def _read(self, places: Sequence[Place]) -> ForkingSteps[None]:
        """Read what was not, all of one instant; what was written blindly is evaluated now."""
        unread = list({id(place): place for place in places if not place.is_read}.values())
        if not unread:
            return
        marks = self._work.marks
        found = yield from self._reading.serializable([Wanted(place.table, place.key) for place in unread])
        for at, (place, item) in enumerate(zip(unread, found, strict=True)):
            if at % MOST_TOGETHER == 0:
                self._work.cuts += 1
            image = image_of(item, marks)
            if place.blind is not None:
                # If it is refused it stays as it was: the unit cannot be committed without it.
                image = place.blind.applied_to(image)
                if image is not None:
                    place.table.check_item(image, "statement", _VERSION_BYTES)
                place.blind, place.is_written = None, True
            seen = None if item is None or marks.is_placeholder(item) else item
            place.is_read, place.seen, place.cut, place.image = True, seen, self._work.cuts, image

    # Statements.

    def put(self, table: Any, item: Any, condition: Any, values: Any, names: Any, python: Python) -> ForkingSteps[Both]:
        """Put an item in the place of whatever has its key."""
        return (yield from self._state("put", table, item, condition, values, names, python))

    def update(
        self,
        table: Any,
        key: Any,
        update: Any,
        condition: Any,
        values: Any,
        names: Any,
        python: Python,
        *,
        blind: bool = False,
    ) -> ForkingSteps[Both]:
        """Change an item."""
        boolean("blind", blind, InvalidUnitRequest)
        return (yield from self._state("update", table, key, condition, values, names, python, update, blind=blind))

    def delete(
        self, table: Any, key: Any, condition: Any, values: Any, names: Any, python: Python
    ) -> ForkingSteps[Both]:
        """Delete an item."""
        return (yield from self._state("delete", table, key, condition, values, names, python))

    def check(
        self, table: Any, key: Any, condition: Any, values: Any, names: Any, python: Python
    ) -> ForkingSteps[Both]:
        """Make sure of something."""
        if condition is None:
            raise InvalidUnitRequest("condition", None, "a condition: `get` makes sure that an item does not change")
        return (yield from self._state("check", table, key, condition, values, names, python))

    def _state(
        self,
        kind: Kind,
        table: Any,
        target: Any,
        condition: Any,
        values: Any,
        names: Any,
        python: Python,
        update: Any = None,
        *,
        blind: bool = False,
    ) -> ForkingSteps[Both]:
        """One statement, evaluated at once: the item before it and after it.

        Raises:
            ConditionFailed: its condition does not hold; nothing of it is in the unit.
        """
        item, phrase = python.item(field_of_target(kind), target), python.condition(condition)
        given = Given(item, phrase, python.values(values), python.names(names), update)
        with self._alone():
            made = statement(kind, self._tables.check_own(table), given, self._work.marks)
            return (yield from self._evaluated(made, blind=blind))

    def _evaluated(self, made: Statement, *, blind: bool) -> ForkingSteps[Both]:
        yield from self.begin()
        if self.repeated:
            return None, None
        place = self._work.place(made.table, made.key)
        is_new = not place.is_read and place.blind is None
        if blind and is_new and may_be_sent_blindly(made):
            place.blind = made
            return None, None
        yield from self._read([place])
        # Its block may have ended meanwhile, by an error in another task.
        self._check_open()
        self._check_as_glimpsed(place)
        before = place.image
        # Whether its condition holds is known of the item as it was read: what follows depends on it.
        place.is_checked = True
        after = made.applied_to(before)
        if after is not None:
            made.table.check_item(after, "statement", _VERSION_BYTES)
        place.image = after
        place.is_written |= made.kind != "check"
        return before, after

    def _check_as_glimpsed(self, place: Place) -> None:
        """Refuse to go on with what is not as the caller saw it, at whatever level: what follows may rest on that."""
        glimpse, place.glimpse = place.glimpse, None
        if glimpse is not None and glimpse[0] != image_of(place.seen, self._work.marks):
            self.state = "rolled back"
            raise conflict([place])

    # Ends.

    def commit(self) -> ForkingSteps[None]:
        """Write everything, or nothing."""
        if self.state == "committed":
            return
        with self._alone():
            yield from self._commit_or_end()

    def _commit_or_end(self) -> ForkingSteps[None]:
        # From now on: a commit whose caller is not there any more may be on its way still.
        self.state = "committing"
        try:
            yield from self.begin()
            if not self.repeated:
                yield from self._commit()
        except (OutcomeUnknown, UnitForgotten):
            self.state = "unknown"
            raise
        except TicketLockError:
            self.state = "rolled back"
            raise
        self.state = "committed"

    def _commit(self) -> ForkingSteps[None]:
        terms, marks = self.terms, self._work.marks
        touched = [place for place in self._work.places.values() if place.is_touched]
        if not any(place.writes for place in touched) and terms.name is None and terms.under is None:
            yield from self._validate(touched)
            return
        if terms.engine != "marked" and self._fits_one_request(touched):
            try:
                yield from commit_natively(touched, marks, self._terms_of_commit(), self._meeting)
                return
            except TableRefused:
                # Surely nothing was written: perhaps for the sizes of items that nobody has looked at.
                if not has_unknown_sizes(touched):
                    raise
                yield from self._read_blind(touched)
                if self._fits_one_request(touched):
                    raise
        yield from self._read_blind(touched)
        self._check_may_mark(touched)
        yield from self._commit_by_marks(touched)

    def _read_blind(self, touched: Sequence[Place]) -> ForkingSteps[None]:
        """Read what was updated blindly; so few at once that DynamoDB surely takes them together."""
        for batch in cut([place for place in touched if place.blind is not None], SURELY_TOGETHER):
            yield from self._read(batch)

    def _commit_by_marks(self, places: Sequence[Place]) -> ForkingSteps[None]:
        marked = MarkedCommit(self._terms_of_commit(), self._work.marks, self._heads, self._meeting, places)
        self._marked = marked
        yield from marked.steps()

    def _terms_of_commit(self) -> Commit:
        terms = self.terms
        return Commit(
            terms.unit,
            self._heads.table,
            terms.born_ms,
            name=terms.name,
            receipt=self._receipt or NEVER_USED,
            lock_check=_check_of(terms.under) if terms.under is not None else None,
            fate=self._fate,
        )

    def _fits_one_request(self, touched: Sequence[Place]) -> bool:
        count = len(touched) + (self.terms.name is not None) + (self.terms.under is not None)
        # The lock's item counts too, and nobody has looked at it.
        size = sum(place.size_bytes for place in touched) + (self.terms.under is not None) * MAX_ITEM_BYTES
        fits = count <= MOST_ACTIONS and size <= MOST_BYTES
        if self.terms.engine == "native" and not fits:
            raise UnitTooLarge(
                f"the unit writes and checks {count} items of {size:,} bytes; one request of DynamoDB takes "
                f"{MOST_ACTIONS} of {MOST_BYTES:,}: leave `engine` to the unit"
            )
        return fits

    def _check_may_mark(self, touched: Sequence[Place]) -> None:
        """Refuse what DynamoDB might refuse after the unit is committed."""
        for place in touched:
            if place.table.schema.local_indexes:
                allowed = "a table without local secondary indexes, whose collections DynamoDB limits to 10 GB"
                raise InvalidUnitRequest("table", place.table.name, f"{allowed}, or at most {MOST_ACTIONS} items")
            for image in (place.image, image_of(place.seen, self._work.marks)):
                if image is not None:
                    place.table.check_item(image, "mark", OURS_BYTES)

    def _validate(self, places: Sequence[Place]) -> ForkingSteps[None]:
        """That all that was read stands there still, at one instant; what one request brought is so."""
        if len({place.cut for place in places}) < 2:
            return
        if not self._fits_one_request(places):
            # Checks and marks hold them together.
            self._check_may_mark(places)
            yield from self._commit_by_marks(places)
            return
        found = yield from self._reading.serializable([Wanted(place.table, place.key) for place in places])
        marks = self._work.marks
        changed = [place for place, item in zip(places, found, strict=True) if not is_as_seen(item, place.seen, marks)]
        if changed:
            raise conflict(changed)

    def leave(self, error: BaseException | None) -> ForkingSteps[None]:
        """The end of a block: what is raised inside rolls back.

        Raises:
            UnitFinished: the block has ended well, and the unit has not, and nobody was told so.
        """
        if self.state == "open":
            try:
                if error is None:
                    yield from self.commit()
            finally:
                # What is raised may leave another of its verbs under way, whose statement is not in the unit then.
                if self.state == "open":
                    self.state = "rolled back"
        elif error is None and self.state != "committed" and not self._is_told:
            became = _TOLD.get(self.state, self.state)
            raise UnitFinished(
                f"the block has ended without an error, but its unit {self.terms.unit} is {became}: what has ended it, "
                "a conflict, an interrupt or a cancellation in one of its methods, was caught in the block"
            )

    def rollback(self) -> ForkingSteps[None]:
        """Forget everything; nothing was written."""
        yield from ()
        if self.state != "rolled back":
            with self._alone():
                self.state = "rolled back"
        self._is_told = True

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Within the block the unit commits for a caller of its own, who is told if it does not."""
        try:
            yield
        except TicketLockError:
            self._is_told = self.state != "open"
            raise

    @property
    def may_run_again(self) -> bool:
        """Whether nothing of it was written, and nothing will be."""
        return self.state in ("open", "rolled back")

    # Interrupts.

    def abandon(self) -> None:
        """Something of the caller's was raised in the midst of a verb: the unit is over."""
        if self.state in ("open", "committing"):
            self.state = self._fate.became

    def give_up(self) -> ForkingSteps[None]:
        """The same, and leave nothing behind, if that can be done: what is marked is rolled back, or finished."""
        is_under_way = self.state in ("open", "committing")
        self.abandon()
        if is_under_way and self._marked is not None:
            try:
                yield from self._marked.give_up()
            except TicketLockError as error:
                _log.warning("the interrupted unit %s is left to its lease: %s", self.terms.unit, error)
            self.state = self._fate.became

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Within the block one verb is under way: beside another, a statement would be lost.

        Raises:
            InvalidUnitRequest: another one is, in another thread or task, or in what a signal handler has interrupted.
            UnitFinished: it is over.
        """
        if not self._in_use.acquire(blocking=False):
            self._check_open()
            allowed = "a unit for one thread or task at a time: one of its methods is under way, await that first"
            raise InvalidUnitRequest("unit", self.terms.unit, allowed)
        try:
            self._check_open()
            yield
        finally:
            self._in_use.release()

    def _check_open(self) -> None:
        if self.state != "open":
            raise UnitFinished(f"the unit {self.terms.unit} is {_TOLD.get(self.state, self.state)}: begin another")

    def _place(self, table: Any, given: Item) -> Place:
        own = self._tables.check_own(table)
        with refusing("key"):
            key = canonical_item(dict(given))
        return self._work.place(own, own.key_alone("key", key))


def _check_of(under: HeldLock) -> Mapping[str, Any]:
    """The check that a lock is held, which others have made.

    Raises:
        InvalidUnitRequest: it is none: the unit would be committed without it.
    """
    found: Any = under.condition_check()
    only = found.get("ConditionCheck") if isinstance(found, Mapping) and len(found) == 1 else None
    wanted = {"TableName": str, "Key": Mapping, "ConditionExpression": str}
    if not isinstance(only, Mapping) or not all(isinstance(only.get(name), kind) for name, kind in wanted.items()):
        allowed = "a held lock, whose `condition_check()` is the ConditionCheck of a TransactWriteItems"
        raise InvalidUnitRequest("under", found, allowed)
    check: Mapping[str, Any] = found
    return check
