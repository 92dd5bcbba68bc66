"""The protocol of "Distributed Locking in DynamoDB" (2020) as it was published: a broken implementation, to be caught.

One write takes a number from a counter, a second one puts a row into the queue, then a strongly consistent Query: the
process whose row is first holds the lock. Expired rows are skipped, a release deletes the row, and the heartbeat's only
condition is that the row exists. Written as requests like the real one, so that the same tests can drive both.

All clocks of these tests agree: what is found is not caused by a clock.
"""

from dataclasses import dataclass, replace
from typing import Any

from ticketlock import LockName
from ticketlock.locks._items import lock_prefix, row_key
from ticketlock.wire._actions import Reply, integer, number
from ticketlock.wire._requests import Read, Request, Steps, Write
from ticketlock.wire._table_time import Moment

ROW_EXISTS = "attribute_exists(pk)"
NO_SUCH_ROW = "attribute_not_exists(pk)"
_PAGE = 100


@dataclass
class PublishedContender:
    """One process and one lock: ``join``, ``poll`` until it is inside, ``heartbeat``, ``release``."""

    lock: LockName
    lease_ms: int
    now: Moment

    def join(self) -> Steps[int]:
        """Take a number, then put a row with it into the queue."""
        ticket = yield from self._number()
        yield from self._ask(
            Write(
                "Put",
                row_key(self.lock, ticket),
                item={
                    **row_key(self.lock, ticket),
                    "createdAt": number(self._seconds()),
                    "expiresAt": number(self._lease_end()),
                },
                condition=NO_SUCH_ROW,
            )
        )
        return ticket

    def poll(self, ticket: int) -> Steps[bool]:
        """Whether this process holds the lock: no unexpired row comes before its own."""
        request = Read(*lock_prefix(self.lock), limit=_PAGE)
        while True:
            reply = yield from self._ask(request)
            for row in reply.items:
                assert row is not None
                if integer(row["expiresAt"]) < self._seconds():
                    continue
                return bool(row["sk"] == row_key(self.lock, ticket)["sk"])
            if reply.last_key is None:
                return False
            request = replace(request, after=reply.last_key)

    def heartbeat(self, ticket: int) -> Steps[bool]:
        """Whether the lease was refreshed."""
        reply = yield from self._ask(
            Write(
                "Update",
                row_key(self.lock, ticket),
                update="SET expiresAt = :expires_at",
                condition=ROW_EXISTS,
                values={":expires_at": number(self._lease_end())},
            )
        )
        return reply.applied

    def release(self, ticket: int) -> Steps[bool]:
        """Delete the row. Returns whether there was one (published without a condition, with the same effect)."""
        reply = yield from self._ask(Write("Delete", row_key(self.lock, ticket), condition=ROW_EXISTS))
        return reply.applied

    def _number(self) -> Steps[int]:
        counter: dict[str, Any] = {"pk": {"S": f"ticket-master/{self.lock.entity}"}, "sk": {"S": "current"}}
        count = Write(
            "Update",
            counter,
            update="SET ticketNumber = ticketNumber + :one",
            condition=ROW_EXISTS,
            values={":one": number(1)},
            returns="ALL_NEW",
        )
        seed = Write("Put", counter, item={**counter, "ticketNumber": number(1)}, condition=NO_SUCH_ROW)
        while True:
            reply = yield from self._ask(count)
            if reply.applied:
                assert reply.item is not None
                return integer(reply.item["ticketNumber"])
            reply = yield from self._ask(seed)
            if reply.applied:
                return 1

    def _ask(self, request: Request) -> Steps[Reply]:
        reply = yield request
        self.now = reply.now
        return reply

    def _seconds(self) -> int:
        return self.now.likely_ms // 1_000

    def _lease_end(self) -> int:
        return self._seconds() + self.lease_ms // 1_000
