"""The service: takes requests in, one at a time, and answers them or loses them."""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from typing import Any

from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

from ticketlock._expressions._errors import ExpressionInvalid
from ticketlock.testing import _administration, _parameters, _reads, _writes
from ticketlock.testing._faults import Fault, Refused, conflict, conflicts, invalid, throttled
from ticketlock.testing._tables import Tables
from ticketlock.testing._transactions import Transactions
from ticketlock.wire._clocks import Clocks

ENDPOINT = "memory://dynamodb"

_MEET_CONFLICTS = frozenset({"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems"})

Parameters = Mapping[str, Any]
Reply = dict[str, Any]

_OPERATIONS: Mapping[str, Callable[[Tables, Parameters], Reply]] = {
    "GetItem": _reads.get_item,
    "Query": _reads.query,
    "Scan": _reads.scan,
    "PutItem": lambda tables, parameters: _writes.write(tables, "PutItem", parameters),
    "UpdateItem": lambda tables, parameters: _writes.write(tables, "UpdateItem", parameters),
    "DeleteItem": lambda tables, parameters: _writes.write(tables, "DeleteItem", parameters),
    "TransactWriteItems": _writes.transact_write_items,
    "BatchGetItem": _reads.batch_get_item,
    "BatchWriteItem": _writes.batch_write_item,
    "CreateTable": _administration.create_table,
    "DescribeTable": _administration.describe_table,
    "DeleteTable": _administration.delete_table,
    "DescribeTimeToLive": _administration.describe_time_to_live,
    "UpdateTimeToLive": _administration.update_time_to_live,
}


@lru_cache(maxsize=8)
def _date(now_s: int) -> str:
    return formatdate(now_s, usegmt=True)


@dataclass(frozen=True, slots=True)
class Sent:
    """One request: its operation (``"UpdateItem"``) and its parameters."""

    operation: str
    parameters: Parameters


class Service:
    """All tables, and what becomes of the requests to them.

    Attributes:
        lock: held while a request is at work.
        tables: all of them.
        sent: the requests so far.
        faults: what becomes of the next ones; None lets one pass.
        outage: what becomes of all that are left.
    """

    def __init__(self, clock: Clocks, transactions_take_ms: int) -> None:
        self._clock = clock
        self.lock = threading.RLock()
        self.tables = Tables(Transactions(lambda: self.wall_ms, transactions_take_ms))
        self.sent: list[Sent] = []
        self.faults: deque[Fault | None] = deque()
        self.outage: Fault | None = None

    @property
    def wall_ms(self) -> int:
        """The service's time, milliseconds since the epoch."""
        return self._clock.read().wall_ms

    def answer(self, operation: str, parameters: Parameters) -> tuple[int, Reply]:
        """Perform a request: the status of its reply, and the reply.

        Raises:
            ConnectTimeoutError, ReadTimeoutError: there is none.
            ParamValidationError: a parameter is missing; it was not sent.
            NotImplementedError: DynamoDB would know the answer.
        """
        if operation not in _OPERATIONS:
            raise NotImplementedError(f"MemoryDynamoDB does not know {operation}")
        _parameters.check(operation, parameters)
        with self.lock:
            self.sent.append(Sent(operation, parameters))
            fault = self._fault(operation)
            if fault is Fault.REQUEST_LOST:
                raise ConnectTimeoutError(endpoint_url=ENDPOINT)
            status, reply = self._performed(operation, parameters, fault)
            if fault is Fault.REPLY_LOST:
                raise ReadTimeoutError(endpoint_url=ENDPOINT)
            headers = {"date": _date(self.wall_ms // 1_000), "server": "MemoryDynamoDB"}
            reply["ResponseMetadata"] = {
                "RequestId": f"MEMORY{len(self.sent):026}",
                "HTTPStatusCode": status,
                "HTTPHeaders": headers,
                "RetryAttempts": 0,
            }
            return status, reply

    def _fault(self, operation: str) -> Fault | None:
        spared = Fault.CONFLICT if operation not in _MEET_CONFLICTS else None
        if self.faults and (self.faults[0] is None or self.faults[0] is not spared):
            return self.faults.popleft()
        return self.outage if self.outage is not spared else None

    def _performed(self, operation: str, parameters: Parameters, fault: Fault | None) -> tuple[int, Reply]:
        try:
            if fault is Fault.THROTTLED:
                raise throttled()
            if fault is Fault.CONFLICT:
                if operation != "TransactWriteItems":
                    raise conflict()
                raise conflicts([position == 0 for position in range(len(parameters["TransactItems"]))])
            return 200, _OPERATIONS[operation](self.tables, parameters)
        except Refused as refused:
            return 400, refused.failure()
        except ExpressionInvalid as error:
            return 400, invalid(error.message).failure()
