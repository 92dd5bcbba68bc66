"""Evaluates expressions on an item: document paths, and one plan for each text and set of placeholders.

Trees keep their ``#names``, which are replaced where a path is followed: a name that differs from request to request,
such as that of an owner's attribute, needs no plan of its own.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

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
)
from ticketlock._expressions._parser import parse
from ticketlock._expressions._values import (
    MAX_NAME_BYTES,
    ORDERED_TYPES,
    Attributes,
    ExpressionInvalid,
    Value,
    canonical_item,
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
# The first makes the usual check a comparison of types, where `Mapping` alone would run code.
_MAPS = (dict, Mapping)


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
    """The expressions of a request.

    Attributes:
        checks: in DynamoDB's order. If something is wrong for any values, it is the last check, and all other
            attributes are empty.
        looks_at: the top-level attributes, or their ``#names``, that its condition and its update name.
        touches: those that its update changes, in its order.
        filters_by: those that its filter names.
        projects: those that its projection names.
        enters: those with a path to something within them, but for conditions on keys.
    """

    checks: tuple[Check, ...]
    condition: Condition | None = None
    filter: Condition | None = None
    key_condition: Condition | None = None
    update: Update | None = None
    projection: tuple[Path, ...] | None = None
    looks_at: tuple[str, ...] = ()
    touches: tuple[str, ...] = ()
    filters_by: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    enters: tuple[str, ...] = ()


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
    trees: dict[str, Any] = {each.kind: each.tree for each in parsed}
    paths = {each.kind: each.paths for each in parsed}
    update: Update | None = trees.get("UpdateExpression")
    return Plan(
        checks=tuple(checks),
        condition=trees.get("ConditionExpression"),
        filter=trees.get("FilterExpression"),
        key_condition=trees.get("KeyConditionExpression"),
        update=update,
        projection=trees.get("ProjectionExpression"),
        looks_at=_tops(path for kind in _LOOK_AT for path in paths.get(kind, ())),
        touches=() if update is None else _tops(update.paths),
        filters_by=_tops(paths.get("FilterExpression", ())),
        projects=_tops(paths.get("ProjectionExpression", ())),
        enters=_tops(
            path
            for each in parsed
            for path in each.paths
            if len(path.steps) > 1 and each.kind != "KeyConditionExpression"
        ),
    )


def _plan(texts: tuple[tuple[ExpressionKind, str], ...], names: Mapping[str, str], values: frozenset[str]) -> Plan:
    """The plan for these names.

    What the names are matters only if two steps of paths may be the same, and in messages.
    """
    attributes = set(names.values())
    if len(attributes) == len(names) and attributes.isdisjoint(_literals(texts)):
        plan = planned(texts, tuple(zip(names, names, strict=True)), values)
        if not (plan.checks and isinstance(plan.checks[-1], str)):
            return plan
    return planned(texts, tuple(names.items()), values)


@lru_cache(maxsize=1_024)
def _literals(texts: tuple[tuple[ExpressionKind, str], ...]) -> frozenset[str | int]:
    """The steps of all paths."""
    return frozenset(step for kind, text in texts for path in parse(kind, text).paths for step in path.steps)


def _checks(parsed: Sequence[Parsed], names: Mapping[str, str], values: frozenset[str]) -> Iterator[Check]:
    for each in parsed:
        yield from _undefined(each, names, values)
        yield from ((each.kind, demand) for demand in each.demands)
        yield from _indistinct(each, names)
    for each in parsed:
        tree: Any = each.tree
        if each.kind in ("ProjectionExpression", "UpdateExpression"):
            try:
                paths = tree.paths if isinstance(tree, Update) else tree
                branched(each.kind, tuple(_named(path, names) for path in paths))
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
        steps = _named(first, names)
        if steps in (_named(other, names) for other in others):
            yield (
                f"Invalid {parsed.kind}: The first operand must be distinct from the remaining operands for this "
                f"operator or function; operator: {operator}, first operand: {written(steps)}"
            )


def _unused(which: str, idle: Iterable[str]) -> Iterator[str]:
    keys = sorted(idle)
    for key in keys:
        # A used key is known to be a valid placeholder; an unused one may not be.
        if not _PLACEHOLDERS[which].fullmatch(key):
            yield f'ExpressionAttribute{which} contains invalid key: Syntax error; key: "{key}"'
    if keys:
        yield f"Value provided in ExpressionAttribute{which} unused in expressions: keys: {{{', '.join(keys)}}}"


def _named(path: Path, names: Mapping[Any, str]) -> PathSteps:
    """The steps of a path, with the names of attributes in place of ``#names``."""
    # Only a ``#name`` begins with that sign.
    return tuple(map(names.get, path.steps, path.steps)) if path.is_named else path.steps


def _tops(paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(path.steps[0]) for path in paths))


