"""The lock table for threads: one method for each verb of the protocol."""

import getpass
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from ticketlock._checks import whole_number
from ticketlock.locks._items import MAX_RECORD_WAIT_MS, TICKET_DIGITS, Holder, LockName, Row, lock_name, owner_id
from ticketlock.locks._modes import MAX_HOLDERS
from ticketlock.locks._operators import (
    LockSummary,
    inspect,
    list_page,
    release_of,
    remove_waiter,
    resume,
    set_limit,
    unset_limit,
)
from ticketlock.locks._outcomes import (
    MAX_LEASE_MS,
    MIN_LEASE_MS,
    Claim,
    Decision,
    Grant,
    Hold,
    LockState,
    Place,
    Position,
    Released,
    Releasing,
    check_lease,
)
from ticketlock.locks._protocol import Contender
from ticketlock.locks._reads import TIME_CHECK
from ticketlock.wire import Actions, Item, Moment, Performer, Steps, T, TableKind

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


_MOST_ROWS = 100_000
LOCK_TABLE = TableKind("lock table", ("pk", "sk"), is_ours=lambda item: "/" in item["sk"]["S"])


def create_table(table_name: str, *, client: "DynamoDBClient | None" = None, **more: Any) -> Mapping[str, Any] | None:
    """Create a lock table, unless there is one of that name, and wait until it is active.

    Args:
        table_name: its name.
        client: a DynamoDB client with permission to create tables.
        more: further arguments of CreateTable, for example ``Tags`` or ``DeletionProtectionEnabled``.

    Returns:
        What CreateTable answered; None if the table was there.

    Raises:
        InvalidLockRequest: no Region is set, or ``client`` is not a low-level client (for example a
            ``boto3.resource``).
        ValueError: the table of that name is not a lock table; nothing was changed.
    """
    return LOCK_TABLE.create(table_name, client, more)


