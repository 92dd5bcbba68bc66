"""The service: performs requests, one at a time, and answers or loses them."""

import base64
import json
import threading
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from email.utils import formatdate
from functools import lru_cache
from typing import Any

from boto3.dynamodb.transform import ParameterTransformer
from boto3.dynamodb.types import TypeDeserializer
from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

from ticketlock._expressions import Attributes, ExpressionInvalid
from ticketlock.testing import _management, _requests, _transactions
from ticketlock.testing._faults import Fault, Faults, refusal
from ticketlock.testing._parameters import check_values, shape_of
from ticketlock.testing._refusals import Refused, invalid, server_error
from ticketlock.testing._sendable import check_received, sendable
from ticketlock.testing._tables import MemoryTables, Parameters, Reply, Transactions
from ticketlock.testing._transactions import InSteps, TransactionSteps, at_once
from ticketlock.wire import Clocks

_ERRORS = "com.amazonaws.dynamodb.v20120810#"

ENDPOINT = "memory://dynamodb"

_python: Callable[[Any], Any] = TypeDeserializer().deserialize

_TRANSACTIONS: Mapping[str, Callable[[MemoryTables, Parameters], TransactionSteps]] = {
    "TransactWriteItems": _transactions.transact_write_items,
    "TransactGetItems": _transactions.transact_get_items,
}


def decoded(body: bytes | str) -> dict[str, Any]:
    """The parameters in a request's body.

    Raises:
        ValueError: it has none.
    """
    try:
        parameters = json.loads(body, object_hook=_with_bytes)
    except RecursionError:
        raise ValueError("the body is nested too deeply") from None
    if not isinstance(parameters, dict):
        raise ValueError("the body is not an object of JSON")
    return parameters


def encoded(reply: dict[str, Any]) -> tuple[dict[str, str], bytes]:
    """The headers and the body of a reply, which loses its metadata and its error here."""
    headers: dict[str, str] = reply.pop("ResponseMetadata")["HTTPHeaders"]
    if "Error" in reply:
        reply |= failure(reply.pop("Error")["Code"])
    return headers, json.dumps(reply, default=_encoded).encode()


def failure(code: str) -> dict[str, str]:
    """The member of an error's body that has its code."""
    return {"__type": _ERRORS + code}


def _with_bytes(value: dict[str, Any]) -> dict[str, Any]:
    """Decode binary values from base64. A member ``B`` that is not text is an attribute of that name, not a value."""
    if len(value) == 1 and isinstance(value.get("B"), str):
        return {"B": base64.b64decode(value["B"], validate=True)}
    if len(value) == 1 and isinstance(value.get("BS"), list):
        return {"BS": [base64.b64decode(member, validate=True) for member in value["BS"]]}
    return value


def _encoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.timestamp()
    raise TypeError(f"{type(value)} is not a DynamoDB value")


_OPERATIONS: Mapping[str, Callable[[MemoryTables, Parameters], Reply]] = {
    "GetItem": _requests.get_item,
    "Query": _requests.query,
    "Scan": _requests.scan,
    "PutItem": lambda tables, parameters: _requests.write(tables, "PutItem", parameters),
    "UpdateItem": lambda tables, parameters: _requests.write(tables, "UpdateItem", parameters),
    "DeleteItem": lambda tables, parameters: _requests.write(tables, "DeleteItem", parameters),
    "BatchGetItem": _requests.batch_get_item,
    "BatchWriteItem": _requests.batch_write_item,
}


@lru_cache(maxsize=8)
def _date(now_s: int) -> str:
    return formatdate(now_s, usegmt=True)


def plain_item(item: Attributes) -> dict[str, Any]:
    """An item in Python values, as boto3's Table reads it."""
    return {name: _python(value) for name, value in item.items()}


@dataclass(frozen=True, slots=True)
class Sent:
    """One request: its operation (``"UpdateItem"``) and its parameters, with attributes as in DynamoDB's JSON."""

    operation: str
    parameters: Parameters

    @property
    def plain(self) -> dict[str, Any]:
        """The parameters with attributes as Python values: a number is a ``Decimal``, as from boto3's Table."""
        plain = deepcopy(dict(self.parameters))
        ParameterTransformer().transform(plain, shape_of(self.operation), _python, "AttributeValue")
        return plain


