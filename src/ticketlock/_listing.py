"""The locks of a table, read by a Scan of what a list may show."""

from dataclasses import dataclass

from ticketlock._items import Item, integer
from ticketlock._names import LockName
from ticketlock._requests import Scan, Steps

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
