"""Evaluates expressions on an item: document paths, and one plan for each text and set of placeholders."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import lru_cache
from typing import Any, cast

from ticketlock._expressions._grammar import (
    BeginsWith,
    Between,
    Comparison,
    Condition,
    Contains,
    Demand,
    Either,
    Every,
    Exists,
    ExpressionKind,
    Not,
    OfType,
    OneOf,
    Operand,
    Parsed,
    Path,
    Placeholder,
    Update,
    paths_in,
)
from ticketlock._expressions._parser import parse
from ticketlock._expressions._values import (
    MAX_NAME_BYTES,
    ORDERED_TYPES,
    Attributes,
    ExpressionInvalid,
    Value,
    canonical,
    check_text,
    copy_of_item,
    order_of,
)

PathStep = str | int
PathSteps = tuple[PathStep, ...]
"""The steps of a path: names of attributes and of members of maps, indexes of elements of lists."""

Check = str | tuple[str, Demand]
"""What is wrong; or an expression's name, with what it demands of the values."""

_PLACEHOLDERS = {"Names": re.compile(r"#\w+", re.ASCII), "Values": re.compile(r":\w+", re.ASCII)}
_LOOK_AT: tuple[ExpressionKind, ...] = ("ConditionExpression", "UpdateExpression")

_KINDS: tuple[ExpressionKind, ...] = (
    "ConditionExpression",
    "FilterExpression",
    "KeyConditionExpression",
    "ProjectionExpression",
    "UpdateExpression",
)
_MAX_PLACEHOLDER_BYTES = 255


def value_at(item: Attributes | None, steps: Iterable[PathStep]) -> Value | None:
    """The value at the end of a path; None if there is none."""
    value: Value = {"M": item if item is not None else {}}
    for step in steps:
        if isinstance(step, str):
            members = value.get("M")
            if members is None or step not in members:
                return None
            value = members[step]
        else:
            elements = value.get("L")
            if elements is None or step >= len(elements):
                return None
            value = elements[step]
    return value


def written(steps: PathSteps) -> str:
    """A path as messages show it."""
    return f"[{', '.join(step if isinstance(step, str) else f'[{step}]' for step in steps)}]"


@dataclass(slots=True)
class Branch:
    """Paths with the same beginning: how they continue, and the first of them."""

    first: int = 0
    ends: bool = False
    further: dict[PathStep, "Branch"] = field(default_factory=dict)


@lru_cache(maxsize=1_024)
def branched(kind: str, paths: tuple[PathSteps, ...]) -> Branch:
    """All paths as one tree, which must not be changed."""
    root = Branch()
    for number, steps in enumerate(paths):
        place = root
        for step in steps:
            if place.ends:
                raise _clash(kind, "overlap", paths[place.first], steps)
            for other, branch in place.further.items():
                if isinstance(other, str) != isinstance(step, str):
                    raise _clash(kind, "conflict", paths[branch.first], steps)
                break
            place = place.further.setdefault(step, Branch(number))
        if place.ends or place.further:
            raise _clash(kind, "overlap", paths[place.first], steps)
        place.ends = True
    return root


def _clash(kind: str, how: str, one: PathSteps, other: PathSteps) -> ExpressionInvalid:
    return ExpressionInvalid(
        f"Invalid {kind}: Two document paths {how} with each other; must remove or rewrite one of these paths; "
        f"path one: {written(one)}, path two: {written(other)}"
    )


def shown(value: Value, branch: Branch) -> Value | None:
    """The values at the ends of the branch, in their maps and lists; None if there are none.

    The selected elements of a list are kept in its order.
    """
    if branch.ends:
        return value
    if "M" in value:
        members = members_shown(value["M"], branch)
        return {"M": members} if members else None
    found = []
    elements = value.get("L", ())
    for step in sorted(step for step in branch.further if isinstance(step, int) and step < len(elements)):
        element = shown(elements[step], branch.further[step])
        if element is not None:
            found.append(element)
    return {"L": found} if found else None


def members_shown(members: Attributes, branch: Branch) -> Attributes:
    """The same for an item or the members of a map."""
    found: Attributes = {}
    for step, further in branch.further.items():
        if isinstance(step, str) and step in members:
            value = shown(members[step], further)
            if value is not None:
                found[step] = value
    return found


@dataclass(frozen=True, slots=True)
class Plan:
    """The expressions of a request, with ``#names`` replaced by the names of attributes.

    Attributes:
        checks: in DynamoDB's order. If something is wrong for any values, it is the last check, and all other
            attributes are empty.
        looks_at: the top-level attributes that its condition and its update name; each once, sorted.
        touches: the top-level attributes that its update changes, each once.
        filters_by: the top-level attributes that its filter names, each once, sorted.
    """

    checks: tuple[Check, ...]
    condition: Condition | None = None
    filter: Condition | None = None
    key_condition: Condition | None = None
    update: Update | None = None
    projection: Branch | None = None
    looks_at: tuple[str, ...] = ()
    touches: tuple[str, ...] = ()
    filters_by: tuple[str, ...] = ()


@lru_cache(maxsize=1_024)
def planned(
    texts: tuple[tuple[ExpressionKind, str], ...], names: tuple[tuple[str, str], ...], values: frozenset[str]
) -> Plan:
    attributes = dict(names)
    parsed = [parse(kind, text) for kind, text in texts]
    checks: list[Check] = []
    for check in _checks(parsed, attributes, values):
        checks.append(check)
        if isinstance(check, str):
            return Plan(tuple(checks))
    trees: dict[str, Any] = {each.kind: _named(each.tree, attributes) for each in parsed}
    update: Update | None = trees.get("UpdateExpression")
    projection = trees.get("ProjectionExpression")
    return Plan(
        checks=tuple(checks),
        condition=trees.get("ConditionExpression"),
        filter=trees.get("FilterExpression"),
        key_condition=trees.get("KeyConditionExpression"),
        update=update,
        projection=None if projection is None else branched("ProjectionExpression", _steps(projection)),
        looks_at=tuple(sorted(set(_tops(path for kind in _LOOK_AT for path in paths_in(trees.get(kind)))))),
        touches=() if update is None else tuple(dict.fromkeys(_tops(update.paths))),
        filters_by=tuple(sorted(set(_tops(paths_in(trees.get("FilterExpression")))))),
    )


