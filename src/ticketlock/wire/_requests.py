"""Requests to tables and their replies, as values: a protocol yields requests and is sent replies.

Each request states what the driver needs: its calls, the items in their answer, whether it may write, whether the
answer carries table time. A reply says *applied* or *refused*. If the driver could not determine the outcome of a
request, it throws ``OutcomeUnknown`` into the protocol; it never folds it into the other two.
"""

import hashlib
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Literal, TypeVar

from ticketlock._value import value
from ticketlock.errors import TableError
from ticketlock.wire._actions import Actions, BrokenReply, Call, Item, Reply, Sleep

_OR = re.compile(r"\bor\b", re.IGNORECASE)

# DynamoDB recognises the token of a transaction for ten minutes; after that it would apply the transaction again
# (https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html). A request may arrive
# five minutes after it was sent, until its signature is too old
# (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html). One minute is for clocks.
TOKEN_IS_SAFE_FOR_MS = 240_000
"""For how long after the first attempt a transaction may be sent again under its token."""

_TOKEN_LENGTH = 36

Operation = Literal["Update", "Put", "Delete", "ConditionCheck"]

_METHODS: Mapping[str, str] = {"Update": "update_item", "Put": "put_item", "Delete": "delete_item"}

T = TypeVar("T")


class Request(ABC):
    """What a driver needs to know about each kind of request.

    Attributes:
        may_write: whether an attempt whose answer was lost may have written something.
        tells_time: whether the Date of an answer is that of the driver's table.
        repeatable_for_ms: for how long after its first attempt the service recognises another one as the same request,
            by its identity; without limit if none is needed.
    """

    __slots__ = ()
    may_write: ClassVar[bool] = False
    tells_time: ClassVar[bool] = True
    repeatable_for_ms: ClassVar[float] = math.inf

    @abstractmethod
    def calls(self, table: str, identity: str) -> Actions[Any]:
        """One attempt: sends its calls, returns their answer.

        Args:
            table: the driver's own, for a request that does not name one.
            identity: the same in each attempt of one request, and different for any other request; empty if
                ``repeatable_for_ms`` has no limit.
        """

    def items(self, _answer: Any) -> tuple[Item | None, ...]:
        """The items in the answer to an applied request.

        Raises:
            BrokenReply: the answer is incomplete; the SDK returns a reply that broke off as an empty one.
        """
        return ()

    def gives_up_after_ms(self, usual_ms: int) -> int:
        """For how long to retry it.

        Args:
            usual_ms: for how long the driver retries requests that do not say.
        """
        return usual_ms

    def last_start_ms(self) -> int | None:
        """The last moment on the local clock at which an attempt may start; None for any."""
        return None

    def tables(self, table: str) -> tuple[str, ...]:
        """The names of its tables.

        Args:
            table: the driver's own.
        """
        return (table,)

    def as_shown(self, error: TableError) -> TableError:
        """The error without what must not be logged."""
        return error


class OfOneTable(Request):
    """A request to one table.

    Attributes:
        table: the table; None for the driver's own.
    """

    __slots__ = ()
    table: str | None

    def tables(self, table: str) -> tuple[str, ...]:
        """Its own table, or the driver's."""
        return (self.table or table,)


class Patient(Request):
    """A request with a patience of its own.

    Attributes:
        patience_ms: for how long to retry at most; None for as long as the driver does.
    """

    __slots__ = ()
    patience_ms: int | None

    def gives_up_after_ms(self, usual_ms: int) -> int:
        """At most its patience."""
        return usual_ms if self.patience_ms is None else min(usual_ms, self.patience_ms)


class Page(OfOneTable):
    """A page of the items of one table; the reply has one entry for each item."""

    __slots__ = ()
    _operation: ClassVar[str]

    @abstractmethod
    def parameters(self, table: str) -> dict[str, Any]:
        """The read in the low-level format."""

    def calls(self, table: str, _identity: str) -> Actions[Any]:
        """The read of one page."""
        return (yield Call("dynamodb", self._operation, self.parameters(table)))

    def items(self, answer: Any) -> tuple[Item | None, ...]:
        """The items of the page."""
        if "Items" not in answer:
            raise BrokenReply()
        return tuple(answer["Items"])


