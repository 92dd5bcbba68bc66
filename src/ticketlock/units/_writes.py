"""The writes of a unit: one action for each item."""

import re
from collections.abc import Mapping
from typing import Any

from ticketlock._expressions._errors import ExpressionInvalid
from ticketlock._expressions._parser import parse
from ticketlock._expressions._tokens import Tokens
from ticketlock._expressions._values import MAX_ITEM_BYTES, size_of
from ticketlock._expressions._values import Item as Attributes
from ticketlock.units import _facts as only_if
from ticketlock.units._finishing import change
from ticketlock.units._ids import LENGTH
from ticketlock.units._marks import Marks
from ticketlock.units._statements import Statement
from ticketlock.units._work import Place
from ticketlock.wire._attributes import Item
from ticketlock.wire._conditions import every
from ticketlock.wire._requests import Write

# With more changes an Update would come near the limits of expressions; the whole item is put instead.
_MOST_CHANGES = 100
_FORM_OF_VERSIONS: Item = {":text": {"S": "S"}, ":length": {"N": str(LENGTH)}}
_SET = re.compile(r"(?<![#:.\w])SET\b", re.IGNORECASE)


def as_seen(place: Place, marks: Marks) -> tuple[str, Mapping[str, Any]]:
    """The condition that the item was not written since it was read, and the values of its placeholders."""
    if place.seen is None:
        return only_if.ABSENT, {}
    version = marks.version_of(place.seen)
    if version is None:
        return only_if.NEVER_WRITTEN_BY_A_UNIT, {}
    return only_if.AT_THE_VERSION_I_SAW, {":seen": {"S": version}}


def check(place: Place, marks: Marks) -> Write:
    """Check that an item is as it was read, and has no mark."""
    condition, values = as_seen(place, marks)
    return Write(
        "ConditionCheck",
        place.key,
        every(only_if.UNMARKED, condition),
        names=marks.names(place.table.key_names),
        values=values,
        table=place.table.name,
    )


def write(place: Place, unit: str, marks: Marks) -> Write:
    """Write an item's new value, if the item is as it was read, and has no mark."""
    if place.blind is not None:
        return _blind(place, unit, marks)
    seen, values = as_seen(place, marks)
    condition = every(only_if.UNMARKED, seen)
    names = marks.names(place.table.key_names)
    if place.image is None:
        return Write("Delete", place.key, condition, names=names, values=values, table=place.table.name)
    whole: Item = {**place.image, marks.version: {"S": unit}}
    differs = None if place.seen is None else changed(place.before or {}, place.image)
    if differs is None:
        return Write("Put", place.key, condition, item=whole, names=names, values=values, table=place.table.name)
    update, changed_names, changed_values = change(*differs)
    return Write(
        "Update",
        place.key,
        condition,
        update=update,
        names={**names, **changed_names},
        values={**values, **changed_values, ":unit": {"S": unit}},
        table=place.table.name,
    )


def changed(before: Attributes, after: Attributes) -> tuple[Attributes, tuple[str, ...]] | None:
    """The attributes that differ between two images: to set, to remove; None if they are too many for an expression."""
    assigned = {name: value for name, value in after.items() if before.get(name) != value}
    removed = tuple(name for name in before if name not in after)
    return (assigned, removed) if len(assigned) + len(removed) <= _MOST_CHANGES else None


def _blind(place: Place, unit: str, marks: Marks) -> Write:
    assert place.blind is not None
    given = place.blind.parameters
    return Write(
        "Update",
        place.key,
        unmarked_and(given.get("ConditionExpression")),
        update=with_version(given["UpdateExpression"]),
        names={**given.get("ExpressionAttributeNames", {}), "#version": marks.version, "#mark": marks.mark},
        values={**given.get("ExpressionAttributeValues", {}), **_FORM_OF_VERSIONS, ":unit": {"S": unit}},
        table=place.table.name,
    )


def with_version(update: str) -> str:
    """A user's update expression that also sets our version."""
    ours = "SET #version = :unit"
    if _SET.search(update):
        return _SET.sub(f"{ours},", update, count=1)
    return f"{ours} {update}"


def unmarked_and(condition: str | None) -> str:
    """A user's condition that also requires that the item has no mark, and no version that no unit has written."""
    ours = every(only_if.UNMARKED, only_if.OF_UNITS_ALONE)
    if condition is None:
        return ours
    # DynamoDB refuses redundant parentheses.
    return f"{ours} AND {f'({condition})' if _is_choice(condition) else condition}"


def _is_choice(condition: str) -> bool:
    """Whether the condition's top level is an OR."""
    depth = 0
    for token in Tokens("ConditionExpression", condition).tokens:
        depth += (token == "(") - (token == ")")
        if depth == 0 and token.upper() == "OR":
            return True
    return False


def may_be_sent_blindly(update: Statement) -> bool:
    """Whether DynamoDB accepts an update with our additions, and does the same as the unit would.

    The expressions must stay within their limits with our additions, and must not use our placeholders. An update whose
    values fill half of an item needs to read the other half, and one that writes an attribute of an index needs to be
    checked. An update that only removes does not create a missing item; together with our version, which it sets, it
    would.
    """
    parameters = update.parameters
    names = {*parameters.get("ExpressionAttributeNames", {}), *parameters.get("ExpressionAttributeValues", {})}
    values_bytes = size_of(parameters.get("ExpressionAttributeValues", {}))
    touched = set(update.change.paths) if update.change is not None else set()
    return (
        values_bytes <= MAX_ITEM_BYTES // 2
        and not names & {"#version", "#mark", ":unit", *_FORM_OF_VERSIONS}
        and not touched & update.table.schema.index_attributes
        and _is_taken(parameters)
        and _makes_an_item(update)
    )


def _makes_an_item(update: Statement) -> bool:
    change = update.expressions.update
    return change is not None and bool(change.assignments or change.additions)


def _is_taken(parameters: Mapping[str, Any]) -> bool:
    """Whether its expressions are within their limits with our additions."""
    try:
        parse("UpdateExpression", with_version(parameters["UpdateExpression"]))
        parse("ConditionExpression", unmarked_and(parameters.get("ConditionExpression")))
    except ExpressionInvalid:
        return False
    return True
