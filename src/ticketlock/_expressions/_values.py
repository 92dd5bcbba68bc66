"""Attribute values of the low-level API, ``{type: value}``: checked, brought to a canonical form, and compared.

Canonical values are equal exactly if DynamoDB treats them as equal. Numbers have 38 digits, and are exact:
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html#HowItWorks.DataTypes.Number
"""

import base64
import re
from collections.abc import Iterable
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow, Subnormal
from functools import lru_cache
from typing import Any

WRONG_TYPE = "An operand in the update expression has an incorrect data type"
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
# 38 digits, 1E-130 to 9.99E+125. A number that does not fit is an error; nothing is rounded.
_EXACT = Context(prec=38, Emin=-130, Emax=125, traps=[Inexact, InvalidOperation, Overflow, Subnormal])

Value = dict[str, Any]
Attributes = dict[str, Value]

MAX_ITEM_BYTES = 400 * 1_024
"""https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-items"""
MAX_NAME_BYTES = 65_535
"""https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-attributes"""
_EMPTY_SETS = {
    "S": "An string set  may not be empty",
    "N": "An number set  may not be empty",
    "B": "Binary sets should not be empty",
}
ORDERED_TYPES = frozenset({"S", "N", "B"})
TYPES = ("B", "NULL", "SS", "BOOL", "L", "BS", "N", "NS", "S", "M")
MAX_LEVELS = 32
"""The limit of nested levels; the attribute's own value is the first.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-attributes
"""
TOO_DEEP = (
    "Nesting Levels have exceeded supported limits: Attributes in the item have nested levels beyond supported limit"
)


class ExpressionInvalid(ValueError):
    """The request is invalid for any item: DynamoDB's ValidationException.

    Attributes:
        message: what is wrong.
        where: the attribute of an item, and the members and elements in it; empty if the error is not in an item.
    """

    def __init__(self, message: str, where: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.where = where

    def within(self, step: str | int) -> "ExpressionInvalid":
        """The same error, located in this attribute, member or element."""
        return ExpressionInvalid(self.message, (step, *self.where))


class ItemInvalid(ValueError):
    """DynamoDB would not store the item, or an update does not fit it.

    DynamoDB reports it as an error, or as the reason of a cancelled transaction.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ItemTooBig(ItemInvalid):
    """An item has more bytes than DynamoDB accepts."""

    def __init__(self, message: str, *, size_bytes: int, most_bytes: int) -> None:
        super().__init__(message)
        self.size_bytes = size_bytes
        self.most_bytes = most_bytes


@lru_cache(maxsize=4_096)
def canonical_number(text: str) -> str:
    """A number as DynamoDB writes it."""
    if not _NUMBER.fullmatch(text):
        raise ExpressionInvalid(f"The parameter cannot be converted to a numeric value: {text}")
    try:
        return _written(_EXACT.create_decimal(text))
    except (Inexact, InvalidOperation, Overflow, Subnormal) as error:
        raise ExpressionInvalid(_why_not(error)) from None


def total(left: dict[str, Any], right: dict[str, Any], *, negative: bool) -> dict[str, Any]:
    if "N" not in left or "N" not in right:
        raise ItemInvalid(WRONG_TYPE)
    add = _EXACT.subtract if negative else _EXACT.add
    try:
        return {"N": _written(add(Decimal(left["N"]), Decimal(right["N"])))}
    except (Inexact, Overflow, Subnormal) as error:
        raise ItemInvalid(_why_not(error)) from None


@lru_cache(maxsize=4_096)
def number_bytes(text: str) -> int:
    """The size of a number in DynamoDB's notation.

    The documentation says about one byte for two significant digits, and one more. Public measurements at the limit of
    400 KB (``dynamodb-conformance``) found pairs that begin at the decimal point, and a byte for a minus. Where a pair
    might be counted in two ways, it is counted: this is never less than the service's.
    """
    digits = text.lstrip("-")
    if digits == "0":
        return 1
    whole, _, fraction = digits.partition(".")
    whole, fraction = whole.lstrip("0"), fraction.rstrip("0")
    pairs = (whole if len(whole) % 2 == 0 else f"0{whole}") + (fraction if len(fraction) % 2 == 0 else f"{fraction}0")
    first = (len(pairs) - len(pairs.lstrip("0"))) // 2
    last = (len(pairs) - len(pairs.rstrip("0"))) // 2
    return 1 + len(pairs) // 2 - first - last + text.startswith("-")


def _written(number: Decimal) -> str:
    return format(number.normalize(_EXACT), "f") if number else "0"


def _why_not(error: Exception) -> str:
    if isinstance(error, Overflow):
        return "Number overflow. Attempting to store a number with magnitude larger than supported range"
    if isinstance(error, Subnormal):
        return "Number underflow. Attempting to store a number with magnitude smaller than supported range"
    return "Attempting to store more than 38 significant digits in a Number"


def canonical_item(item: Any) -> Attributes:
    """A copy of an item with all values in their canonical form.

    Raises:
        ExpressionInvalid: DynamoDB does not know such a value; ``where`` names the attribute.
    """
    return _canonical_members(item, 1)


def canonical(value: Any) -> Value:
    """A copy of a value in its canonical form; raises as ``canonical_item``."""
    return _canonical(value, 1)


def _canonical_members(members: Any, level: int) -> Attributes:
    if not isinstance(members, dict):
        raise ExpressionInvalid(f"an item is a map of attributes, not {members!r}")
    found: Attributes = {}
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
    """Refuse what is not text, and text that cannot be encoded."""
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
    wrong = "One or more parameter values were invalid:"
    if not members:
        raise ExpressionInvalid(f"{wrong} {_EMPTY_SETS[kind]}")
    if len(set(members)) < len(members):
        if kind == "N":
            raise ExpressionInvalid("Input collection contains duplicates")
        if kind == "B":
            texts = ", ".join(base64.b64encode(member).decode() for member in content)
            raise ExpressionInvalid(f"{wrong} Input collection [{texts}]of type BS contains duplicates.")
        raise ExpressionInvalid(f"{wrong} Input collection [{', '.join(content)}] contains duplicates.")
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


def copy_of_item(item: Attributes) -> Attributes:
    # Scalars, which most values are, are copied here, without a call: the simulated world does nothing more often.
    return {name: value.copy() if "S" in value or "N" in value else copy_of(value) for name, value in item.items()}


def size_of(item: Attributes) -> int:
    """An item's size in bytes.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
    """
    return sum([_bytes_in(name) + size_of_value(value) for name, value in item.items()])


def _bytes_in(text: str) -> int:
    # Python knows whether a text is ASCII, and does not copy it then.
    return len(text) if text.isascii() else len(text.encode())


def size_of_value(value: Value) -> int:
    """A value's size in bytes, without its attribute's name."""
    ((kind, content),) = value.items()
    if kind == "S":
        return _bytes_in(content)
    if kind == "N":
        return number_bytes(content)
    if kind == "M":
        return 3 + len(content) + size_of(content)
    if kind == "L":
        return 3 + len(content) + sum(map(size_of_value, content))
    if kind in ("SS", "NS", "BS"):
        return sum(size_of_value({kind[0]: member}) for member in content)
    return len(content) if kind == "B" else 1
