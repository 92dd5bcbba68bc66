"""The parsed expressions of a request, without its values: cached by text, since most are sent often."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from typing import Any, cast

from ticketlock._expressions._demands import Demand
from ticketlock._expressions._errors import ExpressionInvalid
from ticketlock._expressions._parser import parse
from ticketlock._expressions._paths import Branch, Steps, branched, written
from ticketlock._expressions._tokens import Kind
from ticketlock._expressions._tree import Condition, Parsed, Path, Update, paths_in

Check = str | tuple[str, Demand]
"""What is wrong; or an expression's name, with what it demands of the values."""

_PLACEHOLDERS = {"Names": re.compile(r"#\w+", re.ASCII), "Values": re.compile(r":\w+", re.ASCII)}
_LOOK_AT: tuple[Kind, ...] = ("ConditionExpression", "UpdateExpression")


@dataclass(frozen=True, slots=True)
class Plan:
    """The expressions of a request, with ``#names`` replaced by the names of attributes.

    Attributes:
        checks: in DynamoDB's order. If something is wrong for any values, it is the last check, and all other
            attributes are empty.
        condition, filter, key_condition: its conditions, or None.
        update: its update, or None.
        projection: the paths of its projection, or None.
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
def planned(texts: tuple[tuple[Kind, str], ...], names: tuple[tuple[str, str], ...], values: frozenset[str]) -> Plan:
    """Make the plan of a request.

    Args:
        texts: its expressions.
        names: the attribute names of its ``#names``.
        values: the names of its ``:values``.

    Raises:
        ExpressionInvalid: an expression cannot be parsed.
    """
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


def _steps(paths: Iterable[Path]) -> tuple[Steps, ...]:
    return tuple(path.steps for path in paths)


def _tops(paths: Iterable[Path]) -> Iterator[str]:
    return (cast("str", path.steps[0]) for path in paths)
