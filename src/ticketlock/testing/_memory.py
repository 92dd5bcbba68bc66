"""A DynamoDB in memory, instead of a boto3 client or behind one."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from types import coroutine
from typing import TYPE_CHECKING, Any, Self, cast

from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.paginate import Paginator

from ticketlock._expressions import Attributes, copy_of_item
from ticketlock.testing._client import AsyncTableWaiter, ClientMeta, ClientMethods, TableWaiter
from ticketlock.testing._faults import Fault, FaultOn
from ticketlock.testing._parameters import check_name, not_known
from ticketlock.testing._refusals import Refused, error_of
from ticketlock.testing._sendable import sendable
from ticketlock.testing._service import ENDPOINT, Service, decoded, plain_item
from ticketlock.testing._tables import Table
from ticketlock.testing._transactions import InSteps
from ticketlock.wire import Clocks, SystemClocks

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# A quarter of the shortest lease, so that every lease can be used.
_TIME_OUT_S = 0.25

_EVENT = "before-call.dynamodb"
# Of the handler, so that the next memory finds it.
_SERVES = "ticketlock-memory"


class MemoryDynamoDB(ClientMethods):
    """A DynamoDB in memory, for any number of threads, with the operations that ticketlock and its users need.

    Its replies and errors are those of the service. It writes and reads items one by one, in batches and in
    transactions, and queries and scans tables and their indexes, with all of DynamoDB's conditions, filters, updates
    and projections. The page about Python lists the operations and parameters that it has; anything else raises
    NotImplementedError. Sums that need more than 38 digits are errors; nothing is rounded.

    Use it as a client (``client``), or let it answer the requests of a boto3 client instead of AWS (``serve``).

    Args:
        lock_table: the name of a lock table to create; None for no table.
        clock: its wall clock is the service's time.
        transactions_take_s: how long, by that clock, a transaction is in progress. Meanwhile other writes to its items
            meet a conflict, and a repetition of it is refused as in progress. 0: it takes no time.

    Attributes:
        sent: the requests so far.
        faults: the faults of the next requests, a ``deque``. A request meets the first that affects it; None lets one
            pass. ``Fault.THROTTLED`` is for any request, ``Fault.THROTTLED.on("PutItem", table="orders")`` for some.
        ongoing: the transactions that were begun with ``in_steps`` and are not over, oldest first.
        comes_next: a function that gets the number of items of a TransactWriteItems that are left to be changed, and
            returns the position of the next one, since DynamoDB promises no order. By default the first.
        index_delay: ``index_delay.arrive`` is a function that gets the number of changes that have not reached a global
            index, and returns how many reach it before it is read next, since DynamoDB's indexes follow their table
            later. By default all.
        meta: as of a client, but for ``events``: register handlers on a client that it serves.
    """

    def __init__(
        self, *, lock_table: str | None = "locks", clock: Clocks | None = None, transactions_take_s: float = 0
    ) -> None:
        self._service = Service(clock if clock is not None else SystemClocks(), round(transactions_take_s * 1_000))
        self.sent = self._service.sent
        self.faults = self._service.faults.queued
        self.ongoing = self._service.ongoing
        self.index_delay = self._service.tables.delay
        config = Config(
            connect_timeout=_TIME_OUT_S, read_timeout=_TIME_OUT_S, retries={"total_max_attempts": 1, "mode": "standard"}
        )
        self.meta = ClientMeta(config)
        if lock_table is not None:
            check_name("tableName", lock_table)
            self._service.tables.add(
                Table(lock_table, ("pk", "sk"), ttl_attribute="expiresAt", created_ms=self._service.wall_ms)
            )

    @property
    def comes_next(self) -> Callable[[int], int]:
        """Which of so many items of a TransactWriteItems is changed next."""
        return self._service.tables.transactions.comes_next

    @comes_next.setter
    def comes_next(self, chosen: Callable[[int], int]) -> None:
        self._service.tables.transactions.comes_next = chosen

    @property
    def client(self) -> "DynamoDBClient":
        """This object, typed as a client."""
        return cast("DynamoDBClient", self)

    @property
    def async_client(self) -> Any:
        """A client with awaitable methods, as aiobotocore's; other tasks may run before and after each request."""
        return _AsyncMemoryDynamoDB(self)

    def serve(self, client: Any) -> None:
        """Answer the requests of a client, or of a resource's ``meta.client``; none leaves the process.

        The client is of boto3, aiobotocore or aioboto3. If another memory has served it before, this one replaces it.
        """
        client.meta.events.unregister(_EVENT, unique_id=_SERVES)
        client.meta.events.register(_EVENT, self._before_call, unique_id=_SERVES)

    def get_paginator(self, operation_name: str) -> Any:
        """A paginator of botocore's."""
        return Paginator(*self._paged(operation_name))

    def get_waiter(self, waiter_name: str) -> Any:
        """A waiter: of ``table_exists`` or ``table_not_exists``."""
        return TableWaiter(*self._waited(waiter_name))

    def close(self) -> None:
        """Nothing to do: tables and items stay."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What tests call.

    @contextmanager
    def outage(self, fault: Fault | FaultOn) -> Iterator[None]:
        """Within the block every request that the fault affects meets it."""
        faults = self._service.faults
        before, faults.outage = faults.outage, fault.on() if isinstance(fault, Fault) else fault
        try:
            yield
        finally:
            faults.outage = before

    def in_steps(self, operation: str, **parameters: Any) -> InSteps:
        """Send a transaction that is performed step by step, as in DynamoDB: other requests can come in between.

        Others see what they would see on DynamoDB. A plain read returns an item of a TransactWriteItems unchanged until
        the item's own step has changed it, so two plain reads may see half of the transaction. Other writes and other
        transactions meet a conflict while an item is reserved; a copy with the same token is refused, since the
        transaction is in progress. A TransactGetItems meets a conflict if one of its items is reserved, or changes
        before all of them have been checked again.

        Args:
            operation: ``"transact_write_items"`` or ``"transact_get_items"``.
            parameters: those of the client's method of that name.

        Raises:
            ValueError: it is another operation.
            ConnectTimeoutError: it has met the fault that the request is lost.
        """
        return self._service.begin("".join(part.capitalize() for part in operation.split("_")), parameters)

    def items(self, table_name: str = "locks") -> list[Attributes]:
        """Copies of all items of a table, in DynamoDB's JSON. Not a request."""
        with self._service.lock:
            return [copy_of_item(item) for item in self._table(table_name).items()]

    def plain_items(self, table_name: str = "locks") -> list[dict[str, Any]]:
        """The same in Python values: a number is a ``Decimal``, as from boto3's Table."""
        return [plain_item(item) for item in self.items(table_name)]

    def delete_all(self, pk: str, table_name: str = "locks") -> int:
        """Delete all items of a partition, even if they are in use. A lock's partition is its entity. Not a request.

        Returns:
            How many items there were.
        """
        with self._service.lock:
            return self._delete(
                self._service.tables[table_name], lambda item, table: item[table.key_names[0]] == {"S": pk}
            )

    def expire(self) -> int:
        """Delete all items whose time to live has ended by the service's time; DynamoDB may take days to do so.

        An item with a transaction in progress stays until the next call.

        Returns:
            How many items there were.
        """
        now_s = self._service.wall_ms // 1_000

        def is_over(item: Attributes, table: Table) -> bool:
            until = item.get(table.ttl_attribute or "", {}).get("N")
            if until is None or float(until) >= now_s:
                return False
            return not self._service.tables.transactions.is_at_work((table.name, table.key_of(item, is_item=True)))

        with self._service.lock:
            return sum(self._delete(table, is_over) for table in self._service.tables.all())

    def _table(self, name: str) -> Table:
        try:
            return self._service.tables[name]
        except Refused:
            raise KeyError(f"there is no table {name}") from None

    @staticmethod
    def _delete(table: Table, is_gone: Callable[[Attributes, Table], bool]) -> int:
        gone = [item for item in table.items() if is_gone(item, table)]
        for item in gone:
            table.put(table.key_of(item, is_item=True), None)
        return len(gone)

    # As a client.

    def _make_api_call(self, operation: str, parameters: Mapping[str, Any]) -> Any:
        status, reply = self._service.perform(operation, sendable(operation, parameters))
        if status >= 300:
            raise error_of(reply, operation)
        return reply

    def _before_call(self, model: Any, params: Mapping[str, Any], **_: Any) -> tuple[AWSResponse, dict[str, Any]]:
        """The return value of a handler of ``before-call``: botocore uses it as the reply."""
        status, reply = self._service.answer(model.name, decoded(params["body"]))
        headers: Any = reply["ResponseMetadata"]["HTTPHeaders"]
        raw: Any = None
        return AWSResponse(ENDPOINT, status, headers, raw), reply


class _AsyncMemoryDynamoDB(ClientMethods):
    """The same memory for tasks, with the methods of a client of aiobotocore."""

    def __init__(self, memory: MemoryDynamoDB) -> None:
        self._memory = memory
        self.meta = memory.meta

    async def _make_api_call(self, operation: str, parameters: Mapping[str, Any]) -> Any:
        await _other_tasks_run()
        try:
            return self._memory._make_api_call(operation, parameters)
        finally:
            await _other_tasks_run()

    def get_paginator(self, operation_name: str) -> Any:
        """Not there: it would need aiobotocore."""
        raise not_known(f"a paginator of {operation_name} for tasks: follow LastEvaluatedKey")

    def get_waiter(self, waiter_name: str) -> Any:
        """A waiter: of ``table_exists`` or ``table_not_exists``."""
        return AsyncTableWaiter(*self._waited(waiter_name))

    async def close(self) -> None:
        """Nothing to do."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


@coroutine
def _other_tasks_run() -> Generator[None, None, None]:
    """As ``asyncio.sleep(0)``; the memory needs no asyncio for it."""
    yield
