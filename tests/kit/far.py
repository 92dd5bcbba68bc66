"""Clients behind the proxy; the test itself reaches the table directly."""

from typing import Any

from kit.in_a_loop import Loop
from kit.places import Emulated, Kind
from kit.proxy import Proxy

from ticketlock.locks._lock_table import LockTable


class Far(Emulated):
    """A table of the emulator whose clients are behind the proxy; the test itself reads it directly.

    Attributes:
        near: a place on the same table, with nothing in between.
    """

    def __init__(self, kind: Kind, loop: Loop, proxy: Proxy, near: Emulated, shared: dict[Any, Any]) -> None:
        super().__init__(kind, loop, proxy.url, near.table_name, shared)
        self.near = near
        self.table: LockTable = near.table

    def is_free(self, entity: str) -> bool:
        """Whether the lock has no holder and no waiter.

        A ticket whose reply was lost is taken twice: the count may be too high, until a grant finds no waiter.
        """
        return self.holders_of(entity) == 0 and self.queue_of(entity) == 0

    def token_of(self, entity: str) -> int:
        """The last fencing token that was granted."""
        return self.item_of(entity).fencing_token

    def lease_until_ms(self, entity: str) -> int:
        """When the lease of its only holder ends, in table time."""
        (holder,) = self.item_of(entity).holders
        return holder.lease_until_ms
