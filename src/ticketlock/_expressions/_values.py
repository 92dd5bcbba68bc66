"""Attribute values of the low-level API, ``{type: value}``: checked, brought to a canonical form, and compared.

Canonical values are equal exactly if DynamoDB treats them as equal.
"""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from ticketlock._expressions._errors import ExpressionInvalid
from ticketlock._expressions._numbers import canonical_number, number_bytes

Value = dict[str, Any]
Item = dict[str, Value]

MAX_ITEM_BYTES = 400 * 1_024
"""https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-items"""
MAX_NAME_BYTES = 65_535
"""https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-attributes"""
ORDERED_TYPES = frozenset({"S", "N", "B"})
TYPES = ("B", "NULL", "SS", "BOOL", "L", "BS", "N", "NS", "S", "M")
MAX_LEVELS = 32
"""The limit of nested levels; the attribute's own value is the first.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-attributes
"""
TOO_DEEP = (
    "Nesting Levels have exceeded supported limits: Attributes in the item have nested levels beyond supported limit"
)


def canonical_item(item: Any) -> Item:
    """A copy of an item with all values in their canonical form.

    Raises:
        ExpressionInvalid: DynamoDB does not know such a value; ``where`` names the attribute.
    """
    return _canonical_members(item, 1)


def canonical(value: Any) -> Value:
    """A copy of a value in its canonical form.

    Raises:
        ExpressionInvalid: DynamoDB does not know such a value.
    """
    return _canonical(value, 1)


def _canonical_members(members: Any, level: int) -> Item:
    if not isinstance(members, dict):
        raise ExpressionInvalid(f"an item is a map of attributes, not {members!r}")
    found: Item = {}
    for name, value in members.items():
        try:
            check_text(name)
            found[name] = _canonical(value, level)
        except ExpressionInvalid as error:
            raise error.within(name) from None
    return found


def _canonical(value: Any, level: int) -> Value:
    if not isinstance(value, dict) or len(value) != 1:
        raise ExpressionInvalid(
            "Supplied AttributeValue is empty or has more than one datatype, "
            f"must contain exactly one of the supported datatypes: {value!r}"
        )
    if level > MAX_LEVELS:
        raise ExpressionInvalid(TOO_DEEP)
    ((kind, content),) = value.items()
    if kind == "S" and isinstance(content, str):
        if not content.isascii():
            check_text(content)
        return {"S": content}
    if kind == "N" and isinstance(content, str):
        return {"N": canonical_number(content)}
    if kind == "BOOL" and isinstance(content, bool):
        return {"BOOL": content}
    if kind == "NULL" and content is True:
        return {"NULL": True}
    if kind == "NULL" and content is False:
        raise ExpressionInvalid(
            "One or more parameter values were invalid: Null attribute value types must have the value of true"
        )
    if kind == "B" and isinstance(content, bytes | bytearray):
        return {"B": bytes(content)}
    if kind == "M" and isinstance(content, dict):
        return {"M": _canonical_members(content, level + 1)}
    if kind == "L" and isinstance(content, list | tuple):
        return {"L": _canonical_elements(content, level + 1)}
    if kind in ("SS", "NS", "BS") and isinstance(content, list | tuple | set | frozenset):
        return {kind: _canonical_set(kind[0], content)}
    raise ExpressionInvalid(f"not an attribute value: {value!r}")


def _canonical_elements(elements: Iterable[Any], level: int) -> list[Value]:
    found = []
    for number, element in enumerate(elements):
        try:
            found.append(_canonical(element, level))
        except ExpressionInvalid as error:
            raise error.within(number) from None
    return found


def check_text(text: Any) -> None:
    """Refuse what is not text, and text that cannot be encoded.

    Raises:
        ExpressionInvalid: says which.
    """
    if not isinstance(text, str):
        raise ExpressionInvalid(f"a name is a text, not {text!r}")
    # Nearly all texts are ASCII, which Python knows without scanning them.
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ExpressionInvalid(f"the text cannot be encoded as UTF-8: {text[:40]!r}") from None


def _canonical_set(kind: str, content: Iterable[Any]) -> list[Any]:
    members = [canonical({kind: member})[kind] for member in content]
    if not members:
        raise ExpressionInvalid("One or more parameter values were invalid: An string set  may not be empty")
    if len(set(members)) < len(members):
        raise ExpressionInvalid("One or more parameter values were invalid: Input collection contains duplicates")
    return sorted(members)


def levels_of(value: Value) -> int:
    """The number of nested levels; 1 for a scalar."""
    inner = value["M"].values() if "M" in value else value.get("L", ())
    return 1 + max(map(levels_of, inner), default=0)


def order_of(value: Value) -> tuple[str, Any]:
    """A value's type, and its sort key within the type.

    Strings are ordered by their UTF-8 bytes, which is the order of their code points, and Python's order.
    """
    ((kind, content),) = value.items()
    return kind, Decimal(content) if kind == "N" else content


def copy_of(value: Value) -> Value:
    """A copy that shares nothing with it."""
    if "M" in value:
        return {"M": copy_of_item(value["M"])}
    if "L" in value:
        return {"L": [copy_of(each) for each in value["L"]]}
    return {kind: list(content) if isinstance(content, list) else content for kind, content in value.items()}


def copy_of_item(item: Item) -> Item:
    """A copy that shares nothing with it."""
    # Scalars, which most values are, are copied here, without a call: the simulated world does nothing more often.
    return {name: value.copy() if "S" in value or "N" in value else copy_of(value) for name, value in item.items()}


def size_of(item: Item) -> int:
    """An item's size in bytes.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
    """
    return sum(len(name.encode()) + size_of_value(value) for name, value in item.items())


def size_of_value(value: Value) -> int:
    """A value's size in bytes, without its attribute's name."""
    ((kind, content),) = value.items()
    if kind == "S":
        return len(content.encode())
    if kind == "N":
        return number_bytes(content)
    if kind == "M":
        return 3 + len(content) + size_of(content)
    if kind == "L":
        return 3 + len(content) + sum(map(size_of_value, content))
    if kind in ("SS", "NS", "BS"):
        return sum(size_of_value({kind[0]: member}) for member in content)
    return len(content) if kind == "B" else 1
