"""Clients behind the proxy; the test itself reaches the table directly."""

from collections.abc import Mapping
from typing import Any

from botocore.config import Config
from kit.in_a_loop import Loop
from kit.places import Emulated, Kind
from kit.proxy import Proxy

from ticketlock import LockName
from ticketlock.aio._lock_table import LockTable as AsyncLockTable
from ticketlock.locks._lock_table import LockTable
from ticketlock.locks._reads import TIME_CHECK
from ticketlock.wire._actions import Reply
from ticketlock.wire._driver import Driver, SystemClocks
from ticketlock.wire._requests import Request
from ticketlock.wire._sdk import CLIENT_SETTINGS, make_client


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
        item = self.table.inspect(LockName(entity)).item
        assert item is not None
        return item.fencing_token

    def lease_until_ms(self, entity: str) -> int:
        """When the lease of its only holder ends, in table time."""
        item = self.table.inspect(LockName(entity)).item
        assert item is not None
        (holder,) = item.holders
        return holder.lease_until_ms


# One SDK client behind a proxy, with which a test sends requests and learns their reported outcomes.


READ_TIMEOUT_S = 0.25


def far_client(kind: Kind, loop: Loop, proxy: Proxy) -> Any:
    """A client of boto3 or aiobotocore, behind a proxy, configured to reach it."""
    settings: dict[str, Any] = {**CLIENT_SETTINGS, "read_timeout": READ_TIMEOUT_S}
    options: dict[str, Any] = {"endpoint_url": proxy.url}
    if proxy.certificate is not None and proxy.tunnel is not None:
        settings["proxies"] = {"https": proxy.tunnel.url}
        options["verify"] = proxy.certificate.path
    if kind == "tasks":
        return loop.dynamodb(config=settings, **options)
    return make_client(config=Config(**settings), **options)


class Sender:
    """Sends requests to one table.

    Args:
        client: the SDK's.
    """

    def __init__(self, kind: Kind, loop: Loop, client: Any, table_name: str) -> None:
        self._kind = kind
        self._loop = loop
        self._client = client
        self._table_name = table_name

    def perform(self, request: Request, patience_ms: int = 0) -> Reply:
        """Send a request until it is applied or refused; once, without patience."""
        driver = Driver(self._table_name, TIME_CHECK, SystemClocks(), patience_ms, jitter=lambda: 1)
        actions = driver.perform(request)
        if self._kind == "threads":
            return LockTable(self._table_name, client=self._client).drive(actions)
        table = AsyncLockTable(self._table_name, None, SystemClocks())
        table.open(self._client)
        reply: Reply = self._loop.do(lambda: table.drive(actions))
        return reply


def how_often(client: Any, table_name: str, key: Mapping[str, Any]) -> int:
    """How many times an item was incremented."""
    found = client.get_item(TableName=table_name, Key=key, ConsistentRead=True)
    return int(found.get("Item", {}).get("seen", {"N": "0"})["N"])
