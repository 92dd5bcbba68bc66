"""What an operator asks of the records of units, and does to one of them: list, look, settle, roll back."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby

from ticketlock.errors import InvalidUnitRequest, TableError, TableNotFound, TableRefused
from ticketlock.units._batches import cut
from ticketlock.units._heads import Head, Heads
from ticketlock.units._ids import is_id
from ticketlock.units._marks import Marks
from ticketlock.units._meeting import read_entries
from ticketlock.units._outcomes import Outcome
from ticketlock.units._packing import Entry
from ticketlock.units._rows import TIME_CHECK
from ticketlock.units._sweeping import Swept, sweep_one
from ticketlock.wire._answers import Reply
from ticketlock.wire._attributes import Item
from ticketlock.wire._item_requests import MOST_TOGETHER, GetMany
from ticketlock.wire._requests import Attributes, ForkingSteps
from ticketlock.wire._table_time import Moment

_log = logging.getLogger("ticketlock")

OUTCOMES = {"pending": Outcome.PENDING, "committed": Outcome.COMMITTED, "rolledBack": Outcome.ROLLED_BACK}
"""What a state in a record means."""


class Standing(Enum):
    """What stands in an item that a unit writes.

    Attributes:
        THERE: the unit's mark.
        WRITTEN: the unit's new value, and no mark.
        OFF: neither.
        OF_ANOTHER: the mark of another unit.
        STRANGE: an attribute of that name that no unit has written.
        NO_TABLE: its table is gone.
        UNKNOWN: this caller may not read it.
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
    """A unit whose record may not be forgotten yet. Ages and rests are by the table's time.

    Attributes:
        unit: its id.
        state: ``PENDING``, ``COMMITTED`` or ``ROLLED_BACK``.
        is_closed: whether every item is as it should be; rows of its new values stand yet.
        age_s: since its first try began, in seconds, by the clock of the process that began it.
        lease_ends_in_s: of a pending one: below 0 once its lease is over.
        ended_for_s: of another one: since when.
        items: how many items it writes or has marked; None where the rows that say so are not there.
        rolled_back_by: the id of the unit that has rolled it back, if one has.
        is_saved: whether it was saved, for whoever resumes it: it has marked nothing.
        owner: of a saved one, under which owner it was saved last; None for none.
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
        """What a record tells at a moment."""
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
class Looked:
    """One item of a unit.

    Attributes:
        entry: what becomes of it.
        standing: what stands there now.
    """

    entry: Entry
    standing: Standing


@dataclass(frozen=True, slots=True)
class Shown:
    """A unit by its record.

    Attributes:
        unit: what its record tells.
        items: those that it writes or has marked; None where the rows that say so are not there.
    """

    unit: OpenUnit
    items: list[Looked] | None


@dataclass(frozen=True, slots=True)
class Settled:
    """What has become of a unit, and what was done about it.

    Attributes:
        outcome: told for good, unless it is PENDING.
        unit: what its record has told last; None where there is none.
        ended: the items that were finished, or lost its mark.
        failed: why some item is not as it should be yet; None where all are.
    """

    outcome: Outcome
    unit: OpenUnit | None = None
    ended: Sequence[Entry] = ()
    failed: TableError | InvalidUnitRequest | None = None


def warn_of(error: InvalidUnitRequest) -> None:
    """Log that somebody else has written a row."""
    _log.warning("a row was left out: %s", error)


def open_units(heads: Heads, strange: Callable[[InvalidUnitRequest], object] = warn_of) -> ForkingSteps[list[OpenUnit]]:
    """The units whose records may not be forgotten yet, the oldest first.

    Args:
        strange: is told of each row that no unit has written.

    Raises:
        TableRefused: that is no table of units.
        TableError: it could not be used.
    """
    # Refused by a table whose keys are others, of which a Scan would say that nothing is open.
    yield TIME_CHECK
    found: list[tuple[Head, OpenUnit]] = []
    after: Attributes | None = None
    while True:
        page: Reply = yield heads.scan(after)
        for row in page.items:
            assert row is not None
            try:
                head = Head.of(row)
                entries = yield from read_entries(heads, head)
            except InvalidUnitRequest as error:
                strange(error)
            else:
                found.append((head, OpenUnit.of(head, page.now, None if entries is None else len(entries))))
        after = page.last_key
        if after is None:
            return [unit for _, unit in sorted(found, key=lambda each: each[0].age)]


def look(heads: Heads, marks: Marks, unit: str) -> ForkingSteps[Shown | None]:
    """A unit, and its items as they stand; None where there is no record of it.

    Raises:
        InvalidUnitRequest: that is no id, or somebody else has written its record.
    """
    _check_id(unit)
    reply: Reply = yield heads.read(unit)
    if reply.item is None:
        return None
    head = Head.of(reply.item)
    entries = yield from read_entries(heads, head)
    looked = None if entries is None else (yield from _look_at(unit, entries, marks))
    return Shown(OpenUnit.of(head, reply.now, None if entries is None else len(entries)), looked)


def settle(heads: Heads, marks: Marks, unit: str) -> ForkingSteps[Settled]:
    """Find out what has become of a unit, and do what a sweep would do about it.

    Raises:
        InvalidUnitRequest: that is no id, or somebody else has written its record.
        TableError: nothing is known of it.
    """
    return (yield from _end(heads, marks, unit, is_forced=False))


def roll_back(heads: Heads, marks: Marks, unit: str) -> ForkingSteps[Settled]:
    """End a unit that is pending, whether or not its lease runs; nothing is done to one that is committed.

    Raises:
        InvalidUnitRequest: that is no id, or somebody else has written its record.
        TableError: nothing is known of it.
    """
    return (yield from _end(heads, marks, unit, is_forced=True))


def _end(heads: Heads, marks: Marks, unit: str, *, is_forced: bool) -> ForkingSteps[Settled]:
    _check_id(unit)
    while True:
        reply: Reply = yield heads.read(unit)
        if reply.item is None:
            return Settled(Outcome.FORGOTTEN)
        head, now = Head.of(reply.item), reply.now
        told = OpenUnit.of(head, now, None)
        if head.is_closed or (is_forced and head.state == "committed"):
            return Settled(told.state, told)
        if head.state == "pending":
            lease_runs = now.earliest_ms <= head.lease_until_ms
            if lease_runs and not is_forced:
                return Settled(Outcome.PENDING, told)
            seen_ms = None if is_forced else head.lease_until_ms
            flipped: Reply = yield heads.roll_back(unit, now.latest_ms, lease_seen_ms=seen_ms)
            if not flipped.applied:
                # It lives, or somebody else has ended it.
                continue
            head = replace(head, state="rolledBack", final_ms=now.latest_ms)
        # Nothing changes its outcome any more, whatever the items say.
        told = OpenUnit.of(head, now, None)
        ended: list[Entry] = []
        try:
            entries = yield from read_entries(heads, head)
            looked = yield from _look_at(unit, entries or (), marks)
            yield from sweep_one(head, now, heads, marks, Swept())
            ended = [each.entry for each in looked if each.standing is Standing.THERE]
        except (TableError, InvalidUnitRequest) as error:
            return Settled(told.state, told, ended, error)
        return Settled(told.state, told, ended)


def _look_at(unit: str, entries: Sequence[Entry], marks: Marks) -> ForkingSteps[list[Looked]]:
    looked: list[Looked] = []
    for _, of_table in groupby(sorted(entries, key=_table), _table):
        for batch in cut(list(of_table), MOST_TOGETHER):
            try:
                reply: Reply = yield GetMany([(entry.table, entry.key) for entry in batch])
            except TableNotFound:
                looked += [Looked(entry, Standing.NO_TABLE) for entry in batch]
            except TableRefused:
                looked += [Looked(entry, Standing.UNKNOWN) for entry in batch]
            else:
                looked += [
                    Looked(entry, _standing(unit, item, marks)) for entry, item in zip(batch, reply.items, strict=True)
                ]
    return looked


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