class LockTable(Performer):
    """A DynamoDB table of locks.

    The algorithm is the ticket lock of Reed and Kanodia, in the form that ``_protocol.py`` describes. Times are whole
    milliseconds. You can repeat every call with the same owner.

    The table belongs to the process that created it: in a forked child every call raises ``ClientClosed``. Create the
    table, and the client, in the child.

    Args:
        table_name: a table with the string keys ``pk`` and ``sk`` and time to live on ``expiresAt``.
        client: a DynamoDB client of your own, with ``config=client_config()``.
        step_functions: a Step Functions client: a call that frees the lock or leaves the queue then wakes the next
            workflow in line. Without one, that workflow polls at its next time-out.
        lambda_client: a Lambda client: it then wakes durable executions, too.
        clocks: where the time comes from.
        sleep: waits between retries; takes seconds.
        give_up_after_ms: for how long one request is retried while the service throttles or fails.

    Raises:
        InvalidLockRequest: no Region is set, or the client cannot be used; it tells of all its settings at once.
    """

    _time_check = TIME_CHECK

    def contender(self, claim: Claim, now: Moment) -> Contender:
        """A contender of this table; with a Step Functions or a Lambda client it wakes the next in line."""
        return Contender(claim, now, wakes=self.wakes)

    def take_ticket(self, claim: Claim, record_wait_ms: int | None) -> Grant | Position:
        """Acquire the lock at once, or join the queue.

        Args:
            claim: the acquisition.
            record_wait_ms: 0 raises RecordWaitExceeded instead of joining; None waits for ever.

        Raises:
            InvalidLockRequest: an argument is out of its bounds; nothing was written.
            RecordWaitExceeded: the lock has a holder or a waiter, and the record wait is 0.
            PermitsMismatch, UnsupportedFormat: the lock exists with another limit, or in a newer format.
            TableError: the table could not be used.
        """
        if record_wait_ms is not None:
            whole_number("record_wait_ms", record_wait_ms, 0, MAX_RECORD_WAIT_MS)
        return self.contend(claim, lambda me: me.take_ticket(record_wait_ms))

    def check_turn(self, claim: Claim, place: Place, wait_until_ms: int | None) -> Grant | Position:
        """Poll once: take the lock if it is this owner's turn, else extend its queue row.

        Args:
            claim: the acquisition.
            place: from ``take_ticket`` or the poll before.
            wait_until_ms: the end of the record wait in table time; None waits for ever.

        Raises:
            RecordWaitExceeded: the record wait has ended before the turn came; the owner has left the queue.
            InvalidLockRequest, PermitsMismatch, UnsupportedFormat, TableError: as in ``take_ticket``.
        """
        if wait_until_ms is not None:
            whole_number("wait_until_ms", wait_until_ms, 0, 10 * MAX_RECORD_WAIT_MS)
        return self.contend(claim, lambda me: me.check_turn(place, wait_until_ms))

    def withdraw(self, claim: Claim, ticket: int) -> Grant | None:
        """Leave the queue.

        Returns:
            None; or the grant, if an earlier try of the same owner had taken the lock already.
        """
        return self.contend(claim, lambda me: me.withdraw(ticket))

    def renew(self, claim: Claim, fencing_token: int) -> Grant:
        """The heartbeat: give the grant a full new lease from now.

        Raises:
            LockLost: the lease has expired, or the lock is not held with this token any more.
            TableError: the table could not be used; the lease runs until its old end, or longer if a request arrived.
        """
        return self.contend(claim, lambda me: me.renew(fencing_token))

    def set_data(self, claim: Claim, fencing_token: int, data: str | None) -> None:
        """Replace the data that is shown beside the holder; None removes it.

        Raises:
            LockLost: the lease has expired, or the lock is not held with this token any more.
        """
        self.contend(claim, lambda me: me.set_data(fencing_token, data))

    def release(self, claim: Claim, held: Hold, *, data_left: str | None = None) -> Released:
        """Free the lock.

        Args:
            claim: the acquisition.
            held: its grant, with the newest lease.
            data_left: up to 1,024 bytes for the next holder.

        Raises:
            LockLost: the lock is not held with this token any more, and the lease had ended, or an operator freed it.
            TableError: the table could not be used; the lease runs until its end.
        """
        # The caller may be retrying a release that was applied.
        again = Releasing(tried_before=True)
        return self.contend(claim, lambda me: me.release(held, data_left=data_left, releasing=again))

    def inspect(self, lock: LockName, *, rows: int | None = None) -> LockState:
        """Read a lock, its holders and its queue; sends one Query for each page.

        Args:
            lock: its name.
            rows: how many rows of the queue to read at first, 1 to 100,000, and then on up to the first waiter that has
                not expired; None for the whole queue.
        """
        lock_name(lock)
        if rows is not None:
            whole_number("rows", rows, 1, _MOST_ROWS)
        return self.run(lambda now: inspect(lock, now, rows=rows))

    def set_limit(self, lock: LockName, permits: int, *, by: str | None = None, why: str = "") -> LockState:
        """Set how many may hold a lock at once, 0 to 100. It replaces the number that the users ask for, immediately.

        Present holders keep the lock: a lower limit only stops further grants, and 0 closes the lock. From then on
        time to live does not delete the lock item.

        Args:
            lock: its name.
            permits: the limit.
            by: who decides, 1 to 256 bytes; None for the user of this process at its host. Kept in the lock item with
                ``why`` and the time, as ``limit_set``.
            why: for what reason, up to 256 bytes.
        """
        lock_name(lock)
        whole_number("permits", permits, 0, MAX_HOLDERS)
        decision = _decision(by, why)
        item = self.run(lambda now: set_limit(lock, permits, decision, now, self.contender))
        return LockState(item, (), self.now())

    def unset_limit(
        self, lock: LockName, permits: int | None = None, *, by: str | None = None, why: str = ""
    ) -> LockState:
        """Remove an operator's limit; the users' number counts again.

        Args:
            lock: its name; a lock without an operator's limit stays as it is.
            permits: what the users ask for, 1 to 100; None for what they asked for before the limit was set. A lock
                whose number is a deployment's gets the number of the latest deployment.
            by, why: as in ``set_limit``; kept as ``limit_unset``, beside ``limit_set``, until the next limit is set.

        Raises:
            InvalidLockRequest: ``permits`` is None, and the lock had no users before its limit was set.
        """
        lock_name(lock)
        if permits is not None:
            whole_number("permits", permits, 1, MAX_HOLDERS)
        decision = _decision(by, why)
        item = self.run(lambda now: unset_limit(lock, permits, decision, now, self.contender))
        return LockState(item, (), self.now())

    def remove_waiter(self, lock: LockName, ticket: int) -> Row:
        """Delete a waiter's queue row and lower the count, in one write.

        A waiter that still runs notices at its next poll and joins again at the end of the queue. To remove it for
        good, end its process or its execution.

        Args:
            lock: its name.
            ticket: the waiter's, as ``inspect`` shows it.

        Returns:
            Its row, with its owner.

        Raises:
            LockLost: no waiter has this ticket.
        """
        lock_name(lock)
        whole_number("ticket", ticket, 0, 10**TICKET_DIGITS - 1)
        return self.run(lambda now: remove_waiter(lock, ticket, now, self.contender))

    def force_release(self, lock: LockName, fencing_token: int, *, by: str | None = None, why: str = "") -> Released:
        """Take the lock from the holder with this fencing token, which learns of it at its next heartbeat.

        The data that the holder before it left stays for the next one.

        Args:
            lock: its name.
            fencing_token: the holder's, as ``inspect`` shows it.
            by, why: as in ``set_limit``; kept as ``last_forced``, until a holder is next released by force.

        Raises:
            LockLost: no holder has this token.
        """
        # A DynamoDB number has at most 38 digits.
        whole_number("fencing_token", fencing_token, 0, 10**38)
        return self._release_of(lock, lambda each: each.fencing_token == fencing_token, by_force=_decision(by, why))

    def release_as(self, lock: LockName, owner: str) -> Released:
        """Free a lock by its holder's ``owner``, perhaps from another process; leaves no data for the next holder.

        Raises:
            LockLost: this owner does not hold it.
        """
        owner_id(owner)
        return self._release_of(lock, lambda each: each.owner == owner, for_owner=owner)

    def list_locks(self) -> Iterator[LockSummary]:
        """The locks of the table, in no order; sends one Scan for each page."""
        after: Item | None = None
        while True:
            locks, after = self.run(partial(list_page, after))
            yield from locks
            if after is None:
                return

    def resume(self, lock: LockName, owner: str, lease_ms: int) -> tuple[Claim, Grant]:
        """Renew the grant of an owner that holds the lock; return its claim and its grant.

        Raises:
            LockLost: the owner does not hold the lock.
            InvalidLockRequest: the lease is so short that it could end during one request that hangs.
        """
        lock_name(lock)
        owner_id(owner)
        whole_number("lease_ms", lease_ms, MIN_LEASE_MS, MAX_LEASE_MS)
        check_lease(lease_ms, self._client)
        return self.drive(self._driver.run(lambda now: resume(lock, owner, lease_ms, now)))

    def contend(
        self, claim: Claim, steps: Callable[[Contender], Steps[T]], *, sleep: Callable[[float], object] | None = None
    ) -> T:
        """Perform the steps of one claim; see ``run``.

        Raises:
            InvalidLockRequest: the lease is so short that it could end during one request that hangs.
        """
        check_lease(claim.lease_ms, self._client)
        return self.drive(self._driver.run(lambda now: steps(self.contender(claim, now))), sleep=sleep)

    def contending(
        self, claim: Claim, steps: Callable[[Contender], Steps[T]], *, until_ms: int | None = None
    ) -> Actions[T]:
        """The same, as a generator of calls and sleeps that the caller performs.

        Args:
            claim: the acquisition.
            steps: those of its contender.
            until_ms: the last moment on the local clock at which a request is sent again; None for no such moment.
        """
        check_lease(claim.lease_ms, self._client)
        return self._driver.run(lambda now: steps(self.contender(claim, now)), until_ms=until_ms)

    def _release_of(
        self,
        lock: LockName,
        whose: Callable[[Holder], bool],
        *,
        by_force: Decision | None = None,
        for_owner: str | None = None,
    ) -> Released:
        lock_name(lock)
        more: dict[str, Any] = {"by": token_hex(16), "by_force": by_force, "for_owner": for_owner}
        return self.run(lambda now: release_of(lock, whose, now, self.contender, **more))


def _decision(by: str | None, why: str) -> Decision:
    return Decision(this_user() if by is None else by, why)


def this_user() -> str:
    """The user of this process at its host."""
    try:
        user = getpass.getuser()
    except (ImportError, KeyError, OSError):
        # A container may run as a user without a name.
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
