"""The base of a contender: send requests, and read the front of the queue."""

from collections.abc import Callable
from dataclasses import replace

from ticketlock.locks import _reads as reads
from ticketlock.locks._claim import Claim
from ticketlock.locks._items import LockItem, Row, is_lock_item
from ticketlock.locks._permits import check_permits
from ticketlock.locks._queue import Queue
from ticketlock.wire._answers import Reply
from ticketlock.wire._attributes import Item
from ticketlock.wire._requests import Request, Steps
from ticketlock.wire._table_time import Moment

_PAGE = 100


class QueueReader:
    """The base of a contender for a lock.

    Args:
        claim: the acquisition.
        now: the present moment; each reply brings a later one.

    Attributes:
        last_seen: the lock item as it was last read; None if there was none.
    """

    def __init__(self, claim: Claim, now: Moment) -> None:
        self.claim = claim
        self.now = now
        # After a poll a row has at least this much of its lease: a parked waiter may sleep for half a lease.
        self.row_kept_ms = claim.lease_ms * 3 // 4
        self.last_seen: LockItem | None = None

    def send(self, request: Request) -> Steps[Reply]:
        """Send one request; its reply updates ``now``."""
        reply = yield request
        self.now = reply.now
        return reply

    def read_queue(
        self, until: Callable[[Queue], bool], patience_ms: int | None = None, *, only_leaves: bool = False
    ) -> Steps[Queue]:
        """Read the lock item and the queue from its front, until ``until`` is satisfied or the queue ends.

        Args:
            until: whether enough was read.
            patience_ms: for how long to retry at most; None for as long as the driver does.
            only_leaves: whether the reader leaves the queue: then the lock may have any number of permits.
        """
        request = reads.read_front(self.claim, patience_ms)
        queue = Queue(self.claim)
        while True:
            reply = yield from self.send(request)
            for found in reply.items:
                if found is None:
                    continue
                if is_lock_item(found):
                    queue.item = LockItem.parse(found) if only_leaves else self.checked_item(found)
                else:
                    queue.take_in(Row.parse(found), self.now)
            queue.to_the_end = reply.last_key is None
            if queue.to_the_end or until(queue):
                return queue
            request = replace(request, limit=_PAGE, after=reply.last_key)

    def checked_item(self, item: Item | None) -> LockItem | None:
        """Parse the lock item, and check that the claim may use the lock with its permits.

        Raises:
            PermitsMismatch: they are not.
            UnsupportedFormat: a newer version wrote the item.
        """
        if item is None:
            self.last_seen = None
            return None
        lock = LockItem.parse(item)
        check_permits(self.claim, lock)
        self.last_seen = lock
        return lock
