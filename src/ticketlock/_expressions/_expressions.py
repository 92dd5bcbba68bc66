"""The expressions of one request, with the values of its placeholders: conditions and projections."""

from collections.abc import Mapping
from typing import Any

from ticketlock._expressions._errors import ExpressionInvalid
from ticketlock._expressions._paths import members_shown, value_at
from ticketlock._expressions._plans import planned
from ticketlock._expressions._tokens import Kind
from ticketlock._expressions._tree import (
    BeginsWith,
    Between,
    Comparison,
    Condition,
    Contains,
    Either,
    Every,
    Exists,
    Not,
    OfType,
    OneOf,
    Operand,
    Path,
    Placeholder,
)
from ticketlock._expressions._values import (
    MAX_NAME_BYTES,
    ORDERED_TYPES,
    Item,
    canonical,
    check_text,
    copy_of_item,
    order_of,
)
from ticketlock._expressions._values import Value as Found

_KINDS: tuple[Kind, ...] = (
    "ConditionExpression",
    "FilterExpression",
    "KeyConditionExpression",
    "ProjectionExpression",
    "UpdateExpression",
)
_MAX_PLACEHOLDER_BYTES = 255


class Expressions:
    """The expressions of a request.

    Args:
        parameters: the request's parameters, by their names in DynamoDB's API. Those that are neither expressions nor
            placeholders are ignored.

    Attributes:
        update: the update of an UpdateItem, or None.
        key_condition: the key condition of a Query, or None.
        looks_at: the top-level attributes that the condition and the update name; each once, sorted.
        touches: the top-level attributes that the update changes, each once.
        filters_by: the top-level attributes that the filter names, each once, sorted.

    Raises:
        ExpressionInvalid: an expression is invalid, or a placeholder is undefined or unused.
    """

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        names = _given(parameters, "Names")
        values = _given(parameters, "Values")
        self._values = {name: _canonical(name, value) for name, value in values.items()}
        texts = tuple((kind, _text(kind, parameters[kind])) for kind in _KINDS if kind in parameters)
        self._plan = plan = planned(texts, tuple(names.items()), frozenset(values))
        for check in plan.checks:
            if isinstance(check, str):
                raise ExpressionInvalid(check)
            kind, demand = check
            complaint = demand.complaint(self._values)
            if complaint is not None:
                raise ExpressionInvalid(f"Invalid {kind}: {complaint}")
        self.key_condition, self.update = plan.key_condition, plan.update
        self.looks_at, self.touches, self.filters_by = plan.looks_at, plan.touches, plan.filters_by

    def value(self, value: Placeholder) -> Found:
        """The value of a ``:value`` placeholder."""
        return self._values[value.name]

    def found(self, operand: Operand, item: Item | None) -> Found | None:
        """The value of an operand; None if there is no such attribute, or it has no size."""
        if isinstance(operand, Placeholder):
            return self._values[operand.name]
        if isinstance(operand, Path):
            return value_at(item, operand.steps)
        return _size(self.found(operand.operand, item))

    def condition_holds(self, item: Item | None) -> bool:
        """Whether the condition of a write holds for the stored item."""
        return self._plan.condition is None or self.holds(self._plan.condition, item)

    def shows(self, item: Item) -> bool:
        """Whether a Query or a Scan that has read the item returns it."""
        return self._plan.filter is None or self.holds(self._plan.filter, item)

    def holds(self, condition: Condition, item: Item | None) -> bool:
        """Whether a condition holds for an item."""
        match condition:
            case Every(conditions):
                return all(self.holds(each, item) for each in conditions)
            case Either(conditions):
                return any(self.holds(each, item) for each in conditions)
            case Not(inner):
                return not self.holds(inner, item)
            case Exists(path, wanted):
                return (self.found(path, item) is not None) == wanted
            case Comparison(operator, left, right):
                return _compares(operator, self.found(left, item), self.found(right, item))
            case Between(operand, low, high):
                value = self.found(operand, item)
                return _compares(">=", value, self.found(low, item)) and _compares("<=", value, self.found(high, item))
            case OneOf(operand, choices):
                value = self.found(operand, item)
                return value is not None and any(self.found(choice, item) == value for choice in choices)
            case OfType(path, kind):
                value = self.found(path, item)
                return value is not None and self.value(kind)["S"] in value
            case BeginsWith(whole, beginning):
                return _begins_with(self.found(whole, item), self.found(beginning, item))
            case Contains(whole, part):
                return _contains(self.found(whole, item), self.found(part, item))

    def projected(self, item: Item) -> Item:
        """A copy of what a read returns of an item."""
        projection = self._plan.projection
        return copy_of_item(item if projection is None else members_shown(item, projection))


