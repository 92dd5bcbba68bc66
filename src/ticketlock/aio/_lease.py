"""Leases of the client for tasks: one, and several that are held together."""

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from ticketlock._checks import Seconds
from ticketlock.aio._lock_table import LockTable, ToTheEnd
from ticketlock.client._arguments import Acquisition
from ticketlock.client._base_lease import BaseLease
from ticketlock.client._holdings import TRANSACTION_PATIENCE_S, Holdings
from ticketlock.errors import LockLost
from ticketlock.locks._outcomes import Grant
from ticketlock.wire._actions import Actions
from ticketlock.wire._driver import Clocks


class Lease(BaseLease):
    """A held lock. Use it in ``async with``: its end releases the lock, and exceptions from the block pass through."""

    def __init__(
        self,
        terms: Acquisition,
        grant: Grant,
        clocks: Clocks,
        table: LockTable,
        holdings: "Holdings[Lease]",
        to_the_end: ToTheEnd,
    ) -> None:
        super().__init__(table.table_name, terms, grant, clocks)
        self._table, self._holdings, self._to_the_end = table, holdings, to_the_end

    async def renew(self) -> None:
        """Give the lock a full new lease now; see ``ticketlock.Lease.renew``."""
        self._check_held()
        await self._table.drive(self._holdings.renew(self))

    async def ensure(self, at_least: Seconds) -> None:
        """Make sure that the lock is held for this long from now on; see ``ticketlock.Lease.ensure``."""
        await self._table.drive(self._holdings.ensure(self, at_least))

    async def set_data(self, data: str | None) -> None:
        """Replace the data that is shown beside the holder; see ``ticketlock.Lease.set_data``."""
        await self._table.drive(self._holdings.set_data(self, data))

    async def transact_write(
        self, items: Sequence[Mapping[str, Any]], *, client: Any = None, patience: Seconds = TRANSACTION_PATIENCE_S
    ) -> None:
        """Write in one transaction with the check that this lock is held; see ``ticketlock.Lease.transact_write``."""
        dynamodb = client if client is not None else self._table.client
        await self._table.drive(self._holdings.transact_write(self, items, dynamodb, patience), dynamodb=dynamodb)

    async def release(self, *, data_left: str | None = None, best_effort: bool = False) -> None:
        """Free the lock; see ``ticketlock.Lease.release``."""
        await self._end(self._holdings.release(self, data_left, best_effort=best_effort))

    def detach(self) -> None:
        """Leave the lock held, also at the end of ``async with``, for another process (``LockClient.resume``)."""
        self._holdings.detach(self)

    async def _give_back(self) -> None:
        await self._end(self._holdings.give_back(self))

    async def __aenter__(self) -> Self:
        self._check_held()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._end(self._holdings.leave_block(self, error))

    async def _end(self, actions: Actions[None]) -> None:
        await self._to_the_end(self._table.drive(actions), f"to release {self.lock!r}")


class LeaseGroup:
    """Several locks that are held together. Use it in ``async with``.

    Attributes:
        leases: in the order in which they were acquired.
    """

    def __init__(
        self, leases: Sequence[Lease], table: LockTable, holdings: Holdings[Lease], to_the_end: ToTheEnd
    ) -> None:
        self.leases = tuple(leases)
        self._table, self._holdings, self._to_the_end = table, holdings, to_the_end

    def is_held(self) -> bool:
        """Whether the holder may rely on all of them now."""
        return all(lease.is_held() for lease in self.leases)

    async def release(self) -> None:
        """Free them all, the last one first; see ``ticketlock.LeaseGroup.release``."""
        await self._each(lambda lease: self._holdings.release(lease))

    async def __aenter__(self) -> Self:
        # If all is well do not yield to the loop: a cancellation here would leave nothing to release the locks.
        try:
            for lease in self.leases:
                lease._check_held()
        except LockLost:
            await self._each(lambda lease: self._holdings.release(lease, best_effort=True))
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._each(lambda lease: self._holdings.leave_block(lease, error))

    async def _give_back(self) -> None:
        await self._each(lambda lease: self._holdings.give_back(lease))

    async def _each(self, end: Callable[[Lease], Actions[None]]) -> None:
        await self._end(self._holdings.each(self.leases, end))

    async def _end(self, actions: Actions[None]) -> None:
        locks = [lease.lock for lease in self.leases]
        await self._to_the_end(self._table.drive(actions), f"to release {locks}")
