"""The front of the queue, as one poll finds it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ticketlock.locks._items import Holder, LockItem, Row
from ticketlock.locks._modes import turns_before
from ticketlock.locks._outcomes import Claim, Place, Position
from ticketlock.wire import Moment

EXPIRY_MARGIN_MS = 1_000
"""A lease counts as expired this long after its end by the lower bound of table time: the service's clocks differ."""


@dataclass(slots=True)
class Queue:
    """The lock item, and the first rows in ticket order.

    Attributes:
        live: other waiters' rows that count.
        mine: the reader's own rows; several after a retried join.
        stale: rows that do not count: void, expired, or of an owner that holds the lock already.
    """

    claim: Claim
    item: LockItem | None = None
    live: list[Row] = field(default_factory=list)
    mine: list[Row] = field(default_factory=list)
    stale: list[Row] = field(default_factory=list)
    last_ticket_seen: int = -1
    to_the_end: bool = False

    def take_in(self, row: Row, now: Moment) -> None:
        """Classify the next row of the poll."""
        self.last_ticket_seen = row.ticket
        item = self.item
        void = item is None or row.ticket <= item.void_up_to
        if row.owner == self.claim.owner and not void:
            self.mine.append(row)
        elif void or is_over(row.lease_until_ms, now) or self._is_of_a_holder(row):
            self.stale.append(row)
        else:
            self.live.append(row)

    def _is_of_a_holder(self, row: Row) -> bool:
        # A later page may have a row that is newer than the lock item: its owner may have lost that grant and joined
        # the queue again.
        item = self.item
        return item is not None and row.ticket <= item.issued and item.holder(row.owner) is not None

    def ahead_of(self, ticket: int) -> int:
        """How many live rows are before the reader's ticket; an upper bound if its row was not read."""
        if self.mine or not self.live:
            return sum(row.ticket < ticket for row in self.live)
        # Tickets before it may be those of waiters that have left; `waiting` also counts those behind it.
        counted = self.item.waiting - 1 if self.item is not None else ticket
        return max(len(self.live), min(ticket - self.live[0].ticket, counted))

    def turns_before(self, ticket: int) -> int:
        """How many turns come before the reader's: waiters that may hold the lock together count once.

        An upper bound if the reader's row was not read.
        """
        if not self.mine:
            return self.ahead_of(ticket)
        permits = self.item.permits if self.item is not None else 1
        return turns_before([row.mode for row in self.live if row.ticket < ticket], self.claim.mode, permits)

    def may_enter(self, ticket: int, expired: Sequence[Holder]) -> bool:
        """Whether it is the reader's turn: there is room for it and for all waiters before it."""
        mode = self.claim.mode
        before = [row for row in self.live if row.ticket < ticket]
        if self.item is None or not all(mode.fits_beside(row.mode) for row in before):
            return False
        return len(before) < self.item.room(mode, without=expired)

    def surely_lacks(self, ticket: int) -> bool:
        """Whether the reader's row is missing: the poll went past its ticket, or to the end, without finding it."""
        return not self.mine and (self.to_the_end or self.last_ticket_seen >= ticket)


def has_a_live_row(queue: Queue) -> bool:
    """Whether a live row was read."""
    return bool(queue.live or queue.mine)


def the_turn_is_known(queue: Queue) -> bool:
    """Whether enough of the front was read to decide whether it is the reader's turn."""
    permits = queue.item.permits if queue.item is not None else 1
    return queue.claim.mode.turn_is_known([row.mode for row in queue.live], len(queue.mine), permits)


def is_over(lease_until_ms: int, now: Moment) -> bool:
    """Whether a lease has certainly ended."""
    return lease_until_ms < now.earliest_ms - EXPIRY_MARGIN_MS


def expired_holders(item: LockItem | None, now: Moment) -> Sequence[Holder]:
    """The holders whose leases have expired.

    A grant removes all of them: if it removed some, the others could leave no room, and it would wait for ever. The
    100 holders that a lock has at most fit the limits of an expression: 4 KB and 300 operators
    (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html).
    """
    if item is None:
        return ()
    return [holder for holder in item.holders if is_over(holder.lease_until_ms, now)]


def position_of(
    item: LockItem | None, place: Place, now: Moment, ahead: int, turns: int | None = None, *, is_next: bool = False
) -> Position:
    """The position for what a poll has read; ``turns`` is ``ahead`` unless it is given."""
    holders = item.holders if item is not None else ()
    mean_hold_ms = item.mean_hold_ms if item is not None else None
    # A holder leaves after the mean hold if it is known, at the latest when its lease ends.
    leaving = (
        min(holder.since_ms + (mean_hold_ms or 0), holder.lease_until_ms + EXPIRY_MARGIN_MS) for holder in holders
    )
    return Position(
        place=place,
        ahead=ahead,
        next_free_ms=min(leaving, default=None),
        mean_hold_ms=mean_hold_ms,
        holders=holders,
        now=now,
        lease_over_ms=min((holder.lease_until_ms for holder in holders), default=None),
        turns=ahead if turns is None else turns,
        fencing_token=item.fencing_token if item is not None else None,
        permits=item.permits if item is not None else None,
        is_next=is_next,
    )