def _compares(operator: str, one: Found | None, other: Found | None) -> bool:
    # A missing attribute equals nothing, not even another missing attribute.
    equal = one is not None and one == other
    if operator in ("=", "<>"):
        return equal == (operator == "=")
    if one is None or other is None:
        return False
    kind, place = order_of(one)
    other_kind, other_place = order_of(other)
    if kind != other_kind or kind not in ORDERED_TYPES:
        return False
    below: bool = place < other_place
    return (equal and operator.endswith("=")) or (not equal and below == operator.startswith("<"))


def _size(value: Found | None) -> Found | None:
    if value is None:
        return None
    ((kind, content),) = value.items()
    if kind == "S":
        # As Java counts: a character outside the basic plane is two.
        return {"N": str(len(content.encode("utf-16-le", "surrogatepass")) // 2)}
    return None if kind in ("N", "BOOL", "NULL") else {"N": str(len(content))}


def _begins_with(whole: Found | None, beginning: Found | None) -> bool:
    if whole is None or beginning is None or whole.keys() != beginning.keys() or not whole.keys() & {"S", "B"}:
        return False
    ((_, content),), ((_, prefix),) = whole.items(), beginning.items()
    return bool(content.startswith(prefix))


def _contains(whole: Found | None, part: Found | None) -> bool:
    if whole is None or part is None:
        return False
    ((kind, content),), ((part_kind, wanted),) = whole.items(), part.items()
    if kind == "L":
        return part in content
    return part_kind in ("S", "N", "B") and kind in (part_kind + "S", part_kind) and kind != "N" and wanted in content


def _text(kind: str, text: Any) -> str:
    if not isinstance(text, str):
        raise ExpressionInvalid(f"{kind} is a text, not {text!r}")
    return text


def _canonical(name: str, value: Any) -> Found:
    try:
        return canonical(value)
    except ExpressionInvalid as error:
        message = f"ExpressionAttributeValues contains invalid value: {error.message} for key {name}"
        raise ExpressionInvalid(message) from None


def _given(parameters: Mapping[str, Any], which: str) -> Mapping[str, Any]:
    parameter = f"ExpressionAttribute{which}"
    given: Any = parameters.get(parameter)
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ExpressionInvalid(f"{parameter} is a map, not {given!r}")
    if not given:
        raise ExpressionInvalid(f"{parameter} must not be empty")
    for key, value in given.items():
        if not isinstance(key, str) or (which == "Names" and not isinstance(value, str)):
            raise ExpressionInvalid(f"{parameter} contains no text: {key!r}: {value!r}")
        check_text(key)
        if which == "Names":
            check_text(value)
        if len(key) > _MAX_PLACEHOLDER_BYTES:
            raise ExpressionInvalid(
                f"{parameter} contains invalid key: The expression attribute map contains a key that is too long; "
                f"size of key: {len(key.encode())}"
            )
        if which == "Names" and not (value and len(value.encode()) <= MAX_NAME_BYTES):
            why = f"Attribute name is longer than {MAX_NAME_BYTES} bytes" if value else "Empty attribute name"
            raise ExpressionInvalid(f"{parameter} contains invalid value: {why} for key {key}")
    return given
