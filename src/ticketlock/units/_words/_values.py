"""Converts between the Python values of boto3's Table resource and AttributeValues."""

import decimal
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from boto3.dynamodb.conditions import AttributeBase, ConditionBase, ConditionExpressionBuilder
from boto3.dynamodb.types import DYNAMODB_CONTEXT, TypeDeserializer, TypeSerializer
from boto3.exceptions import DynamoDBNeedsKeyConditionError

from ticketlock._checks import text
from ticketlock._expressions import (
    MAX_EXPRESSION_BYTES,
    Attributes,
    ExpressionInvalid,
    ItemInvalid,
    canonical,
    canonical_item,
    check_text,
)
from ticketlock._value import value
from ticketlock.errors import InvalidUnitRequest
from ticketlock.wire import Item

AnyValue = TypeVar("AnyValue")

_serializer, _deserializer = TypeSerializer(), TypeDeserializer()
_DIGITS = 10**38
_SHOWN = 80
_PLACEHOLDER = re.compile(r"[#:]\w+", re.ASCII)
_MADE = re.compile(r"[#:]tl[ku]_[nv]\d+\b")
"""The placeholders of conditions that boto3 has made."""

_ADVICE = (
    (
        r"reserved keyword: (\S+)$",
        r"another name for it: write #\1, and pass names={'#\1': '\1'}",
    ),
    (
        r"attribute value used in expression is not defined; attribute value: :(\S+)$",
        r"a value for it: pass values={':\1': ...}, with the colon in the name",
    ),
    (
        r"attribute name used in the document path is not defined; attribute name: #(\S+)$",
        r"an attribute for it: pass names={'#\1': ...}, with the # in the name",
    ),
    (
        r"refers to an attribute that does not exist in the item$",
        "an update of what the item has: add a condition such as attribute_exists(balance), or use ADD",
    ),
)


@value(frozen=True, slots=True)
class Phrase:
    """An expression, and what its placeholders stand for, as in the low-level API."""

    text: str | None
    names: Mapping[str, str]
    values: Item


REFUSED = (ExpressionInvalid, ItemInvalid)
"""DynamoDB would not accept the expressions or the value of a field."""


def refused(field: str, given: object, error: ExpressionInvalid | ItemInvalid) -> InvalidUnitRequest:
    """The error for the caller who has given it."""
    return InvalidUnitRequest(field, given, advice(error.message), error.message)


def refused_expressions(
    field: str, parameters: Mapping[str, Any], error: ExpressionInvalid | ItemInvalid
) -> InvalidUnitRequest:
    """The error for the caller who has given the expressions in the parameters of a request."""
    reason = _substituted(error.message, parameters, _MADE)
    return InvalidUnitRequest(field, expressions_in(parameters), advice(error.message), reason)


def advice(message: str) -> str:
    """What to do about an expression that DynamoDB would refuse with this message."""
    for pattern, what_to_do in _ADVICE:
        found = re.search(pattern, message)
        if found is not None:
            return found.expand(what_to_do)
    return "what DynamoDB accepts"


def expressions_in(parameters: Mapping[str, Any]) -> object:
    """The expressions in the parameters of a request, as an error shows them: one as its text, several by name.

    A condition object's own placeholders say nothing to its author: the attributes and values stand for them.
    """
    found = {
        name: _substituted(text, parameters, _MADE) for name, text in parameters.items() if name.endswith("Expression")
    }
    return next(iter(found.values())) if len(found) == 1 else found


def condition_in(parameters: Mapping[str, Any]) -> str:
    """The condition in the parameters of a statement, with attributes and values in place of all placeholders."""
    return _substituted(parameters.get("ConditionExpression", ""), parameters, _PLACEHOLDER)


def _substituted(text: str, parameters: Mapping[str, Any], placeholder: re.Pattern[str]) -> str:
    names = parameters.get("ExpressionAttributeNames", {})
    values = parameters.get("ExpressionAttributeValues", {})

    def shown_for(found: re.Match[str]) -> str:
        if found[0] in values:
            return _shown(values[found[0]])
        return _cut(str(names.get(found[0], found[0])))

    return placeholder.sub(shown_for, text)


def _shown(value: Any) -> str:
    return _cut(str(value["N"]) if "N" in value else repr(_loaded(value)))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def check_apart(names: Mapping[str, str], values: Item, *conditions: Phrase) -> None:
    """Refuse placeholders that a condition object has, too: one of the two would stand for both."""
    for condition in conditions:
        for field, given, own in (("names", names, condition.names), ("values", values, condition.values)):
            for name in given:
                if name in own:
                    allowed = f"another placeholder: a condition made with boto3 has {name} as well"
                    raise InvalidUnitRequest(field, name, allowed)


