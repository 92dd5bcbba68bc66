"""Requests to the table in memory: their parameters, the reads and the writes."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from botocore.exceptions import ParamValidationError

from ticketlock._expressions._evaluated import Expressions
from ticketlock._expressions._grammar import BeginsWith, Condition, Placeholder
from ticketlock._expressions._key_conditions import key_range
from ticketlock._expressions._updates import ItemUpdate
from ticketlock._expressions._values import Attributes, ItemInvalid, canonical_item, copy_of_item, size_of
from ticketlock.testing._indexes import SecondaryIndex
from ticketlock.testing._refusals import Reason, Refused, conflict, invalid
from ticketlock.testing._stored import Key
from ticketlock.testing._tables import ItemId, MemoryTables, Reply, Table

_PLACEHOLDERS = ("ExpressionAttributeNames", "ExpressionAttributeValues")
_CONDITION = ("ConditionExpression", *_PLACEHOLDERS, "ReturnValuesOnConditionCheckFailure")
_PAGE = (
    "ReturnConsumedCapacity",
    "IndexName",
    "Limit",
    "ExclusiveStartKey",
    "ConsistentRead",
    "FilterExpression",
    "ProjectionExpression",
    "Select",
)

_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "PutItem": ("TableName", "Item"),
    "UpdateItem": ("TableName", "Key"),
    "DeleteItem": ("TableName", "Key"),
    "GetItem": ("TableName", "Key"),
    "Query": ("TableName", "KeyConditionExpression"),
    "Scan": ("TableName",),
    "TransactWriteItems": ("TransactItems",),
    "TransactGetItems": ("TransactItems",),
    "BatchGetItem": ("RequestItems",),
    "KeysAndAttributes": ("Keys",),
    "BatchWriteItem": ("RequestItems",),
    "CreateTable": ("TableName", "AttributeDefinitions", "KeySchema"),
    "DescribeTable": ("TableName",),
    "UpdateTable": ("TableName",),
    "DeleteTable": ("TableName",),
    "DescribeTimeToLive": ("TableName",),
    "UpdateTimeToLive": ("TableName", "TimeToLiveSpecification"),
    # Of an action of a transaction.
    "Put": ("TableName", "Item"),
    "Update": ("TableName", "Key", "UpdateExpression"),
    "Delete": ("TableName", "Key"),
    "ConditionCheck": ("TableName", "Key", "ConditionExpression"),
    "TransactGetItem": ("Get",),
    "Get": ("TableName", "Key"),
}
_OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "PutItem": (*_CONDITION, "ReturnValues"),
    "UpdateItem": (*_CONDITION, "ReturnValues", "UpdateExpression"),
    "DeleteItem": (*_CONDITION, "ReturnValues"),
    "GetItem": ("ConsistentRead", "ProjectionExpression", "ExpressionAttributeNames", "ReturnConsumedCapacity"),
    "BatchGetItem": ("ReturnConsumedCapacity",),
    "KeysAndAttributes": ("ConsistentRead", "ProjectionExpression", "ExpressionAttributeNames"),
    "Query": (*_PAGE, *_PLACEHOLDERS, "ScanIndexForward"),
    "Scan": (*_PAGE, *_PLACEHOLDERS, "Segment", "TotalSegments"),
    "TransactWriteItems": ("ClientRequestToken",),
    "TransactGetItems": ("ReturnConsumedCapacity",),
    "CreateTable": ("BillingMode", "GlobalSecondaryIndexes", "LocalSecondaryIndexes", "VectorIndexes"),
    "UpdateTable": ("AttributeDefinitions", "GlobalSecondaryIndexUpdates", "VectorIndexUpdates"),
    "Put": _CONDITION,
    "Update": _CONDITION,
    "Delete": _CONDITION,
    "ConditionCheck": _CONDITION,
    "Get": ("ProjectionExpression", "ExpressionAttributeNames"),
}
_CHOICES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "PutItem": {"ReturnValues": ("NONE", "ALL_OLD")},
    "UpdateItem": {"ReturnValues": ("NONE", "ALL_OLD", "ALL_NEW")},
    "DeleteItem": {"ReturnValues": ("NONE", "ALL_OLD")},
}
_CHOICES_OF_ALL: Mapping[str, tuple[str, ...]] = {
    "ReturnValuesOnConditionCheckFailure": ("NONE", "ALL_OLD"),
    "ReturnConsumedCapacity": ("NONE", "TOTAL"),
    "Select": ("ALL_ATTRIBUTES", "SPECIFIC_ATTRIBUTES", "COUNT"),
}

_PAGE_BYTES = 1_024 * 1_024
_READ_UNIT_BYTES = 4_096
_MOST_READ_IN_BATCH = 100

_MOST_WRITTEN_IN_BATCH = 25


@cache
def _asked(operation: str) -> tuple[tuple[str, ...], frozenset[str], Mapping[str, tuple[str, ...]]]:
    """The required and the optional parameters of an operation, and the choices for the values of some."""
    required = _REQUIRED[operation]
    known = frozenset({*required, *_OPTIONAL.get(operation, ())})
    return required, known, {**_CHOICES_OF_ALL, **_CHOICES.get(operation, {})}


def check(operation: str, parameters: Mapping[str, Any]) -> None:
    """Refuse missing and unknown parameters."""
    required, known, choices = _asked(operation)
    for name in required:
        if name not in parameters:
            raise ParamValidationError(report=f'Missing required parameter in input: "{name}"')
    if not parameters.keys() <= known:
        name = min(parameters.keys() - known)
        raise NotImplementedError(f"MemoryDynamoDB does not know the parameter {name} of {operation}")
    for name, value in parameters.items():
        if name in choices and value not in choices[name]:
            raise NotImplementedError(f"MemoryDynamoDB does not know {name}={value!r} of {operation}")


@dataclass(frozen=True, slots=True)
class ItemRead:
    """Which item to read, and which of its attributes."""

    table: Table
    key: Key
    expressions: Expressions

    @classmethod
    def of(cls, tables: MemoryTables, parameters: Mapping[str, Any]) -> "ItemRead":
        """Parse the read of a request, or of an action of a transaction."""
        table = tables[parameters["TableName"]]
        return cls(table, table.key_of(parameters["Key"]), Expressions(parameters))

    @property
    def item(self) -> ItemId:
        """The table and key of the item."""
        return self.table.name, self.key

    def found(self) -> Attributes | None:
        """The whole item as it is stored."""
        return self.table.get(self.key)

    def reply(self, item: Attributes | None) -> Reply:
        """What the read returns of the item."""
        return {"Item": self.expressions.projected(item)} if item is not None else {}


def get_item(tables: MemoryTables, parameters: Mapping[str, Any]) -> Reply:
    """GetItem."""
    read = ItemRead.of(tables, parameters)
    item = read.found()
    reply = read.reply(item)
    if parameters.get("ReturnConsumedCapacity") == "TOTAL":
        units = read_units(size_of(item or {}), is_consistent=parameters.get("ConsistentRead", False))
        reply["ConsumedCapacity"] = {"TableName": parameters["TableName"], "CapacityUnits": units}
    return reply


def reads_of_a_transaction(tables: MemoryTables, items: Sequence[Any]) -> list[ItemRead]:
    """The reads of a TransactGetItems."""
    for item in items:
        check("TransactGetItem", item)
        check("Get", item["Get"])
    return [ItemRead.of(tables, item["Get"]) for item in items]


def batch_get_item(tables: MemoryTables, parameters: Mapping[str, Any]) -> Reply:
    """BatchGetItem: every key is processed."""
    responses: dict[str, list[Attributes]] = {}
    consumed: dict[str, float] = {}
    count = 0
    for name, wanted in parameters["RequestItems"].items():
        check("KeysAndAttributes", wanted)
        table = tables[name]
        expressions = Expressions(wanted)
        keys = [table.key_of(key) for key in wanted["Keys"]]
        if len(set(keys)) < len(keys):
            raise invalid("Provided list of item keys contains duplicates")
        count += len(keys)
        items = [table.get(key) for key in keys]
        responses[name] = [expressions.projected(item) for item in items if item is not None]
        is_consistent = wanted.get("ConsistentRead", False)
        consumed[name] = sum(read_units(size_of(item or {}), is_consistent=is_consistent) for item in items)
    if not 1 <= count <= _MOST_READ_IN_BATCH:
        raise invalid(f"Too many or no items requested for the BatchGetItem call: {count}")
    told = [{"TableName": name, "CapacityUnits": units} for name, units in consumed.items()]
    more = {"ConsumedCapacity": told} if parameters.get("ReturnConsumedCapacity") == "TOTAL" else {}
    return {"Responses": responses, "UnprocessedKeys": {}, **more}


def read_units(size: int, *, is_consistent: bool) -> float:
    """The units of a read that is not part of a transaction, which takes two times those of a consistent one.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html
    """
    return max(1, -(-size // _READ_UNIT_BYTES)) / (1 if is_consistent else 2)


def query(tables: MemoryTables, parameters: Mapping[str, Any]) -> Reply:
    """Query: the partition key is given; the sort key may have conditions."""
    table = _read_through(tables, parameters)
    expressions = Expressions(parameters)
    asked = key_range(table.partition_kinds, table.sort_kinds, expressions)
    pk, bounds = table.partition_of(asked.partition), asked.bounds
    is_forward = parameters.get("ScanIndexForward", True)
    after = None
    if "ExclusiveStartKey" in parameters:
        start_pk, after = table.start_of(parameters["ExclusiveStartKey"])
        if start_pk != pk:
            raise invalid("The provided starting key is outside query boundaries based on provided conditions")
    if not bounds:
        return _page(table, table.partition(pk, after=after, is_forward=is_forward), parameters, expressions)
    found: Iterable[Attributes]
    first = bounds[0]
    if isinstance(first, BeginsWith) and isinstance(first.beginning, Placeholder) and is_forward:
        # Keys with the same prefix are adjacent, and none of them sorts before the prefix.
        prefix = table.sort_part(expressions.value(first.beginning))
        found = itertools.takewhile(_meets(expressions, bounds), table.partition(pk, prefix, after))
    else:
        found = filter(_meets(expressions, bounds), table.partition(pk, after=after, is_forward=is_forward))
    return _page(table, found, parameters, expressions)


def _meets(expressions: Expressions, bounds: Sequence[Condition]) -> Callable[[Attributes], bool]:
    return lambda item: all(expressions.holds(bound, item) for bound in bounds)


def scan(tables: MemoryTables, parameters: Mapping[str, Any]) -> Reply:
    """Scan."""
    table = _read_through(tables, parameters)
    expressions = Expressions(parameters)
    after = table.start_of(parameters["ExclusiveStartKey"]) if "ExclusiveStartKey" in parameters else None
    part, parts = _part(parameters)
    return _page(table, table.items(after, part, parts), parameters, expressions)


def _read_through(tables: MemoryTables, parameters: Mapping[str, Any]) -> Table | SecondaryIndex:
    found = tables[parameters["TableName"]].read_through(parameters.get("IndexName"))
    if isinstance(found, SecondaryIndex) and not found.is_local and parameters.get("ConsistentRead"):
        raise invalid("Consistent reads are not supported on global secondary indexes")
    return found


def _part(parameters: Mapping[str, Any]) -> tuple[int, int]:
    """The segment to scan, and how many there are; without these parameters, the only one."""
    if ("Segment" in parameters) != ("TotalSegments" in parameters):
        raise invalid("Segment and TotalSegments are required together")
    part, parts = parameters.get("Segment", 0), parameters.get("TotalSegments", 1)
    if not 0 <= part < parts:
        raise invalid(f"Segment must be less than TotalSegments: Segment: {part} is not less than {parts}")
    return part, parts


def _page(
    table: Table | SecondaryIndex, found: Iterable[Attributes], parameters: Mapping[str, Any], expressions: Expressions
) -> Reply:
    limit = parameters.get("Limit")
    if limit is not None and limit < 1:
        raise invalid(f"Limit must be greater than or equal to 1, and is {limit}")
    items: list[Attributes] = []
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
    shown: Reply = {} if parameters.get("Select") == "COUNT" else {"Items": items}
    if parameters.get("ReturnConsumedCapacity") == "TOTAL":
        units = read_units(size, is_consistent=parameters.get("ConsistentRead", False))
        shown["ConsumedCapacity"] = {"TableName": parameters["TableName"], "CapacityUnits": units}
    return {**shown, "Count": len(items), "ScannedCount": scanned, **reply}


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What one write will do.

    Attributes:
        reason: why it cannot be carried out, in the form of a cancelled transaction; None if it can.
    """

    table: Table
    key: Key
    before: Attributes | None
    after: Attributes | None
    reason: Reason | None = None

    @property
    def item(self) -> ItemId:
        """The table and key of the item."""
        return self.table.name, self.key

    def carry_out(self) -> None:
        """Do it."""
        if self.after is not self.before:
            self.table.put(self.key, self.after)


