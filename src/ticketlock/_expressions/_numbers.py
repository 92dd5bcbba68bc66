"""DynamoDB's numbers: 38 digits, exact.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html#HowItWorks.DataTypes.Number
"""

import re
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow, Subnormal
from functools import lru_cache
from typing import Any

from ticketlock._expressions._errors import ExpressionInvalid, ItemInvalid

WRONG_TYPE = "An operand in the update expression has an incorrect data type"
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
# 38 digits, 1E-130 to 9.99E+125. A number that does not fit is an error; nothing is rounded.
_EXACT = Context(prec=38, Emin=-130, Emax=125, traps=[Inexact, InvalidOperation, Overflow, Subnormal])


@lru_cache(maxsize=4_096)
def canonical_number(text: str) -> str:
    """A number as DynamoDB writes it.

    Raises:
        ExpressionInvalid: not a number, or one that does not fit.
    """
    if not _NUMBER.fullmatch(text):
        raise ExpressionInvalid(f"The parameter cannot be converted to a numeric value: {text}")
    try:
        return _written(_EXACT.create_decimal(text))
    except (Inexact, InvalidOperation, Overflow, Subnormal) as error:
        raise ExpressionInvalid(_why_not(error)) from None


def total(left: dict[str, Any], right: dict[str, Any], *, negative: bool) -> dict[str, Any]:
    """The exact sum or difference of two numbers.

    Raises:
        ItemInvalid: one is not a number, or the result does not fit.
    """
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
