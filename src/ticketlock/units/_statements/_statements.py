"""Statements, evaluated on an item as the unit has it, with DynamoDB's expressions and by its rules."""

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY
from typing import Any, Literal

from ticketlock._expressions import Attributes, ExpressionInvalid, Expressions, ItemInvalid, ItemUpdate, size_of
from ticketlock._value import value
from ticketlock.errors import ConditionFailed, InvalidUnitRequest
from ticketlock.units._records import Marks
from ticketlock.units._words import (
    PYTHON,
    REFUSED,
    VERSION_BYTES,
    Python,
    UnitTable,
    advice,
    check_apart,
    condition_in,
    expression,
    expressions_in,
    refused_expressions,
)

StatementKind = Literal["put", "update", "create", "delete", "check"]
"""``create``: an update without an expression, which only creates a missing item."""

_SUBSTITUTED_BYTES = 2 * 1_024 * 1_024
"""https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-expression-parameters"""


@value(frozen=True, slots=True)
class Statement:
    """One statement on one item.

    Attributes:
        item: the whole new item of a put.
        parameters: its expressions, as the low-level API has them.
        change: the parsed update of an update statement.
    """

    kind: StatementKind
    table: UnitTable
    key: Attributes
    item: Attributes | None
    parameters: Mapping[str, Any]
    expressions: Expressions
    change: ItemUpdate | None

    def applied_to(self, image: Attributes | None) -> Attributes | None:
        """The item after it; None for none."""
        try:
            if not self.expressions.condition_holds(image):
                raise self.condition_failed(image)
            if self.change is not None:
                return self.change.applied_to(image, self.key)
        except (ExpressionInvalid, ItemInvalid) as error:
            reason = f"{error.message}, for the item {PYTHON.to_caller(self.key)} of {self.table.name} as it is"
            given = expressions_in(self.parameters)
            raise InvalidUnitRequest(self.kind, given, advice(error.message), reason) from error
        created = image if image is not None else self.key
        return {"put": self.item, "create": created, "delete": None, "check": image}[self.kind]

    def condition_failed(self, image: Attributes | None) -> ConditionFailed:
        """The error if its condition does not hold for an item."""
        key, item = PYTHON.to_caller(self.key) or {}, PYTHON.to_caller(image)
        return ConditionFailed(self.table.name, key, condition_in(self.parameters), item, self.expressions.looks_at)


def with_tables(table: Any, targets: Any, field: str) -> list[tuple[Any, Any]]:
    """Many keys or items, each with its table.

    Args:
        table, targets: a table and a list; or pairs in place of the table, and no list.
        field: the caller's name for the list.
    """
    are_pairs = targets is None and not isinstance(table, UnitTable)
    name, given = ("table", table) if are_pairs else (field, targets)
    many = None if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable) else list(given)
    if many is None or (are_pairs and any(not isinstance(each, tuple) or len(each) != 2 for each in many)):
        shape = "a table and a list, or a list of pairs: [(table, {...}), ...]"
        raise InvalidUnitRequest(name, given, shape if are_pairs else f"a list of {field}: [{{...}}, ...]")
    return many if are_pairs else [(table, each) for each in many]


StatementArguments = tuple[Attributes, dict[str, Any]]
"""The item of a put, or the key of the others, in canonical form; the condition with its placeholders."""


@value(frozen=True, slots=True)
class StatementRequest:
    """A statement as its caller has given it. The steps of the unit check and convert it: an interrupt of that ends it.

    Attributes:
        table, target: on which item: the item of a put, the key of the others.
        python: what converts them to AttributeValues.
        at: its position in a call for many items; None for a statement of its own.
    """

    kind: StatementKind
    table: Any
    target: Any
    _: KW_ONLY
    condition: Any = None
    values: Any = None
    names: Any = None
    update: Any = None
    python: Python = PYTHON
    at: int | None = None

    @property
    def field(self) -> str:
        """The caller's name for the target."""
        name = "item" if self.kind == "put" else "key"
        return name if self.at is None else f"{name}s[{self.at}]"

    def arguments(self) -> StatementArguments:
        if self.kind == "check" and self.condition is None:
            raise InvalidUnitRequest("condition", None, "a condition: `get` makes sure that an item does not change")
        python = self.python
        target = python.item(self.field, self.target)
        condition = python.condition(self.condition)
        values, names = python.values(self.values), python.names(self.names)
        check_apart(names, values, condition)
        parameters = {
            "ConditionExpression": condition.text,
            "ExpressionAttributeNames": {**names, **condition.names},
            "ExpressionAttributeValues": {**values, **condition.values},
        }
        return target, {name: each for name, each in parameters.items() if each}

    @classmethod
    def for_each(cls, kind: StatementKind, table: Any, targets: Any, **given: Any) -> "list[StatementRequest]":
        """The same statement on each of many items; see ``with_tables``."""
        pairs = with_tables(table, targets, "items" if kind == "put" else "keys")
        return [cls(kind, own, target, at=at, **given) for at, (own, target) in enumerate(pairs)]

    def statement(self, table: UnitTable, given: StatementArguments, marks: Marks) -> Statement:
        """A statement, checked as far as possible without the item."""
        kind, (target, parameters) = self.kind, given
        field = self.field
        marks.check_free_of_ours(field, target)
        key = table.key_of(field, target) if kind == "put" else table.key_alone(field, target)
        if kind == "update":
            update = expression("update", self.update)
            if update is None:
                raise InvalidUnitRequest("update", None, "an update expression")
            parameters = {**parameters, "UpdateExpression": update}
        try:
            expressions = Expressions(parameters, has_canonical_values=self.python.is_canonical)
            change = ItemUpdate(expressions, table.key_names) if kind == "update" else None
        except REFUSED as error:
            raise refused_expressions(kind, parameters, error) from error
        # The values are checked only now, as parts of the item and the expressions.
        _check_substituted(parameters)
        if kind == "put":
            # As DynamoDB: before the condition, on which the fault of a whole item does not depend.
            table.check_item(target, "statement", VERSION_BYTES)
        marks.check_free_of_ours("condition" if change is None else "update", expressions.looks_at)
        return Statement(kind, table, key, target if kind == "put" else None, parameters, expressions, change)


def _check_substituted(parameters: Mapping[str, Any]) -> None:
    names, values = parameters.get("ExpressionAttributeNames", {}), parameters.get("ExpressionAttributeValues", {})
    size = size_of(values) + sum(len(name.encode()) for name in names.values())
    if size > _SUBSTITUTED_BYTES:
        raise InvalidUnitRequest("values", f"{size:,} bytes", f"with the names {_SUBSTITUTED_BYTES:,} bytes in total")