class Python:
    """Items and expressions in Python values.

    Attributes:
        is_canonical: whether what it makes of the values of placeholders is in the canonical form.
    """

    is_canonical = True

    def item(self, field: str, given: Any) -> Attributes:
        if not _is_named(given):
            raise InvalidUnitRequest(field, given, "a mapping of attribute names to values")
        try:
            for name in given:
                check_text(name)
        except ExpressionInvalid as error:
            raise refused(field, given, error) from error
        return {name: _dumped(field, name, value) for name, value in given.items()}

    def to_caller(self, item: Item | None) -> dict[str, Any] | None:
        return None if item is None else {name: _loaded(value) for name, value in item.items()}

    def values(self, given: Any) -> Item:
        """What ``:value`` placeholders stand for."""
        return self.item("values", given if given is not None else {})

    def names(self, given: Any) -> Mapping[str, str]:
        """What ``#name`` placeholders stand for."""
        return _names("names", given if given is not None else {})

    def condition(self, given: Any, field: str = "condition", *, of_keys: bool = False) -> Phrase:
        """A condition: text, or made with ``boto3.dynamodb.conditions.Attr``, or with ``Key`` if it is ``of_keys``."""
        if not isinstance(given, ConditionBase):
            if isinstance(given, AttributeBase):
                kind = type(given).__name__
                allowed = f"a condition on it, such as {kind}({given.name!r}).eq(...)"
                raise InvalidUnitRequest(field, f"{kind}({given.name!r})", allowed)
            return Phrase(expression(field, given), {}, {})
        try:
            built = ConditionExpressionBuilder().build_expression(given, is_key_condition=of_keys)
        except DynamoDBNeedsKeyConditionError as error:
            raise InvalidUnitRequest(field, given, f"text, or a condition made with `Key` ({error})") from error
        # Renamed, since other callers and the other condition may use the same placeholders.
        prefix = "tlk" if of_keys else "tlu"
        names = {_renamed(name, prefix): each for name, each in built.attribute_name_placeholders.items()}
        values = {
            _renamed(name, prefix): _dumped(field, "", each)
            for name, each in built.attribute_value_placeholders.items()
        }
        return Phrase(_renamed(built.condition_expression, prefix), names, values)


class LowLevel(Python):
    """Items and expressions as in the low-level API."""

    is_canonical = False

    def item(self, field: str, given: Any) -> Attributes:
        try:
            return canonical_item(dict(_attributes(field, given)))
        except ExpressionInvalid as error:
            raise refused(field, given, error) from error

    def values(self, given: Any) -> Item:
        """What ``:value`` placeholders stand for, unchanged: the expressions are checked later."""
        return _attributes("values", given if given is not None else {})

    def to_caller(self, item: Item | None) -> Any:
        return item

    def names(self, given: Any) -> Mapping[str, str]:
        """The same, by the name of the parameter."""
        return _names("ExpressionAttributeNames", given)


PYTHON, LOW_LEVEL = Python(), LowLevel()


def _is_named(given: Any) -> bool:
    # A dictionary is the usual one: to ask an abstract class takes longer.
    return isinstance(given, dict | Mapping) and all(isinstance(name, str) for name in given)


def expression(field: str, given: Any) -> str | None:
    return None if given is None else text(field, given, MAX_EXPRESSION_BYTES, InvalidUnitRequest)


def _attributes(field: str, given: Any) -> Item:
    if not isinstance(given, Mapping) or not all(isinstance(value, Mapping) for value in given.values()):
        raise InvalidUnitRequest(field, given, "attributes as the low-level API has them: name to {type: value}")
    return given


def _names(field: str, given: Any) -> Mapping[str, str]:
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given.values()):
        raise InvalidUnitRequest(field, given, "a mapping of #placeholders to names of attributes")
    return given


def _dumped(field: str, name: str, value: Any) -> Any:
    try:
        # Most values are of these two types, and boto3 tests for all other types first.
        if type(value) is str:
            return {"S": value} if value.isascii() else canonical({"S": value})
        if type(value) is int and abs(value) < _DIGITS:
            return {"N": str(value)}
        return canonical(_serializer.serialize(value))
    except (TypeError, decimal.DecimalException, RecursionError, ExpressionInvalid) as error:
        allowed = "a value that DynamoDB has a type for: no float (Decimal), no NaN, no empty set, 38 digits at most"
        where = f"{field}.{name}" if name else field
        raise InvalidUnitRequest(where, value, f"{allowed} ({error})") from error


def _loaded(value: Any) -> Any:
    if "S" in value:
        return value["S"]
    return DYNAMODB_CONTEXT.create_decimal(value["N"]) if "N" in value else _deserializer.deserialize(value)


def _renamed(phrase: str, prefix: str) -> str:
    return re.sub(r"([#:])([nv]\d+)\b", rf"\1{prefix}_\2", phrase)
