"""Requests for items by their keys, one or several of any tables, or many of a partition; and for what a table is."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar

from ticketlock.wire._actions import Actions, Call
from ticketlock.wire._answers import BrokenReply
from ticketlock.wire._attributes import Item
from ticketlock.wire._batch_get import batch_get
from ticketlock.wire._requests import Attributes, Request, placeholders

MOST_TOGETHER = 100
"""Of one instant, and one by one.

https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactGetItems.html
https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html
"""

_LENGTH_OF_NOTHING = 2


@dataclass(frozen=True, slots=True)
class Get(Request):
    """A read of one item by its key. The reply has the item, or None.

    Attributes:
        table: where it is.
        key: each key attribute with its value.
        is_consistent: whether all writes that were answered before are in it; a read without that costs half.
    """

    table: str
    key: Attributes
    is_consistent: bool = True

    def tables(self, _table: str) -> tuple[str, ...]:
        """Its own."""
        return (self.table,)

    def calls(self, _table: str, _identity: str) -> Actions[Any]:
        """The GetItem."""
        given = {"TableName": self.table, "Key": self.key, "ConsistentRead": self.is_consistent}
        return (yield Call("dynamodb", "get_item", given))

    def items(self, answer: Any) -> tuple[Item | None, ...]:
        """The item.

        The SDK makes an empty answer of a reply that broke off, as of ``{}``, which says that there is no item: its
        length tells which.
        """
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        if "Item" not in answer and int(headers.get("content-length", _LENGTH_OF_NOTHING)) > _LENGTH_OF_NOTHING:
            raise BrokenReply()
        return (answer.get("Item"),)


@dataclass(frozen=True, slots=True)
class GetTogether(Request):
    """A read of up to 100 items, all of one instant. The reply has one entry a key, None where there is no item.

    Attributes:
        keys: the tables' names with the key attributes, each key once.
    """

    keys: Sequence[tuple[str, Attributes]]

    def tables(self, _table: str) -> tuple[str, ...]:
        """Those of its keys."""
        return tuple(sorted({table for table, _ in self.keys}))

    def calls(self, _table: str, _identity: str) -> Actions[Any]:
        """The TransactGetItems."""
        wanted = [{"Get": {"TableName": table, "Key": key}} for table, key in self.keys]
        return (yield Call("dynamodb", "transact_get_items", {"TransactItems": wanted}))

    def items(self, answer: Any) -> tuple[Item | None, ...]:
        """The items, in the order of the keys."""
        if len(answer.get("Responses", ())) != len(self.keys):
            raise BrokenReply()
        return tuple(each.get("Item") for each in answer["Responses"])


@dataclass(frozen=True, slots=True)
class GetMany(Request):
    """A read of up to 100 items, each by itself. The reply has one entry a key, None where there is no item.

    Attributes:
        keys: the tables' names with the key attributes, each key once.
        is_consistent: as of ``Get``.
    """

    keys: Sequence[tuple[str, Attributes]]
    is_consistent: bool = True

    def tables(self, _table: str) -> tuple[str, ...]:
        """Those of its keys."""
        return tuple(sorted({table for table, _ in self.keys}))

    def calls(self, table: str, _identity: str) -> Actions[Any]:
        """The BatchGetItem."""
        wanted = {name: [key for table, key in self.keys if table == name] for name in self.tables(table)}
        return (yield from batch_get(wanted, is_consistent=self.is_consistent))

    def items(self, answer: Any) -> tuple[Item | None, ...]:
        """The items, by their keys: the service returns them in any order."""
        key_names = {table: tuple(key) for table, key in self.keys}
        responses = answer["Responses"]
        found = {_name(table, names, item): item for table, names in key_names.items() for item in responses[table]}
        return tuple(found.get(_name(table, key_names[table], key)) for table, key in self.keys)


def _name(table: str, key_names: Sequence[str], item: Attributes) -> Hashable:
    """An item, as one of many: numbers may come in another form than they were asked for."""
    values = (value for name in key_names for value in item[name].items())
    return (table, *((kind, Decimal(content) if kind == "N" else content) for kind, content in values))


@dataclass(frozen=True, slots=True)
class Query(Request):
    """A page of the items of one partition, in order. The reply has as many entries as there are items on it.

    Attributes:
        table: where they are.
        condition: a key condition expression.
        names, values: its placeholders; those that it does not use are left out.
        index: of which index; None for the table itself.
        after: the key to go on behind.
        limit: the most items to read; None for as many as fit a page.
        is_forward: in the order of the sort keys, or in the other one.
        is_consistent: as of ``Get``; no global index can be read so.
    """

    table: str
    condition: str
    names: Mapping[str, str] = field(default_factory=dict)
    values: Attributes = field(default_factory=dict)
    index: str | None = None
    after: Attributes | None = None
    limit: int | None = None
    is_forward: bool = True
    is_consistent: bool = True

    def tables(self, _table: str) -> tuple[str, ...]:
        """Its own."""
        return (self.table,)

    def calls(self, _table: str, _identity: str) -> Actions[Any]:
        """The Query of one page."""
        given: dict[str, Any] = {
            "TableName": self.table,
            "KeyConditionExpression": self.condition,
            "ConsistentRead": self.is_consistent,
            "ScanIndexForward": self.is_forward,
        }
        names_used, values_used = placeholders(self.condition)
        if names_used:
            given["ExpressionAttributeNames"] = {name: self.names[name] for name in names_used}
        if values_used:
            given["ExpressionAttributeValues"] = {name: self.values[name] for name in values_used}
        optional = {"IndexName": self.index, "ExclusiveStartKey": self.after, "Limit": self.limit}
        given |= {name: value for name, value in optional.items() if value is not None}
        return (yield Call("dynamodb", "query", given))

    def items(self, answer: Any) -> tuple[Item | None, ...]:
        """The page."""
        if "Items" not in answer:
            raise BrokenReply()
        return tuple(answer["Items"])


@dataclass(frozen=True, slots=True)
class DescribeTable(Request):
    """What a table's keys and indexes are. The reply's item is the description, as the API has it."""

    # The control plane's.
    tells_time: ClassVar[bool] = False

    table: str

    def tables(self, _table: str) -> tuple[str, ...]:
        """The one."""
        return (self.table,)

    def calls(self, _table: str, _identity: str) -> Actions[Any]:
        """The DescribeTable."""
        return (yield Call("dynamodb", "describe_table", {"TableName": self.table}))

    def items(self, answer: Any) -> tuple[Item | None, ...]:
        """The description."""
        if "Table" not in answer:
            raise BrokenReply()
        return (answer["Table"],)
