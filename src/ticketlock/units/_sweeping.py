"""What nobody has met: units that were left pending, committed and not finished, or rolled back."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ticketlock.errors import InvalidUnitRequest, TableError, TableNotFound
from ticketlock.units._batches import cut
from ticketlock.units._finishing import close, finish, unmark
from ticketlock.units._heads import Head, Heads
from ticketlock.units._marks import Marks
from ticketlock.units._meeting import read_entries
from ticketlock.units._packing import Entry
from ticketlock.wire._answers import Reply
from ticketlock.wire._attributes import Item
from ticketlock.wire._item_requests import MOST_TOGETHER, GetMany
from ticketlock.wire._requests import ForkingSteps, Request, Together
from ticketlock.wire._table_time import Moment

_log = logging.getLogger("ticketlock")

COPIES_COME_WITHIN_MS = 600_000
"""Twice as long as AWS takes a signature for good: after that no copy of a mark arrives."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep has done.

    Attributes:
        rolled_back: units whose lease was over.
        finished: items that got their new value, or lost a mark.
        closed: units whose record may be forgotten.
        open: units that are to be looked at again: pending, or ended not long ago.
    """

    rolled_back: int = 0
    finished: int = 0
    closed: int = 0
    open: int = 0


def sweep(heads: Heads, marks: Marks) -> ForkingSteps[Swept]:
    """End and finish what was left, and close what is finished; may be repeated, and run beside itself."""
    swept, after = Swept(), None
    while True:
        page: Reply = yield heads.scan(after)
        for row in page.items:
            if row is not None:
                try:
                    swept = yield from _sweep_one(Head.of(row), page.now, heads, marks, swept)
                except (TableError, InvalidUnitRequest) as error:
                    # The latter of an item or a row in which somebody else has written what is ours.
                    swept = replace(swept, open=swept.open + 1)
                    _log.warning("the unit %s is left to the next sweep: %s", row["unit"]["S"], error)
        after = page.last_key
        if after is None:
            return swept


def _sweep_one(seen: Head, now: Moment, heads: Heads, marks: Marks, swept: Swept) -> ForkingSteps[Swept]:
    head = seen
    if head.is_closed:
        # Whoever closed it has left the rest to others.
        yield from close(heads, head, now.latest_ms)
        return replace(swept, closed=swept.closed + 1)
    if head.state == "pending":
        if now.earliest_ms <= head.lease_until_ms:
            return replace(swept, open=swept.open + 1)
        reply: Reply = yield heads.roll_back(head.unit, now.latest_ms, lease_seen_ms=head.lease_until_ms)
        if not reply.applied:
            # It lives, or somebody else has ended it.
            return replace(swept, open=swept.open + 1)
        head = replace(head, state="rolledBack", final_ms=now.latest_ms)
        swept = replace(swept, rolled_back=swept.rolled_back + 1)
    entries = yield from read_entries(heads, head)
    # Without its rows it has marked nothing: they are there before the first mark.
    count = yield from _finish(head, entries or (), marks)
    swept = replace(swept, finished=swept.finished + count)
    if now.earliest_ms < head.final_ms + COPIES_COME_WITHIN_MS:
        return replace(swept, open=swept.open + 1)
    yield from close(heads, head, now.latest_ms)
    return replace(swept, closed=swept.closed + 1)


def _finish(head: Head, entries: Sequence[Entry], marks: Marks) -> ForkingSteps[int]:
    """Look at every item of a unit that has ended; how many had its mark."""
    count = 0
    for table, of_table in groupby(sorted(entries, key=_table), _table):
        try:
            count += yield from _finish_in(list(of_table), head, marks)
        except TableNotFound:
            # Its items are gone, and the marks in them.
            _log.warning("the table %s of the unit %s is not there any more", table, head.unit)
    return count


def _table(entry: Entry) -> str:
    return entry.table


def _finish_in(entries: Sequence[Entry], head: Head, marks: Marks) -> ForkingSteps[int]:
    """The same of one table's."""
    count = 0
    for batch in cut(entries, MOST_TOGETHER):
        reply: Reply = yield GetMany([(entry.table, entry.key) for entry in batch])
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
