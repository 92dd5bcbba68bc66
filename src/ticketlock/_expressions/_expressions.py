"""The expressions of one request, with what its placeholders stand for: conditions and projections."""

from collections.abc import Iterable, Mapping
from typing import Any

from ticketlock._expressions._errors import ExpressionInvalid
from ticketlock._expressions._parser import parse
from ticketlock._expressions._tokens import Kind
from ticketlock._expressions._tree import (
    BeginsWith,
    Comparison,
    Condition,
    Either,
    Every,
    Exists,
    Not,
    Operand,
    Parsed,
    Path,
    Update,
    Value,
)
from ticketlock._expressions._values import ORDERED_TYPES, Item, canonical, copy_of, copy_of_item, order_of
from ticketlock._expressions._values import Value as Found

_KINDS: tuple[Kind, ...] = (
    "ConditionExpression",
    "FilterExpression",
    "KeyConditionExpression",
    "ProjectionExpression",
    "UpdateExpression",
)


class Expressions:
    """What a request says in expressions.

    Attributes:
        update: of an UpdateItem with one.
        key_condition: of a Query.

    Raises:
        ExpressionInvalid: an expression is wrong, a placeholder stands for nothing, or nothing uses it.
    """

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._names: Mapping[str, str] = _given(parameters, "ExpressionAttributeNames")
        values = _given(parameters, "ExpressionAttributeValues")
        self._values = {name: canonical(value) for name, value in values.items()}
        parsed = [parse(kind, parameters[kind]) for kind in _KINDS if kind in parameters]
        self._check_placeholders(parsed)
        trees: dict[str, Any] = {each.kind: each.tree for each in parsed}
        self._condition: Condition | None = trees.get("ConditionExpression")
        self._filter: Condition | None = trees.get("FilterExpression")
        self._projection: tuple[Path, ...] | None = trees.get("ProjectionExpression")
        self.key_condition: Condition | None = trees.get("KeyConditionExpression")
        self.update: Update | None = trees.get("UpdateExpression")

    def _check_placeholders(self, parsed: Iterable[Parsed]) -> None:
        used: set[str] = set()
        for each in parsed:
            for missing in sorted(each.placeholders - self._names.keys() - self._values.keys()):
                what = "name" if missing.startswith("#") else "value"
                where = "the document path" if what == "name" else "expression"
                raise ExpressionInvalid(
                    f"Invalid {each.kind}: An expression attribute {what} used in {where} is not defined; "
                    f"attribute {what}: {missing}"
                )
            used |= each.placeholders
        for parameter, defined in (("Names", self._names), ("Values", self._values)):
            if idle := sorted(defined.keys() - used):
                raise ExpressionInvalid(
                    f"Value provided in ExpressionAttribute{parameter} unused in expressions: "
                    f"keys: {{{', '.join(idle)}}}"
                )

    def steps(self, path: Path) -> tuple[str, ...]:
        """The names of the attributes on a path."""
        return tuple(self._names[step] if step.startswith("#") else step for step in path.steps)

    def value(self, value: Value) -> Found:
        """What a ``:value`` stands for."""
        return self._values[value.name]

    def found(self, operand: Operand, item: Item | None) -> Found | None:
        """The value of an operand; None where there is no such attribute."""
        if isinstance(operand, Value):
            return self.value(operand)
        return value_at(item, self.steps(operand))

    def condition_holds(self, item: Item | None) -> bool:
        """Whether a write may take place on the item that stands there."""
        return self._condition is None or self.holds(self._condition, item)

    def shows(self, item: Item) -> bool:
        """Whether a Query or a Scan, having read the item, hands it out."""
        return self._filter is None or self.holds(self._filter, item)

    def holds(self, condition: Condition, item: Item | None) -> bool:
        """Whether a condition is true of an item.

        All of it is looked at, so that a mistake in it does not depend on the item.
        """
        match condition:
            case Every(conditions):
                return all(self._each(conditions, item))
            case Either(conditions):
                return any(self._each(conditions, item))
            case Not(inner):
                return not self.holds(inner, item)
            case Exists(path, wanted):
                return (self.found(path, item) is not None) == wanted
            case BeginsWith(whole, beginning):
                return self._begins_with(whole, beginning, item)
            case Comparison(operator, left, right):
                return self._compares(operator, left, right, item)

    def _each(self, conditions: Iterable[Condition], item: Item | None) -> list[bool]:
        return [self.holds(each, item) for each in conditions]

    def _begins_with(self, whole: Operand, beginning: Operand, item: Item | None) -> bool:
        for operand in (whole, beginning):
            self._must_be_one_of(("S", "B"), operand, "operator or function: begins_with")
        text, start = self.found(whole, item), self.found(beginning, item)
        if text is None or start is None or text.keys() != start.keys() or text.keys() & {"S", "B"} == set():
            return False
        ((_, content),), ((_, prefix),) = text.items(), start.items()
        return bool(content.startswith(prefix))

    def _compares(self, operator: str, left: Operand, right: Operand, item: Item | None) -> bool:
        one, other = self.found(left, item), self.found(right, item)
        # An attribute that is not there equals nothing, not even another one that is not there.
        equal = one is not None and one == other
        if operator in ("=", "<>"):
            return equal == (operator == "=")
        for operand in (left, right):
            self._must_be_one_of(ORDERED_TYPES, operand, f"operator: {operator}")
        if one is None or other is None:
            return False
        kind, place = order_of(one)
        other_kind, other_place = order_of(other)
        if kind != other_kind or kind not in ORDERED_TYPES:
            return False
        below: bool = place < other_place
        return (equal and operator.endswith("=")) or (not equal and below == operator.startswith("<"))

    def _must_be_one_of(self, kinds: Iterable[str], operand: Operand, where: str) -> None:
        if isinstance(operand, Value):
            (kind,) = self.value(operand)
            if kind not in kinds:
                raise ExpressionInvalid(
                    f"Incorrect operand type for operator or function; {where}, operand type: {kind}"
                )

    def projected(self, item: Item) -> Item:
        """A copy of what a read hands out of an item."""
        if self._projection is None:
            return copy_of_item(item)
        shown: Item = {}
        for path in self._projection:
            *above, last = self.steps(path)
            found = value_at(item, (*above, last))
            if found is None:
                continue
            place = shown
            for step in above:
                place = place.setdefault(step, {"M": {}})["M"]
            place[last] = copy_of(found)
        return shown


def value_at(item: Item | None, steps: Iterable[str]) -> Found | None:
    """The value at the end of a path; None where it leads nowhere."""
    value: Found = {"M": item if item is not None else {}}
    for step in steps:
        members = value.get("M")
        if not isinstance(members, dict) or step not in members:
            return None
        value = members[step]
    return value


def _given(parameters: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    given: Mapping[str, Any] = parameters.get(name, {})
    if name in parameters and not given:
        raise ExpressionInvalid(f"{name} must not be empty")
    return given
