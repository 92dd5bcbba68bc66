"""Statements, evaluated on an item as the unit has it, with DynamoDB's expressions and by its rules."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from ticketlock._expressions._evaluated import Expressions
from ticketlock._expressions._updates import ItemUpdate
from ticketlock._expressions._values import Attributes, ExpressionInvalid, ItemInvalid, size_of
from ticketlock.errors import ConditionFailed, InvalidUnitRequest
from ticketlock.units._marks import Marks
from ticketlock.units._tables import UnitTable
from ticketlock.units._values import PYTHON, Phrase, Python, advice, expression, expressions_in, refusing
from ticketlock.wire._actions import Item

StatementKind = Literal["put", "update", "delete", "check"]

_SUBSTITUTED_BYTES = 2 * 1_024 * 1_024
"""https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-expression-parameters"""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement on one item.

    Attributes:
        item: the whole new item of a put.
        parameters: its expressions, as the low-level API has them.
        expressions: the same, parsed.
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
        """The item after it; None for none.

        Raises:
            ConditionFailed: its condition does not hold.
            InvalidUnitRequest: an expression is wrong, or does not fit the item.
        """
        try:
            if not self.expressions.condition_holds(image):
                key = PYTHON.back(self.key) or {}
                raise ConditionFailed(self.table.name, key, self.parameters["ConditionExpression"])
            if self.change is not None:
                return self.change.applied_to(image, self.key)
        except (ExpressionInvalid, ItemInvalid) as error:
            reason = f"{error.message}, for the item {PYTHON.back(self.key)} of {self.table.name} as it is"
            given = expressions_in(self.parameters)
            raise InvalidUnitRequest(self.kind, given, advice(error.message), reason) from error
        return {"put": self.item, "delete": None, "check": image}[self.kind]


@dataclass(frozen=True, slots=True)
class StatementArguments:
    """The arguments of a statement, in AttributeValues.

    Attributes:
        target: the item of a put, the key of the others, in canonical form.
        condition: with its own placeholders, if it was made from an object.
        values, names: what the placeholders of the expressions stand for.
        update: an update expression.
    """

    target: Attributes
    condition: Phrase
    values: Item
    names: Mapping[str, str]
    update: Any = None

    def parameters(self) -> dict[str, Any]:
        """As parameters of the low-level API."""
        given = {
            "ConditionExpression": self.condition.text,
            "UpdateExpression": expression("update", self.update),
            "ExpressionAttributeNames": {**self.names, **self.condition.names},
            "ExpressionAttributeValues": {**self.values, **self.condition.values},
        }
        return {name: each for name, each in given.items() if each}


@dataclass(frozen=True, slots=True)
class StatementRequest:
    """A statement as its caller has given it. The steps of the unit check and convert it: an interrupt of that ends it.

    Attributes:
        table, target: on which item: the item of a put, the key of the others.
        condition, values, names, update: its expressions, and what their placeholders stand for.
        python: what converts them to AttributeValues.
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

    def arguments(self) -> StatementArguments:
        """The same in AttributeValues."""
        if self.kind == "check" and self.condition is None:
            raise InvalidUnitRequest("condition", None, "a condition: `get` makes sure that an item does not change")
        python = self.python
        return StatementArguments(
            target=python.item(field_of_target(self.kind), self.target),
            condition=python.condition(self.condition),
            values=python.values(self.values),
            names=python.names(self.names),
            update=self.update,
        )


def field_of_target(kind: StatementKind) -> str:
    """The caller's name for the target of a statement."""
    return "item" if kind == "put" else "key"


def statement(kind: StatementKind, table: UnitTable, given: StatementArguments, marks: Marks) -> Statement:
    """A statement, checked as far as possible without the item."""
    field, target = field_of_target(kind), given.target
    marks.check_free_of_ours(field, target)
    key = table.key_of(field, target) if kind == "put" else table.key_alone(field, target)
    if kind == "update" and given.update is None:
        raise InvalidUnitRequest("update", None, "an update expression")
    parameters = given.parameters()
    with refusing(kind, expressions_in(parameters)):
        expressions = Expressions(parameters)
        change = ItemUpdate(expressions, table.key_names) if kind == "update" else None
    # The values are checked only now, as parts of the item and the expressions.
    _check_substituted(parameters)
    marks.check_free_of_ours("condition" if change is None else "update", expressions.looks_at)
    return Statement(kind, table, key, target if kind == "put" else None, parameters, expressions, change)


def _check_substituted(parameters: Mapping[str, Any]) -> None:
    names, values = parameters.get("ExpressionAttributeNames", {}), parameters.get("ExpressionAttributeValues", {})
    size = size_of(values) + sum(len(name.encode()) for name in names.values())
    if size > _SUBSTITUTED_BYTES:
        raise InvalidUnitRequest("values", f"{size:,} bytes", f"with the names {_SUBSTITUTED_BYTES:,} bytes in total")
