"""The locks of a table, read by a Scan of what a list may show."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ticketlock.locks._items import LockItem, Row, is_lock_item, lock_key
from ticketlock.locks._names import LockName
from ticketlock.locks._outcomes import LockState
from ticketlock.wire._requests import Read, Steps
from ticketlock.wire._table_time import Moment

if TYPE_CHECKING:
    pass


from ticketlock.wire._attributes import Item, integer
from ticketlock.wire._requests import Scan

# What `TicketLock.grant_read` lets a list read: no task tokens, and no holders, whose names nobody can tell beforehand.
LISTED = (
    "pk",
    "sk",
    "fencingToken",
    "held",
    "heldShared",
    "issued",
    "meanHoldMs",
    "permits",
    "permitsKeptUntil",
    "waiting",
)


@dataclass(frozen=True, slots=True)
class LockSummary:
    """One lock, as a list shows it.

    Attributes:
        lock: its name.
        permits: how many may hold it at once.
        held: how many hold it, or held it last and died.
        held_shared: how many of them share it.
        waiting: how many are counted in its queue.
        fencing_token: of the last grant.
        mean_hold_ms: how long recent holders kept it; None before the first release.
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
        """Read what a list has of a lock item."""
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


def list_page(request: Scan) -> Steps[tuple[list[LockSummary], Scan | None]]:
    """One page of the list, and where to go on."""
    reply = yield request
    locks = [LockSummary.parse(item) for item in reply.items if item is not None]
    return locks, Scan(LISTED, after=reply.last_key) if reply.last_key is not None else None


def inspect(lock: LockName, now: Moment) -> Steps[LockState]:
    """Read one lock, its holders and its whole queue."""
    request = Read(lock_key(lock)["pk"]["S"], lock.namespace + "/", limit=None)
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
        if reply.last_key is None:
            return LockState(item, tuple(rows), now)
        request = replace(request, after=reply.last_key)
