"""Finds marks by reading a table's items, and then their units' records: for marks that no record leads to.

A sweep goes from the records to the items. If the two do not belong together (a table was restored, records were lost,
a plain writer has put an old copy of an item), there are marks that no sweep finds. A repair treats them as any unit
does that meets them: it removes a mark, or applies it, only after it has read the unit's record in a final state,
closed or gone.

A record is kept for a day after it was closed. So if a unit began less than a day ago and has no record, the units
table is the wrong one, or was lost. If it is the wrong one, the unit may still be running.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from ticketlock._expressions._values import canonical_item
from ticketlock.errors import InvalidUnitRequest, TableRefused, UnsupportedFormat
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
from ticketlock.wire._requests import ForkingSteps, Scan
from ticketlock.wire._table_time import Moment

Action = Literal["finished", "unmarked", "left"]

_MARKED = "attribute_exists(#mark)"


class Record(Enum):
    """What the record of a mark's unit says.

    Attributes:
        PENDING: the unit's lease is running.
        LEASE_OVER: the unit's lease has ended.
        ROLLED_BACK: the unit is rolled back.
        COMMITTED: the unit is committed, and this item is not finished.
        CLOSED: the unit has ended, and all of its items were finished: the mark has come back since.
        GONE: the same, and TTL has deleted the record.
        MISSING: there is no record although it cannot have expired: the units table is the wrong one, or was lost.
        STRANGE: no unit has written the mark.
        UNCLEAR: the record does not name the item, rows of it are lost, a newer version wrote it, or a request was
            refused.
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
    """A mark in an item.

    Attributes:
        key: the item's, in Python values.
        unit: the id of the mark's unit; None if no unit has written the mark.
        record: what the unit's record says.
        action: what was done, or would be done with ``write``: ``"finished"``, the item gets the unit's new value;
            ``"unmarked"``, the item keeps its value; ``"left"``.
        why: the reason, if the record is unclear.
    """

    key: Mapping[str, Any]
    unit: str | None
    record: Record
    action: Action
    why: str | None = None

    @property
    def needs_you(self) -> bool:
        """Whether the mark is left, and no process will remove it."""
        return self.action == "left" and self.record is not Record.PENDING


@dataclass(frozen=True, slots=True)
class _Seen:
    """A mark with its unit's record.

    Attributes:
        record: what it says.
        head: the record, if there is one.
        now: when it was read.
        why: the reason, if it is unclear.
    """

    record: Record
    head: Head | None
    now: Moment
    why: str | None = None


def repair(
    table: UnitTable, heads: Heads, marks: Marks, *, write: bool, lost_records: bool
) -> ForkingSteps[list[FoundMark]]:
    """Treat each mark in a table as its unit's record says. Safe to repeat, and to run beside itself and beside units.

    Args:
        write: whether to write, or only to report.
        lost_records: whether to remove marks whose records are missing, too.

    Raises:
        TableError: a table could not be used, or the units table is of another kind. What was done by then stays.
    """
    # A table with other keys refuses this, before the first mark is found.
    yield TIME_CHECK
    # It never waits.
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


def _scan(table: UnitTable, marks: Marks, after: Item | None) -> Scan:
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
        """Treat one item of a page; None if its mark is gone meanwhile."""
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
        except (TableRefused, InvalidUnitRequest, UnsupportedFormat) as error:
            # InvalidUnitRequest: the item or a row has attributes of ours that no unit has written.
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
        """Read the record, and then the item again: the Scan may have returned an older version."""
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
        entries = yield from read_committed(self.heads, head, [met])
        if entries is None:
            # It was closed meanwhile.
            return _Seen(Record.CLOSED, head, now)
        if entries == [None]:
            why = f"the unit is committed, and its record does not name this item of {met.table}"
            return _Seen(Record.UNCLEAR, head, now, why)
        return _Seen(Record.COMMITTED, head, now)


def _cannot_be_gone(mark: Mark, now: Moment) -> bool:
    return now.earliest_ms < begun_ms(mark.unit) + CLOSED_IS_KEPT_S * 1_000