class Service:
    """All tables, and the faults of the requests to them.

    Attributes:
        lock: held while a request is performed.
        tables: all of them.
        sent: the requests so far.
        faults: those of the next ones.
        ongoing: the transactions that were begun in steps and are not over, oldest first.
    """

    def __init__(self, clock: Clocks, transactions_take_ms: int) -> None:
        self._clock = clock
        self.lock = threading.RLock()
        self.tables = MemoryTables(Transactions(lambda: self.wall_ms, transactions_take_ms), lambda: self.wall_ms)
        self.sent: list[Sent] = []
        self.faults = Faults()
        self.ongoing: list[InSteps] = []

    @property
    def wall_ms(self) -> int:
        """The service's time, milliseconds since the epoch."""
        return self._clock.read().wall_ms

    def answer(self, operation: str, parameters: Parameters) -> tuple[int, Reply]:
        """Check a request from the wire, and perform it; return the status of its reply, and the reply."""
        check_received(operation, parameters)
        return self.perform(operation, parameters)

    def perform(self, operation: str, parameters: Parameters) -> tuple[int, Reply]:
        """The same without the check, which a client has made."""
        with self.lock:
            fault = self._arrives(operation, parameters)
            try:
                self._refuse(operation, parameters, fault)
                reply = self._performed(operation, parameters)
            except Refused as refused:
                return self._replies(fault, 400, refused.failure())
            except ExpressionInvalid as error:
                return self._replies(fault, 400, invalid(error.message).failure())
            return self._replies(fault, 200, reply)

    def _performed(self, operation: str, parameters: Parameters) -> Reply:
        if operation in _management.OPERATIONS:
            return _management.perform(self.tables, operation, parameters)
        if operation in _TRANSACTIONS:
            return at_once(_TRANSACTIONS[operation](self.tables, parameters))
        check_values(parameters, operation)
        return _OPERATIONS[operation](self.tables, parameters)

    def begin(self, operation: str, parameters: Parameters) -> InSteps:
        """Receive a transaction, to be performed step by step."""
        if operation not in _TRANSACTIONS:
            raise ValueError(f"{operation} is not a transaction. Allowed: {', '.join(_TRANSACTIONS)}")
        parameters = sendable(operation, parameters)
        with self.lock:
            fault = self._arrives(operation, parameters)
            begun = InSteps(
                operation,
                self.lock,
                self._steps(operation, parameters, fault),
                ends=self.ongoing.remove,
                replies=lambda status, reply: self._replies(fault, status, reply),
            )
            self.ongoing.append(begun)
            return begun

    def _arrives(self, operation: str, parameters: Parameters) -> Fault | None:
        self.sent.append(Sent(operation, parameters))
        fault = self.faults.met_by(operation, parameters)
        if fault is Fault.REQUEST_LOST:
            raise ConnectTimeoutError(endpoint_url=ENDPOINT)
        return fault

    def _replies(self, fault: Fault | None, status: int, reply: Reply) -> tuple[int, Reply]:
        if fault is Fault.REPLY_LOST:
            raise ReadTimeoutError(endpoint_url=ENDPOINT)
        if fault is Fault.SERVER_ERROR or fault is Fault.SERVER_ERROR_AFTER:
            status, reply = 500, server_error().failure()
        headers = {"date": _date(self.wall_ms // 1_000), "server": "MemoryDynamoDB"}
        reply["ResponseMetadata"] = {
            "RequestId": f"MEMORY{len(self.sent):026}",
            "HTTPStatusCode": status,
            "HTTPHeaders": headers,
            "RetryAttempts": 0,
        }
        return status, reply

    def _steps(self, operation: str, parameters: Parameters, fault: Fault | None) -> TransactionSteps:
        self._refuse(operation, parameters, fault)
        try:
            return (yield from _TRANSACTIONS[operation](self.tables, parameters))
        except ExpressionInvalid as error:
            raise invalid(error.message) from error

    def _refuse(self, operation: str, parameters: Parameters, fault: Fault | None) -> None:
        refused = refusal(fault, operation, parameters, self.wall_ms // 1_000) if fault is not None else None
        if refused is not None:
            raise refused
        if fault is Fault.TOKEN_FORGOTTEN:
            self.tables.transactions.forgets(parameters.get("ClientRequestToken"))