class Expressions:
    """The expressions of a request.

    Args:
        parameters: the request's parameters, by their names in DynamoDB's API. Those that are neither expressions nor
            placeholders are ignored.
        has_canonical_values: whether the values of the placeholders are in their canonical form.

    Attributes:
        key_condition, update: their trees.

    Raises:
        ExpressionInvalid: an expression is invalid, or a placeholder is undefined or unused.
    """

    def __init__(self, parameters: Mapping[str, Any], *, has_canonical_values: bool = False) -> None:
        self._names: dict[Any, str] = _given(parameters, "ExpressionAttributeNames")
        _check_names(self._names)
        values = _given(parameters, "ExpressionAttributeValues")
        try:
            self._values = values if has_canonical_values else canonical_item(values)
        except ExpressionInvalid as error:
            message = f"ExpressionAttributeValues contains invalid value: {error.message} for key {error.where[0]}"
            raise ExpressionInvalid(message) from None
        texts = tuple([(kind, parameters[kind]) for kind in _KINDS if kind in parameters])
        for kind, text in texts:
            if not isinstance(text, str):
                raise ExpressionInvalid(f"{kind} is a text, not {text!r}")
        self._plan = plan = _plan(texts, self._names, frozenset(values))
        for check in plan.checks:
            if isinstance(check, str):
                raise ExpressionInvalid(check)
            expression, demand = check
            complaint = demand.complaint(self._values)
            if complaint is not None:
                raise ExpressionInvalid(f"Invalid {expression}: {complaint}")
        self.key_condition, self.update = plan.key_condition, plan.update

    @property
    def looks_at(self) -> list[str]:
        """The top-level attributes that its condition and its update name; each once, sorted."""
        return sorted(self._attributes(self._plan.looks_at))

    @property
    def touches(self) -> tuple[str, ...]:
        """The top-level attributes that its update changes, each once, in its order."""
        return tuple(self._attributes(self._plan.touches))

    @property
    def filters_by(self) -> list[str]:
        """The top-level attributes that its filter names, each once, sorted."""
        return sorted(self._attributes(self._plan.filters_by))

    @property
    def projects(self) -> list[str]:
        """The top-level attributes that its projection names, each once, in its order."""
        return list(self._attributes(self._plan.projects))

    @property
    def enters(self) -> tuple[str, ...]:
        """The top-level attributes with a path to something within them, but for conditions on keys."""
        return tuple(self._attributes(self._plan.enters))

    def _attributes(self, tops: tuple[str, ...]) -> dict[str, None]:
        return dict.fromkeys(map(self._names.get, tops, tops))

    def steps(self, path: Path) -> PathSteps:
        """The steps of a path, with the names of attributes."""
        # As `_named`, without its call: nothing is done more often.
        return tuple(map(self._names.get, path.steps, path.steps)) if path.is_named else path.steps

    def value(self, value: Placeholder) -> Value:
        return self._values[value.name]

    def found(self, operand: Operand, item: Attributes | None) -> Value | None:
        """The value of an operand; None if there is no such attribute, or it has no size."""
        if isinstance(operand, Placeholder):
            return self._values[operand.name]
        if isinstance(operand, Path):
            return value_at(item, self.steps(operand))
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
                for each in conditions:  # noqa: SIM110
                    if not self.holds(each, item):
                        return False
                return True
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
            case OfType(operand, kind):
                value = self.found(operand, item)
                return value is not None and self.value(kind)["S"] in value
            case BeginsWith(whole, beginning):
                return _begins_with(self.found(whole, item), self.found(beginning, item))
            case Contains(whole, part):
                return _contains(self.found(whole, item), self.found(part, item))

    def projected(self, item: Attributes) -> Attributes:
        """A copy of what a read returns of an item."""
        projection = self._plan.projection
        if projection is None:
            return copy_of_item(item)
        return copy_of_item(members_shown(item, branched("ProjectionExpression", tuple(map(self.steps, projection)))))


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


def _given(parameters: Mapping[str, Any], parameter: str) -> dict[Any, Any]:
    given: Any = parameters.get(parameter)
    if given is None:
        return {}
    if not isinstance(given, _MAPS):
        raise ExpressionInvalid(f"{parameter} is a map, not {given!r}")
    if not given:
        raise ExpressionInvalid(f"{parameter} must not be empty")
    _check_keys(parameter, tuple(given))
    return dict(given)


@lru_cache(maxsize=1_024)
def _check_keys(parameter: str, keys: tuple[Any, ...]) -> None:
    for key in keys:
        check_text(key)
        if len(key) > _MAX_PLACEHOLDER_BYTES:
            raise ExpressionInvalid(
                f"{parameter} contains invalid key: The expression attribute map contains a key that is too long; "
                f"size of key: {len(key.encode())}"
            )


def _check_names(names: Mapping[str, Any]) -> None:
    for key, name in names.items():
        # Nearly all names are short and ASCII.
        if isinstance(name, str) and name.isascii() and 0 < len(name) <= MAX_NAME_BYTES:
            continue
        check_text(name)
        why = None
        if not name:
            why = "Empty attribute name"
        elif len(name.encode()) > MAX_NAME_BYTES:
            why = f"Attribute name is longer than {MAX_NAME_BYTES} bytes"
        if why is not None:
            raise ExpressionInvalid(f"ExpressionAttributeNames contains invalid value: {why} for key {key}")
