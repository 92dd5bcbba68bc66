"""Reads for operators: one lock with its queue, or all locks of a table."""

from dataclasses import dataclass, replace

from ticketlock.locks import _reads as reads
from ticketlock.locks._items import LockItem, Row, is_lock_item
from ticketlock.locks._names import LockName
from ticketlock.locks._outcomes import LockState
from ticketlock.locks._queue import is_over
from ticketlock.wire._attributes import Item, integer
from ticketlock.wire._requests import Attributes, Steps
from ticketlock.wire._table_time import Moment


@dataclass(frozen=True, slots=True)
class LockSummary:
    """One lock, as a list shows it.

    Attributes:
        lock: its name.
        permits: how many may hold it at once.
        held: how many hold it, or crashed while they held it and have not been replaced yet.
        held_shared: how many of them share it.
        waiting: the count of its waiters.
        fencing_token: that of the last grant.
        mean_hold_ms: how long recent holders held it; None before the first release.
        permits_are_set: whether an operator has set the limit.
    """

    lock: LockName
    permits: int
    held: int
    held_shared: int
    waiting: int
    fencing_token: int
    mean_hold_ms: int | None
    permits_are_set: bool

    @classmethod
    def parse(cls, item: Item) -> "LockSummary":
        """Read a lock item with the attributes of a list."""
        return cls(
            lock=LockName(item["pk"]["S"], item["sk"]["S"].removesuffix("/")),
            permits=integer(item["permits"]),
            held=integer(item["held"]),
            held_shared=integer(item["heldShared"]),
            waiting=integer(item["waiting"]),
            fencing_token=integer(item["fencingToken"]),
            mean_hold_ms=integer(item["meanHoldMs"]) if "meanHoldMs" in item else None,
            permits_are_set="permitsKeptUntil" in item,
        )


def list_page(after: Attributes | None, _now: Moment) -> Steps[tuple[list[LockSummary], Attributes | None]]:
    """One page of the locks of a table, and the key after which the next page begins; None at the end."""
    reply = yield reads.list_page(after)
    return [LockSummary.parse(item) for item in reply.items if item is not None], reply.last_key


def inspect(lock: LockName, now: Moment, *, to_the_end: bool = True) -> Steps[LockState]:
    """Read one lock, its holders and its queue: the whole queue, or up to the first waiter that has not expired."""
    request = reads.read_whole(lock) if to_the_end else reads.read_first(lock)
    item: LockItem | None = None
    rows: list[Row] = []
    while True:
        reply = yield request
        now = reply.now
        for found in reply.items:
            if found is None:
                continue
            if is_lock_item(found):
                item = LockItem.parse(found)
            else:
                rows.append(Row.parse(found))
        state = LockState(item, tuple(rows), now)
        if reply.last_key is None or (not to_the_end and first_in_line(state) is not None):
            return state
        request = replace(request, limit=None, after=reply.last_key)


def first_in_line(state: LockState) -> Row | None:
    """The first waiter that has not expired, of those that were read."""
    item = state.item
    if item is None:
        return None
    live = (row for row in state.rows if row.ticket > item.void_up_to and not is_over(row.lease_until_ms, state.now))
    return next(live, None)
