"""The tables of the simulated world of units, and its requests: what each decides, and which faults may affect it."""

from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError
from property.faults import answered
from property.units.checker import Key, Record

from ticketlock._value import value
from ticketlock.testing import MemoryDynamoDB
from ticketlock.units import create_units_table
from ticketlock.units._records._marks import Marks
from ticketlock.units._statements._work import GUARD
from ticketlock.wire._actions import Call

UNITS, LOCKS = "units", "locks"
TABLES: Mapping[str, tuple[str, ...]] = {
    UNITS: ("unit", "row"),
    "accounts": ("id",),
    "lines": ("pk", "sk"),
    LOCKS: ("pk",),
}
MARKS = Marks("_tlu")
RANKED, RANK = "ranked", "rank"
INDEXES: Mapping[str, tuple[tuple[str, ...], Mapping[str, Any]]] = {
    "whole": (("pk", "sk"), {"ProjectionType": "ALL"}),
    "listed": (("pk", "sk"), {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["list"]}),
    RANKED: (("pk", RANK), {"ProjectionType": "ALL"}),
}
"""The keys of the indexes of the table with ranges, and what they have of its items.

The second one does not show whether an item is marked. In the third one all items have the same rank; an item that was
made by a blind append has none.
"""
OWNERS = ("owner 1", "owner 2")
ELEMENTS = "list"


def create_tables(memory: MemoryDynamoDB) -> None:
    """Create all of them in a new database."""
    create_units_table(UNITS, client=memory.client)
    for name, keys in TABLES.items():
        if name == UNITS:
            continue
        indexes: list[Any] = [
            {"IndexName": index, "KeySchema": _schema(its_keys), "Projection": projection}
            for index, (its_keys, projection) in INDEXES.items()
        ]
        is_indexed = name == "lines"
        memory.create_table(
            TableName=name,
            KeySchema=_schema(keys),
            **({"GlobalSecondaryIndexes": indexes} if is_indexed else {}),
            AttributeDefinitions=[
                {"AttributeName": key, "AttributeType": "S"} for key in (*keys, *[RANK] * is_indexed)
            ],
            BillingMode="PAY_PER_REQUEST",
        )


def _schema(keys: Sequence[str]) -> list[Any]:
    return [{"AttributeName": key, "KeyType": role} for key, role in zip(keys, ("HASH", "RANGE"), strict=False)]


def key_of(key: Key) -> dict[str, str]:
    """The key attributes of an item, in Python values."""
    return {"id": key[1]} if key[0] == "accounts" else {"pk": "p", "sk": key[1]}


def elements(item: Mapping[str, Any]) -> tuple[int, ...]:
    """The list in an item, from AttributeValues."""
    return tuple(int(each["N"]) for each in item[ELEMENTS]["L"])


TRANSACTIONS = frozenset({"transact_write_items", "transact_get_items"})
COMMITS = frozenset({"transact_write_items"})
WRITES = frozenset({"put_item", "update_item", "delete_item", "transact_write_items"})

FOR_A_VERSION = "attribute_not_exists(#mark) AND #version = :seen"
FOR_NO_VERSION = "attribute_not_exists(#mark) AND attribute_not_exists(#version) AND attribute_exists(#key)"
FOR_NO_ITEM = "attribute_not_exists(#key)"
"""The conditions of a plain writer, for each thing that it may have found."""


@value(frozen=True, slots=True)
class Beside(Call):
    """A request of a plain writer."""

    record: Record | None = None
    token: int | None = None


def finished_by(call: Call) -> tuple[str, Key] | None:
    """The committed unit whose new value a write gives to an item, and the item."""
    if call.operation not in ("put_item", "update_item") or isinstance(call, Beside):
        return None
    return _finished(call.parameters)


def finishes(call: Call) -> bool:
    """Whether a transaction finishes the items of a unit that was committed before."""
    return all("#mark.#unit = :unit" in asked.get("ConditionExpression", "") for asked in _actions(call))


def finished_together(call: Call) -> list[tuple[str, Key]]:
    """The new values that it gives to items then, as of ``finished_by``."""
    return [found for asked in _actions(call) if finishes(call) and (found := _finished(asked)) is not None]


def _actions(call: Call) -> list[Any]:
    return [asked for action in call.parameters["TransactItems"] for asked in action.values()]


def _finished(asked: Mapping[str, Any]) -> tuple[str, Key] | None:
    if asked["TableName"] == UNITS:
        return None
    item = asked.get("Item", {})
    if MARKS.version not in item and "#version = :unit" not in asked.get("UpdateExpression", ""):
        return None
    key = asked.get("Key") or item
    name = "id" if asked["TableName"] == "accounts" else "sk"
    return str(asked["ExpressionAttributeValues"][":unit"]["S"]), (asked["TableName"], str(key[name]["S"]))


def written_by(call: Call) -> str | None:
    """The unit that a transaction commits, if it does: natively, or by its head; or the correction that it makes."""
    for action in call.parameters["TransactItems"]:
        kind, _, correction = action.get("Put", {}).get("Item", {}).get("row", {}).get("S", "").partition("#")
        if kind == "c":
            return str(correction)
    if finishes(call):
        return None
    for action in call.parameters["TransactItems"]:
        for asked in action.values():
            if asked["TableName"] == UNITS and "#state = :committed" in asked.get("UpdateExpression", ""):
                return str(asked["Key"]["unit"]["S"])
            if asked["TableName"] not in (UNITS, LOCKS):
                unit = asked.get("ExpressionAttributeValues", {}).get(":unit") or asked.get("Item", {}).get(
                    MARKS.version
                )
                if unit is not None and MARKS.mark not in asked.get("Item", {}):
                    return str(unit["S"])
    token = str(call.parameters.get("ClientRequestToken"))
    records = any(
        asked["TableName"] == UNITS
        and asked.get("Key", {}).get("row", {}).get("S") == "head"
        and ":ended" not in asked.get("ExpressionAttributeValues", {})
        for action in call.parameters["TransactItems"]
        for asked in action.values()
    )
    return token if len(token) == 26 and not records else None


def may_be_refused(call: Call) -> bool:
    """Whether the service may refuse it for its contents; it never refuses what comes after a unit's decision."""
    asked = call.parameters
    if call.operation == "put_item":
        is_a_row = asked["TableName"] == UNITS and asked["Item"]["row"] != {"S": GUARD}
        return is_a_row or MARKS.mark in asked["Item"]
    is_mark = call.operation == "update_item" and asked.get("UpdateExpression") == "SET #mark = :mark"
    return (is_mark or call.operation in COMMITS) and not isinstance(call, Beside)


def is_a_plain_insert(call: Call) -> bool:
    """Whether a plain writer puts an item where it has found none."""
    return isinstance(call, Beside) and call.parameters["ConditionExpression"] == FOR_NO_ITEM


def in_short(call: Call) -> str:
    asked = call.parameters
    if "TransactItems" in asked:
        return f"{call.operation} of {len(asked['TransactItems'])}"
    key = asked.get("Key") or asked.get("Item", {})
    return f"{call.operation} of {asked.get('TableName')} {[part.get('S') for part in list(key.values())[:2]]}"


def conflict(call: Call) -> ClientError:
    if call.operation not in TRANSACTIONS:
        return answered("TransactionConflictException", call.operation)
    error = answered("TransactionCanceledException", call.operation)
    response: Any = error.response
    response["CancellationReasons"] = [
        {"Code": "TransactionConflict" if at == 0 else "None"} for at in range(len(call.parameters["TransactItems"]))
    ]
    return error
