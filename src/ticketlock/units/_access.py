"""Checks which permissions of units a caller lacks, by requests that write nothing. No I/O, no clock."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ticketlock._expressions._schemas import KeyAttribute, Schema
from ticketlock.errors import InvalidUnitRequest, TableRefused
from ticketlock.units._rows import KEY
from ticketlock.units._tables import Tables, UnitTable
from ticketlock.wire._attributes import Item
from ticketlock.wire._item_requests import Get, GetMany, GetTogether, Query
from ticketlock.wire._requests import ForkingSteps, Request, TransactWrite, Write

_NEVER = "attribute_exists(#key) AND attribute_not_exists(#key)"
_KEYS: dict[str, tuple[Any, Any]] = {"S": ("ticketlock", "ticketlock 2"), "N": ("0", "1"), "B": (b"ticketlock", b"2")}
"""Key values: two of each type."""


@dataclass(frozen=True, slots=True)
class Denied:
    """A permission that the caller does not have.

    Attributes:
        table: the table's name.
        action: the missing permission, for example ``dynamodb:ConditionCheckItem``.
        why: the operation that the service has refused, and its message.
    """

    table: str
    action: str
    why: str


def check_access(units_table: str, known: Tables, tables: Iterable[Any]) -> ForkingSteps[list[Denied]]:
    """Try every action that units need, on the units table and on the given tables.

    Raises:
        InvalidUnitRequest: ``tables`` is no list of tables, or one of them belongs to another ``Units``.
        TableNotFound, RequestNotApplied: the remaining actions were not tried.
    """
    if not isinstance(tables, Iterable):
        raise InvalidUnitRequest("tables", tables, "a list of what `table` has returned")
    keys = tuple(KeyAttribute(name, "S", role) for name, role in zip(KEY, ("HASH", "RANGE"), strict=True))
    own = UnitTable(units_table, Schema(units_table, keys))
    denied: dict[tuple[str, str], Denied] = {}
    for table in (own, *map(known.check_own, tables)):
        for permission, operation, request in _trials(table):
            try:
                yield request
            except TableRefused as error:
                found = Denied(table.name, f"dynamodb:{permission}", f"{operation}: {error}")
                denied.setdefault((table.name, permission), found)
    return list(denied.values())


def _trials(table: UnitTable) -> Iterator[tuple[str, str, Request]]:
    """Permissions, the operations that show them, and a request each."""
    key, other = _key(table, 0), _key(table, 1)
    names, name = {"#key": table.key_names[0]}, table.name

    def never(operation: Any, key: Item, **more: Any) -> Write:
        return Write(operation, key, _NEVER, names=names, table=name, **more)

    yield "GetItem", "GetItem", Get(name, key)
    yield "BatchGetItem", "BatchGetItem", GetMany([(name, key)])
    yield "GetItem", "TransactGetItems", GetTogether([(name, key)])
    yield "Query", "Query", Query(name, "#key = :key", names, {":key": key[table.key_names[0]]}, limit=1)
    yield "PutItem", "PutItem", never("Put", key, item=key)
    yield "UpdateItem", "UpdateItem", never("Update", key)
    yield "DeleteItem", "DeleteItem", never("Delete", key)
    both = TransactWrite((never("ConditionCheck", key), never("Delete", other)))
    yield "ConditionCheckItem", "TransactWriteItems", both


def _key(table: UnitTable, which: int) -> Item:
    return {each.name: {each.kind: _KEYS[each.kind][which]} for each in table.schema.keys}
