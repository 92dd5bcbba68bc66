"""The front of the queue, as one look finds it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ticketlock.locks._claim import Claim
from ticketlock.locks._items import Holder, LockItem, Row
from ticketlock.locks._modes import turns_before
from ticketlock.locks._outcomes import Place, Position
from ticketlock.wire._table_time import Moment

EXPIRY_MARGIN_MS = 1_000
"""How long past its end, by the lower bound of table time, a lease still counts: the service's own servers differ."""


@dataclass(slots=True)
class Queue:
    """The lock item, and the first rows in ticket order.

    Attributes:
        live: rows of others that stand in the queue.
        mine: the looker's own rows; several after a repeated join.
        dead: void, out of lease, or left behind by a holder.
    """

    claim: Claim
    item: LockItem | None = None
    live: list[Row] = field(default_factory=list)
    mine: list[Row] = field(default_factory=list)
    dead: list[Row] = field(default_factory=list)
    last_ticket_seen: int = -1
    to_the_end: bool = False

    def take_in(self, row: Row, now: Moment) -> None:
        """Sort in the next row of the look."""
        self.last_ticket_seen = row.ticket
        item = self.item
        void = item is None or row.ticket <= item.void_up_to
        if row.owner == self.claim.owner and not void:
            self.mine.append(row)
        elif void or is_over(row.lease_until_ms, now) or (item is not None and item.holder(row.owner) is not None):
            self.dead.append(row)
        else:
            self.live.append(row)

    def ahead_of(self, ticket: int) -> int:
        """How many live rows stand before the looker's ticket; where its row was not seen, no fewer than there are."""
        if self.mine or not self.live:
            return sum(row.ticket < ticket for row in self.live)
        # Numbers before it may be those of waiters that have left; the count has those behind it as well.
        counted = self.item.waiting - 1 if self.item is not None else ticket
        return max(len(self.live), min(ticket - self.live[0].ticket, counted))

    def turns_before(self, ticket: int) -> int:
        """How many turns come before that of the looker's ticket: those who may enter together count once.

        Where its row was not seen, no fewer than there are.
        """
        if not self.mine:
            return self.ahead_of(ticket)
        permits = self.item.permits if self.item is not None else 1
        return turns_before([row.mode for row in self.live if row.ticket < ticket], self.claim.mode, permits)

    def may_enter(self, ticket: int, expired: Sequence[Holder]) -> bool:
        """Whether it is the turn of the looker's ticket: there is room, also for all who stand before it."""
        mode = self.claim.mode
        before = [row for row in self.live if row.ticket < ticket]
        if self.item is None or not all(mode.fits_beside(row.mode) for row in before):
            return False
        return len(before) < self.item.room(mode, without=expired)

    def surely_lacks(self, ticket: int) -> bool:
        """Whether the looker's row is not there, as far as the look went."""
        return not self.mine and (self.to_the_end or self.last_ticket_seen >= ticket)


def somebody_lives(queue: Queue) -> bool:
    """Whether a live row was seen."""
    return bool(queue.live or queue.mine)


def the_turn_is_told(queue: Queue) -> bool:
    """Whether enough of the front was seen to tell whether it is the looker's turn."""
    permits = queue.item.permits if queue.item is not None else 1
    return queue.claim.mode.turn_is_told([row.mode for row in queue.live], len(queue.mine), permits)


def is_over(lease_until_ms: int, now: Moment) -> bool:
    """Whether a lease has surely ended."""
    return lease_until_ms < now.earliest_ms - EXPIRY_MARGIN_MS


def expired_holders(item: LockItem | None, now: Moment) -> Sequence[Holder]:
    """The holders whose leases are over.

    All of them: a grant that removed some would find no room as long as others are left, and wait for ever. A hundred,
    the most that a lock has, fit the bounds of an expression: 4 KB and 300 operators
    (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html).
    """
    if item is None:
        return ()
    return [holder for holder in item.holders if is_over(holder.lease_until_ms, now)]


def position_of(
    item: LockItem | None, place: Place, now: Moment, ahead: int, turns: int | None = None, *, is_next: bool = False
) -> Position:
    """What a look at the item, and so many places and turns ahead, says; as many turns as places by default."""
    holders = item.holders if item is not None else ()
    mean_hold_ms = item.mean_hold_ms if item is not None else None
    # After a mean hold, as far as one is known; when its lease ends at the latest.
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
