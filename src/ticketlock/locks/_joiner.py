"""Joining the queue: mint a ticket, then write its row."""

from dataclasses import replace

from ticketlock.errors import OutcomeUnknown, RequestNotApplied
from ticketlock.locks import _writes as write
from ticketlock.locks._items import LockItem, Row
from ticketlock.locks._outcomes import Place
from ticketlock.locks._queue_reader import QueueReader
from ticketlock.wire._attributes import Item, integer
from ticketlock.wire._requests import Pause, Steps

_MOST_COME_FIRST = 100


class Joiner(QueueReader):
    """A contender that can join the queue.

    Attributes:
        last_ticket: the last ticket whose row it has sent; None before the first.
    """

    last_ticket: int | None = None

    def join(self) -> Steps[tuple[Place | None, LockItem]]:
        """Mint a ticket and write its row: two requests, or one transaction if the table is slow.

        Returns:
            The ticket with its row's lease, and the lock item after the ticket was minted; without a ticket, the lock
            item that names me as a holder.

        Raises:
            RequestNotApplied: no ticket got its row in time; no row was written.
            OutcomeUnknown: the same, but one of the rows may have been written.
        """
        perhaps_stands = False
        for _ in range(_TRIES):
            minted_at = self.now
            reply = yield from self.send(write.mint_ticket(self.claim, minted_at, self.last_seen))
            item = self.checked_item(reply.item)
            if item is not None and not reply.applied and item.holder(self.claim.owner) is not None:
                return None, item
            if not reply.applied or item is None:
                continue
            # `unused`: the ticket is counted in `waiting`, and its row cannot be written any more.
            was_sent, unused = False, True
            last_ms = minted_at.local_ms + write.JOIN_DEADLINE_MS
            if self.now.local_ms <= last_ms:
                try:
                    if (yield from self._noted(item.issued, last_ms)):
                        was_sent, self.last_ticket = True, item.issued
                        lease_until_ms = self.now.latest_ms + self.claim.lease_ms
                        row = write.put_row(self.claim, item.issued, minted_at.local_ms, self.now)
                        reply = yield from self.send(row)
                        if reply.applied or self._is_mine(reply.item):
                            return Place(item.issued, lease_until_ms), item
                        unused = False
                except (RequestNotApplied, OutcomeUnknown) as error:
                    # If its row was written after all, the next poll recognises it by its owner.
                    if was_sent and isinstance(error, OutcomeUnknown):
                        perhaps_stands, unused = True, False
                    # An error brings no reply, hence no time; the pause updates `now` for the next write.
                    yield from self.send(Pause(0))
            try:
                joined = yield from self._join_together(item, unused=unused)
            except RequestNotApplied as error:
                if perhaps_stands:
                    raise OutcomeUnknown(f"a queue row that was sent before may have been written: {error}") from error
                raise
            if joined is not None:
                return joined
        given_up = OutcomeUnknown if perhaps_stands else RequestNotApplied
        raise given_up(f"in {_TRIES} tries no ticket was followed by its row within {write.JOIN_DEADLINE_MS} ms")

    def _join_together(self, minted: LockItem, *, unused: bool) -> Steps[tuple[Place, LockItem] | None]:
        """Mint the next ticket together with its row; None if another waiter was faster in every try.

        Each try that fails lets one other waiter join, so only a steady stream of newcomers makes all of them fail.

        Args:
            minted: the lock item after this contender's last ticket was minted.
            unused: whether that ticket is counted in ``waiting`` and its row cannot be written any more.
        """
        seen: LockItem | None = minted
        for _ in range(_MOST_COME_FIRST):
            if seen is None:
                break
            counted = unused and minted.issued > seen.void_up_to
            lease_until_ms = self.now.latest_ms + self.claim.lease_ms
            self.last_ticket = seen.issued + 1
            reply = yield from self.send(write.join_together(self.claim, seen, self.now, counted=counted))
            joined = replace(seen, issued=seen.issued + 1, waiting=seen.waiting + (not counted))
            if reply.applied or self._is_mine(reply.items[1]):
                return Place(joined.issued, lease_until_ms), joined
            seen = self.checked_item(reply.items[0])
        return None

    def _noted(self, ticket: int, last_ms: int) -> Steps[bool]:
        """Record the ticket in the session for the clean-up; return whether its row may be written.

        It may not if a later ticket is recorded, because the same step ran twice: the clean-up would not find this row.
        """
        if self.claim.noted_in is None:
            return True
        note = write.note_ticket(self.claim, self.claim.noted_in, ticket, self.now)
        reply = yield from self.send(replace(note, not_after_local_ms=last_ms))
        return reply.applied or (reply.item is not None and integer(reply.item["ticket"]) == ticket)

    def _is_mine(self, row: Item | None) -> bool:
        return row is not None and Row.parse(row).owner == self.claim.owner
