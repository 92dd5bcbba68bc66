"""Leases of the client for threads: one, and several that are held together."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ticketlock._checks import duration_ms, text
from ticketlock.client._base_lease import BaseLease
from ticketlock.client._wishes import Seconds
from ticketlock.errors import LockLost, TableError, TicketLockError
from ticketlock.locks import _fencing
from ticketlock.locks._claim import DATA_BYTES, MAX_LEASE_MS
from ticketlock.wire import _sdk

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from ticketlock.client._client import LockClient

_log = logging.getLogger("ticketlock")

_TRANSACTION_PATIENCE_S = 10.0


class Lease(BaseLease):
    """A held lock. Use it in ``with``: it is released at the end, and what is raised inside passes through."""

    _client: "LockClient"

    def renew(self) -> None:
        """A whole new lease, now.

        Raises:
            LockLost: the lock is not held any more.
            TableError: the table could not be used; the lease runs on until its end.
        """
        self._check_held()
        self._client._renew(self)

    def ensure(self, at_least: Seconds) -> None:
        """Make sure that the lock is held for so long from now on, renewing it if need be.

        Raises:
            LockLost: it is not, and a renewal does not help.
            TableError: the table could not be used, and less than that is left.
        """
        needed_ms = duration_ms("at_least", at_least, 0, MAX_LEASE_MS)
        if not self._is_sure_of(needed_ms):
            self.renew()
        if not self._is_sure_of(needed_ms):
            raise self._too_short(needed_ms)

    def set_data(self, data: str | None) -> None:
        """Show something else beside the holder, up to 256 bytes; None for nothing.

        Raises:
            LockLost: the lock is not held any more.
        """
        self._check_process()
        self._client._table.set_data(self._claim, self.fencing_token, data)
        self._data = data

    def transact_write(
        self,
        items: Sequence[Mapping[str, Any]],
        *,
        client: "DynamoDBClient | None" = None,
        patience: Seconds = _TRANSACTION_PATIENCE_S,
    ) -> None:
        """Write in one transaction with the check that this lock is held, repeated while it conflicts with waiters.

        Args:
            items: up to 99 items of ``TransactWriteItems``, as a low-level client wants them.
            client: a DynamoDB client that may write them; the lock's own otherwise.
            patience: for how long it is repeated.

        Raises:
            LockLost: the lock is not held with this token any more; nothing was written.
            InvalidLockRequest: the items are none of a TransactWriteItems.
            ClientError: another of the conditions did not hold, as DynamoDB said it; nothing was written.
            TableError: the table could not be used.
        """
        self._check_process()
        patience_ms = duration_ms("patience", patience, 0, MAX_LEASE_MS)
        table = self._client._table
        items = list(items)
        _sdk.check_items(client if client is not None else table.client, items)
        actions = _fencing.transact_write(self.condition_check(), items, self._clocks, patience_ms)
        table.drive(actions, dynamodb=client)

    def release(self, *, data_left: str | None = None, best_effort: bool = False) -> None:
        """Free the lock; of a lock that is held several times, the last release does. A second time does nothing.

        Args:
            data_left: up to 256 bytes that the next holder finds as ``data_left``.
            best_effort: log what goes wrong instead of raising it.

        Raises:
            InvalidLockRequest: ``data_left`` is too long; the lock is held as before.
            LockLost: the lease had ended before: somebody else may have held the lock meanwhile.
            TableError: the table could not be used; the lease ends by itself.
        """
        self._check_process()
        if data_left is not None:
            text("data_left", data_left, DATA_BYTES)
        try:
            self._client._release(self, data_left)
        except TicketLockError as error:
            if not best_effort:
                raise
            _log.warning("%r was not released: %s", self, error)

    def detach(self) -> None:
        """Leave the lock held, for another process (``LockClient.resume``), also at the end of ``with``."""
        self._check_process()
        self._detached = True
        self._client._forget(self)

    def _give_back(self) -> None:
        """End it as it was found: nobody has worked under it. A grant that others may have as well is left to them."""
        if self._has_own_identity:
            self.release(best_effort=True, data_left=self.data_left)
        elif self._mark_released() != "still held":
            self._client._forget(self)

    def __enter__(self) -> Self:
        self._check_held()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pid != os.getpid() or self._detached:
            return
        try:
            self.release(best_effort=error is not None)
        except TableError as failed:
            # The work is done; the lease ends by itself.
            _log.error("%r was not released, and ends by itself: %s", self, failed)


class LeaseGroup:
    """Several locks that are held together. Use it in ``with``.

    Attributes:
        leases: in the order in which they were taken.
    """

    def __init__(self, leases: Sequence[Lease]) -> None:
        self.leases = tuple(leases)

    def is_held(self) -> bool:
        """Whether all of them may be counted on at this moment."""
        return all(lease.is_held() for lease in self.leases)

    def release(self) -> None:
        """Free them all, the last one first.

        Raises:
            LockLost, TableError: of the first one that could not be released as it should; the others were released.
        """
        self._for_each(lambda lease: lease.release())

    def __enter__(self) -> Self:
        try:
            for lease in self.leases:
                lease._check_held()
        except LockLost:
            self._for_each(lambda lease: lease.release(best_effort=True))
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._for_each(lambda lease: lease.__exit__(kind, error, traceback))

    def _give_back(self) -> None:
        """End them as they were found: nobody has worked under them."""
        self._for_each(lambda lease: lease._give_back())

    def _for_each(self, end: Callable[[Lease], None]) -> None:
        """The last one first, each of them, whatever becomes of the others."""
        first: BaseException | None = None
        for lease in reversed(self.leases):
            try:
                end(lease)
            except BaseException as error:
                first = first or error
        if first is not None:
            raise first
