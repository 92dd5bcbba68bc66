"""Leases of the client for tasks: one, and several that are held together."""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
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
    from ticketlock.aio._client import LockClient

_log = logging.getLogger("ticketlock")

_TRANSACTION_PATIENCE_S = 10.0


class Lease(BaseLease):
    """A held lock. Use it in ``async with``: it is released at the end, and what is raised inside passes through."""

    _client: "LockClient"
    _keeping: "asyncio.Task[None] | None" = None

    async def renew(self) -> None:
        """A whole new lease, now; see ``ticketlock.Lease.renew``."""
        self._check_held()
        await self._client._renew(self)

    async def ensure(self, at_least: Seconds) -> None:
        """Make sure that the lock is held for so long from now on; see ``ticketlock.Lease.ensure``."""
        needed_ms = duration_ms("at_least", at_least, 0, MAX_LEASE_MS)
        if not self._is_sure_of(needed_ms):
            await self.renew()
        if not self._is_sure_of(needed_ms):
            raise self._too_short(needed_ms)

    async def set_data(self, data: str | None) -> None:
        """Show something else beside the holder; see ``ticketlock.Lease.set_data``."""
        self._check_process()
        await self._client._table.contend(self._claim, lambda me: me.set_data(self.fencing_token, data))
        self._data = data

    async def transact_write(
        self, items: Sequence[Mapping[str, Any]], *, client: Any = None, patience: Seconds = _TRANSACTION_PATIENCE_S
    ) -> None:
        """Write in one transaction with the check that this lock is held; see ``ticketlock.Lease.transact_write``."""
        self._check_process()
        patience_ms = duration_ms("patience", patience, 0, MAX_LEASE_MS)
        table = self._client._table
        items = list(items)
        _sdk.check_items(client if client is not None else table.client, items)
        actions = _fencing.transact_write(self.condition_check(), items, self._clocks, patience_ms)
        await table.drive(actions, dynamodb=client)

    async def release(self, *, data_left: str | None = None, best_effort: bool = False) -> None:
        """Free the lock; see ``ticketlock.Lease.release``."""
        self._check_process()
        if data_left is not None:
            text("data_left", data_left, DATA_BYTES)
        try:
            await self._client._release(self, data_left)
        except TicketLockError as error:
            if not best_effort:
                raise
            _log.warning("%r was not released: %s", self, error)

    def detach(self) -> None:
        """Leave the lock held, for another process (``LockClient.resume``), also at the end of ``with``."""
        self._check_process()
        self._detached = True
        self._client._forget(self)

    async def _give_back(self) -> None:
        """End it as it was found: nobody has worked under it. A grant that others may have as well is left to them."""
        if self._has_own_identity:
            await self.release(best_effort=True, data_left=self.data_left)
        elif self._mark_released() != "still held":
            self._client._forget(self)

    async def __aenter__(self) -> Self:
        self._check_held()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pid != os.getpid() or self._detached:
            return
        try:
            await self.release(best_effort=error is not None)
        except TableError as failed:
            _log.error("%r was not released, and ends by itself: %s", self, failed)


class LeaseGroup:
    """Several locks that are held together. Use it in ``async with``.

    Attributes:
        leases: in the order in which they were taken.
    """

    def __init__(self, leases: Sequence[Lease]) -> None:
        self.leases = tuple(leases)

    def is_held(self) -> bool:
        """Whether all of them may be counted on at this moment."""
        return all(lease.is_held() for lease in self.leases)

    async def release(self) -> None:
        """Free them all, the last one first; see ``ticketlock.LeaseGroup.release``."""
        await self._to_the_end(lambda lease: lease.release())

    async def __aenter__(self) -> Self:
        try:
            for lease in self.leases:
                lease._check_held()
        except LockLost:
            await self._to_the_end(lambda lease: lease.release(best_effort=True))
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._to_the_end(lambda lease: lease.__aexit__(kind, error, traceback))

    async def _give_back(self) -> None:
        """End them as they were found: nobody has worked under them."""
        await self._for_each(lambda lease: lease._give_back())

    async def _to_the_end(self, end: Callable[[Lease], Coroutine[Any, Any, None]]) -> None:
        """Also if the caller is cancelled: each of the locks is freed."""
        locks = [lease.lock for lease in self.leases]
        await self.leases[0]._client._to_the_end(self._for_each(end), f"to release {locks}")

    async def _for_each(self, end: Callable[[Lease], Coroutine[Any, Any, None]]) -> None:
        """The last one first, each of them, whatever becomes of the others."""
        first: BaseException | None = None
        for lease in reversed(self.leases):
            try:
                await end(lease)
            except BaseException as error:
                first = first or error
        if first is not None:
            raise first
