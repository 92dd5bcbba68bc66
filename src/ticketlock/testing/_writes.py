"""Writes: each is planned on the item as it stands, and then carried out, alone or with the others of a transaction."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ticketlock._expressions._errors import ItemInvalid
from ticketlock._expressions._expressions import Expressions
from ticketlock._expressions._updates import ItemUpdate
from ticketlock._expressions._values import Item, copy_of_item
from ticketlock.testing import _parameters
from ticketlock.testing._faults import Refused, cancelled, conflict, conflicts, invalid
from ticketlock.testing._tables import Key, Table, Tables, item_of

_MOST_IN_TRANSACTION = 100
_MOST_IN_BATCH = 25

Reply = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What one write will do.

    Attributes:
        reason: why not, as a cancelled transaction tells it; None when it can be carried out.
    """

    table: Table
    key: Key
    before: Item | None
    after: Item | None
    reason: dict[str, Any] | None = None

    @property
    def item(self) -> tuple[str, Key]:
        """Which item it is about."""
        return self.table.name, self.key

    def carry_out(self) -> None:
        if self.after is not self.before:
            self.table.put(self.key, self.after)


def write(tables: Tables, operation: str, parameters: Mapping[str, Any]) -> Reply:
    """PutItem, UpdateItem or DeleteItem."""
    plan = _planned(tables, operation, parameters)
    if tables.transactions.is_at_work(plan.item):
        raise conflict()
    if plan.reason is not None:
        code, message = plan.reason["Code"], plan.reason["Message"]
        if code == "ValidationError":
            raise invalid(message)
        item = {"Item": plan.reason["Item"]} if "Item" in plan.reason else {}
        raise Refused("ConditionalCheckFailedException", message, **item)
    plan.carry_out()
    shown = {"ALL_OLD": plan.before, "ALL_NEW": plan.after}.get(parameters.get("ReturnValues", "NONE"))
    return {"Attributes": copy_of_item(shown)} if shown is not None else {}


def transact_write_items(tables: Tables, parameters: Mapping[str, Any]) -> Reply:
    """TransactWriteItems: all of the writes, or none of them."""
    items = parameters["TransactItems"]
    if not 1 <= len(items) <= _MOST_IN_TRANSACTION:
        raise invalid(f"Member must have length from 1 to {_MOST_IN_TRANSACTION}, and has {len(items)}")
    token = parameters.get("ClientRequestToken")
    if token is not None and tables.transactions.was_done(token, items):
        return {}
    plans = []
    for item in items:
        if len(item) != 1:
            raise invalid("TransactItems can only contain one of Check, Put, Update or Delete")
        ((operation, wanted),) = item.items()
        if operation not in ("Put", "Update", "Delete", "ConditionCheck"):
            raise NotImplementedError(f"MemoryDynamoDB does not know {operation} in a transaction")
        _parameters.check(operation, wanted)
        plans.append(_planned(tables, operation, wanted))
    if len({plan.item for plan in plans}) < len(plans):
        raise invalid("Transaction request cannot include multiple operations on one item")
    at_work = [tables.transactions.is_at_work(plan.item) for plan in plans]
    if any(at_work):
        raise conflicts(at_work)
    if any(plan.reason is not None for plan in plans):
        raise cancelled([plan.reason if plan.reason is not None else {"Code": "None"} for plan in plans])
    for plan in plans:
        plan.carry_out()
    tables.transactions.note_applied(token, items, [plan.item for plan in plans])
    return {}


def batch_write_item(tables: Tables, parameters: Mapping[str, Any]) -> Reply:
    """BatchWriteItem: writes without conditions; everything is processed."""
    plans = []
    for name, requests in parameters["RequestItems"].items():
        for request in requests:
            ((operation, wanted),) = request.items()
            plans.append(_planned(tables, operation, {"TableName": name, **wanted}))
    if not 1 <= len(plans) <= _MOST_IN_BATCH:
        raise invalid(f"Too many or no items requested for the BatchWriteItem call: {len(plans)}")
    if len({plan.item for plan in plans}) < len(plans):
        raise invalid("Provided list of item keys contains duplicates")
    for plan in plans:
        plan.carry_out()
    return {"UnprocessedItems": {}}


def _planned(tables: Tables, operation: str, parameters: Mapping[str, Any]) -> _Plan:
    table = tables[parameters["TableName"]]
    expressions = Expressions(parameters)
    given: Item | None = None
    if operation.startswith("Put"):
        given = item_of(table, parameters["Item"])
        key = table.key_of(given, is_item=True)
    else:
        key = table.key_of(parameters["Key"])
    update = ItemUpdate(expressions, table.key_names) if operation.startswith("Update") else None
    before = table.get(key)
    if not expressions.condition_holds(before):
        wants_item = parameters.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
        shown = {"Item": copy_of_item(before)} if wants_item and before is not None else {}
        failed = {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed", **shown}
        return _Plan(table, key, before, before, failed)
    after = given
    if update is not None:
        try:
            after = update.applied_to(before, table.key_item(parameters["Key"]))
        except ItemInvalid as error:
            return _Plan(table, key, before, before, {"Code": "ValidationError", "Message": str(error)})
        if after is not None:
            table.checked(after)
    elif operation == "ConditionCheck":
        after = before
    return _Plan(table, key, before, after)
