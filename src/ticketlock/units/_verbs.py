"""What a unit can do, as steps: threads and tasks perform the same. No I/O, no clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ticketlock._checks import boolean
from ticketlock.errors import (
    InvalidUnitRequest,
    OutcomeUnknown,
    TicketLockError,
    UnitConflict,
    UnitFinished,
    UnitTooLarge,
)
from ticketlock.units._marks import Marks
from ticketlock.units._native import MOST_ACTIONS, Commit, actions, commit_natively
from ticketlock.units._reading import (
    SERIALIZABLE,
    UNCOMMITTED,
    Isolation,
    Wanted,
    image_of,
    is_as_seen,
    read_eventually,
    read_together,
)
from ticketlock.units._rows import NEVER_USED, Receipt, read_receipt
from ticketlock.units._statements import Given, Kind, Statement, statement
from ticketlock.units._tables import Tables, UnitTable
from ticketlock.units._values import Python
from ticketlock.units._work import Place, Work
from ticketlock.units._writes import fits_an_expression
from ticketlock.wire._item_requests import MOST_TOGETHER
from ticketlock.wire._requests import Steps
from ticketlock.wire._table_time import Moment


class HeldLock(Protocol):
    """What a unit commits under: a lease of ``ticketlock``, for example."""

    def condition_check(self) -> dict[str, Any]:
        """The check that it is held, as an item of ``TransactWriteItems``."""
        ...


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
    """

    unit: str
    born_ms: int
    timeout_ms: int
    isolation: Isolation = SERIALIZABLE
    name: str | None = None
    under: HeldLock | None = None