@value(frozen=True, slots=True)
class Write(OfOneTable):
    """One write on one item.

    Attributes:
        operation: what it does; a ConditionCheck writes nothing, and occurs only in a TransactWrite.
        key: the item's key: each key attribute with its value.
        condition: a condition expression; the write is refused if it does not hold. An empty one always holds.
        update: the update expression of an Update.
        item: the whole item of a Put, key included.
        names, values: the placeholders of the expressions; those that no expression uses are left out.
        returns: what an applied Update or Delete returns.
        not_after_local_ms: the last moment on its local clock at which a driver starts an attempt.
        table: the item's table; None for the driver's own.
    """

    may_write: ClassVar[bool] = True

    operation: Operation
    key: Item
    condition: str
    update: str | None = None
    item: Item | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    values: Item = field(default_factory=dict)
    returns: Literal["NONE", "ALL_OLD", "ALL_NEW"] = "NONE"
    not_after_local_ms: int | None = None
    table: str | None = None

    def parameters(self, table: str) -> dict[str, Any]:
        """The write in the low-level format, alone or in a transaction."""
        given: dict[str, Any] = {"TableName": self.table or table}
        if self.condition:
            given["ConditionExpression"] = self.condition
            given["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        if self.item is None:
            given["Key"] = self.key
        else:
            given["Item"] = self.item
        if self.update is not None:
            given["UpdateExpression"] = self.update
        return given | placeholders((self.update or "", self.condition), self.names, self.values)

    def calls(self, table: str, _identity: str) -> Actions[Any]:
        """The write."""
        returns = {} if self.returns == "NONE" else {"ReturnValues": self.returns}
        return (yield Call("dynamodb", _METHODS[self.operation], {**self.parameters(table), **returns}))

    def items(self, answer: Any) -> tuple[Item | None, ...]:
        """The returned item."""
        if self.returns != "NONE" and "Attributes" not in answer:
            raise BrokenReply()
        return (answer.get("Attributes"),)

    def last_start_ms(self) -> int | None:
        """As given."""
        return self.not_after_local_ms


@value(frozen=True, slots=True)
class TransactWrite(Patient):
    """Writes of one item each, in any tables, that are applied together or not at all.

    Attributes:
        writes: ours.
        given: a caller's own writes, after ours, in the format of TransactWriteItems.
        token: the client request token, the same in all attempts; None for one that the driver generates.
        once: what it does, in words that no other transaction on the table has: asked for again, within ten minutes and
            by any process, it is not applied again. None if it is another one each time.
        patience_ms: for how long to retry at most; None for as long as the driver does.
    """

    may_write: ClassVar[bool] = True
    repeatable_for_ms: ClassVar[float] = TOKEN_IS_SAFE_FOR_MS

    writes: tuple[Write, ...]
    given: tuple[Mapping[str, Any], ...] = ()
    token: str | None = None
    once: str | None = None
    patience_ms: int | None = None

    def tables(self, table: str) -> tuple[str, ...]:
        """The tables of its writes."""
        given = {str(each.get("TableName")) for item in self.given for each in item.values()}
        return tuple(sorted(given.union(*(write.tables(table) for write in self.writes))))

    def calls(self, table: str, identity: str) -> Actions[Any]:
        """The transaction."""
        ours: list[Mapping[str, Any]] = [{write.operation: write.parameters(table)} for write in self.writes]
        token = self.token or identity
        if self.once is not None:
            token = hashlib.sha256(f"{table}\0{self.once}".encode()).hexdigest()[:_TOKEN_LENGTH]
        return (yield transact_write_call([*ours, *self.given], token))

    def last_start_ms(self) -> int | None:
        """The earliest limit of its writes."""
        return min((ms for write in self.writes if (ms := write.last_start_ms()) is not None), default=None)


@dataclass(frozen=True, slots=True)
class Read(Page, Patient):
    """A strongly consistent Query: the items of one partition whose sort key begins with a prefix, in order.

    Attributes:
        partition: the partition key attribute with its value.
        prefix: the sort key attribute with the prefix of its value.
        limit: how many items to read at most; None for as many as fit into a page.
        after: the key after which to continue, from the reply before.
        patience_ms: for how long to retry at most; None for as long as the driver does.
        attributes: the attributes to read; empty for all.
        table: the table to read; None for the driver's own.
    """

    _operation: ClassVar[str] = "query"

    partition: Item
    prefix: Item
    limit: int | None
    after: Item | None = None
    patience_ms: int | None = None
    attributes: tuple[str, ...] = ()
    table: str | None = None

    def parameters(self, table: str) -> dict[str, Any]:
        """The Query in the low-level format."""
        (partition, value), (sort, prefix) = *self.partition.items(), *self.prefix.items()
        given: dict[str, Any] = {
            "TableName": self.table or table,
            "KeyConditionExpression": "#partition = :partition AND begins_with(#sort, :prefix)",
            "ExpressionAttributeNames": {"#partition": partition, "#sort": sort},
            "ExpressionAttributeValues": {":partition": value, ":prefix": prefix},
            "ConsistentRead": True,
        }
        if self.limit is not None:
            given["Limit"] = self.limit
        if self.attributes:
            given |= _only(self.attributes)
        if self.after is not None:
            given["ExclusiveStartKey"] = self.after
        return given


@dataclass(frozen=True, slots=True)
class Scan(Page):
    """A page of the items of a whole table, or of one of its indexes.

    Attributes:
        condition: a filter expression; None for all items.
        attributes: the attributes to read; empty for all.
        after: the key after which to continue, from the reply before.
        table: the table to read; None for the driver's own.
        names: the placeholders of the condition and the attributes.
        values: those of the condition.
        part: the segment of the table to read, from 0, and the number of segments.
        index: the index to read, eventually consistent; None for the table itself.
        limit: how many items to read at most; None for as many as fit into a page.
        asks_units: whether the reply tells its read units.
    """

    _operation: ClassVar[str] = "scan"

    condition: str | None
    attributes: tuple[str, ...]
    after: Item | None = None
    table: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    values: Item = field(default_factory=dict)
    part: tuple[int, int] = (0, 1)
    index: str | None = None
    limit: int | None = None
    asks_units: bool = False

    def parameters(self, table: str) -> dict[str, Any]:
        """The Scan in the low-level format."""
        optional = {
            "FilterExpression": self.condition,
            "ExpressionAttributeNames": self.names or None,
            "ExpressionAttributeValues": self.values or None,
            "ExclusiveStartKey": self.after,
            "IndexName": self.index,
            "Limit": self.limit,
            "ReturnConsumedCapacity": "TOTAL" if self.asks_units else None,
        }
        given: dict[str, Any] = {"TableName": self.table or table}
        given |= {name: value for name, value in optional.items() if value is not None}
        if self.attributes:
            given |= _only(self.attributes)
        part, parts = self.part
        if parts > 1:
            given |= {"Segment": part, "TotalSegments": parts}
        return given


@dataclass(frozen=True, slots=True)
class TimeCheck(Patient):
    """A read whose answer's Date is used as table time.

    Attributes:
        key: the key of an item that need not exist.
        patience_ms: for how long to retry at most; None for as long as the driver does.
    """

    key: Item
    patience_ms: int | None = None

    def parameters(self, table: str) -> dict[str, Any]:
        """The GetItem in the low-level format: eventually consistent, which costs the least."""
        only = {"ProjectionExpression": "#key", "ExpressionAttributeNames": {"#key": next(iter(self.key))}}
        return {"TableName": table, "Key": self.key, **only}

    def calls(self, table: str, _identity: str) -> Actions[Any]:
        """The GetItem."""
        return (yield Call("dynamodb", "get_item", self.parameters(table)))


@dataclass(frozen=True, slots=True)
class Pause(Request):
    """A pause; its reply has only the time."""

    tells_time: ClassVar[bool] = False

    ms: float

    def calls(self, _table: str, _identity: str) -> Actions[Any]:
        """The sleep."""
        yield Sleep(self.ms)
        return {}


@dataclass(frozen=True, slots=True)
class Together:
    """Requests and steps that run at once. Sent back: for each its reply or result, or its ``TableError``.

    Attributes:
        requests: requests, and steps that have not started.
    """

    requests: "tuple[Request | ForkingSteps[Any], ...]"


Steps = Generator[Request, Reply, T]
"""One operation of a protocol: yields requests, is sent replies, returns its result."""
ForkingSteps = Generator[Request | Together, Any, T]
"""The same, for a protocol that sends several at once."""


def transact_write_call(items: Sequence[Mapping[str, Any]], identity: str) -> Call:
    """A transaction of items in the format of TransactWriteItems.

    DynamoDB applies it once for all attempts with the same identity, as long as it recognises the identity: a request
    that sends it needs ``TOKEN_IS_SAFE_FOR_MS`` as its ``repeatable_for_ms``.
    """
    return Call("dynamodb", "transact_write_items", {"TransactItems": items, "ClientRequestToken": identity})


@lru_cache(maxsize=256)
def every(*conditions: str) -> str:
    """All of the conditions hold."""
    return " AND ".join(f"({condition})" if _OR.search(condition) else condition for condition in conditions)


def either(first: str, second: str) -> str:
    """One of two conditions holds."""
    return f"{first} OR ({second})"


def placeholders(expressions: tuple[str, ...], names: Mapping[str, str], values: Item) -> dict[str, Any]:
    """The parameters of a call with the ``#names`` and ``:values`` that the expressions use."""
    used_names, used_values = _placeholders_in(expressions)
    given: dict[str, Any] = {}
    if used_names:
        given["ExpressionAttributeNames"] = {name: names[name] for name in used_names}
    if used_values:
        given["ExpressionAttributeValues"] = {name: values[name] for name in used_values}
    return given


@lru_cache(maxsize=256)
def _placeholders_in(expressions: tuple[str, ...]) -> tuple[list[str], list[str]]:
    used = sorted(set(re.findall(r"[:#]\w+", " ".join(expressions))))
    return [each for each in used if each[0] == "#"], [each for each in used if each[0] == ":"]


def _only(attributes: tuple[str, ...]) -> dict[str, Any]:
    return {"ProjectionExpression": ", ".join(attributes), "Select": "SPECIFIC_ATTRIBUTES"}
