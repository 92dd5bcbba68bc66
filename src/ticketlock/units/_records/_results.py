"""What a commit keeps for those who repeat it: the result of its call, and of which payload that was. No I/O.

JSON is stored as its text, since DynamoDB's numbers would come back as decimals; any other value is stored in
DynamoDB's types. A text is JSON as well, so that the type of the attribute says which of the two it is. A result is
refused if it would come back as another value: all callers are told the same.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ticketlock._expressions import Value, size_of
from ticketlock.errors import InvalidUnitRequest
from ticketlock.units._records._packing import encode_item
from ticketlock.units._records._rows import Receipt, check_number, foreign_row
from ticketlock.units._words import PYTHON
from ticketlock.wire import Item, integer, number

MOST_RESULT_BYTES = 8 * 1_024
RESULT, PAYLOAD = "result", "payload"
NUMBERED = "resultFormat"
"""Of its own: a version that cannot read a result can still tell whether a unit of the name was committed."""

_FORMAT = 1
_KINDS = "JSON, or values of DynamoDB's types, which have no float"
_ALLOWED = f"{_KINDS}; that come back equal, up to {MOST_RESULT_BYTES:,} bytes: put others into an item"


def result_told(given: Any) -> Item:
    """The attributes that keep a result; none for None.

    Raises:
        InvalidUnitRequest: it would not come back equal, or is too large.
    """
    if given is None:
        return {}
    told = _told(RESULT, given)
    if (size := size_of({"": told})) > MOST_RESULT_BYTES:
        raise InvalidUnitRequest(RESULT, given, _ALLOWED, f"the result has {size:,} bytes")
    attributes = {RESULT: told, NUMBERED: number(_FORMAT)}
    try:
        is_equal = result_of(attributes) == given
    except (ArithmeticError, RecursionError):
        # boto3 reads 38 digits of a number, zeros at its end included.
        is_equal = False
    if not is_equal:
        raise InvalidUnitRequest(RESULT, given, _ALLOWED, "the result would come back as another value")
    return attributes


def result_of(kept: Item) -> Any:
    """The result in a row, or in the attributes of one; None if none is kept.

    Raises:
        UnsupportedFormat: a newer version has written it.
        InvalidUnitRequest: no unit has.
    """
    if RESULT not in kept:
        return None
    try:
        check_number(integer(kept[NUMBERED]), "the result of a unit", _FORMAT)
        return json.loads(kept[RESULT]["S"]) if "S" in kept[RESULT] else _loaded(kept[RESULT])
    except (KeyError, TypeError, ValueError) as error:
        raise foreign_row(kept, error) from error


@dataclass(frozen=True, slots=True)
class Payload:
    """What must be the same in each call of a name."""

    given: Any
    digest: bytes

    @classmethod
    def of(cls, given: Any) -> "Payload":
        if given is None:
            raise InvalidUnitRequest(PAYLOAD, given, "a payload: None would be that of each call")
        told = json.dumps(encode_item({PAYLOAD: _told(PAYLOAD, given, is_sorted=True)}), sort_keys=True)
        return cls(given, hashlib.sha256(told.encode()).digest())

    @property
    def attributes(self) -> Item:
        return {PAYLOAD: {"B": self.digest}}

    def check(self, name: str, receipt: Receipt) -> None:
        """Refuse a call of a name that was committed with another one; a receipt without one is of every payload."""
        kept: Mapping[str, Any] | None = receipt.row.get(PAYLOAD)
        if kept is not None and bytes(kept.get("B", b"")) != self.digest:
            why = f"the name {name!r} was committed with another payload, by the unit {receipt.unit}"
            raise InvalidUnitRequest(PAYLOAD, self.given, "the same payload, or another name", why)


def _told(field: str, given: Any, *, is_sorted: bool = False) -> Value:
    try:
        text = json.dumps(given, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=is_sorted)
        text.encode()
    except (RecursionError, TypeError, ValueError) as error:
        try:
            return PYTHON.item(field, {"": given})[""]
        except InvalidUnitRequest as refused:
            raise InvalidUnitRequest(field, given, _KINDS, f"the {field} is neither: {error}") from refused
    return {"S": text}


def _loaded(stored: Mapping[str, Any]) -> Any:
    return (PYTHON.to_caller({RESULT: stored}) or {})[RESULT]
