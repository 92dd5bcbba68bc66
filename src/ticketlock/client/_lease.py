"""Leases of the client for threads: one, and several that are held together."""

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ticketlock.client._base_lease import BaseLease
from ticketlock.client._holdings import TRANSACTION_PATIENCE_S, Holdings
from ticketlock.client._under_way import UnderWay
from ticketlock.client._wishes import Seconds, Terms
from ticketlock.errors import LockLost
from ticketlock.locks._lock_table import LockTable
from ticketlock.locks._outcomes import Grant
from ticketlock.wire._actions import Actions
from ticketlock.wire._clocks import Clocks

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class Lease(BaseLease):
    """A held lock. Use it in ``with``: it is released at the end, and what is raised inside passes through."""

    def __init__(
        self,
        terms: Terms,
        grant: Grant,
        clocks: Clocks,
        table: LockTable,
        holdings: "Holdings[Lease]",
        under_way: UnderWay,
    ) -> None:
        super().__init__(table.table_name, terms, grant, clocks)
        self._table, self._holdings, self._under_way = table, holdings, under_way

    def renew(self) -> None:
        """A whole new lease, now.

        Raises:
            LockLost: the lock is not held any more.
            TableError: the table could not be used; the lease runs on until its end.
        """
        self._check_held()
        self._table.drive(self._holdings.renew(self))

    def ensure(self, at_least: Seconds) -> None:
        """Make sure that the lock is held for so long from now on, renewing it if need be.

        Raises:
            LockLost: it is not, and a renewal does not help.
            TableError: the table could not be used, and less than that is left.
        """
        self._table.drive(self._holdings.ensure(self, at_least))

    def set_data(self, data: str | None) -> None:
        """Show something else beside the holder, up to 256 bytes; None for nothing.

        Raises:
            LockLost: the lock is not held any more.
        """
        self._table.drive(self._holdings.set_data(self, data))

    def transact_write(
        self,
        items: Sequence[Mapping[str, Any]],
        *,
        client: "DynamoDBClient | None" = None,
        patience: Seconds = TRANSACTION_PATIENCE_S,
    ) -> None:
        """Write in one transaction with the check that this lock is held, repeated while it conflicts with waiters.

        Args:
            items: up to 99 items of ``TransactWriteItems``, as a low-level client wants them.
            client: a DynamoDB client that may write them; the lock's own otherwise.
            patience: for how long it is repeated; after four minutes it is not, lest it be applied twice.

        Raises:
            LockLost: the lock is not held with this token any more; nothing was written.
            InvalidLockRequest: the items are none of a TransactWriteItems.
            ClientError: another of the conditions did not hold, as DynamoDB said it; nothing was written.
            TableError: the table could not be used.
        """
        dynamodb = client if client is not None else self._table.client
        self._table.drive(self._holdings.transact_write(self, items, dynamodb, patience), dynamodb=dynamodb)

    def release(self, *, data_left: str | None = None, best_effort: bool = False) -> None:
        """Free the lock; of a lock that is held several times, the last release does. A second time does nothing.

        Args:
            data_left: up to 256 bytes that the next holder finds as ``data_left``.
            best_effort: log what goes wrong instead of raising it.

        Raises:
            InvalidLockRequest: ``data_left`` is too long; the lock is held as before.
            LockLost: the lease had ended before, or somebody else has freed the lock; others may have held it.
            TableError: the table could not be used; the lease ends by itself.
        """
        self._under_way.release(self._holdings.release(self, data_left, best_effort=best_effort))

    def detach(self) -> None:
        """Leave the lock held, for another process (``LockClient.resume``), also at the end of ``with``."""
        self._holdings.detach(self)

    def _give_back(self) -> None:
        self._under_way.release(self._holdings.give_back(self))

    def __enter__(self) -> Self:
        self._check_held()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._under_way.release(self._holdings.leave_block(self, error))


class LeaseGroup:
    """Several locks that are held together. Use it in ``with``.

    Attributes:
        leases: in the order in which they were taken.
    """

    def __init__(self, leases: Sequence[Lease], holdings: Holdings[Lease], under_way: UnderWay) -> None:
        self.leases = tuple(leases)
        self._holdings, self._under_way = holdings, under_way

    def is_held(self) -> bool:
        """Whether all of them may be counted on at this moment."""
        return all(lease.is_held() for lease in self.leases)

    def release(self) -> None:
        """Free them all, the last one first.

        Raises:
            LockLost, TableError: of the first one that could not be released as it should; the others were released.
        """
        self._each(lambda lease: self._holdings.release(lease))

    def __enter__(self) -> Self:
        try:
            for lease in self.leases:
                lease._check_held()
        except LockLost:
            self._each(lambda lease: self._holdings.release(lease, best_effort=True))
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._each(lambda lease: self._holdings.leave_block(lease, error))

    def _give_back(self) -> None:
        self._each(lambda lease: self._holdings.give_back(lease))

    def _each(self, end: Callable[[Lease], Actions[None]]) -> None:
        self._under_way.release(self._holdings.each(self.leases, end))
