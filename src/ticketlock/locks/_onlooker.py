"""What everybody does who deals with a lock: send requests, and look at the front of the queue."""

from collections.abc import Callable
from dataclasses import replace

from ticketlock.errors import PermitsMismatch
from ticketlock.locks import _reads as reads
from ticketlock.locks._claim import Claim
from ticketlock.locks._items import LockItem, Row, is_lock_item
from ticketlock.locks._queue import Queue
from ticketlock.wire._answers import Reply
from ticketlock.wire._attributes import Item
from ticketlock.wire._requests import Request, Steps
from ticketlock.wire._table_time import Moment

_PAGE = 100


class Onlooker:
    """One who deals with a lock.

    Args:
        claim: what it asks for.
        now: the present moment; later ones come with the replies.

    Attributes:
        last_seen: the lock item, as it was seen last; None where none was.
    """

    def __init__(self, claim: Claim, now: Moment) -> None:
        self.claim = claim
        self.now = now
        # What a row has left of its lease at least, after a look: a parked waiter may sleep for half a lease.
        self.row_kept_ms = claim.lease_ms * 3 // 4
        self.last_seen: LockItem | None = None

    def send(self, request: Request) -> Steps[Reply]:
        """Send one request on the way; its reply moves the present on."""
        reply = yield request
        self.now = reply.now
        return reply

    def look(self, until: Callable[[Queue], bool], patience_ms: int | None = None) -> Steps[Queue]:
        """Read the lock item and the queue from its front, until enough was seen or the end."""
        request = reads.read_front(self.claim, patience_ms)
        queue = Queue(self.claim)
        while True:
            reply = yield from self.send(request)
            for found in reply.items:
                if found is None:
                    continue
                if is_lock_item(found):
                    queue.item = self.checked_item(found)
                else:
                    queue.take_in(Row.parse(found), self.now)
            queue.to_the_end = reply.last_key is None
            if queue.to_the_end or until(queue):
                return queue
            request = replace(request, limit=_PAGE, after=reply.last_key)

    def checked_item(self, item: Item | None) -> LockItem | None:
        """The lock item, unless its limit is another than the claim's, and not an operator's.

        Raises:
            PermitsMismatch, UnsupportedFormat: as the names say.
        """
        if item is None:
            return None
        lock = LockItem.parse(item)
        if lock.permits != self.claim.permits and not lock.permits_are_set:
            raise PermitsMismatch(self.claim.permits, lock.permits)
        self.last_seen = lock
        return lock
