"""Sweeps units that no other process has met: left pending, committed and not finished, or rolled back."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ticketlock._checks import whole_number
from ticketlock.errors import (
    CommittedUnfinished,
    InvalidUnitRequest,
    TableError,
    TableNotFound,
    TableRefused,
    UnsupportedFormat,
)
from ticketlock.units._records import (
    FORMAT_NAMES,
    FORMAT_VALUES,
    OPEN_KEY,
    Entry,
    Marked,
    Marks,
    Record,
    RedoLog,
    UnitRecord,
    UnitRecords,
    by_table,
    check_row,
    close,
    decide,
    finish,
    is_for_contents,
    is_open,
    not_finished,
    row_key,
    unmark,
)
from ticketlock.units._records import _conditions as only_if
from ticketlock.units._statements import chunks
from ticketlock.wire import (
    MOST_TOGETHER,
    TIME_TO_LIVE,
    ForkingSteps,
    Get,
    GetMany,
    Item,
    Moment,
    Pause,
    Reply,
    Request,
    Together,
    Write,
    number,
)

SWEEP = "sweep"
"""Used in place of a unit's id; no id of a unit has this form."""

_IS_KEPT_S = 24 * 3_600
_IS_OLD_MS = 60_000
_NAMES = {"#after": "after", "#ttl": TIME_TO_LIVE} | FORMAT_NAMES

_log = logging.getLogger("ticketlock")

COPIES_COME_WITHIN_MS = 600_000
"""Twice as long as AWS accepts a signature: afterwards no copy of a mark can arrive."""

MOST_PARTS = 32
"""Parts that are swept at once: as many as a client sends requests at a time."""

MOST_READ_UNITS_PER_S = 1_000_000