def _checks(parsed: Sequence[Parsed], names: Mapping[str, str], values: frozenset[str]) -> Iterator[Check]:
    for each in parsed:
        yield from _undefined(each, names, values)
        yield from ((each.kind, demand) for demand in each.demands)
        yield from _indistinct(each, names)
    for each in parsed:
        tree: Any = each.tree
        if each.kind in ("ProjectionExpression", "UpdateExpression"):
            try:
                branched(each.kind, _steps(_named(tree.paths if isinstance(tree, Update) else tree, names)))
            except ExpressionInvalid as error:
                yield error.message
    yield from _unused("Names", set(names).difference(*(each.names for each in parsed)))
    yield from _unused("Values", set(values).difference(*(each.values for each in parsed)))


def _undefined(parsed: Parsed, names: Mapping[str, str], values: frozenset[str]) -> Iterator[str]:
    for missing in sorted(parsed.names - names.keys()):
        yield (
            f"Invalid {parsed.kind}: An expression attribute name used in the document path is not defined; "
            f"attribute name: {missing}"
        )
    for missing in sorted(parsed.values - values):
        yield (
            f"Invalid {parsed.kind}: An expression attribute value used in expression is not defined; "
            f"attribute value: {missing}"
        )


def _indistinct(parsed: Parsed, names: Mapping[str, str]) -> Iterator[str]:
    for operator, first, others in parsed.distinct:
        path: Path = _named(first, names)
        if path in _named(others, names):
            yield (
                f"Invalid {parsed.kind}: The first operand must be distinct from the remaining operands for this "
                f"operator or function; operator: {operator}, first operand: {written(path.steps)}"
            )


def _unused(which: str, idle: Iterable[str]) -> Iterator[str]:
    keys = sorted(idle)
    for key in keys:
        # A used key is known to be a valid placeholder; an unused one may not be.
        if not _PLACEHOLDERS[which].fullmatch(key):
            yield f'ExpressionAttribute{which} contains invalid key: Syntax error; key: "{key}"'
    if keys:
        yield f"Value provided in ExpressionAttribute{which} unused in expressions: keys: {{{', '.join(keys)}}}"


def _named(tree: Any, names: Mapping[str, str]) -> Any:
    """A tree, or several, with attribute names in its paths."""
    if not names:
        return tree
    if isinstance(tree, Path):
        return Path(tuple(names[step] if isinstance(step, str) and step[0] == "#" else step for step in tree.steps))
    if isinstance(tree, tuple):
        return tuple(_named(each, names) for each in tree)
    if is_dataclass(tree) and not isinstance(tree, type):
        return replace(tree, **{each.name: _named(getattr(tree, each.name), names) for each in fields(tree)})
    return tree


def _steps(paths: Iterable[Path]) -> tuple[PathSteps, ...]:
    return tuple(path.steps for path in paths)


def _tops(paths: Iterable[Path]) -> Iterator[str]:
    return (cast("str", path.steps[0]) for path in paths)


class Expressions:
    """The expressions of a request.

    Args:
        parameters: the request's parameters, by their names in DynamoDB's API. Those that are neither expressions nor
            placeholders are ignored.

    Attributes:
        key_condition, update, looks_at, touches, filters_by: as in ``Plan``.

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

    def value(self, value: Placeholder) -> Value:
        return self._values[value.name]

    def found(self, operand: Operand, item: Attributes | None) -> Value | None:
        """The value of an operand; None if there is no such attribute, or it has no size."""
        if isinstance(operand, Placeholder):
            return self._values[operand.name]
        if isinstance(operand, Path):
            return value_at(item, operand.steps)
        return _size(self.found(operand.operand, item))

    def condition_holds(self, item: Attributes | None) -> bool:
        """Whether the condition of a write holds for the stored item."""
        return self._plan.condition is None or self.holds(self._plan.condition, item)

    def shows(self, item: Attributes) -> bool:
        """Whether a Query or a Scan that has read the item returns it."""
        return self._plan.filter is None or self.holds(self._plan.filter, item)

    def holds(self, condition: Condition, item: Attributes | None) -> bool:
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

    def projected(self, item: Attributes) -> Attributes:
        """A copy of what a read returns of an item."""
        projection = self._plan.projection
        return copy_of_item(item if projection is None else members_shown(item, projection))


def _compares(operator: str, one: Value | None, other: Value | None) -> bool:
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


def _size(value: Value | None) -> Value | None:
    if value is None:
        return None
    ((kind, content),) = value.items()
    if kind == "S":
        # As Java counts: a character outside the basic plane is two.
        return {"N": str(len(content.encode("utf-16-le", "surrogatepass")) // 2)}
    return None if kind in ("N", "BOOL", "NULL") else {"N": str(len(content))}


def _begins_with(whole: Value | None, beginning: Value | None) -> bool:
    if whole is None or beginning is None or whole.keys() != beginning.keys() or not whole.keys() & {"S", "B"}:
        return False
    ((_, content),), ((_, prefix),) = whole.items(), beginning.items()
    return bool(content.startswith(prefix))


def _contains(whole: Value | None, part: Value | None) -> bool:
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


def _canonical(name: str, value: Any) -> Value:
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
