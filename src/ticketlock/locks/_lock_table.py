"""The lock table for threads: the protocol's verbs, one method each."""

import uuid
from collections.abc import Callable, Iterator
from functools import partial

from ticketlock._checks import whole_number
from ticketlock.locks._claim import MAX_LEASE_MS, MIN_LEASE_MS, Claim, check_lease
from ticketlock.locks._hand_over import contender_class
from ticketlock.locks._inspect import LockSummary, inspect, list_page
from ticketlock.locks._items import TICKET_DIGITS, Holder, Row
from ticketlock.locks._modes import MAX_HOLDERS
from ticketlock.locks._names import MAX_RECORD_WAIT_MS, LockName, lock_name, owner_id
from ticketlock.locks._operators import release_of, remove_waiter, resume, set_limit, unset_limit
from ticketlock.locks._outcomes import Grant, Hold, LockState, Place, Position, Released, Releasing
from ticketlock.locks._protocol import Contender
from ticketlock.locks._reads import TIME_CHECK
from ticketlock.wire._actions import Actions, T
from ticketlock.wire._performer import Performer
from ticketlock.wire._requests import Attributes, Steps


class LockTable(Performer):
    """A DynamoDB table of locks.

    The algorithm is the ticket lock of Reed and Kanodia, in the form that ``_protocol.py`` describes. Times are whole
    milliseconds. Every call may be repeated with the same owner.

    It belongs to the process that made it, with whatever client: in a forked child every call raises ``ClientClosed``.
    Make the table, and the client, in the child.

    Args:
        table_name: a table with the string keys ``pk`` and ``sk`` and time to live on ``expiresAt``.
        client: a DynamoDB client of your own: no retries (``total_max_attempts`` 1), time-outs of at most 5 s.
        step_functions: a Step Functions client: whoever frees the lock or leaves the queue calls the next workflow in
            line; without one, that looks by itself after a while.
        clocks: where the time comes from.
        sleep: how to wait between repeats, in seconds.
        give_up_after_ms: for how long one request is repeated while the service throttles or fails.

    Raises:
        InvalidLockRequest: no Region is set, or ``client`` is not a low-level client (for example a
            ``boto3.resource``).
        ValueError: the client is not usable; says which setting, and what it should be.
    """

    _time_check = TIME_CHECK

    @property
    def contender(self) -> type[Contender]:
        """What contends for its locks: one that calls the next in line, where it can."""
        return contender_class(calls=self._step_functions is not None)

    def take_ticket(self, claim: Claim, record_wait_ms: int | None) -> Grant | Position:
        """Acquire at once, or stand in the queue.

        Args:
            claim: the acquisition.
            record_wait_ms: 0 raises RecordWaitExceeded instead of queueing; None waits for ever.

        Raises:
            InvalidLockRequest: an argument is out of its bounds; nothing was written.
            RecordWaitExceeded: somebody holds or queues, and the record wait is 0.
            PermitsMismatch, UnsupportedFormat: the lock exists with another limit, or in a newer format.
            TableError: the table could not be used.
        """
        if record_wait_ms is not None:
            whole_number("record_wait_ms", record_wait_ms, 0, MAX_RECORD_WAIT_MS)
        return self.contend(claim, lambda me: me.take_ticket(record_wait_ms))

    def check_turn(self, claim: Claim, place: Place, wait_until_ms: int | None) -> Grant | Position:
        """Look once, and take the lock or keep the place.

        Args:
            claim: the acquisition.
            place: from the ticket or the look before.
            wait_until_ms: the end of the record wait in table time; None waits for ever.

        Raises:
            RecordWaitExceeded: it is over, it is not the turn, and the queue is left.
            InvalidLockRequest, PermitsMismatch, UnsupportedFormat, TableError: as in ``take_ticket``.
        """
        if wait_until_ms is not None:
            whole_number("wait_until_ms", wait_until_ms, 0, 10 * MAX_RECORD_WAIT_MS)
        return self.contend(claim, lambda me: me.check_turn(place, wait_until_ms))

    def withdraw(self, claim: Claim, ticket: int) -> Grant | None:
        """Leave the queue.

        Returns:
            None; or the grant, when an earlier try of the same owner had taken the lock already.
        """
        return self.contend(claim, lambda me: me.withdraw(ticket))

    def renew(self, claim: Claim, fencing_token: int) -> Grant:
        """The heartbeat: a whole new lease, counted from now.

        Raises:
            LockLost: the lease is over, or the lock is not held with this token any more.
            TableError: the table could not be used; the lease runs on until its end.
        """
        return self.contend(claim, lambda me: me.renew(fencing_token))

    def set_data(self, claim: Claim, fencing_token: int, data: str | None) -> None:
        """Show something else beside the holder; None for nothing.

        Raises:
            LockLost: the lease is over, or the lock is not held with this token any more.
        """
        self.contend(claim, lambda me: me.set_data(fencing_token, data))

    def release(self, claim: Claim, held: Hold, *, data_left: str | None = None) -> Released:
        """Free the lock.

        Args:
            claim: the acquisition.
            held: its grant, with the newest lease.
            data_left: up to 256 bytes that the next holder finds.

        Raises:
            LockLost: the lock is not held with this token any more, and the lease had ended, or an operator freed it.
            TableError: the table could not be used; the lease ends by itself.
        """
        # Whether this call is the first, nobody knows here.
        again = Releasing(tried_before=True)
        return self.contend(claim, lambda me: me.release(held, data_left=data_left, releasing=again))

    def inspect(self, lock: LockName, *, to_the_end: bool = True) -> LockState:
        """Read a lock, its holders and its queue; sends a Query a page.

        Args:
            lock: its name.
            to_the_end: whether to read the whole queue, or no further than its first waiter that lives.
        """
        lock_name(lock)
        return self.run(lambda now: inspect(lock, now, to_the_end=to_the_end))

    def set_limit(self, lock: LockName, permits: int) -> LockState:
        """Set how many may hold a lock at once, 0 to 100: at once, whatever number its users ask for.

        Whoever holds it keeps it: a lower limit only stops further grants, and 0 closes the lock. The item is kept
        from time to live from then on.
        """
        lock_name(lock)
        whole_number("permits", permits, 0, MAX_HOLDERS)
        item = self.run(lambda now: set_limit(lock, permits, now, self.contender))
        return LockState(item, (), self.now())

    def unset_limit(self, lock: LockName, permits: int | None = None) -> LockState:
        """Remove an operator's limit; the users' number counts again.

        Args:
            lock: its name; one without a limit of this kind stays as it is.
            permits: what the users ask for, 1 to 100; what they asked for before the limit was set, unless it is said.

        Raises:
            InvalidLockRequest: nobody had used the lock before its limit was set, and no number is said.
        """
        lock_name(lock)
        if permits is not None:
            whole_number("permits", permits, 1, MAX_HOLDERS)
        item = self.run(lambda now: unset_limit(lock, permits, now, self.contender))
        return LockState(item, (), self.now())

    def remove_waiter(self, lock: LockName, ticket: int) -> Row | None:
        """Take a waiter's place in the queue away, in one write with the count.

        A waiter that lives finds its place lost at its next look and joins anew, at the end of the queue: to send it
        away for good, end its process or its execution.

        Args:
            lock: its name.
            ticket: the waiter's, as ``inspect`` shows it.

        Returns:
            Its row, with its owner; None where nobody waits with this ticket.
        """
        lock_name(lock)
        whole_number("ticket", ticket, 0, 10**TICKET_DIGITS - 1)
        return self.run(lambda now: remove_waiter(lock, ticket, now, self.contender))

    def force_release(self, lock: LockName, fencing_token: int) -> Released:
        """Take a lock away from the holder with this fencing token, who finds out at the next heartbeat.

        What the holder before it had left stays for the next.

        Raises:
            LockLost: nobody holds it with this token.
        """
        # A token has as many digits as DynamoDB's numbers at most.
        whole_number("fencing_token", fencing_token, 0, 10**38)
        return self._release_of(lock, lambda each: each.fencing_token == fencing_token, by_force=True)

    def release_as(self, lock: LockName, owner: str) -> Released:
        """Free a lock that was taken with a known owner, perhaps by another process; nothing is left for the next.

        Raises:
            LockLost: this owner does not hold it.
        """
        owner_id(owner)
        return self._release_of(lock, lambda each: each.owner == owner, by_force=False)

    def list_locks(self) -> Iterator[LockSummary]:
        """The locks of the table, in no order; sends a Scan a page."""
        after: Attributes | None = None
        while True:
            locks, after = self.run(partial(list_page, after))
            yield from locks
            if after is None:
                return

    def resume(self, lock: LockName, owner: str, lease_ms: int) -> tuple[Claim, Grant]:
        """The claim and the grant of an owner that holds a lock, renewed.

        Raises:
            LockLost: it does not hold it.
            InvalidLockRequest: a request that hangs could take the whole lease.
        """
        lock_name(lock)
        owner_id(owner)
        whole_number("lease_ms", lease_ms, MIN_LEASE_MS, MAX_LEASE_MS)
        check_lease(lease_ms, self._client)
        return self.run(lambda now: resume(lock, owner, lease_ms, now))

    def contend(
        self, claim: Claim, steps: Callable[[Contender], Steps[T]], *, sleep: Callable[[float], object] | None = None
    ) -> T:
        """Drive steps of one claim to their end; see ``run``.

        Raises:
            InvalidLockRequest: a request that hangs could take the claim's whole lease.
        """
        check_lease(claim.lease_ms, self._client)
        return self.run(lambda now: steps(self.contender(claim, now)), sleep=sleep)

    def contending(self, claim: Claim, steps: Callable[[Contender], Steps[T]]) -> Actions[T]:
        """The same, as calls and sleeps to be driven."""
        check_lease(claim.lease_ms, self._client)
        return self._driver.run(lambda now: steps(self.contender(claim, now)))

    def _release_of(self, lock: LockName, whose: Callable[[Holder], bool], *, by_force: bool) -> Released:
        lock_name(lock)
        by = uuid.uuid4().hex
        return self.run(lambda now: release_of(lock, whose, now, self.contender, by=by, by_force=by_force))
