"""The front of the queue, as one look finds it; and the whole of it, for whoever inspects."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING

from ticketlock.locks._claim import Claim
from ticketlock.locks._items import MAX_HOLDERS, Holder, LockItem, Row, is_lock_item
from ticketlock.wire._requests import Read, Steps
from ticketlock.wire._table_time import Moment

if TYPE_CHECKING:
    from ticketlock.locks._protocol import Contender

EXPIRY_MARGIN_MS = 1_000
"""How long past its end, by the lower bound of table time, a lease still counts: the service's own servers differ."""

_GONE_AT_ONCE = 10
_PAGE = 100


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

    def ahead_of(self, ticket: int) -> int:
        """How many live rows stand before the looker's ticket; where its row was not seen, no fewer than there are."""
        if self.mine or not self.live:
            return sum(row.ticket < ticket for row in self.live)
        return ticket - self.live[0].ticket

    def turns_before(self, ticket: int) -> int:
        """How many turns come before that of the looker's ticket: those who may enter together count once.

        Where its row was not seen, no fewer than there are.
        """
        if not self.mine:
            return self.ahead_of(ticket)
        kinds = [row.shared for row in self.live if row.ticket < ticket]
        permits = max(1, self.item.permits if self.item is not None else 1)
        alone = kinds.count(False) // permits
        # A run of those who share is one turn, unless it is mine as well.
        runs = sum(shared for shared, _ in groupby(kinds))
        return alone + runs - int(self.claim.shared and bool(kinds) and kinds[-1])

    def may_enter(self, ticket: int, gone: Sequence[Holder]) -> bool:
        """Whether it is the turn of the looker's ticket: there is room, also for all who stand before it."""
        before = [row for row in self.live if row.ticket < ticket]
        if self.item is None or any(row.shared != self.claim.shared for row in before):
            return False
        return len(before) < self.item.room(shared=self.claim.shared, gone=gone)

    def surely_lacks(self, ticket: int) -> bool:
        """Whether the looker's row is not there, as far as the look went."""
        return not self.mine and (self.to_the_end or self.last_ticket_seen >= ticket)


def somebody_lives(queue: Queue) -> bool:
    """Whether a live row was seen."""
    return bool(queue.live or queue.mine)


def the_turn_is_told(queue: Queue) -> bool:
    """Whether enough of the front was seen to tell whether it is the looker's turn."""
    if queue.claim.shared:
        return bool(queue.mine) or any(not row.shared for row in queue.live) or len(queue.live) > MAX_HOLDERS
    permits = queue.item.permits if queue.item is not None else 1
    return len(queue.live) + len(queue.mine) > permits


def look(me: "Contender", until: Callable[[Queue], bool], patience_ms: int | None = None) -> Steps[Queue]:
    """Read the lock item and the queue from its front, until enough was seen or the end."""
    lock = me.claim.lock
    # The lock item and one row more than there are permits: the same few items at any depth.
    request = Read(lock.entity, lock.namespace + "/", limit=me.claim.permits + 2, patience_ms=patience_ms)
    queue = Queue(me.claim)
    while True:
        reply = yield from me.ask(request)
        for found in reply.items:
            if found is None:
                continue
            if is_lock_item(found):
                queue.item = me.understood(found)
            else:
                _sort_in(me, queue, Row.parse(found))
        queue.to_the_end = reply.last_key is None
        if queue.to_the_end or until(queue):
            return queue
        request = replace(request, limit=_PAGE, after=reply.last_key)


def _sort_in(me: "Contender", queue: Queue, row: Row) -> None:
    queue.last_ticket_seen = row.ticket
    item = queue.item
    void = item is None or row.ticket <= item.void_up_to
    if row.owner == me.claim.owner and not void:
        queue.mine.append(row)
    elif void or is_over(row.lease_until_ms, me.now) or (item is not None and item.holder(row.owner) is not None):
        queue.dead.append(row)
    else:
        queue.live.append(row)


def is_over(lease_until_ms: int, now: Moment) -> bool:
    """Whether a lease has surely ended."""
    return lease_until_ms < now.earliest_ms - EXPIRY_MARGIN_MS


def expired(item: LockItem | None, now: Moment) -> Sequence[Holder]:
    """The holders whose leases are over, as many as one grant removes."""
    if item is None:
        return ()
    return [holder for holder in item.holders if is_over(holder.lease_until_ms, now)][:_GONE_AT_ONCE]
