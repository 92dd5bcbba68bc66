"""Requests to the table and their replies, as values: what the protocol hands out and takes in.

A driver performs them (``_driver.py``). A reply says *applied* or *refused*; a request whose outcome the
driver could not find out is thrown into the protocol as ``OutcomeUnknown``, never folded into the other two.
"""

import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from ticketlock.wire._attributes import Item
from ticketlock.wire._table_time import Moment

Attributes = Mapping[str, Any]
Operation = Literal["Update", "Put", "Delete"]


@dataclass(frozen=True, slots=True)
class Write:
    """One conditional write on one item.

    Attributes:
        operation: what it does.
        key: the item's key.
        condition: a condition expression; the write is refused where it does not hold.
        update: the update expression of an Update.
        item: the whole item of a Put, key included.
        names, values: the placeholders of the expressions; those that no expression uses are left out.
        returns: what an applied Update or Delete answers.
        not_after_local_ms: a driver starts no attempt later than this on its local clock.
    """

    operation: Operation
    key: Attributes
    condition: str
    update: str | None = None
    item: Attributes | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    values: Attributes = field(default_factory=dict)
    returns: Literal["NONE", "ALL_OLD", "ALL_NEW"] = "NONE"
    not_after_local_ms: int | None = None

    def parameters(self) -> dict[str, Any]:
        """The write as the low-level API has it, without the table's name."""
        used = set(re.findall(r"[:#]\w+", f"{self.update or ''} {self.condition}"))
        given: dict[str, Any] = {"ConditionExpression": self.condition}
        given["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        if self.item is None:
            given["Key"] = self.key
        else:
            given["Item"] = self.item
        if self.update is not None:
            given["UpdateExpression"] = self.update
        if names := {name: self.names[name] for name in sorted(used) if name[0] == "#"}:
            given["ExpressionAttributeNames"] = names
        if values := {name: self.values[name] for name in sorted(used) if name[0] == ":"}:
            given["ExpressionAttributeValues"] = values
        return given


@dataclass(frozen=True, slots=True)
class Transaction:
    """Several writes, on one item each, applied together or not at all."""

    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """A strongly consistent Query: the items of one partition whose sort key begins with a prefix, in order.

    Attributes:
        pk: the partition.
        prefix: what the sort key begins with.
        limit: the most items to read; None for as many as fit a page.
        after: the key to go on behind, from the reply before.
        patience_ms: for how long it is repeated at most; None for as long as the driver does.
        attributes: which of their attributes to read; empty for all.
    """

    pk: str
    prefix: str
    limit: int | None
    after: Attributes | None = None
    patience_ms: int | None = None
    attributes: tuple[str, ...] = ()

    def parameters(self) -> dict[str, Any]:
        """The Query as the low-level API has it, without the table's name."""
        given: dict[str, Any] = {
            "KeyConditionExpression": "pk = :pk AND begins_with(sk, :prefix)",
            "ExpressionAttributeValues": {":pk": {"S": self.pk}, ":prefix": {"S": self.prefix}},
            "ConsistentRead": True,
        }
        if self.limit is not None:
            given["Limit"] = self.limit
        if self.attributes:
            given |= {"ProjectionExpression": ", ".join(self.attributes), "Select": "SPECIFIC_ATTRIBUTES"}
        if self.after is not None:
            given["ExclusiveStartKey"] = self.after
        return given


@dataclass(frozen=True, slots=True)
class Scan:
    """A page of the lock items of the whole table.

    Attributes:
        attributes: which of their attributes to read.
        after: the key to go on behind, from the reply before.
    """

    attributes: tuple[str, ...]
    after: Attributes | None = None

    def parameters(self) -> dict[str, Any]:
        """The Scan as the low-level API has it, without the table's name."""
        given: dict[str, Any] = {
            "ProjectionExpression": ", ".join(self.attributes),
            "Select": "SPECIFIC_ATTRIBUTES",
            "FilterExpression": "attribute_exists(issued)",
        }
        if self.after is not None:
            given["ExclusiveStartKey"] = self.after
        return given


@dataclass(frozen=True, slots=True)
class TaskAnswer:
    """The answer to a Step Functions callback task: success, or failure with an error name and a cause.

    Attributes:
        patience_ms: for how long it is repeated at most; None for as long as the driver does.
    """

    task_token: str
    error: str | None = None
    cause: str | None = None
    patience_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TimeCheck:
    """A read of nothing, for the sake of the reply's Date."""

    def parameters(self) -> dict[str, Any]:
        """The GetItem as the low-level API has it, without the table's name.

        Its key is nobody's: not a lock's, since no namespace is empty, nor a session's, which operators may not read.
        """
        return {"Key": {"pk": {"S": "now"}, "sk": {"S": "/"}}, "ProjectionExpression": "pk"}


@dataclass(frozen=True, slots=True)
class Closing:
    """Stop a Step Functions execution, and see that it is closed.

    Applied when it was seen closed; refused when it runs still, or is not known.
    """

    execution: str


@dataclass(frozen=True, slots=True)
class Describing:
    """Describe a Step Functions execution: the reply's item, or refused when it is not known."""

    execution: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for a while; the reply only tells the time."""

    ms: float


Request = Write | Transaction | Read | TaskAnswer | TimeCheck | Closing | Describing | Pause | Scan


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back.

    Attributes:
        applied: False when a condition did not hold (or, of a TaskAnswer, when nobody waits for it any more).
        items: of a Read the items; of an applied Write what it returns; of a refused Write the item that refused it;
            of a refused Transaction one entry a write. None stands for "no such item" and "not asked for".
        refused: of a refused Transaction, which of its writes were refused.
        now: the moment of the reply.
        last_key: of a Read, where to go on; None at the end.
    """

    applied: bool
    items: tuple[Item | None, ...]
    now: Moment
    refused: tuple[bool, ...] = ()
    last_key: Attributes | None = None

    @property
    def item(self) -> Item | None:
        """The only or first item."""
        return self.items[0] if self.items else None


T = TypeVar("T")
Steps = Generator[Request, Reply, T]
"""One operation of the protocol: yields requests, is sent replies, returns its result."""
