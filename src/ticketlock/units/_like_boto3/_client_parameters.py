"""The parameters of boto3's client that units take: what each operation, and each structure within, may have."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ticketlock._checks import boolean, text
from ticketlock.errors import InvalidUnitRequest
from ticketlock.units._statements import StatementKind
from ticketlock.units._words import NAME_BYTES

Parameters = Mapping[str, Any]

MOST_IN_A_BATCH = 25
"""https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchWriteItem.html"""

IN_PLACE_OF: Mapping[str, str] = {
    "AttributeUpdates": "UpdateExpression",
    "AttributesToGet": "ProjectionExpression",
    "ClientRequestToken": "a name: units.begin(name=...)",
    "ConditionalOperator": "AND or OR in an expression",
    "Expected": "ConditionExpression",
    "KeyConditions": "KeyConditionExpression",
    "QueryFilter": "FilterExpression",
}
"""The parameters of the API that units do not take, and what to use."""

NAMES, VALUES = "ExpressionAttributeNames", "ExpressionAttributeValues"
UNITS, ITEM_OF_REFUSAL = "ReturnConsumedCapacity", "ReturnValuesOnConditionCheckFailure"
METRICS = "ReturnItemCollectionMetrics"
PROJECTION = ("ProjectionExpression", NAMES)
_CONDITION = ("ConditionExpression", NAMES, VALUES, ITEM_OF_REFUSAL)
_OLD = ("NONE", "ALL_OLD")
_ANY = (*_OLD, "UPDATED_OLD", "ALL_NEW", "UPDATED_NEW")
_CHOICES = {UNITS: ("NONE", "TOTAL"), ITEM_OF_REFUSAL: _OLD, METRICS: ("NONE",)}
# The sizes of collections of items are not known before the commit.
_NOT_OF_UNITS = {UNITS: "INDEXES", METRICS: "SIZE"}


@dataclass(frozen=True, slots=True)
class Shape:
    """A structure of parameters: those that units accept, and what a statement can be asked to return.

    Attributes:
        name: the operation's, or the structure's within its parameters.
    """

    name: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    returns: tuple[str, ...] = ()

    def check(self, given: Any, where: str = "") -> None:
        """Refuse missing and unknown parameters, and wrong flags; other values are checked where they are used.

        Args:
            where: precedes their names: the path to the structure.
        """
        known = (*self.required, *self.optional)
        if not isinstance(given, Mapping):
            raise InvalidUnitRequest(where.rstrip(".") or self.name, given, f"a mapping with {', '.join(known)}")
        for name in given:
            if name not in known:
                allowed = f"in its place {IN_PLACE_OF[name]}" if name in IN_PLACE_OF else f"one of {', '.join(known)}"
                reason = f"{self.name} of a unit has no such parameter"
                of_units = name in IN_PLACE_OF
                raise InvalidUnitRequest(f"{where}{name}", given[name], allowed, reason, is_of_units=of_units)
        for name in self.required:
            if given.get(name) is None:
                raise InvalidUnitRequest(f"{where}{name}", None, f"a parameter that {self.name} needs")
        if "TableName" in given:
            text(f"{where}TableName", given["TableName"], NAME_BYTES, InvalidUnitRequest)
        boolean(f"{where}ConsistentRead", given.get("ConsistentRead", True), InvalidUnitRequest)
        for name, choices in {"ReturnValues": self.returns, **_CHOICES}.items():
            if name in given and given[name] not in choices:
                of_units = given[name] == _NOT_OF_UNITS.get(name)
                allowed = f"one of {', '.join(choices)}"
                raise InvalidUnitRequest(f"{where}{name}", given[name], allowed, is_of_units=of_units)


GET = Shape("get_item", ("TableName", "Key"), ("ConsistentRead", *PROJECTION, UNITS))
_OF_ONE_ITEM = (*_CONDITION, "ReturnValues", UNITS, METRICS)
PUT = Shape("put_item", ("TableName", "Item"), _OF_ONE_ITEM, _OLD)
UPDATE = Shape("update_item", ("TableName", "Key", "UpdateExpression"), _OF_ONE_ITEM, _ANY)
CREATE = Shape("update_item", ("TableName", "Key"), ("UpdateExpression", *_OF_ONE_ITEM), _ANY)
DELETE = Shape("delete_item", ("TableName", "Key"), _OF_ONE_ITEM, _OLD)
QUERY = Shape(
    "query",
    ("TableName", "KeyConditionExpression"),
    (
        "IndexName",
        "FilterExpression",
        *PROJECTION,
        VALUES,
        "ExclusiveStartKey",
        "Limit",
        "ScanIndexForward",
        "Select",
        "ConsistentRead",
        UNITS,
    ),
)
BATCH_GET = Shape("batch_get_item", ("RequestItems",), (UNITS,))
BATCH_WRITE = Shape("batch_write_item", ("RequestItems",), (UNITS, METRICS))
TRANSACT_GET = Shape("transact_get_items", ("TransactItems",), (UNITS,))
TRANSACT_WRITE = Shape("transact_write_items", ("TransactItems",), (UNITS, METRICS))
OPERATIONS = (BATCH_GET, BATCH_WRITE, DELETE, GET, PUT, QUERY, TRANSACT_GET, TRANSACT_WRITE, UPDATE)

KEYS = Shape("KeysAndAttributes", ("Keys",), ("ConsistentRead", *PROJECTION))
TRANSACT_GETS = {"Get": Shape("Get", ("TableName", "Key"), PROJECTION)}
TRANSACT_WRITES: Mapping[str, tuple[StatementKind, Shape]] = {
    "ConditionCheck": (
        "check",
        Shape("ConditionCheck", ("TableName", "Key", "ConditionExpression"), (NAMES, VALUES, ITEM_OF_REFUSAL)),
    ),
    "Put": ("put", Shape("Put", ("TableName", "Item"), _CONDITION)),
    "Delete": ("delete", Shape("Delete", ("TableName", "Key"), _CONDITION)),
    "Update": ("update", Shape("Update", ("TableName", "Key", "UpdateExpression"), _CONDITION)),
}
BATCH_WRITES: Mapping[str, tuple[StatementKind, Shape]] = {
    "PutRequest": ("put", Shape("PutRequest", ("Item",))),
    "DeleteRequest": ("delete", Shape("DeleteRequest", ("Key",))),
}
STRUCTURES = (
    KEYS,
    *TRANSACT_GETS.values(),
    *(shape for writes in (TRANSACT_WRITES, BATCH_WRITES) for _, shape in writes.values()),
)
"""Those within the parameters of operations."""


def list_of(field: str, given: Any, most: int) -> Sequence[Any]:
    if not isinstance(given, list | tuple) or not 1 <= len(given) <= most:
        shown = f"{len(given)} of them" if isinstance(given, list | tuple) and given else given
        raise InvalidUnitRequest(field, shown, f"a list of 1 to {most}")
    return given


def by_table(given: Any) -> Iterator[tuple[str, str, Any]]:
    """For each table its name, where in the parameters what is given for it stands, and that."""
    if not isinstance(given, Mapping) or not given:
        raise InvalidUnitRequest("RequestItems", given, "a mapping of tables' names to what is asked of them")
    for name, each in given.items():
        yield text("RequestItems", name, NAME_BYTES, InvalidUnitRequest), f"RequestItems[{name!r}]", each


def action_of(where: str, given: Any, known: Mapping[str, Any]) -> tuple[str, Any]:
    if not isinstance(given, Mapping) or len(given) != 1 or not known.keys() >= given.keys():
        raise InvalidUnitRequest(where, given, f"a mapping with one of {', '.join(known)}")
    (action,) = given.items()
    return action
