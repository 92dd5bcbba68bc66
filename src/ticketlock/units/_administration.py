"""What an operator does with the records of units: list, show, settle, roll back."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby

from ticketlock.errors import (
    CommittedUnfinished,
    InvalidUnitRequest,
    TableError,
    TableNotFound,
    TableRefused,
    UnsupportedFormat,
)
from ticketlock.units._batches import cut
from ticketlock.units._formats import Strange
from ticketlock.units._heads import Head, Heads
from ticketlock.units._ids import is_id
from ticketlock.units._marks import Marks
from ticketlock.units._meeting import RedoLog, read_entries
from ticketlock.units._outcomes import Outcome
from ticketlock.units._packing import Entry
from ticketlock.units._rows import TIME_CHECK
from ticketlock.units._sweeping import Swept, sweep_one
from ticketlock.wire._answers import Reply
from ticketlock.wire._attributes import Item
from ticketlock.wire._item_requests import MOST_TOGETHER, GetMany
from ticketlock.wire._requests import ForkingSteps
from ticketlock.wire._table_time import Moment

_log = logging.getLogger("ticketlock")

OUTCOMES = {"pending": Outcome.PENDING, "committed": Outcome.COMMITTED, "rolledBack": Outcome.ROLLED_BACK}
"""The outcome for each state in a record."""


class Standing(Enum):
    """What an item of a unit contains now.

    Attributes:
        THERE: the unit's mark.
        WRITTEN: the unit's new value, and no mark.
        OFF: neither.
        OF_ANOTHER: the mark of another unit.
        STRANGE: an attribute with the mark's name that no unit has written.
        NO_TABLE: the item's table does not exist.
        UNKNOWN: this caller may not read the item.
    """

    THERE = "there"
    WRITTEN = "off, written"
    OFF = "off"
    OF_ANOTHER = "of another unit"
    STRANGE = "not ours"
    NO_TABLE = "no table"
    UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class OpenUnit:
    """A unit whose record is still needed. Ages and durations are in table time.

    Attributes:
        unit: its id.
        state: ``PENDING``, ``COMMITTED`` or ``ROLLED_BACK``.
        is_closed: whether all of its items are finished; rows with its new values may still exist.
        age_s: seconds since its first try began, by the clock of the process that began it.
        lease_ends_in_s: only if it is pending; negative after the end of its lease.
        ended_for_s: seconds since its end, if it has ended.
        items: how many items it writes or has marked; None if the rows that list them do not exist.
        rolled_back_by: the id of the unit that has rolled it back, if one has.
        is_saved: whether it was saved, to be resumed: it has marked nothing.
        owner: if it is saved: the owner of its last save; None for none.
    """

    unit: str
    state: Outcome
    is_closed: bool
    age_s: float
    lease_ends_in_s: float | None
    ended_for_s: float | None
    items: int | None
    rolled_back_by: str | None
    is_saved: bool
    owner: str | None

    @classmethod
    def of(cls, head: Head, now: Moment, items: int | None) -> "OpenUnit":
        """The unit as its record describes it at a moment."""
        is_pending = head.state == "pending"
        return cls(
            unit=head.unit,
            state=OUTCOMES[head.state],
            is_closed=head.is_closed,
            age_s=(now.likely_ms - head.born_ms) / 1_000,
            lease_ends_in_s=(head.lease_until_ms - now.likely_ms) / 1_000 if is_pending else None,
            ended_for_s=None if is_pending else (now.likely_ms - head.final_ms) / 1_000,
            items=items,
            rolled_back_by=head.by,
            is_saved=head.is_saved,
            owner=head.owner,
        )


@dataclass(frozen=True, slots=True)
class Inspected:
    """One item of a unit.

    Attributes:
        entry: what the unit does to it.
        standing: what it contains now.
    """

    entry: Entry
    standing: Standing


@dataclass(frozen=True, slots=True)
class Shown:
    """A unit and its items, by its record.

    Attributes:
        unit: what its record says.
        items: those that it writes or has marked; None if the rows that list them do not exist.
    """

    unit: OpenUnit
    items: list[Inspected] | None


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcome of a unit, and what was done about it.

    Attributes:
        outcome: final, unless it is PENDING.
        unit: what its record said last; None if there is no record.
        ended: the items that were finished, or from which its mark was removed.
        failed: why an item is not finished yet; None if all are.
    """

    outcome: Outcome
    unit: OpenUnit | None = None
    ended: Sequence[Entry] = ()
    failed: CommittedUnfinished | TableError | InvalidUnitRequest | UnsupportedFormat | None = None


def warn_of(error: Strange) -> None:
    """Log a row that no unit has written, or a newer version."""
    _log.warning("a row was left out: %s", error)


def open_units(heads: Heads, strange: Callable[[Strange], object] = warn_of) -> ForkingSteps[list[OpenUnit]]:
    """The units whose records are still needed, the oldest first.

    Args:
        strange: called with an error for each row that no unit has written, or a newer version.

    Raises:
        TableRefused: the table is not a units table.
        TableError: the table could not be used.
    """
    # A table with other keys refuses this; a Scan of it would find no open units.
    yield TIME_CHECK
    found: list[tuple[Head, OpenUnit]] = []
    after: Item | None = None
    while True:
        page: Reply = yield heads.scan(after)
        for row in page.items:
            assert row is not None
            try:
                head = Head.of(row)
                count = yield from _count(heads, head)
            except (InvalidUnitRequest, UnsupportedFormat) as error:
                strange(error)
            else:
                found.append((head, OpenUnit.of(head, page.now, count)))
        after = page.last_key
        if after is None:
            return [unit for _, unit in sorted(found, key=lambda each: each[0].age)]


