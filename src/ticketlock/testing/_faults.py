"""The faults that are injected, and which request meets which."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal, get_args

from ticketlock.testing._parameters import bare_name
from ticketlock.testing._refusals import (
    Refused,
    access_denied,
    cancelled,
    conflict,
    conflict_reason,
    server_error,
    signature_expired,
    throttled,
    throughput_exceeded,
)

ApiOperation = Literal[
    "BatchGetItem",
    "BatchWriteItem",
    "CreateTable",
    "DeleteItem",
    "DeleteTable",
    "DescribeContinuousBackups",
    "DescribeTable",
    "DescribeTimeToLive",
    "GetItem",
    "ListTables",
    "ListTagsOfResource",
    "PutItem",
    "Query",
    "Scan",
    "TagResource",
    "TransactGetItems",
    "TransactWriteItems",
    "UntagResource",
    "UpdateContinuousBackups",
    "UpdateItem",
    "UpdateTable",
    "UpdateTimeToLive",
]
"""The operations that MemoryDynamoDB performs, as the API names them."""

OPERATIONS: tuple[ApiOperation, ...] = get_args(ApiOperation)


class Fault(Enum):
    """A fault that is injected into one request.

    Attributes:
        REQUEST_LOST: the request is not applied; there was no connection.
        REPLY_LOST: the request is applied, or refused, but its reply does not arrive: reading it times out.
        SERVER_ERROR: the request is not applied; the service answers with the status 500.
        SERVER_ERROR_AFTER: the request is applied, or refused, but the service answers with the status 500.
        THROTTLED: the request is not applied; there were too many.
        THROUGHPUT_EXCEEDED: the request is not applied; there were too many for the table's provisioned capacity.
        ACCESS_DENIED: the request is not applied; the caller has no permission.
        CONFLICT: the request is not applied, because a transaction was in progress on the same item. Affects writes,
            and transactions that read.
        SIGNATURE_EXPIRED: the request is not applied; it arrived more than five minutes after it was signed.
        TOKEN_FORGOTTEN: a request that was applied before is applied again: the service has forgotten its client
            request token, as it does after ten minutes. Affects TransactWriteItems.
    """

    REQUEST_LOST = "the request is lost"
    REPLY_LOST = "the reply is lost"
    SERVER_ERROR = "the service fails before it applies the request"
    SERVER_ERROR_AFTER = "the service fails after it has applied the request"
    THROTTLED = "the request is throttled"
    THROUGHPUT_EXCEEDED = "the request exceeds the table's provisioned throughput"
    ACCESS_DENIED = "the request is denied"
    CONFLICT = "the request conflicts with a transaction"
    SIGNATURE_EXPIRED = "the request's signature has expired"
    TOKEN_FORGOTTEN = "the transaction's token is forgotten"

    def on(self, operation: ApiOperation | None = None, *, table: str | None = None, nth: int = 1) -> "FaultOn":
        """The same fault, of some requests only.

        Args:
            operation: as the API names it, for example ``"TransactWriteItems"``; None for any.
            table: the name of a table that the request reads, writes or manages; None for any.
            nth: which of those requests, from now on: 1 is the next. In an outage it is the first that fails.

        Raises:
            ValueError: there is no such operation, the fault does not affect it, or ``nth`` is not a whole number from
                1 on.
        """
        affected = AFFECTED.get(self, OPERATIONS)
        if operation is not None and operation not in affected:
            raise ValueError(f"operation is {operation!r}; allowed for {self}: {', '.join(affected)}")
        if not isinstance(nth, int) or isinstance(nth, bool) or nth < 1:
            raise ValueError(f"nth is {nth!r}; allowed: a whole number from 1 on, where 1 is the next request")
        return FaultOn(self, affected if operation is None else (operation,), table, nth)


AFFECTED: Mapping[Fault, tuple[ApiOperation, ...]] = {
    Fault.CONFLICT: ("DeleteItem", "PutItem", "TransactGetItems", "TransactWriteItems", "UpdateItem"),
    Fault.TOKEN_FORGOTTEN: ("TransactWriteItems",),
}
"""The operations that a fault affects; all if the fault is not listed here."""


@dataclass(frozen=True, slots=True)
class FaultOn:
    """A fault of some requests; ``Fault.on`` makes it."""

    fault: Fault
    operations: tuple[ApiOperation, ...]
    table: str | None
    nth: int

    def affects(self, operation: str, parameters: Mapping[str, Any]) -> bool:
        """Whether a request is one of those."""
        if self.table is None:
            return operation in self.operations
        return operation in self.operations and bare_name(self.table) in map(bare_name, tables_of(parameters))


class Faults:
    """The faults of one service.

    Attributes:
        queued: the faults of the next requests; None lets one pass.
        outage: the fault of all requests that meet none of those.
    """

    def __init__(self) -> None:
        self.queued: deque[Fault | FaultOn | None] = deque()
        self.outage: FaultOn | None = None

    def met_by(self, operation: str, parameters: Mapping[str, Any]) -> Fault | None:
        """The fault of a request that arrives: the first in the queue that affects it. It counts for all others."""
        if not self.queued and self.outage is None:
            return None
        met: list[FaultOn | None] = []
        for at, each in list(enumerate(self.queued)):
            # `met` are gone from the queue.
            at -= len(met)
            on = each.on() if isinstance(each, Fault) else each
            if on is not None and not on.affects(operation, parameters):
                continue
            if on is not None and on.nth > 1:
                self.queued[at] = replace(on, nth=on.nth - 1)
            elif not met:
                met.append(on)
                del self.queued[at]
        if met:
            return None if met[0] is None else met[0].fault
        if self.outage is None or not self.outage.affects(operation, parameters):
            return None
        if self.outage.nth > 1:
            self.outage = replace(self.outage, nth=self.outage.nth - 1)
            return None
        return self.outage.fault


def tables_of(parameters: Mapping[str, Any]) -> Iterator[str]:
    """The names or ARNs of a request's tables, perhaps several times."""
    for name in ("TableName", "ResourceArn"):
        if name in parameters:
            yield parameters[name]
    yield from parameters.get("RequestItems", ())
    for item in parameters.get("TransactItems", ()):
        for action in item.values():
            yield action.get("TableName", "")


def refusal(fault: Fault | None, operation: str, parameters: Mapping[str, Any], now_s: int) -> Refused | None:
    """The error of a request that is refused because of a fault; None if it is not.

    Args:
        now_s: the service's time, seconds since the epoch.
    """
    match fault:
        case Fault.SERVER_ERROR:
            return server_error()
        case Fault.THROTTLED:
            return throttled()
        case Fault.THROUGHPUT_EXCEEDED:
            return throughput_exceeded()
        case Fault.ACCESS_DENIED:
            # A transaction needs the permissions of its actions:
            # https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis-iam.html
            action = next((f"{min(item)}Item" for item in parameters.get("TransactItems", ())), operation)
            return access_denied(action, next(tables_of(parameters), "*"))
        case Fault.SIGNATURE_EXPIRED:
            return signature_expired(now_s)
        case Fault.CONFLICT:
            if "TransactItems" not in parameters:
                return conflict()
            others = len(parameters["TransactItems"]) - 1
            return cancelled([conflict_reason(), *({"Code": "None"} for _ in range(others))])
        case _:
            return None
