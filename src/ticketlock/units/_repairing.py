"""From the items of a table to the records of units: for marks that no record leads to any more.

A sweep goes from the records to the items. Where the two do not belong together (a table was restored, records were
lost, a plain writer has put an old copy of an item) marks stay that no sweep finds. What may be done about them is what
any unit may do that meets them: nobody takes a mark off, or applies it, but who has read its unit's record in a final
state, closed or gone.

A record is kept for a day after it was closed, so that of a unit which began less than a day ago cannot be gone: the
table of units is another one, or was lost. In the first case its unit may be on its way.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from ticketlock._expressions._values import canonical_item
from ticketlock.errors import InvalidUnitRequest, TableRefused
from ticketlock.units._heads import CLOSED_IS_KEPT_S, Head, Heads
from ticketlock.units._ids import begun_ms
from ticketlock.units._marks import Mark, Marks
from ticketlock.units._meeting import Marked, Meeting, read_committed
from ticketlock.units._rows import TIME_CHECK
from ticketlock.units._tables import UnitTable
from ticketlock.units._values import PYTHON
from ticketlock.wire._answers import Reply
from ticketlock.wire._attributes import Item
from ticketlock.wire._item_requests import Get
from ticketlock.wire._requests import Attributes, ForkingSteps, Scan
from ticketlock.wire._table_time import Moment

Action = Literal["finished", "unmarked", "left"]

_MARKED = "attribute_exists(#mark)"


class Record(Enum):
    """What the record of a mark's unit says.

    Attributes:
        PENDING: the unit's lease runs.
        LEASE_OVER: nobody has renewed it.
        ROLLED_BACK: the unit is rolled back.
        COMMITTED: the unit is committed, and this item is not finished.
        CLOSED: the unit has ended, and every item of it was as it should be: the mark has come back since.
        GONE: the same; time to live has deleted the record.
        MISSING: it is not there, and cannot be gone: the table of units is another one, or was lost.
        STRANGE: no unit has written the mark.
        UNCLEAR: the record does not name the item, rows of it are lost, or a request was refused.
    """

    PENDING = "pending"
    LEASE_OVER = "lease over"
    ROLLED_BACK = "rolled back"
    COMMITTED = "committed"
    CLOSED = "closed"
    GONE = "gone"
    MISSING = "missing"
    STRANGE = "strange"
    UNCLEAR = "unclear"


_DONE: Mapping[Record, Action] = {
    Record.LEASE_OVER: "unmarked",
    Record.ROLLED_BACK: "unmarked",
    Record.COMMITTED: "finished",
    Record.CLOSED: "unmarked",
    Record.GONE: "unmarked",
}


@dataclass(frozen=True, slots=True)
class FoundMark:
    """A mark that stands in an item.

    Attributes:
        key: the item's, in Python values.
        unit: whose it is; None for one that no unit has written.
        record: what the unit's record says.
        action: what was done, or without ``write`` would be: ``"finished"``, the item gets the unit's new value;
            ``"unmarked"``, it keeps its own; ``"left"``.
        why: of one that is unclear.
    """

    key: Mapping[str, Any]
    unit: str | None
    record: Record
    action: Action
    why: str | None = None

    @property
    def needs_you(self) -> bool:
        """Whether it is left, and nobody else will do anything about it."""
        return self.action == "left" and self.record is not Record.PENDING


@dataclass(frozen=True, slots=True)
class _Seen:
    """A mark with its unit's record.

    Attributes:
        record: what it says.
        head: the record, where there is one.
        now: when it was read.
        why: of one that is unclear.
    """

    record: Record
    head: Head | None
    now: Moment
    why: str | None = None


def repair(
    table: UnitTable, heads: Heads, marks: Marks, *, write: bool, lost_records: bool
) -> ForkingSteps[list[FoundMark]]:
    """Do with each mark in a table what its unit's record says; may be repeated, and run beside itself and units.

    Args:
        write: whether it is done, and not only told.
        lost_records: whether marks are taken off whose records are missing.

    Raises:
        TableError: a table could not be used, or the units' own is of another kind. What was done is done.
    """
    # Refused by a table whose keys are others, before the first mark is found.
    yield TIME_CHECK
    # It waits for nobody.
    meeting = Meeting(marks, heads, (0, ""), 0, lambda: 0.0)
    repairing = _Repairing(table, heads, marks, meeting, write=write, lost_records=lost_records)
    found, after = list[FoundMark](), None
    while True:
        page: Reply = yield _scan(table, marks, after)
        for item in page.items:
            assert item is not None
            one = yield from repairing.item(item)
            if one is not None:
                found.append(one)
        after = page.last_key
        if after is None:
            return found


def _scan(table: UnitTable, marks: Marks, after: Attributes | None) -> Scan:
    """A page of the items with a mark: their keys, and the marks."""
    names = {f"#k{at}": name for at, name in enumerate(table.key_names)} | {"#mark": marks.mark}
    return Scan(_MARKED, tuple(names), after, table.name, names)


@dataclass(frozen=True, slots=True)
class _Repairing:
    table: UnitTable
    heads: Heads
    marks: Marks
    meeting: Meeting
    write: bool
    lost_records: bool

    def item(self, item: Item) -> ForkingSteps[FoundMark | None]:
        """One item of a page; None where its mark is off meanwhile."""
        key = canonical_item({name: item[name] for name in self.table.key_names})
        try:
            mark = self.marks.mark_of(item)
        except InvalidUnitRequest:
            return FoundMark(PYTHON.back(key) or {}, None, Record.STRANGE, "left")
        if mark is None:
            return None
        met = Marked(self.table.name, key, self.table.key_names[0], mark)
        try:
            return (yield from self._mark(met))
        except (TableRefused, InvalidUnitRequest) as error:
            # The latter of an item or a row in which somebody else has written what is ours.
            return FoundMark(PYTHON.back(key) or {}, mark.unit, Record.UNCLEAR, "left", str(error))

    def _mark(self, met: Marked) -> ForkingSteps[FoundMark | None]:
        key = PYTHON.back(met.key) or {}
        while True:
            seen = yield from self._look(met)
            if seen is None:
                return None
            action = self._action(seen.record)
            found = FoundMark(key, met.mark.unit, seen.record, action, seen.why)
            if action == "left" or not self.write:
                return found
            if seen.record is Record.LEASE_OVER:
                assert seen.head is not None
                lease_ms = seen.head.lease_until_ms
                yield self.heads.roll_back(met.mark.unit, seen.now.latest_ms, lease_seen_ms=lease_ms)
            if (yield from self.meeting.resolve(met)) is None:
                return found
            # It has renewed its lease.

    def _action(self, record: Record) -> Action:
        if record is Record.MISSING:
            return "unmarked" if self.lost_records else "left"
        return _DONE.get(record, "left")

    def _look(self, met: Marked) -> ForkingSteps[_Seen | None]:
        """The record, and then the item: a Scan may show what stood there before."""
        reply: Reply = yield self.heads.read(met.mark.unit)
        head, now = None if reply.item is None else Head.of(reply.item), reply.now
        again: Reply = yield Get(met.table, met.key)
        if again.item is None or self.marks.mark_of(again.item) != met.mark:
            return None
        if head is None:
            return _Seen(Record.MISSING if _cannot_be_gone(met.mark, now) else Record.GONE, None, now)
        if head.is_closed:
            return _Seen(Record.CLOSED, head, now)
        if head.state == "pending":
            lease_runs = now.earliest_ms <= head.lease_until_ms
            return _Seen(Record.PENDING if lease_runs else Record.LEASE_OVER, head, now)
        if head.state == "rolledBack":
            return _Seen(Record.ROLLED_BACK, head, now)
        entries = yield from read_committed(self.heads, head)
        if entries is None:
            # It was closed meanwhile.
            return _Seen(Record.CLOSED, head, now)
        if not any(entry.is_of(met.table, met.key) for entry in entries):
            why = f"the unit is committed, and its record does not name this item of {met.table}"
            return _Seen(Record.UNCLEAR, head, now, why)
        return _Seen(Record.COMMITTED, head, now)


def _cannot_be_gone(mark: Mark, now: Moment) -> bool:
    return now.earliest_ms < begun_ms(mark.unit) + CLOSED_IS_KEPT_S * 1_000