@dataclass(frozen=True, slots=True)
class ItemWrite:
    """What one write asks for, regardless of the stored item.

    Attributes:
        given: the item of a Put.
        update: what an Update does.
    """

    operation: str
    parameters: Mapping[str, Any]
    table: Table
    key: Key
    expressions: Expressions
    given: Attributes | None
    update: ItemUpdate | None

    @classmethod
    def of(cls, tables: MemoryTables, operation: str, parameters: Mapping[str, Any]) -> "ItemWrite":
        """Parse the write of a request, or of an action of a transaction."""
        table = tables[parameters["TableName"]]
        expressions = Expressions(parameters)
        given: Attributes | None = None
        if operation.startswith("Put"):
            given = canonical_item(parameters["Item"])
            key = table.key_of(given, is_item=True)
            table.check(given)
        else:
            key = table.key_of(parameters["Key"])
        update = ItemUpdate(expressions, table.key_names) if operation.startswith("Update") else None
        return cls(operation, parameters, table, key, expressions, given, update)

    @property
    def item(self) -> ItemId:
        """The table and key of the item."""
        return self.table.name, self.key

    def planned(self) -> WritePlan:
        """Plan what it will do to the stored item."""
        before = self.table.get(self.key)
        if not self.expressions.condition_holds(before):
            wants_item = self.parameters.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
            shown = {"Item": copy_of_item(before)} if wants_item and before is not None else {}
            failed = {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed", **shown}
            return WritePlan(self.table, self.key, before, before, failed)
        after = self.given
        if self.update is not None:
            try:
                key = self.table.key_item(self.parameters["Key"]) if before is None else {}
                after = self.update.applied_to(before, key)
                if after is not None:
                    self.table.check(after)
            except (ItemInvalid, Refused) as error:
                message = error.message if isinstance(error, Refused) else str(error)
                return WritePlan(self.table, self.key, before, before, {"Code": "ValidationError", "Message": message})
        elif self.operation == "ConditionCheck":
            after = before
        return WritePlan(self.table, self.key, before, after)


def write(tables: MemoryTables, operation: str, parameters: Mapping[str, Any]) -> Reply:
    """PutItem, UpdateItem or DeleteItem."""
    wanted = ItemWrite.of(tables, operation, parameters)
    if tables.transactions.is_at_work(wanted.item):
        raise conflict()
    plan = wanted.planned()
    if plan.reason is not None:
        code, message = plan.reason["Code"], plan.reason["Message"]
        if code == "ValidationError":
            raise invalid(message)
        item = {"Item": plan.reason["Item"]} if "Item" in plan.reason else {}
        raise Refused("ConditionalCheckFailedException", message, **item)
    plan.carry_out()
    shown = {"ALL_OLD": plan.before, "ALL_NEW": plan.after}.get(parameters.get("ReturnValues", "NONE"))
    return {"Attributes": copy_of_item(shown)} if shown is not None else {}


def writes_of_a_transaction(tables: MemoryTables, items: Sequence[Any]) -> list[ItemWrite]:
    """The writes and checks of a TransactWriteItems."""
    writes = []
    for item in items:
        if len(item) != 1:
            raise invalid("TransactItems can only contain one of Check, Put, Update or Delete")
        ((operation, wanted),) = item.items()
        if operation not in ("Put", "Update", "Delete", "ConditionCheck"):
            raise NotImplementedError(f"MemoryDynamoDB does not know {operation} in a transaction")
        check(operation, wanted)
        writes.append(ItemWrite.of(tables, operation, wanted))
    return writes


def batch_write_item(tables: MemoryTables, parameters: Mapping[str, Any]) -> Reply:
    """BatchWriteItem: unconditional writes; all are processed except those of items with a transaction in progress."""
    asked = [(name, request) for name, requests in parameters["RequestItems"].items() for request in requests]
    if not 1 <= len(asked) <= _MOST_WRITTEN_IN_BATCH:
        raise invalid(f"Too many or no items requested for the BatchWriteItem call: {len(asked)}")
    writes = []
    for name, request in asked:
        ((operation, wanted),) = request.items()
        writes.append(ItemWrite.of(tables, operation, {"TableName": name, **wanted}))
    if len({write.item for write in writes}) < len(writes):
        raise invalid("Provided list of item keys contains duplicates")
    left: dict[str, list[Any]] = {}
    for (name, request), write in zip(asked, writes, strict=True):
        if tables.transactions.is_at_work(write.item):
            left.setdefault(name, []).append(request)
        else:
            write.planned().carry_out()
    return {"UnprocessedItems": left}