State = Literal["open", "committed", "rolled back", "unknown"]
Both = tuple[Any, Any]


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
        self._units_table = units_table
        self._tables = tables
        self._work = Work(marks)
        self._receipt: Receipt | None = None
        self._now: Moment | None = None

    def begin(self) -> Steps[None]:
        """Find out whether the name was committed before; without a name nothing is sent."""
        if self.terms.name is not None and self._receipt is None:
            reply = yield read_receipt(self._units_table, self.terms.name)
            self._receipt, self._now = Receipt.of(reply.item), reply.now
            self.repeated = self._receipt.is_committed

    def table(self, name: str) -> Steps[UnitTable]:
        """A table by its name."""
        return (yield from self._tables.table(name))

    # Reading.

    def get(self, wanted: Sequence[tuple[Any, Any]], isolation: Isolation | None, python: Python) -> Steps[list[Any]]:
        """Items with the unit's own writes, None where there is none: those that it has not read yet of one instant."""
        self._check_open()
        level = self.terms.isolation if isolation is None else isolation
        if not isinstance(level, Isolation):
            raise InvalidUnitRequest("isolation", isolation, "UNCOMMITTED, COMMITTED or SERIALIZABLE")
        places = [self._place(table, "key", python.item("key", key)) for table, key in wanted]
        yield from self.begin()
        if level is SERIALIZABLE:
            yield from self._read(places)
            for place in places:
                place.is_checked = True
            return [python.back(place.image) for place in places]
        for place in places:
            if place.blind is not None:
                yield from self._read([place])
        unread = [Wanted(place.table.name, place.key) for place in places if not place.is_read]
        read = read_eventually if level is UNCOMMITTED else read_together
        found = iter((yield from read(unread, self._work.marks)))
        images = [place.image if place.is_read else image_of(next(found), self._work.marks) for place in places]
        return [python.back(image) for image in images]

    def _read(self, places: Sequence[Place]) -> Steps[None]:
        """Read what was not, all of one instant; what was written blindly is evaluated now."""
        unread = list({id(place): place for place in places if not place.is_read}.values())
        if not unread:
            return
        marks = self._work.marks
        found = yield from read_together([Wanted(place.table.name, place.key) for place in unread], marks)
        self._work.cuts += 1
        for at, (place, item) in enumerate(zip(unread, found, strict=True)):
            if at and at % MOST_TOGETHER == 0:
                self._work.cuts += 1
            place.is_read, place.seen, place.cut = True, item, self._work.cuts
            place.image = image_of(item, marks)
            if place.blind is not None:
                late = Statement("update", place.table, place.key, None, place.blind)
                place.blind = None
                place.image, place.is_written = late.applied_to(place.image), True

    # Statements.

    def put(self, table: Any, item: Any, condition: Any, values: Any, names: Any, python: Python) -> Steps[Both]:
        """Put an item in the place of whatever has its key."""
        given = Given(python.item("item", item), python.condition(condition), python.values(values), names)
        return (yield from self._state("put", table, given, python))

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
    ) -> Steps[Both]:
        """Change an item."""
        boolean("blind", blind, InvalidUnitRequest)
        given = Given(python.item("key", key), python.condition(condition), python.values(values), names, update)
        return (yield from self._state("update", table, given, python, blind=blind))

    def delete(self, table: Any, key: Any, condition: Any, values: Any, names: Any, python: Python) -> Steps[Both]:
        """Delete an item."""
        given = Given(python.item("key", key), python.condition(condition), python.values(values), names)
        return (yield from self._state("delete", table, given, python))

    def check(self, table: Any, key: Any, condition: Any, values: Any, names: Any, python: Python) -> Steps[Both]:
        """Make sure of something."""
        if condition is None:
            raise InvalidUnitRequest("condition", None, "a condition: `get` makes sure that an item does not change")
        given = Given(python.item("key", key), python.condition(condition), python.values(values), names)
        return (yield from self._state("check", table, given, python))

    def _state(self, kind: Kind, table: Any, given: Given, python: Python, *, blind: bool = False) -> Steps[Both]:
        """One statement, evaluated at once: the item before it and after it.

        Raises:
            ConditionFailed: its condition does not hold; nothing of it is in the unit.
        """
        self._check_open()
        made = statement(kind, self._tables.check_own(table), given, self._work.marks)
        yield from self.begin()
        if self.repeated:
            return None, None
        place = self._work.place(made.table, made.key)
        is_new = not place.is_read and place.blind is None
        if blind and is_new and fits_an_expression(made.parameters):
            place.blind = made.parameters
            return None, None
        yield from self._read([place])
        before = place.image
        # Whether its condition holds is known of the item as it was read: what follows depends on it.
        place.is_checked = True
        place.image = made.applied_to(before)
        place.is_written |= kind != "check"
        return python.back(before), python.back(place.image)

    # Ends.

    def commit(self) -> Steps[None]:
        """Write everything, or nothing."""
        if self.state == "committed":
            return
        self._check_open()
        yield from self.begin()
        try:
            if not self.repeated:
                yield from self._commit()
        except OutcomeUnknown:
            self.state = "unknown"
            raise
        except TicketLockError:
            self.state = "rolled back"
            raise
        self.state = "committed"

    def _commit(self) -> Steps[None]:
        touched = actions(self._work)
        is_read_only = not any(place.writes for place in touched) and self.terms.name is None
        if is_read_only and self.terms.under is None:
            yield from self._validate(touched)
            return
        count = len(touched) + (self.terms.name is not None) + (self.terms.under is not None)
        if count > MOST_ACTIONS:
            raise UnitTooLarge(f"the unit writes and checks {count} items; DynamoDB takes {MOST_ACTIONS} together")
        check = self.terms.under.condition_check() if self.terms.under is not None else None
        commit = Commit(
            self.terms.unit,
            self._units_table,
            self.terms.name,
            self._receipt or NEVER_USED,
            check,
            self._now.latest_ms if self._now is not None else 0,
        )
        yield from commit_natively(self._work, commit)

    def _validate(self, places: Sequence[Place]) -> Steps[None]:
        """That all that was read stands there still, at one instant; what one request brought is so."""
        if len({place.cut for place in places}) < 2:
            return
        if len(places) > MOST_ACTIONS:
            raise UnitTooLarge(f"the unit has read {len(places)} items; DynamoDB reads {MOST_ACTIONS} together")
        found = yield from read_together([Wanted(place.table.name, place.key) for place in places], self._work.marks)
        changed = [place for place, item in zip(places, found, strict=True) if not is_as_seen(item, place.seen)]
        if changed:
            raise UnitConflict((place.table.name, place.key) for place in changed)

    def leave(self, error: BaseException | None) -> Steps[None]:
        """The end of a block: what is raised inside rolls back."""
        if self.state != "open":
            return
        if error is None:
            yield from self.commit()
        else:
            yield from self.rollback()

    def rollback(self) -> Steps[None]:
        """Forget everything; nothing was written."""
        yield from ()
        if self.state == "committed":
            raise UnitFinished(f"the unit {self.terms.unit} is committed")
        if self.state == "open":
            self.state = "rolled back"

    def _check_open(self) -> None:
        if self.state != "open":
            raise UnitFinished(f"the unit {self.terms.unit} is {self.state}: begin another")

    def _place(self, table: Any, field: str, given: Any) -> Place:
        own = self._tables.check_own(table)
        return self._work.place(own, own.key_of(field, given))
