"""What may name a lock, an entity or a unit of work, and the one text that it stands for. No I/O."""

import datetime
import enum
import numbers
import operator
import re
import sys
import uuid
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

AnyName = str | int | uuid.UUID | Decimal
"""Text; or an id whose text is unambiguous: a whole number, also as a Decimal, is its digits, a UUID its usual form."""

NAMES = "text, a whole number or a UUID"

# No name is longer.
_MOST_DIGITS = 1_024


def plain(given: Any) -> str | int | None:
    """A name as text or a number of Python's own types; None if it is not a name.

    The class's own text form does not matter: a member of a ``(str, Enum)`` or an ``(int, Enum)`` is its value.
    """
    if isinstance(given, str):
        return str.__str__(given)
    if isinstance(given, uuid.UUID):
        return uuid.UUID.__str__(given)
    if isinstance(given, Decimal):
        # Not of a number with a great exponent, whose digits would fill the memory.
        is_short = given.is_finite() and given.adjusted() < _MOST_DIGITS
        number: Any = int(given) if is_short and given == given.to_integral_value() else None
    elif isinstance(given, numbers.Integral) and not isinstance(given, bool):
        # Of the type itself, as an int of numpy too.
        number = operator.index(given)
    else:
        return None
    return None if number is None or abs(number) >= 10 ** _digits_written() else number


def _digits_written() -> int:
    """How many digits a name may have, and Python writes: a program may lower that to 640."""
    return min(_MOST_DIGITS, sys.get_int_max_str_digits() or _MOST_DIGITS)


def text_of(given: Any) -> str | None:
    """The text of a name; None if it is not a name."""
    found = plain(given)
    return str(found) if isinstance(found, int) else found


def allowed_instead(given: Any, bounds: str = "", otherwise: str = "") -> str:
    """What is allowed instead of a value that is not a name, for an error.

    Args:
        bounds: of its length.
        otherwise: the advice for a value of a type that this module does not know.
    """
    advice = next((each for kinds, each in _ADVICE if isinstance(given, kinds)), otherwise)
    return "; ".join(each for each in (NAMES + bounds, advice) if each)


_TEMPLATE = re.compile(
    r"""
    \{\{ | \{% | \{[^{}]*\}            # {id}, {{ id }}, {% id %}, ${id}, #{id}
    | \$\$?[.\[(A-Za-z_]               # $.id, $['id'], $(id), $id
    | (?<!\w)\$[1-9](?![\w.,])        # $1
    | %(?:\(\w+\))?(?:[0-]\d+)?[sdir](?!\w)   # %s, %(id)s, %05d
    | %[A-Za-z_]\w*%                  # %ID%
    | <(?:%=?)?\s*[A-Za-z_][\w.\ -]*%?>       # <id>, <order.id>, <%= id %>
    | \[\[                            # [[id]]
    | (?:^|[/-]):[A-Za-z_]\w*         # :id
    | (?<!\w)[#@](?:\w*_id|\w*[a-z]I[dD]|id|ID)\b   # #id, @orderId
    | ^(['"]).*\1\s*[+&]             # 'order-' + id, "order-" & id
    | [+&]\s*(['"]).*\2$             # id + '-order'
    | \bStates\.\w+\(               # States.Format(...)
    """,
    re.VERBOSE,
)


def like_a_template(constant: str) -> str | None:
    """The part of a constant that is a placeholder in some language of templates or paths; None if there is none."""
    found = _TEMPLATE.search(constant)
    return found.group() if found is not None else None


_ADVICE: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (type(None), "None names nothing: perhaps the object is not stored yet"),
    (bool, "true and false name nothing"),
    ((bytes, bytearray, memoryview), "bytes are decoded first: name.decode()"),
    (enum.Enum, "a member of an Enum by its value: name.value"),
    (float, "a float as int(name) if it is whole, else as text of a fixed format"),
    (Decimal, "a Decimal that is not whole as text of a fixed format"),
    (int, "a number of fewer digits"),
    ((datetime.date, datetime.time), "a date or a time as text of a fixed format, such as name.isoformat()"),
    (Mapping, "one of its values"),
    (Iterable, 'its parts as one text, such as f"{tenant}/{order_id}"'),
)
