"""Requests for items by key (one, or several of any tables), for the items of a partition, and for a table's
description.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar

from ticketlock._value import value
from ticketlock.wire._actions import Actions, BrokenReply, Call, Item, Unprocessed
from ticketlock.wire._requests import OfOneTable, Page, Request, placeholders

MOST_TOGETHER = 100
"""How many items one request reads: as of one instant, and each by itself.

https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactGetItems.html
https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html
"""

_LENGTH_OF_NOTHING = 2
_TOTAL = {"ReturnConsumedCapacity": "TOTAL"}


def batch_get(wanted: Mapping[str, Sequence[Item]], *, is_consistent: bool, **more: Any) -> Actions[Any]:
    """BatchGetItem, repeated until every key is processed: one reply has at most 16 MB.

    Args:
        more: further parameters of BatchGetItem.

    Returns:
        The last answer, with the items and the consumed capacity of all answers.

    Raises:
        BrokenReply: an answer is incomplete.
        Unprocessed: an answer has not processed any key.
    """
    left: Any = {table: {"Keys": list(keys), "ConsistentRead": is_consistent} for table, keys in wanted.items()}
    found: dict[str, list[Item]] = {table: [] for table in wanted}
    consumed: list[Any] = []
    while True:
        answer = yield Call("dynamodb", "batch_get_item", {"RequestItems": left, **more})
        if "Responses" not in answer:
            raise BrokenReply()
        for table, items in answer["Responses"].items():
            found[table] += items
        consumed += answer.get("ConsumedCapacity") or ()
        unprocessed = answer.get("UnprocessedKeys")
        if not unprocessed:
            return {**answer, "Responses": found, "ConsumedCapacity": consumed}
        if _keys_in(unprocessed) >= _keys_in(left):
            raise Unprocessed()
        left = unprocessed


def _keys_in(wanted: Mapping[str, Any]) -> int:
    return sum(len(each["Keys"]) for each in wanted.values())


@value(frozen=True, slots=True)
class Get(OfOneTable):
    """A read of one item by its key. The reply has the item, or None.

    Attributes:
        table: the item's table.
        key: each key attribute with its value.
        is_consistent: whether the read is strongly consistent; an eventually consistent one costs half.
        asks_units: whether the reply tells the read units.
    """

    table: str
    key: Item
    is_consistent: bool = True
    asks_units: bool = False

    def calls(self, _table: str, _identity: str) -> Actions[Any]:
        """The GetItem."""
        given: dict[str, Any] = {"TableName": self.table, "Key": self.key, "ConsistentRead": self.is_consistent}
        if self.asks_units:
            given |= _TOTAL
        return (yield Call("dynamodb", "get_item", given))

    def items(self, answer: Any) -> tuple[Item | None, ...]:
        """The item.

        If a reply broke off, the SDK returns it as an empty answer, like ``{}``, which means that there is no item. The
        length of the reply distinguishes the two, unless the reply tells the read units.
        """
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        is_told = "Item" in answer or "ConsumedCapacity" in answer
        if not is_told and int(headers.get("content-length", _LENGTH_OF_NOTHING)) > _LENGTH_OF_NOTHING:
            raise BrokenReply()
        return (answer.get("Item"),)


@value(frozen=True, slots=True)
class GetTogether(Request):
    """A read of up to 100 items, all as of one instant. The reply has one entry for each key, None if there is no item.

    Attributes:
        keys: the tables' names with the key attributes, each key once.
        asks_units: as in ``Get``.
    """

    keys: Sequence[tuple[str, Item]]
    asks_units: bool = False

    def tables(self, _table: str) -> tuple[str, ...]:
        """The tables of its keys."""
        return tuple(sorted({table for table, _ in self.keys}))

    def calls(self, _table: str, _identity: str) -> Actions[Any]:
        """The TransactGetItems."""
        wanted = [{"Get": {"TableName": table, "Key": key}} for table, key in self.keys]
        more = _TOTAL if self.asks_units else {}
        return (yield Call("dynamodb", "transact_get_items", {"TransactItems": wanted, **more}))

    def items(self, answer: Any) -> tuple[Item | None, ...]:
        """The items, in the order of the keys."""
        if len(answer.get("Responses", ())) != len(self.keys):
            raise BrokenReply()
        return tuple(each.get("Item") for each in answer["Responses"])


@dataclass(frozen=True, slots=True)
class GetMany(Request):
    """A read of up to 100 items, each by itself. The reply has one entry for each key, None if there is no item.

    Attributes:
        keys: the tables' names, None for the driver's own, with the key attributes, each key once.
        is_consistent: as in ``Get``.
        asks_units: whether the reply tells its read units.
    """

    keys: Sequence[tuple[str | None, Item]]
    is_consistent: bool = True
    asks_units: bool = False

    def tables(self, table: str) -> tuple[str, ...]:
        """The tables of its keys."""
        return tuple(sorted({name or table for name, _ in self.keys}))

    def calls(self, table: str, _identity: str) -> Actions[Any]:
        """The BatchGetItem. The service returns the items in any order; the answer has one for each key."""
        keys = [(name or table, key) for name, key in self.keys]
        wanted = {name: [key for its, key in keys if its == name] for name in self.tables(table)}
        more = _TOTAL if self.asks_units else {}
        answer = yield from batch_get(wanted, is_consistent=self.is_consistent, **more)
        key_names = {name: tuple(key) for name, key in keys}
        found = {_name(name, key_names[name], item): item for name in wanted for item in answer["Responses"][name]}
        return {**answer, "Responses": [found.get(_name(name, key_names[name], key)) for name, key in keys]}

    def items(self, answer: Any) -> tuple[Item | None, ...]:
        """The items, in the order of the keys."""
        return tuple(answer["Responses"])


def _name(table: str, key_names: Sequence[str], item: Item) -> Hashable:
    """A hashable form of an item: numbers may be returned in another form than they were asked for."""
    values = (value for name in key_names for value in item[name].items())
    return (table, *((kind, Decimal(content) if kind == "N" else content) for kind, content in values))


@dataclass(frozen=True, slots=True)
class Query(Page):
    """A page of the items of one partition, in order. The reply has one entry for each item.

    Attributes:
        table: the items' table.
        condition: a key condition expression.
        names, values: placeholders; those that the condition does not use are left out.
        index: the index to read; None for the table itself.
        after: the key after which the page begins.
        limit: how many items to read at most; None for as many as fit into a page.
        is_forward: whether in the order of the sort keys, or in reverse.
        is_consistent: as in ``Get``; must be False for a global index.
        asks_units: as in ``Get``.
    """

    _operation: ClassVar[str] = "query"

    table: str
    condition: str
    names: Mapping[str, str] = field(default_factory=dict)
    values: Item = field(default_factory=dict)
    index: str | None = None
    after: Item | None = None
    limit: int | None = None
    is_forward: bool = True
    is_consistent: bool = True
    asks_units: bool = False

    def parameters(self, _table: str) -> dict[str, Any]:
        """The Query in the low-level format."""
        given: dict[str, Any] = {
            "TableName": self.table,
            "KeyConditionExpression": self.condition,
            "ConsistentRead": self.is_consistent,
            "ScanIndexForward": self.is_forward,
        }
        optional = {"IndexName": self.index, "ExclusiveStartKey": self.after, "Limit": self.limit}
        given |= {name: value for name, value in optional.items() if value is not None}
        if self.asks_units:
            given |= _TOTAL
        return given | placeholders((self.condition,), self.names, self.values)


@dataclass(frozen=True, slots=True)
class DescribeTable(OfOneTable):
    """A table's keys and indexes. The reply's item is the description, in the API's format."""

    # It calls the control plane, whose Date is not the table's.
    tells_time: ClassVar[bool] = False

    table: str

    def calls(self, _table: str, _identity: str) -> Actions[Any]:
        """The DescribeTable."""
        return (yield Call("dynamodb", "describe_table", {"TableName": self.table}))

    def items(self, answer: Any) -> tuple[Item | None, ...]:
        """The description."""
        if "Table" not in answer:
            raise BrokenReply()
        return (answer["Table"],)
