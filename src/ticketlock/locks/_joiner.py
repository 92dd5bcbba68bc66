"""Taking a place in the queue: a number, and the row that follows it."""

from dataclasses import replace

from ticketlock.errors import OutcomeUnknown, RequestNotApplied
from ticketlock.locks import _writes as write
from ticketlock.locks._items import LockItem, Row
from ticketlock.locks._onlooker import Onlooker
from ticketlock.locks._outcomes import Place
from ticketlock.wire._attributes import Item, integer
from ticketlock.wire._requests import Pause, Steps

_TRIES = 5
_MOST_COME_FIRST = 100


class Joiner(Onlooker):
    """One who joins the queue."""

    def join(self) -> Steps[tuple[Place, LockItem]]:
        """Take a number and stand in the queue with it: two requests, or one transaction where the table is slow.

        Returns:
            The place, and the lock item as the number left it.

        Raises:
            RequestNotApplied: no number could be followed by its row.
            OutcomeUnknown: nor is it known of each row that it does not stand.
        """
        perhaps_stands = False
        for _ in range(_TRIES):
            minted_at = self.now
            reply = yield from self.send(write.mint_ticket(self.claim, minted_at))
            item = self.checked_item(reply.item)
            if not reply.applied or item is None:
                continue
            # While the number is counted as a waiter, and no row of it can come.
            was_sent, unused = False, True
            last_ms = minted_at.local_ms + write.JOIN_DEADLINE_MS
            if self.now.local_ms <= last_ms:
                try:
                    if (yield from self._noted(item.issued, last_ms)):
                        was_sent = True
                        lease_until_ms = self.now.latest_ms + self.claim.lease_ms
                        row = write.put_row(self.claim, item.issued, minted_at.local_ms, self.now)
                        reply = yield from self.send(row)
                        if reply.applied or self._is_mine(reply.item):
                            return Place(item.issued, lease_until_ms), item
                        unused = False
                except (RequestNotApplied, OutcomeUnknown) as error:
                    # Should its row stand after all, it is found to be mine.
                    if was_sent and isinstance(error, OutcomeUnknown):
                        perhaps_stands, unused = True, False
                    # An error brings no time, and what comes next must not be older than it is.
                    yield from self.send(Pause(0))
            try:
                joined = yield from self._join_together(item, unused=unused)
            except RequestNotApplied as error:
                if perhaps_stands:
                    raise OutcomeUnknown(f"a row may stand that was sent before: {error}") from error
                raise
            if joined is not None:
                return joined
        given_up = OutcomeUnknown if perhaps_stands else RequestNotApplied
        raise given_up(f"in {_TRIES} tries no ticket was followed by its row within {write.JOIN_DEADLINE_MS} ms")

    def _join_together(self, minted: LockItem, *, unused: bool) -> Steps[tuple[Place, LockItem] | None]:
        """Take the next number together with its row; None when others came first all the time.

        Whoever comes first is one fewer to come: no try is in vain but for a stream of newcomers.

        Args:
            minted: the lock item, as the last number of mine left it.
            unused: whether that number is counted as a waiter, and no row of it can come.
        """
        seen: LockItem | None = minted
        for _ in range(_MOST_COME_FIRST):
            if seen is None:
                break
            counted = unused and minted.issued > seen.void_up_to
            lease_until_ms = self.now.latest_ms + self.claim.lease_ms
            reply = yield from self.send(write.join_together(self.claim, seen, self.now, counted=counted))
            joined = replace(seen, issued=seen.issued + 1, waiting=seen.waiting + (not counted))
            if reply.applied or self._is_mine(reply.items[1]):
                return Place(joined.issued, lease_until_ms), joined
            seen = self.checked_item(reply.items[0])
        return None

    def _noted(self, ticket: int, last_ms: int) -> Steps[bool]:
        """Note the ticket where a clean-up finds it; whether its row may be put.

        It may not where a later one was noted, by the same step that ran twice: the clean-up would not find the row.
        """
        if self.claim.noted_in is None:
            return True
        note = write.note_ticket(self.claim, self.claim.noted_in, ticket, self.now)
        reply = yield from self.send(replace(note, not_after_local_ms=last_ms))
        return reply.applied or (reply.item is not None and integer(reply.item["ticket"]) == ticket)

    def _is_mine(self, row: Item | None) -> bool:
        return row is not None and Row.parse(row).owner == self.claim.owner
