"""Creates a units table, and checks what its users are permitted."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ticketlock._expressions import Index
from ticketlock.errors import InvalidUnitRequest, TableRefused
from ticketlock.units._records import KEY, NAME, OPEN_INDEX, is_id
from ticketlock.units._recovery import OWNER, SWEEP
from ticketlock.units._statements import GUARDS_OF, Guards, as_a_unit_request
from ticketlock.units._words import Tables, UnitTable
from ticketlock.wire import (
    ForkingSteps,
    Get,
    GetMany,
    GetTogether,
    Item,
    Query,
    Request,
    TableKind,
    TransactWrite,
    Write,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_NEVER = "attribute_exists(#key) AND attribute_not_exists(#key)"
_KEYS: dict[str, tuple[Any, Any]] = {"S": ("ticketlock", "ticketlock 2"), "N": ("0", "1"), "B": (b"ticketlock", b"2")}
"""Key values: two of each type."""


def _is_row(item: Any) -> bool:
    unit: str = item["unit"]["S"]
    return is_id(unit) or unit.startswith((NAME, OWNER, GUARDS_OF)) or unit == SWEEP


UNITS_TABLE = TableKind("table of units", KEY, _is_row, OPEN_INDEX)


def create_units_table(
    table_name: str, *, client: "DynamoDBClient | None" = None, **more: Any
) -> Mapping[str, Any] | None:
    """Create a units table, unless a table of that name exists, and wait until it can be used.

    Its keys are ``unit`` and ``row``, both text. It is billed on demand, with TTL on ``expiresAt`` and the sparse index
    ``open``. A units table that exists without one of them, for example after a restore, gets it; DynamoDB fills an
    index that is added later in the background, and refuses sweeps and ``open_units`` until then.

    Args:
        table_name: its name.
        client: a DynamoDB client that may create tables.
        more: further arguments of CreateTable, for example ``Tags`` or ``DeletionProtectionEnabled``.

    Returns:
        What CreateTable answered; None if the table was there.

    Raises:
        InvalidUnitRequest: no Region is set, or ``client`` is not a low-level client (for example a
            ``boto3.resource``).
        ValueError: a table of that name exists, and it is not a units table; nothing was changed.
    """
    with as_a_unit_request():
        return UNITS_TABLE.create(table_name, client, more)


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
    if not isinstance(tables, Iterable):
        raise InvalidUnitRequest("tables", tables, "a list of what `table` has returned")
    own = Guards(units_table).table
    denied: dict[tuple[str, str], Denied] = {}
    for table in (own, *map(known.check_own, tables)):
        for permission, operation, request in _trials(table):
            try:
                yield request
            except TableRefused as error:
                is_of_index = isinstance(request, Query) and request.index is not None
                if is_of_index and not str(error).startswith("AccessDenied"):
                    # It is being filled.
                    continue
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
    for index in table.schema.indexes:
        yield "Query", f"Query of the index {index.name}", _query_of_index(table, index)
    yield "PutItem", "PutItem", never("Put", key, item=key)
    yield "UpdateItem", "UpdateItem", never("Update", key)
    yield "DeleteItem", "DeleteItem", never("Delete", key)
    both = TransactWrite((never("ConditionCheck", key), never("Delete", other)))
    yield "ConditionCheckItem", "TransactWriteItems", both


def _query_of_index(table: UnitTable, index: Index) -> Query:
    keys = [key for key in index.keys if key.role == "HASH"]
    condition = " AND ".join(f"#k{at} = :k{at}" for at in range(len(keys)))
    names = {f"#k{at}": key.name for at, key in enumerate(keys)}
    values = {f":k{at}": {key.kind: _KEYS[key.kind][0]} for at, key in enumerate(keys)}
    return Query(table.name, condition, names, values, index=index.name, limit=1, is_consistent=False)


def _key(table: UnitTable, which: int) -> Item:
    return {each.name: {each.kind: _KEYS[each.kind][which]} for each in table.schema.keys}