class SweepPosition:
    """The requests about how far one part was swept.

    The row is a hint: if a sweep reads an old one, it sweeps some units twice, or leaves some to the next sweep.

    Args:
        part: its number, from 0 on, and how many parts there are.
    """

    def __init__(self, table: str, part: tuple[int, int]) -> None:
        self._table = table
        self._key = row_key(SWEEP, "part#{}of{}".format(*part))

    def read(self) -> Get:
        return Get(self._table, self._key)

    def after(self, row: Item | None) -> Item | None:
        """The place in the index to continue after; None for the beginning, also if another format wrote it."""
        if row is None:
            return None
        try:
            check_row(row)
        except (UnsupportedFormat, InvalidUnitRequest) as error:
            _log.warning("this sweep begins at the beginning: %s", error)
            return None
        found: Any = row.get("after", {}).get("M", {})
        is_ours = set(found) == set(OPEN_KEY) and all(set(value) == {"S"} for value in found.values())
        return found if is_ours else None

    def keep(self, after: Item, now_ms: int) -> Write:
        values: Item = {**FORMAT_VALUES, ":after": {"M": after}, ":until": number(now_ms // 1_000 + _IS_KEPT_S)}
        update = "SET #format = :format, #after = :after, #ttl = :until"
        return Write("Update", self._key, only_if.ANYHOW, update=update, names=_NAMES, values=values, table=self._table)

    def forget(self) -> Write:
        return Write("Delete", self._key, only_if.ANYHOW, table=self._table)


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep has done.

    Attributes:
        rolled_back: units whose lease had ended.
        finished: items that got their new value, or from which a mark was removed.
        closed: units whose record is no longer needed.
        open: units that the next sweep checks again: pending, or ended recently.
        unfinished: those of them that were committed, and have an item that could not be finished.
        refused: items of those that DynamoDB refuses to write: an operator has to correct them.
        oldest_ms: the age of the oldest unit that is pending or could not be finished; 0 if there is none. Saved units
            do not count.
        is_whole: whether the sweep came to the end of the index; otherwise the next one with a time-out continues
            there.
    """

    rolled_back: int = 0
    finished: int = 0
    closed: int = 0
    open: int = 0
    unfinished: int = 0
    oldest_ms: int = 0
    is_whole: bool = True
    refused: int = 0

    def __add__(self, other: "Swept") -> "Swept":
        return Swept(
            self.rolled_back + other.rolled_back,
            self.finished + other.finished,
            self.closed + other.closed,
            self.open + other.open,
            self.unfinished + other.unfinished,
            max(self.oldest_ms, other.oldest_ms),
            self.is_whole and other.is_whole,
            self.refused + other.refused,
        )


class _OutOfTime(Exception):
    """A unit with many items ran out of time: it is left to the next sweep."""

    def __str__(self) -> str:
        return "the sweep's time is over"


@dataclass(slots=True)
class _PartLimits:
    """The time of one part, and how fast it reads.

    With too little time one unit is swept, or some of its items are finished. Otherwise sweeps whose time ends while
    they read would never come any further.

    Attributes:
        last_ms: when it ends, by the local clock.
        units_per_s: how many read units it consumes in a second.
        has_advanced: whether a unit was swept, or items were finished.
        free_from_ms: when what it has read is paid off, by the local clock.
    """

    last_ms: float = math.inf
    units_per_s: float = math.inf
    has_advanced: bool = False
    free_from_ms: float = -math.inf

    def is_over(self, now: Moment) -> bool:
        return self.has_advanced and now.local_ms > self.last_ms

    def pace(self, reply: Reply) -> ForkingSteps[Moment]:
        """Wait as long as a read's units take at this speed."""
        now = reply.now
        self.free_from_ms = max(self.free_from_ms, now.local_ms) + 1_000 * reply.units / self.units_per_s
        # Not beyond the end: a process has little time left then.
        pause_ms = math.floor(min(self.free_from_ms, self.last_ms + 1) - now.local_ms)
        return now if pause_ms < 1 else (yield Pause(pause_ms)).now


def sweep(
    records: UnitRecords, *, parts: int = 1, until_ms: int | None = None, read_units_per_s: int | None = None
) -> ForkingSteps[Swept]:
    """End and finish the units that were left, and close those that are finished. Safe to repeat, and in parallel.

    Args:
        until_ms: when to stop, by the local clock, but for a first unit; the next sweep that has an end and as many
            parts continues there. None: at the end of the index.
        read_units_per_s: at most about so many, all parts together; None for no bound.
    """
    whole_number("parts", parts, 1, MOST_PARTS, InvalidUnitRequest)
    if read_units_per_s is not None:
        whole_number("read_units_per_s", read_units_per_s, 1, MOST_READ_UNITS_PER_S, InvalidUnitRequest)
    of_part = math.inf if read_units_per_s is None else read_units_per_s / parts

    def part(at: int) -> ForkingSteps[Swept]:
        return _sweep_part(records, (at, parts), until_ms, of_part)

    if parts == 1:
        return (yield from part(0))
    swept, failed = Swept(), None
    for done in (yield Together(tuple(map(part, range(parts))))):
        if isinstance(done, TableError):
            failed = failed or done
        else:
            swept += done
    if failed is not None:
        raise failed
    return swept


def _sweep_part(
    records: UnitRecords, part: tuple[int, int], until_ms: int | None, units_per_s: float
) -> ForkingSteps[Swept]:
    swept, after, place, is_kept = Swept(), None, SweepPosition(records.table, part), False
    limits = _PartLimits(math.inf if until_ms is None else until_ms, units_per_s)
    if until_ms is not None:
        kept: Reply = yield place.read()
        after, is_kept = place.after(kept.item), kept.item is not None
    while True:
        page = yield from records.list_open(after, part)
        now = yield from limits.pace(page)
        rows: Sequence[Item | None] = ()
        if page.items:
            heads: Reply = yield records.read_open(page)
            now, rows = (yield from limits.pace(heads)), heads.items
        for entry, row in zip(page.items, rows, strict=True):
            if until_ms is not None:
                # The units before it may have taken long.
                now = (yield Pause(0)).now
            if limits.is_over(now):
                break
            assert entry is not None
            # Otherwise the index was behind.
            if is_open(row):
                assert row is not None
                swept = yield from _sweep_row(row, now, records, swept, limits)
                limits.has_advanced = True
            after = {name: entry[name] for name in OPEN_KEY}
        else:
            after = page.last_key
            if after is None:
                if is_kept:
                    yield place.forget()
                return swept
        if until_ms is not None and after is not None:
            # After each page, so that a process that is killed has not swept in vain.
            yield place.keep(after, now.latest_ms)
            is_kept = True
        if now.local_ms > limits.last_ms:
            return replace(swept, is_whole=False)


def _sweep_row(row: Item, now: Moment, records: UnitRecords, swept: Swept, limits: _PartLimits) -> ForkingSteps[Swept]:
    head = None
    try:
        head = UnitRecord.of(row)
        done: Swept = yield from sweep_one(head, now, records, swept, limits)
    except (CommittedUnfinished, TableError, InvalidUnitRequest, UnsupportedFormat, _OutOfTime) as error:
        # InvalidUnitRequest: an item or a row has attributes of ours that no unit has written.
        _log.warning("the unit %s is left to the next sweep: %s", row["unit"]["S"], error)
        if head is None:
            return replace(swept, open=swept.open + 1)
        refused = len(error.keys) if isinstance(error, CommittedUnfinished) else 0
        is_committed = head.state == "committed"
        swept = replace(swept, unfinished=swept.unfinished + is_committed, refused=swept.refused + refused)
        return _left_open(swept, head, now)
    return done


def _left_open(swept: Swept, head: UnitRecord, now: Moment) -> Swept:
    """Count one more unit that is pending, or could not be finished."""
    age_ms = now.likely_ms - head.born_ms
    if age_ms > _IS_OLD_MS:
        _log.info("the unit %s, %s, is still open, begun %d s ago", head.unit, head.state, age_ms // 1_000)
    return replace(swept, open=swept.open + 1, oldest_ms=max(swept.oldest_ms, age_ms))


def sweep_one(
    seen: UnitRecord, now: Moment, records: UnitRecords, swept: Swept, limits: _PartLimits | None = None
) -> ForkingSteps[Swept]:
    head, says = seen, decide(seen, now)
    if says is Record.CLOSED:
        # The process that closed it has not deleted all of its rows.
        yield from close(records, head, now.latest_ms)
        return replace(swept, closed=swept.closed + 1)
    if says is Record.PENDING:
        # A saved unit may be of any age: no process waits for it.
        return replace(swept, open=swept.open + 1) if head.is_saved else _left_open(swept, head, now)
    if says is Record.LEASE_OVER:
        reply: Reply = yield records.roll_back_expired(head, now)
        if not reply.applied:
            # Its lease was renewed, or another process has ended it.
            return _left_open(swept, head, now)
        head = replace(head, state="rolledBack", final_ms=now.latest_ms)
        swept = replace(swept, rolled_back=swept.rolled_back + 1)
    # If it was rolled back and has no rows, it has marked nothing: the rows are written before the first mark.
    count = yield from _finish(records, head, limits or _PartLimits())
    swept = replace(swept, finished=swept.finished + count)
    if now.earliest_ms < head.final_ms + COPIES_COME_WITHIN_MS:
        return replace(swept, open=swept.open + 1)
    yield from close(records, head, now.latest_ms)
    return replace(swept, closed=swept.closed + 1)


def _finish(records: UnitRecords, head: UnitRecord, limits: _PartLimits) -> ForkingSteps[int]:
    """Finish every item of a unit that has ended, piece by piece. Returns how many had its mark."""
    log, marks = RedoLog(records, head, pace=limits.pace), Marks.of(head)
    count, refused = 0, list[tuple[Entry, TableRefused]]()
    while entries := (yield from log.next()):
        for table, of_table in by_table(entries):
            try:
                count += yield from _finish_in(of_table, head, marks, limits, refused)
            except TableNotFound:
                # Its items are gone, and the marks in them.
                _log.warning("the table %s of the unit %s no longer exists", table, head.unit)
    if log.is_gone and head.state == "committed":
        yield from log.check_closed()
    if refused:
        raise not_finished(head.unit, refused)
    return count


def _finish_in(
    entries: Sequence[Entry],
    head: UnitRecord,
    marks: Marks,
    limits: _PartLimits,
    refused: list[tuple[Entry, TableRefused]],
) -> ForkingSteps[int]:
    """Finish the items of one table; add to ``refused`` those of a committed unit that DynamoDB refuses."""
    count = 0
    for batch in chunks(entries, MOST_TOGETHER):
        reply: Reply = yield GetMany([(entry.table, entry.key) for entry in batch], asks_units=True)
        if limits.is_over((yield from limits.pace(reply))):
            raise _OutOfTime
        left = [
            (entry, _ended(head, entry, item, marks))
            for entry, item in zip(batch, reply.items, strict=True)
            if item is not None and (mark := marks.mark_of(item)) is not None and mark.unit == head.unit
        ]
        not_taken = yield from _all(left)
        if not_taken and head.state != "committed":
            raise not_taken[0][1]
        refused += not_taken
        count += len(left) - len(not_taken)
        limits.has_advanced |= len(left) > len(not_taken)
    return count


def _ended(head: UnitRecord, entry: Entry, item: Item, marks: Marks) -> Request:
    if head.state == "committed":
        return finish(entry, head.unit, marks)
    mark = marks.mark_of(item)
    assert mark is not None
    return unmark(Marked(entry.table, entry.key, entry.key_name, mark), marks)


def _all(ends: Sequence[tuple[Entry, Request]]) -> ForkingSteps[list[tuple[Entry, TableRefused]]]:
    """Send the writes that end items. Returns what was refused; raises if one of them could not be sent."""
    refused = list[tuple[Entry, TableRefused]]()
    if not ends:
        return refused
    replies = yield Together(tuple(request for _, request in ends))
    for (entry, _), reply in zip(ends, replies, strict=True):
        if is_for_contents(reply):
            refused.append((entry, reply))
        elif isinstance(reply, TableError):
            raise reply
    return refused
