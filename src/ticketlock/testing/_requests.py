"""Requests to the table in memory: the reads and the writes."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ticketlock._expressions import (
    MAX_ITEM_BYTES,
    Attributes,
    BeginsWith,
    Condition,
    ExpressionInvalid,
    Expressions,
    ItemInvalid,
    ItemUpdate,
    Placeholder,
    branched,
    canonical_item,
    copy_of_item,
    key_range,
    members_shown,
    size_of,
    written_value,
)
from ticketlock.testing._capacity import Meter, read_units
from ticketlock.testing._indexes import SecondaryIndex
from ticketlock.testing._parameters import check_count, check_placeholders, check_values, not_known
from ticketlock.testing._refusals import Mismatched, Reason, Refused, conflict, invalid, mismatched
from ticketlock.testing._stored import Key, is_in_segment, key_part
from ticketlock.testing._tables import (
    WRONG_KEY,
    ItemId,
    MemoryTables,
    Reply,
    Table,
    check_attribute_names,
    check_size,
)

_PAGE_BYTES = 1_024 * 1_024
_MOST_READ_IN_BATCH = 100
_MOST_BYTES_READ_IN_BATCH = 16_000_000
"""DynamoDB's documentation has 52 items of 300 KB in its 16 MB.

https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html
"""
_MOST_WRITTEN_IN_BATCH = 25
_WRITES = {"PutRequest": "Put", "DeleteRequest": "Delete"}
_WRONG_START = "The provided starting key is invalid"
_COLLECTION_GB = [0.0, 1.0]


def _expressions(operation: str, parameters: Mapping[str, Any]) -> Expressions:
    """The expressions of an operation, or of a structure within its parameters."""
    try:
        return Expressions(parameters)
    except ExpressionInvalid:
        check_placeholders(operation, parameters)
        raise


@dataclass(frozen=True, slots=True)
class ItemRead:
    """Which item to read, and which of its attributes."""

    table: Table
    key: Key
    expressions: Expressions

    @classmethod
    def of(cls, tables: MemoryTables, operation: str, parameters: Mapping[str, Any]) -> "ItemRead":
        """Parse the read of a request, or of an action of a transaction."""
        expressions, table = _expressions(operation, parameters), tables[parameters["TableName"]]
        table.check_scalars(expressions)
        return cls(table, table.key_of(parameters["Key"]), expressions)

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
    read = ItemRead.of(tables, "GetItem", parameters)
    item = read.found()
    meter = Meter(parameters)
    if meter.counts:
        is_consistent = parameters.get("ConsistentRead", False)
        meter.take(parameters["TableName"], read_units(size_of(item or {}), is_consistent=is_consistent))
    return {**read.reply(item), **meter.of_one()}


def reads_of_a_transaction(tables: MemoryTables, items: Sequence[Any]) -> list[ItemRead | Mismatched]:
    """The reads of a TransactGetItems; or why one has no key of its table."""
    reads: list[ItemRead | Mismatched] = []
    for item in items:
        check_values(item["Get"])
        try:
            reads.append(ItemRead.of(tables, "Get", item["Get"]))
        except Mismatched as why:
            reads.append(why)
    return reads


def batch_get_item(tables: MemoryTables, parameters: Mapping[str, Any]) -> Reply:
    """BatchGetItem: every key is processed, unless the items have too many bytes together."""
    asked: list[tuple[str, Any, Table, Expressions, Key]] = []
    _check_asked("BatchGetItem", parameters)
    for name, wanted in parameters["RequestItems"].items():
        if "AttributesToGet" in wanted:
            raise not_known("the parameter AttributesToGet of KeysAndAttributes")
        check_values({"TableName": name})
        check_count(f"RequestItems.{name}.member.Keys", len(wanted["Keys"]), _MOST_READ_IN_BATCH)
        expressions, table = _expressions("KeysAndAttributes", wanted), tables[name]
        table.check_scalars(expressions)
        asked += ((name, key, table, expressions, table.key_of(key)) for key in wanted["Keys"])
    if len(asked) > _MOST_READ_IN_BATCH:
        raise invalid("Too many items requested for the BatchGetItem call")
    if len({(table.name, key) for _, _, table, _, key in asked}) < len(asked):
        raise invalid("Provided list of item keys contains duplicates")
    meter = Meter(parameters)
    # Few items cannot be too large together, so most need not be measured.
    are_measured = meter.counts or len(asked) * MAX_ITEM_BYTES > _MOST_BYTES_READ_IN_BATCH
    responses: dict[str, list[Attributes]] = {name: [] for name in parameters["RequestItems"]}
    left: dict[str, Any] = {}
    total = 0
    for name, given, table, expressions, key in asked:
        wanted, item = parameters["RequestItems"][name], table.get(key)
        size = size_of(item or {}) if are_measured else 0
        total += size
        if total > _MOST_BYTES_READ_IN_BATCH:
            left.setdefault(name, {**wanted, "Keys": []})["Keys"].append(given)
            continue
        if meter.counts:
            meter.take(name, read_units(size, is_consistent=wanted.get("ConsistentRead", False)))
        if item is not None:
            responses[name].append(expressions.projected(item))
    return {"Responses": responses, "UnprocessedKeys": left, **meter.of_all()}


def _check_asked(operation: str, parameters: Mapping[str, Any]) -> None:
    if not parameters["RequestItems"]:
        raise invalid(f"The requestItems parameter is required for {operation}")


def query(tables: MemoryTables, parameters: Mapping[str, Any]) -> Reply:
    """Query: the partition key is given; the sort key may have conditions."""
    if "KeyConditionExpression" not in parameters:
        raise invalid("Either the KeyConditions or KeyConditionExpression parameter must be specified in the request.")
    reading = _Reading.of(tables, parameters, is_query=True)
    through, expressions = reading.through, reading.expressions
    asked = key_range(through.partition_kinds, through.sort_kinds, expressions)
    pk, bounds = through.partition_of(asked.partition), asked.bounds
    for name, value in asked.limits:
        key_part(1, name, through.sort_kinds[name], value)
    is_forward = parameters.get("ScanIndexForward", True)
    after = None
    if "ExclusiveStartKey" in parameters:
        start, (start_pk, after) = reading.start(_WRONG_START)
        if through.start_names == through.partition_kinds.keys():
            shown = ", ".join(f"{name}={written_value(value)}" for name, value in start.items())
            raise invalid(f"The provided exclusive start key is invalid: ExclusiveStartKey: {{{shown}}}")
        if start_pk != pk:
            raise invalid("The provided starting key is outside query boundaries based on provided conditions")
        if not _meets(expressions, bounds)(start):
            raise invalid("The provided starting key does not match the range key predicate")
    if not bounds:
        return reading.page(through.partition(pk, after=after, is_forward=is_forward))
    found: Iterable[Attributes]
    first = bounds[0]
    if isinstance(first, BeginsWith) and isinstance(first.beginning, Placeholder) and is_forward:
        # Keys with the same prefix are adjacent, and none of them sorts before the prefix.
        prefix = through.sort_part(expressions.value(first.beginning))
        found = itertools.takewhile(_meets(expressions, bounds), through.partition(pk, prefix, after))
    else:
        found = filter(_meets(expressions, bounds), through.partition(pk, after=after, is_forward=is_forward))
    return reading.page(found)


def _meets(expressions: Expressions, bounds: Sequence[Condition]) -> Callable[[Attributes], bool]:
    return lambda item: all(expressions.holds(bound, item) for bound in bounds)


def scan(tables: MemoryTables, parameters: Mapping[str, Any]) -> Reply:
    """Scan."""
    reading = _Reading.of(tables, parameters, is_query=False)
    part, parts = _part(parameters)
    after = None
    if "ExclusiveStartKey" in parameters:
        _, after = reading.start(f"{_WRONG_START}: {WRONG_KEY}")
        if not is_in_segment(after[0], part, parts):
            raise invalid(
                f"{_WRONG_START}: Invalid ExclusiveStartKey. Please use ExclusiveStartKey with correct Segment. "
                f"TotalSegments: {parts} Segment: {part}"
            )
    return reading.page(reading.through.items(after, part, parts))


def _part(parameters: Mapping[str, Any]) -> tuple[int, int]:
    """The segment to scan, and how many there are; without these parameters, the only one."""
    missing = "parameter is required but was not present in the request when"
    if "TotalSegments" in parameters and "Segment" not in parameters:
        raise invalid(f"The Segment {missing} parameter TotalSegments is present")
    if "Segment" in parameters and "TotalSegments" not in parameters:
        raise invalid(f"The TotalSegments {missing} Segment parameter is present")
    part, parts = parameters.get("Segment", 0), parameters.get("TotalSegments", 1)
    if not part < parts:
        raise invalid(
            "The Segment parameter is zero-based and must be less than parameter TotalSegments: "
            f"Segment: {part} is not less than TotalSegments: {parts}"
        )
    return part, parts


@dataclass(frozen=True, slots=True)
class _Reading:
    """A Query or a Scan.

    Attributes:
        through: the table or the index that it reads.
        fetches: whether it reads each item of a local index from the table, too, for attributes that the index lacks.
    """

    parameters: Mapping[str, Any]
    through: Table | SecondaryIndex
    expressions: Expressions
    fetches: bool

    @classmethod
    def of(cls, tables: MemoryTables, parameters: Mapping[str, Any], *, is_query: bool) -> "_Reading":
        """Refuse what cannot be read so."""
        expressions = _expressions("Query" if is_query else "Scan", parameters)
        table = tables[parameters["TableName"]]
        through = table.read_through(parameters.get("IndexName"))
        _check_selection(parameters)
        table.check_scalars(expressions)
        if is_query:
            for name in (*through.partition_kinds, *through.sort_kinds):
                if name in expressions.filters_by:
                    raise invalid(
                        f"Filter Expression can only contain non-primary key attributes: Primary key attribute: {name}"
                    )
        is_partial = isinstance(through, SecondaryIndex) and _lacks_of(through, parameters, expressions, is_query)
        return cls(parameters, through, expressions, is_partial)

    def start(self, wrong: str) -> tuple[Attributes, Key]:
        """The item after which its page begins, and the key of it.

        Args:
            wrong: what is said of a start without, or with other attributes than, those of the keys.
        """
        given = canonical_item(self.parameters["ExclusiveStartKey"])
        if given.keys() != self.through.start_names:
            raise invalid(wrong)
        return given, self.through.start_of(given)

    def page(self, found: Iterable[Attributes]) -> Reply:
        """The reply with the first of these."""
        parameters, through, expressions, meter = (
            self.parameters,
            self.through,
            self.expressions,
            Meter(self.parameters),
        )
        limit = parameters.get("Limit")
        is_consistent = parameters.get("ConsistentRead", False)
        items: list[Attributes] = []
        scanned, size = 0, 0
        reply: Reply = {}
        for entry in found:
            scanned += 1
            size += size_of(entry)
            item = entry
            if self.fetches and isinstance(through, SecondaryIndex):
                item = through.item_of(entry)
                if meter.counts:
                    meter.take(parameters["TableName"], read_units(size_of(item), is_consistent=is_consistent))
            if expressions.shows(entry):
                items.append(expressions.projected(item))
            # Like the service, it does not check whether more items follow.
            if scanned == limit or size >= _PAGE_BYTES:
                reply["LastEvaluatedKey"] = through.key_item(entry)
                break
        shown: Reply = {} if parameters.get("Select") == "COUNT" else {"Items": items}
        index = through if isinstance(through, SecondaryIndex) else None
        meter.take(parameters["TableName"], read_units(size, is_consistent=is_consistent), index)
        return {**shown, **meter.of_one(), "Count": len(items), "ScannedCount": scanned, **reply}


def _check_selection(parameters: Mapping[str, Any]) -> None:
    """Refuse parameters that say two things about which attributes are returned."""
    select, projects = parameters.get("Select"), "ProjectionExpression" in parameters
    if select == "SPECIFIC_ATTRIBUTES" and not projects:
        raise invalid(
            "Must specify the AttributesToGet or ProjectionExpression when choosing to get SPECIFIC_ATTRIBUTES"
        )
    if projects and select not in (None, "SPECIFIC_ATTRIBUTES"):
        shown = "only the Count" if select == "COUNT" else select
        raise invalid(f"Cannot specify the ProjectionExpression when choosing to get {shown}")
    if select == "ALL_PROJECTED_ATTRIBUTES" and "IndexName" not in parameters:
        raise invalid("ALL_PROJECTED_ATTRIBUTES can be used only when Querying using an IndexName")


def _lacks_of(index: SecondaryIndex, parameters: Mapping[str, Any], expressions: Expressions, is_query: bool) -> bool:
    """Whether an index lacks attributes that are asked for, which only a local one may.

    The filter of a Query may not name them, and that of a Scan does not see them:
    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_Query.html
    """
    wrong = "One or more parameter values were invalid:"
    lacking = index.lacks(expressions.projects)
    wants_all = parameters.get("Select") == "ALL_ATTRIBUTES" and index.shown is not None
    if not index.is_local:
        if parameters.get("ConsistentRead"):
            raise invalid("Consistent reads are not supported on global secondary indexes")
        if wants_all:
            raise invalid(
                f"{wrong} Select type ALL_ATTRIBUTES is not supported for global secondary index {index.name} because "
                "its projection type is not ALL"
            )
        if lacking:
            raise invalid(f"{wrong} Global secondary index {index.name} does not project [{', '.join(lacking)}]")
    if is_query and (hidden := index.lacks(expressions.filters_by)):
        raise invalid(
            f"{wrong} Secondary index {index.name} does not project one or more filter attributes: "
            f"[{', '.join(hidden)}]"
        )
    return wants_all or bool(lacking)


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
        """Parse the write of a request, or of an action of a transaction.

        Raises:
            Mismatched: its key or its item does not match the table.
        """
        expressions = _expressions(operation, parameters)
        table = tables[parameters["TableName"]]
        given = canonical_item(parameters["Item"]) if operation.startswith("Put") else None
        if given is not None:
            check_size(given)
            check_attribute_names(given)
            key = table.key_of(given, is_item=True)
            table.check(given)
        else:
            key = table.key_of(parameters["Key"])
        try:
            update = ItemUpdate(expressions, table.key_names) if operation.startswith("Update") else None
        except ExpressionInvalid as error:
            raise mismatched(error.message) from error
        table.check_scalars(expressions)
        return cls(operation, parameters, table, key, expressions, given, update)

    @property
    def item(self) -> ItemId:
        """The table and key of the item."""
        return self.table.name, self.key

    @property
    def payload(self) -> Attributes:
        """What of the request counts for the size of a transaction."""
        return {
            name: value
            for sent in ("Item", "Key", "ExpressionAttributeValues")
            for name, value in self.parameters.get(sent, {}).items()
        }

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
                    check_size(after, "Item size to update has exceeded the maximum allowed size")
                    self.table.check(after)
            except (ItemInvalid, Refused) as error:
                message = error.message if isinstance(error, Refused) else str(error)
                return WritePlan(self.table, self.key, before, before, {"Code": "ValidationError", "Message": message})
        elif self.operation == "ConditionCheck":
            after = before
        return WritePlan(self.table, self.key, before, after)


def write(tables: MemoryTables, operation: str, parameters: Mapping[str, Any]) -> Reply:
    """PutItem, UpdateItem or DeleteItem."""
    returns = parameters.get("ReturnValues", "NONE")
    if operation != "UpdateItem" and returns not in ("NONE", "ALL_OLD"):
        raise invalid("ReturnValues can only be ALL_OLD or NONE")
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
    reply = _returned(wanted, plan, returns)
    if "ReturnConsumedCapacity" in parameters:
        meter = Meter(parameters)
        meter.take_write(parameters["TableName"], plan.table.indexes.values(), plan.before, plan.after)
        reply |= meter.of_one()
    for metrics_of in collections_of(parameters, [(parameters["TableName"], plan)]).values():
        reply["ItemCollectionMetrics"] = metrics_of[0]
    return reply


def _returned(wanted: ItemWrite, plan: WritePlan, returns: str) -> Reply:
    """What a write was asked to return of its item."""
    item = None if returns == "NONE" else plan.before if returns.endswith("OLD") else plan.after
    if item is None:
        return {}
    if returns.startswith("UPDATED"):
        update, steps_of = wanted.expressions.update, wanted.expressions.steps
        paths = tuple(map(steps_of, update.paths)) if update is not None else ()
        item = members_shown(item, branched("UpdateExpression", paths))
        if not item:
            return {}
    return {"Attributes": copy_of_item(item)}


def collections_of(parameters: Mapping[str, Any], plans: Iterable[tuple[str, WritePlan]]) -> dict[str, list[Any]]:
    """The sizes of the partitions that were written, by the names of their tables: of tables with local indexes."""
    metrics_of: dict[str, list[Any]] = {}
    if parameters.get("ReturnItemCollectionMetrics") == "SIZE":
        for name, plan in plans:
            item = plan.after or plan.before
            if plan.table.has_collections and item is not None:
                key = {plan.table.key_names[0]: item[plan.table.key_names[0]].copy()}
                metrics = {"ItemCollectionKey": key, "SizeEstimateRangeGB": [*_COLLECTION_GB]}
                if metrics not in metrics_of.setdefault(name, []):
                    metrics_of[name].append(metrics)
    return metrics_of


def writes_of_a_transaction(tables: MemoryTables, items: Sequence[Any]) -> list[ItemWrite | Mismatched]:
    """The writes and checks of a TransactWriteItems; or why one does not match its table."""
    writes: list[ItemWrite | Mismatched] = []
    for item in items:
        if len(item) != 1:
            raise invalid("TransactItems can only contain one of Check, Put, Update or Delete")
        ((operation, wanted),) = item.items()
        check_values(wanted)
        try:
            writes.append(ItemWrite.of(tables, operation, wanted))
        except Mismatched as why:
            writes.append(why)
    return writes


def batch_write_item(tables: MemoryTables, parameters: Mapping[str, Any]) -> Reply:
    """BatchWriteItem: unconditional writes; all are processed except those of items with a transaction in progress."""
    _check_asked("BatchWriteItem", parameters)
    for name, requests in parameters["RequestItems"].items():
        if not 1 <= len(requests) <= _MOST_WRITTEN_IN_BATCH:
            raise invalid(
                f"1 validation error detected: Value '{{{name}={[*requests]}}}' at 'requestItems' failed to satisfy "
                "constraint: Map value must satisfy constraint: [Member must have length less than or equal to "
                f"{_MOST_WRITTEN_IN_BATCH}, Member must have length greater than or equal to 1]"
            )
    asked = [(name, request) for name, requests in parameters["RequestItems"].items() for request in requests]
    if len(asked) > _MOST_WRITTEN_IN_BATCH:
        raise invalid("Too many items requested for the BatchWriteItem call")
    writes = []
    for name, request in asked:
        if len(request) != 1:
            raise invalid("WriteRequest must contain either PutRequest or DeleteRequest")
        ((operation, wanted),) = request.items()
        check_values({"TableName": name})
        writes.append(ItemWrite.of(tables, _WRITES[operation], {"TableName": name, **wanted}))
    if len({write.item for write in writes}) < len(writes):
        raise invalid("Provided list of item keys contains duplicates")
    meter = Meter(parameters)
    left: dict[str, list[Any]] = {}
    done: list[tuple[str, WritePlan]] = []
    for (name, request), write in zip(asked, writes, strict=True):
        if tables.transactions.is_at_work(write.item):
            left.setdefault(name, []).append(request)
            continue
        plan = write.planned()
        plan.carry_out()
        done.append((name, plan))
        meter.take_write(name, plan.table.indexes.values(), plan.before, plan.after)
    collections = collections_of(parameters, done)
    more = {"ItemCollectionMetrics": collections} if collections else {}
    return {"UnprocessedItems": left, **meter.of_all(), **more}
