"""A DynamoDB in memory, in the place of a boto3 client or behind one."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ClientError

from ticketlock._expressions._values import Item, copy_of_item
from ticketlock.testing._faults import Fault, Refused
from ticketlock.testing._in_steps import InSteps
from ticketlock.testing._service import ENDPOINT, Service
from ticketlock.testing._tables import Table
from ticketlock.wire._clocks import Clocks, SystemClocks

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# A quarter of the shortest lease, so that every lease may be used.
_TIME_OUT_S = 0.25


class MemoryDynamoDB:
    """A DynamoDB in memory, for any number of threads: what ticketlock asks of one, and what stands beside it.

    It answers like the service, in its replies and in its errors, as far as it goes: items are written and read one by
    one, in batches and in transactions, tables are queried and scanned, without indexes; conditions, filters, updates
    and projections are all of DynamoDB's. Whatever it does not know is a NotImplementedError. Sums that need more than
    38 digits are errors; nothing is ever rounded.

    It can be used as a client (``client``), or answer in the place of AWS for a boto3 client (``serve``).

    Args:
        lock_table: the name of a lock table to begin with; None for no table.
        clock: gives the service's time, by its wall clock.
        transactions_take_s: for how long, by that clock, a transaction is at work on its items: other writes to them
            meet a conflict meanwhile, as a repetition of its own does that it is in progress; 0 for no time at all.

    Attributes:
        sent: the requests so far.
        faults: what becomes of the next requests, in order; None lets one pass.
        ongoing: the transactions that were begun with ``in_steps`` and are not over, oldest first.
        comes_next: a function of how many items of a TransactWriteItems are left to be changed, which returns the
            position of the one that is next: DynamoDB promises no order. The first, unless you set it.
        meta: what a client has there, as far as ``LockTable`` looks.
    """

    def __init__(
        self, *, lock_table: str | None = "locks", clock: Clocks | None = None, transactions_take_s: float = 0
    ) -> None:
        self._service = Service(clock if clock is not None else SystemClocks(), round(transactions_take_s * 1_000))
        self.sent = self._service.sent
        self.faults = self._service.faults
        self.ongoing = self._service.ongoing
        config = Config(
            connect_timeout=_TIME_OUT_S, read_timeout=_TIME_OUT_S, retries={"total_max_attempts": 1, "mode": "standard"}
        )
        self.meta = SimpleNamespace(config=config, region_name="us-east-1", endpoint_url=ENDPOINT)
        if lock_table is not None:
            self._service.tables.add(Table(lock_table, ("pk", "sk"), ttl_attribute="expiresAt"))

    @property
    def comes_next(self) -> Callable[[int], int]:
        """Which of so many items of a TransactWriteItems is changed next."""
        return self._service.tables.transactions.comes_next

    @comes_next.setter
    def comes_next(self, chosen: Callable[[int], int]) -> None:
        self._service.tables.transactions.comes_next = chosen

    @property
    def client(self) -> "DynamoDBClient":
        """This object, for what is typed to take a client."""
        return cast("DynamoDBClient", self)

    def serve(self, client: Any) -> None:
        """Answer the requests of a boto3 client, of a resource's ``meta.client`` too; none leaves the process."""
        client.meta.events.register("before-call.dynamodb", self._before_call)

        # What a test does to it.

    @contextmanager
    def outage(self, fault: Fault) -> Iterator[None]:
        """Within the block every request meets the fault; a conflict, every write."""
        self._service.outage = fault
        try:
            yield
        finally:
            self._service.outage = None

    def in_steps(self, operation: str, **parameters: Any) -> InSteps:
        """Send a transaction that goes on step by step, as DynamoDB performs it, so that others go on in between.

        It is seen as it is on DynamoDB: of a TransactWriteItems a plain read finds each item as it was until its own
        step has changed it, so that two of them may see half of it; other writes, and other transactions, meet a
        conflict while an item is taken; a copy with its token is told that it is in progress. A TransactGetItems meets
        a conflict if one of its items is taken, or changes before it has looked at all of them again.

        Args:
            operation: ``"transact_write_items"`` or ``"transact_get_items"``.
            parameters: as of the client's method of that name.

        Raises:
            ValueError: it is another operation.
            ConnectTimeoutError: it was given the fault that the request is lost.
        """
        return self._service.begin("".join(part.capitalize() for part in operation.split("_")), parameters)

    def items(self, table_name: str = "locks") -> list[Item]:
        """Copies of all items of a table; no request."""
        with self._service.lock:
            return [copy_of_item(item) for item in self._table(table_name).items()]

    def delete_all(self, pk: str, table_name: str = "locks") -> int:
        """Take all items of a partition away underneath whoever uses them: for a lock, its entity; no request.

        Returns:
            How many there were.
        """
        with self._service.lock:
            return self._delete(
                self._service.tables[table_name], lambda item, table: item[table.key_names[0]] == {"S": pk}
            )

    def expire(self) -> int:
        """Delete whatever time to live has come to its end by the service's time; DynamoDB may take days.

        An item that a transaction is at work on stays until the next time.

        Returns:
            How many items there were.
        """
        now_s = self._service.wall_ms // 1_000

        def is_over(item: Item, table: Table) -> bool:
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
    def _delete(table: Table, is_gone: Callable[[Item, Table], bool]) -> int:
        gone = [item for item in table.items() if is_gone(item, table)]
        for item in gone:
            table.put(table.key_of(item, is_item=True), None)
        return len(gone)

    # The client's methods.

    def put_item(self, **parameters: Any) -> Any:
        """PutItem."""
        return self._answer("PutItem", parameters)

    def update_item(self, **parameters: Any) -> Any:
        """UpdateItem."""
        return self._answer("UpdateItem", parameters)

    def delete_item(self, **parameters: Any) -> Any:
        """DeleteItem."""
        return self._answer("DeleteItem", parameters)

    def get_item(self, **parameters: Any) -> Any:
        """GetItem."""
        return self._answer("GetItem", parameters)

    def query(self, **parameters: Any) -> Any:
        """Query."""
        return self._answer("Query", parameters)

    def scan(self, **parameters: Any) -> Any:
        """Scan."""
        return self._answer("Scan", parameters)

    def transact_write_items(self, **parameters: Any) -> Any:
        """TransactWriteItems."""
        return self._answer("TransactWriteItems", parameters)

    def transact_get_items(self, **parameters: Any) -> Any:
        """TransactGetItems."""
        return self._answer("TransactGetItems", parameters)

    def batch_get_item(self, **parameters: Any) -> Any:
        """BatchGetItem."""
        return self._answer("BatchGetItem", parameters)

    def batch_write_item(self, **parameters: Any) -> Any:
        """BatchWriteItem."""
        return self._answer("BatchWriteItem", parameters)

    def create_table(self, **parameters: Any) -> Any:
        """CreateTable."""
        return self._answer("CreateTable", parameters)

    def describe_table(self, **parameters: Any) -> Any:
        """DescribeTable."""
        return self._answer("DescribeTable", parameters)

    def get_waiter(self, name: str) -> Any:
        """A waiter for what is there at once: a table that was created."""
        if name != "table_exists":
            raise NotImplementedError(f"MemoryDynamoDB does not wait for {name}")
        return SimpleNamespace(wait=lambda TableName, WaiterConfig=None: self.describe_table(TableName=TableName))  # noqa: ARG005 as of a client

    def delete_table(self, **parameters: Any) -> Any:
        """DeleteTable."""
        return self._answer("DeleteTable", parameters)

    def describe_time_to_live(self, **parameters: Any) -> Any:
        """DescribeTimeToLive."""
        return self._answer("DescribeTimeToLive", parameters)

    def update_time_to_live(self, **parameters: Any) -> Any:
        """UpdateTimeToLive."""
        return self._answer("UpdateTimeToLive", parameters)

    def _answer(self, operation: str, parameters: Mapping[str, Any]) -> Any:
        status, reply = self._service.answer(operation, parameters)
        if status >= 300:
            error: Any = reply
            raise ClientError(error, operation)
        return reply

    def _before_call(self, model: Any, params: Mapping[str, Any], **_: Any) -> tuple[AWSResponse, dict[str, Any]]:
        """What a handler of ``before-call`` returns, botocore takes for the reply."""
        status, reply = self._service.answer(model.name, json.loads(params["body"], object_hook=_with_bytes))
        headers: Any = reply["ResponseMetadata"]["HTTPHeaders"]
        raw: Any = None
        return AWSResponse(ENDPOINT, status, headers, raw), reply


def _with_bytes(value: dict[str, Any]) -> dict[str, Any]:
    """Binary values travel in base 64. A member ``B`` of an item is a map, or a list for sets, and no text."""
    if len(value) == 1 and isinstance(value.get("B"), str):
        return {"B": base64.b64decode(value["B"])}
    if len(value) == 1 and isinstance(value.get("BS"), list):
        return {"BS": [base64.b64decode(member) for member in value["BS"]]}
    return value
