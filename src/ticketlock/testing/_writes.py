"""Writes: each is planned on the stored item, and then carried out, alone or with the others of a transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ticketlock._expressions._errors import ItemInvalid
from ticketlock._expressions._expressions import Expressions
from ticketlock._expressions._updates import ItemUpdate
from ticketlock._expressions._values import Item, copy_of_item
from ticketlock.testing import _parameters
from ticketlock.testing._faults import Reason, Refused, conflict, invalid
from ticketlock.testing._tables import Reply, ItemId, Key, Table, Tables, item_of

_MOST_WRITTEN_IN_BATCH = 25



@dataclass(frozen=True, slots=True)
class Plan:
    """What one write will do.

    Attributes:
        reason: why it cannot be carried out, in the form of a cancelled transaction; None if it can.
    """

    table: Table
    key: Key
    before: Item | None
    after: Item | None
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
class Write:
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
    given: Item | None
    update: ItemUpdate | None

    @classmethod
    def of(cls, tables: Tables, operation: str, parameters: Mapping[str, Any]) -> "Write":
        """Parse the write of a request, or of an action of a transaction.

        Raises:
            Refused: ValidationException: it is invalid for any item. ResourceNotFoundException.
        """
        table = tables[parameters["TableName"]]
        expressions = Expressions(parameters)
        given: Item | None = None
        if operation.startswith("Put"):
            given = item_of(table, parameters["Item"])
            key = table.key_of(given, is_item=True)
        else:
            key = table.key_of(parameters["Key"])
        update = ItemUpdate(expressions, table.key_names) if operation.startswith("Update") else None
        return cls(operation, parameters, table, key, expressions, given, update)

    @property
    def item(self) -> ItemId:
        """The table and key of the item."""
        return self.table.name, self.key

    def planned(self) -> Plan:
        """Plan what it will do to the stored item."""
        before = self.table.get(self.key)
        if not self.expressions.condition_holds(before):
            wants_item = self.parameters.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
            shown = {"Item": copy_of_item(before)} if wants_item and before is not None else {}
            failed = {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed", **shown}
            return Plan(self.table, self.key, before, before, failed)
        after = self.given
        if self.update is not None:
            try:
                after = self.update.applied_to(before, self.table.key_item(self.parameters["Key"]))
                if after is not None:
                    self.table.checked(after)
            except (ItemInvalid, Refused) as error:
                message = error.message if isinstance(error, Refused) else str(error)
                return Plan(self.table, self.key, before, before, {"Code": "ValidationError", "Message": message})
        elif self.operation == "ConditionCheck":
            after = before
        return Plan(self.table, self.key, before, after)


def write(tables: Tables, operation: str, parameters: Mapping[str, Any]) -> Reply:
    """PutItem, UpdateItem or DeleteItem."""
    wanted = Write.of(tables, operation, parameters)
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


def writes_of_a_transaction(tables: Tables, items: Sequence[Any]) -> list[Write]:
    """The writes and checks of a TransactWriteItems.

    Raises:
        Refused: one of them is refused.
    """
    writes = []
    for item in items:
        if len(item) != 1:
            raise invalid("TransactItems can only contain one of Check, Put, Update or Delete")
        ((operation, wanted),) = item.items()
        if operation not in ("Put", "Update", "Delete", "ConditionCheck"):
            raise NotImplementedError(f"MemoryDynamoDB does not know {operation} in a transaction")
        _parameters.check(operation, wanted)
        writes.append(Write.of(tables, operation, wanted))
    return writes


def batch_write_item(tables: Tables, parameters: Mapping[str, Any]) -> Reply:
    """BatchWriteItem: unconditional writes; all are processed except those of items with a transaction in progress."""
    asked = [(name, request) for name, requests in parameters["RequestItems"].items() for request in requests]
    if not 1 <= len(asked) <= _MOST_WRITTEN_IN_BATCH:
        raise invalid(f"Too many or no items requested for the BatchWriteItem call: {len(asked)}")
    writes = []
    for name, request in asked:
        ((operation, wanted),) = request.items()
        writes.append(Write.of(tables, operation, {"TableName": name, **wanted}))
    if len({write.item for write in writes}) < len(writes):
        raise invalid("Provided list of item keys contains duplicates")
    left: dict[str, list[Any]] = {}
    for (name, request), write in zip(asked, writes, strict=True):
        if tables.transactions.is_at_work(write.item):
            left.setdefault(name, []).append(request)
        else:
            write.planned().carry_out()
    return {"UnprocessedItems": left}