def _count(heads: Heads, head: Head) -> ForkingSteps[int | None]:
    """How many items a unit writes or has marked, in memory for one piece; None if the rows are gone."""
    log, count = RedoLog(heads, head), 0
    while entries := (yield from log.next()):
        count += len(entries)
    return None if log.is_gone else count


def inspect(heads: Heads, marks: Marks, unit: str) -> ForkingSteps[Shown | None]:
    """A unit with its items as they are now; None if there is no record of it.

    Raises:
        InvalidUnitRequest: ``unit`` is no id, or no unit has written the record.
        UnsupportedFormat: a newer version wrote it.
    """
    _check_id(unit)
    reply: Reply = yield heads.read(unit)
    if reply.item is None:
        return None
    head = Head.of(reply.item)
    entries = yield from read_entries(heads, head)
    inspected = None if entries is None else (yield from _inspect_items(unit, entries, marks))
    return Shown(OpenUnit.of(head, reply.now, None if entries is None else len(entries)), inspected)


def settle(heads: Heads, marks: Marks, unit: str) -> ForkingSteps[Settled]:
    """Find out the outcome of a unit, and do what a sweep would do about it.

    Raises:
        InvalidUnitRequest: ``unit`` is no id, or no unit has written the record.
        UnsupportedFormat: a newer version wrote it.
        TableError: the outcome is not known.
    """
    return (yield from _end(heads, marks, unit, is_forced=False))


def roll_back(heads: Heads, marks: Marks, unit: str) -> ForkingSteps[Settled]:
    """Roll back a unit that is pending, even if its lease has not ended; a committed unit is not changed.

    Raises:
        InvalidUnitRequest: ``unit`` is no id, or no unit has written the record.
        UnsupportedFormat: a newer version wrote it.
        TableError: the outcome is not known.
    """
    return (yield from _end(heads, marks, unit, is_forced=True))


def _end(heads: Heads, marks: Marks, unit: str, *, is_forced: bool) -> ForkingSteps[Settled]:
    _check_id(unit)
    while True:
        reply: Reply = yield heads.read(unit)
        if reply.item is None:
            return Settled(Outcome.FORGOTTEN)
        head, now = Head.of(reply.item), reply.now
        known = OpenUnit.of(head, now, None)
        if head.is_closed or (is_forced and head.state == "committed"):
            return Settled(known.state, known)
        if head.state == "pending":
            lease_runs = now.earliest_ms <= head.lease_until_ms
            if lease_runs and not is_forced:
                return Settled(Outcome.PENDING, known)
            seen_ms = None if is_forced else head.lease_until_ms
            flipped: Reply = yield heads.roll_back(unit, now.latest_ms, lease_seen_ms=seen_ms)
            if not flipped.applied:
                # Its lease was renewed, or another process has ended it.
                continue
            head = replace(head, state="rolledBack", final_ms=now.latest_ms)
        # The outcome is final, even if some items cannot be finished yet.
        known = OpenUnit.of(head, now, None)
        ended: list[Entry] = []
        try:
            entries = yield from read_entries(heads, head)
            inspected = yield from _inspect_items(unit, entries or (), marks)
            yield from sweep_one(head, now, heads, marks, Swept())
            ended = [each.entry for each in inspected if each.standing is Standing.THERE]
        except (CommittedUnfinished, TableError, InvalidUnitRequest, UnsupportedFormat) as error:
            return Settled(known.state, known, ended, error)
        return Settled(known.state, known, ended)


def _inspect_items(unit: str, entries: Sequence[Entry], marks: Marks) -> ForkingSteps[list[Inspected]]:
    inspected: list[Inspected] = []
    for _, of_table in groupby(sorted(entries, key=_table), _table):
        for batch in cut(list(of_table), MOST_TOGETHER):
            try:
                reply: Reply = yield GetMany([(entry.table, entry.key) for entry in batch])
            except TableNotFound:
                inspected += [Inspected(entry, Standing.NO_TABLE) for entry in batch]
            except TableRefused:
                inspected += [Inspected(entry, Standing.UNKNOWN) for entry in batch]
            else:
                inspected += [
                    Inspected(entry, _standing(unit, item, marks))
                    for entry, item in zip(batch, reply.items, strict=True)
                ]
    return inspected


def _table(entry: Entry) -> str:
    return entry.table


def _standing(unit: str, item: Item | None, marks: Marks) -> Standing:
    if item is None:
        return Standing.OFF
    try:
        mark, version = marks.mark_of(item), marks.version_of(item)
    except InvalidUnitRequest:
        return Standing.STRANGE
    if mark is not None:
        return Standing.THERE if mark.unit == unit else Standing.OF_ANOTHER
    return Standing.WRITTEN if version == unit else Standing.OFF


def _check_id(unit: object) -> None:
    if not isinstance(unit, str) or not is_id(unit):
        raise InvalidUnitRequest("unit", unit, "the `id` of a unit: 26 digits and capital letters")
