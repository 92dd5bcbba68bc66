"""Reads, all strongly consistent: one item, a page of a partition, a page of a table."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ticketlock._expressions._expressions import Expressions
from ticketlock._expressions._key_conditions import key_range
from ticketlock._expressions._tree import BeginsWith, Condition, Placeholder
from ticketlock._expressions._values import Item, size_of
from ticketlock.testing import _parameters
from ticketlock.testing._faults import invalid
from ticketlock.testing._tables import Reply, ItemId, Key, Table, Tables

_PAGE_BYTES = 1_024 * 1_024
_MOST_READ_IN_BATCH = 100



@dataclass(frozen=True, slots=True)
class Read:
    """Which item to read, and which of its attributes."""

    table: Table
    key: Key
    expressions: Expressions

    @classmethod
    def of(cls, tables: Tables, parameters: Mapping[str, Any]) -> "Read":
        """Parse the read of a request, or of an action of a transaction.

        Raises:
            Refused: ValidationException, ResourceNotFoundException.
        """
        table = tables[parameters["TableName"]]
        return cls(table, table.key_of(parameters["Key"]), Expressions(parameters))

    @property
    def item(self) -> ItemId:
        """The table and key of the item."""
        return self.table.name, self.key

    def found(self) -> Item | None:
        """The whole item as it is stored."""
        return self.table.get(self.key)

    def reply(self, item: Item | None) -> Reply:
        """What the read returns of the item."""
        return {"Item": self.expressions.projected(item)} if item is not None else {}


def get_item(tables: Tables, parameters: Mapping[str, Any]) -> Reply:
    """GetItem."""
    read = Read.of(tables, parameters)
    return read.reply(read.found())


def reads_of_a_transaction(tables: Tables, items: Sequence[Any]) -> list[Read]:
    """The reads of a TransactGetItems.

    Raises:
        Refused: one of them is refused.
    """
    for item in items:
        _parameters.check("TransactGetItem", item)
        _parameters.check("Get", item["Get"])
    return [Read.of(tables, item["Get"]) for item in items]


def batch_get_item(tables: Tables, parameters: Mapping[str, Any]) -> Reply:
    """BatchGetItem: every key is processed."""
    responses: dict[str, list[Item]] = {}
    count = 0
    for name, wanted in parameters["RequestItems"].items():
        _parameters.check("KeysAndAttributes", wanted)
        table = tables[name]
        expressions = Expressions(wanted)
        keys = [table.key_of(key) for key in wanted["Keys"]]
        if len(set(keys)) < len(keys):
            raise invalid("Provided list of item keys contains duplicates")
        count += len(keys)
        found = (table.get(key) for key in keys)
        responses[name] = [expressions.projected(item) for item in found if item is not None]
    if not 1 <= count <= _MOST_READ_IN_BATCH:
        raise invalid(f"Too many or no items requested for the BatchGetItem call: {count}")
    return {"Responses": responses, "UnprocessedKeys": {}}


def query(tables: Tables, parameters: Mapping[str, Any]) -> Reply:
    """Query: the partition key is given; the sort key may have one condition."""
    table = tables[parameters["TableName"]]
    expressions = Expressions(parameters)
    kinds = list(zip(table.key_names, table.key_kinds, strict=True))
    asked = key_range(dict(kinds[:1]), dict(kinds[1:]), expressions)
    pk, bound = table.key_part(0, asked.partition[0]), asked.bounds[0] if asked.bounds else None
    is_forward = parameters.get("ScanIndexForward", True)
    after = None
    if "ExclusiveStartKey" in parameters:
        start_pk, after = table.key_of(parameters["ExclusiveStartKey"])
        if start_pk != pk:
            raise invalid("The provided starting key is outside query boundaries based on provided conditions")
    if bound is None:
        return _page(table, table.partition(pk, after=after, is_forward=is_forward), parameters, expressions)
    found: Iterable[Item]
    if isinstance(bound, BeginsWith) and isinstance(bound.beginning, Placeholder) and is_forward:
        # Keys with the same prefix are adjacent, and none of them sorts before the prefix.
        prefix = table.key_part(1, expressions.value(bound.beginning))
        found = itertools.takewhile(_meets(expressions, bound), table.partition(pk, prefix, after))
    else:
        found = filter(_meets(expressions, bound), table.partition(pk, after=after, is_forward=is_forward))
    return _page(table, found, parameters, expressions)


def _meets(expressions: Expressions, bound: Condition) -> Callable[[Item], bool]:
    return lambda item: expressions.holds(bound, item)


def scan(tables: Tables, parameters: Mapping[str, Any]) -> Reply:
    """Scan."""
    table = tables[parameters["TableName"]]
    expressions = Expressions(parameters)
    after = table.key_of(parameters["ExclusiveStartKey"]) if "ExclusiveStartKey" in parameters else None
    part, parts = _part(parameters)
    return _page(table, table.items(after, part, parts), parameters, expressions)


def _part(parameters: Mapping[str, Any]) -> tuple[int, int]:
    """The segment to scan, and how many there are; without these parameters, the only one."""
    if ("Segment" in parameters) != ("TotalSegments" in parameters):
        raise invalid("Segment and TotalSegments are required together")
    part, parts = parameters.get("Segment", 0), parameters.get("TotalSegments", 1)
    if not 0 <= part < parts:
        raise invalid(f"Segment must be less than TotalSegments: Segment: {part} is not less than {parts}")
    return part, parts


def _page(table: Table, found: Iterable[Item], parameters: Mapping[str, Any], expressions: Expressions) -> Reply:
    limit = parameters.get("Limit")
    if limit is not None and limit < 1:
        raise invalid(f"Limit must be greater than or equal to 1, and is {limit}")
    items: list[Item] = []
    scanned, size = 0, 0
    reply: Reply = {}
    for item in found:
        scanned += 1
        size += size_of(item)
        if expressions.shows(item):
            items.append(expressions.projected(item))
        # Like the service, it does not check whether more items follow.
        if scanned == limit or size >= _PAGE_BYTES:
            reply["LastEvaluatedKey"] = table.key_item(item)
            break
    shown = {} if parameters.get("Select") == "COUNT" else {"Items": items}
    return {**shown, "Count": len(items), "ScannedCount": scanned, **reply}
