"""What nobody has met: units that were left pending, committed and not finished, or rolled back."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ticketlock.errors import InvalidUnitRequest, TableError, TableNotFound
from ticketlock.units._batches import cut
from ticketlock.units._finishing import close, finish, unmark
from ticketlock.units._heads import Head, Heads
from ticketlock.units._marks import Marks
from ticketlock.units._meeting import read_committed, read_entries
from ticketlock.units._packing import Entry
from ticketlock.units._places import PlaceOfPart
from ticketlock.units._rows import KEY
from ticketlock.wire._answers import Reply
from ticketlock.wire._attributes import Item
from ticketlock.wire._item_requests import MOST_TOGETHER, GetMany
from ticketlock.wire._requests import ForkingSteps, Pause, Request, Together
from ticketlock.wire._table_time import Moment

_log = logging.getLogger("ticketlock")

COPIES_COME_WITHIN_MS = 600_000
"""Twice as long as AWS takes a signature for good: after that no copy of a mark arrives."""


MOST_PARTS = 32
"""That are swept at once: as many requests as one call of ours has under way."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep has done.

    Attributes:
        rolled_back: units whose lease was over.
        finished: items that got their new value, or lost a mark.
        closed: units whose record may be forgotten.
        open: units that are to be looked at again: pending, or ended not long ago.
        unfinished: those of them that were committed, and have an item that could not be finished.
        oldest_ms: how long ago the oldest of them was begun that is pending or could not be finished; 0 for none.
            Saved units do not count.
        is_whole: whether it came to the end of the table; the next one with a time-out goes on otherwise.
    """

    rolled_back: int = 0
    finished: int = 0
    closed: int = 0
    open: int = 0
    unfinished: int = 0
    oldest_ms: int = 0
    is_whole: bool = True

    def __add__(self, other: "Swept") -> "Swept":
        return Swept(
            self.rolled_back + other.rolled_back,
            self.finished + other.finished,
            self.closed + other.closed,
            self.open + other.open,
            self.unfinished + other.unfinished,
            max(self.oldest_ms, other.oldest_ms),
            self.is_whole and other.is_whole,
        )


class _OutOfTime(Exception):
    """Of a unit with many items: it is left to the next sweep, half looked at."""

    def __str__(self) -> str:
        return "the time is over"


def sweep(heads: Heads, marks: Marks, *, parts: int = 1, until_ms: int | None = None) -> ForkingSteps[Swept]:
    """End and finish what was left, and close what is finished; may be repeated, and run beside itself.

    Args:
        heads: the records of units.
        marks: the names of our attributes.
        parts: how many parts of the table are swept at once.
        until_ms: when to stop, by the local clock; the next sweep with an end and as many parts goes on there. None:
            at the end of the table.
    """
    if parts == 1:
        return (yield from _sweep_part(heads, marks, (0, 1), until_ms))
    swept, failed = Swept(), None
    for part in (yield Together(tuple(_sweep_part(heads, marks, (at, parts), until_ms) for at in range(parts)))):
        if isinstance(part, TableError):
            failed = failed or part
        else:
            swept += part
    if failed is not None:
        raise failed
    return swept


def _sweep_part(heads: Heads, marks: Marks, part: tuple[int, int], until_ms: int | None) -> ForkingSteps[Swept]:
    swept, after, place, is_kept = Swept(), None, PlaceOfPart(heads.table, part), False
    last_ms = math.inf if until_ms is None else until_ms
    if until_ms is not None:
        kept: Reply = yield place.read()
        after, is_kept = place.after(kept.item), kept.item is not None
    while True:
        page: Reply = yield heads.scan(after, part)
        now = page.now
        for row in page.items:
            if until_ms is not None:
                # Those before may have taken long.
                now = (yield Pause(0)).now
            if now.local_ms > last_ms:
                break
            assert row is not None
            swept = yield from _sweep_row(row, now, heads, marks, swept, last_ms)
            after = {name: row[name] for name in KEY}
        else:
            after = page.last_key
            if after is None:
                if is_kept:
                    yield place.forget()
                return swept
        if until_ms is not None and after is not None:
            # After each page: whoever is killed has not done it for nothing.
            yield place.keep(after, now.latest_ms)
            is_kept = True
        if now.local_ms > last_ms:
            return replace(swept, is_whole=False)


def _sweep_row(row: Item, now: Moment, heads: Heads, marks: Marks, swept: Swept, last_ms: float) -> ForkingSteps[Swept]:
    head = None
    try:
        head = Head.of(row)
        done: Swept = yield from sweep_one(head, now, heads, marks, swept, last_ms)
    except (TableError, InvalidUnitRequest, _OutOfTime) as error:
        # The second of an item or a row in which somebody else has written what is ours.
        _log.warning("the unit %s is left to the next sweep: %s", row["unit"]["S"], error)
        if head is None:
            return replace(swept, open=swept.open + 1)
        swept = replace(swept, unfinished=swept.unfinished + (head.state == "committed"))
        return _left_open(swept, head, now)
    return done


def _left_open(swept: Swept, head: Head, now: Moment) -> Swept:
    """With one more that is pending, or could not be finished."""
    return replace(swept, open=swept.open + 1, oldest_ms=max(swept.oldest_ms, now.likely_ms - head.born_ms))


def sweep_one(
    seen: Head, now: Moment, heads: Heads, marks: Marks, swept: Swept, last_ms: float = math.inf
) -> ForkingSteps[Swept]:
    """Do the same for one unit: what was done is added to what was swept before."""
    head = seen
    if head.is_closed:
        # Whoever closed it has left the rest to others.
        yield from close(heads, head, now.latest_ms)
        return replace(swept, closed=swept.closed + 1)
    if head.state == "pending":
        if now.earliest_ms <= head.lease_until_ms:
            # A saved one may be as old as it likes: nobody waits for it.
            return replace(swept, open=swept.open + 1) if head.is_saved else _left_open(swept, head, now)
        reply: Reply = yield heads.roll_back(head.unit, now.latest_ms, lease_seen_ms=head.lease_until_ms)
        if not reply.applied:
            # It lives, or somebody else has ended it.
            return _left_open(swept, head, now)
        head = replace(head, state="rolledBack", final_ms=now.latest_ms)
        swept = replace(swept, rolled_back=swept.rolled_back + 1)
    # One that was rolled back without its rows has marked nothing: they are there before the first mark.
    read = read_committed if head.state == "committed" else read_entries
    entries = yield from read(heads, head)
    count = yield from _finish(head, entries or (), marks, last_ms)
    swept = replace(swept, finished=swept.finished + count)
    if now.earliest_ms < head.final_ms + COPIES_COME_WITHIN_MS:
        return replace(swept, open=swept.open + 1)
    yield from close(heads, head, now.latest_ms)
    return replace(swept, closed=swept.closed + 1)


def _finish(head: Head, entries: Sequence[Entry], marks: Marks, last_ms: float) -> ForkingSteps[int]:
    """Look at every item of a unit that has ended; how many had its mark."""
    count = 0
    for table, of_table in groupby(sorted(entries, key=_table), _table):
        try:
            count += yield from _finish_in(list(of_table), head, marks, last_ms)
        except TableNotFound:
            # Its items are gone, and the marks in them.
            _log.warning("the table %s of the unit %s is not there any more", table, head.unit)
    return count


def _table(entry: Entry) -> str:
    return entry.table


def _finish_in(entries: Sequence[Entry], head: Head, marks: Marks, last_ms: float) -> ForkingSteps[int]:
    """The same of one table's."""
    count = 0
    for batch in cut(entries, MOST_TOGETHER):
        reply: Reply = yield GetMany([(entry.table, entry.key) for entry in batch])
        if reply.now.local_ms > last_ms:
            raise _OutOfTime
        left = [
            _ended(head, entry, item, marks)
            for entry, item in zip(batch, reply.items, strict=True)
            if item is not None and (mark := marks.mark_of(item)) is not None and mark.unit == head.unit
        ]
        yield from _all(left)
        count += len(left)
    return count


def _ended(head: Head, entry: Entry, item: Item, marks: Marks) -> Request:
    if head.state == "committed":
        return finish(entry, head.unit, marks)
    mark = marks.mark_of(item)
    assert mark is not None
    return unmark(entry.table, entry.key, entry.key_name, mark, marks)


def _all(requests: Sequence[Request]) -> ForkingSteps[None]:
    if not requests:
        return
    for reply in (yield Together(tuple(requests))):
        if isinstance(reply, TableError):
            raise reply
