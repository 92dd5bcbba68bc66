"""Checks of a caller's arguments: text, integers, booleans, durations, callbacks. A refusal names the field."""

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar, cast

from ticketlock._names import allowed_instead, text_of
from ticketlock.errors import InvalidLockRequest, InvalidUnitRequest, TicketLockError, all_at_once

P = ParamSpec("P")
T = TypeVar("T")

Seconds = float | timedelta

RefusalType = Callable[[str, Any, str], TicketLockError]
"""An error that names a field, its value and what is allowed."""


class Refusals:
    """The checks of a constructor's arguments: what they refuse is raised as one error."""

    def __init__(self) -> None:
        self._found: list[InvalidLockRequest | InvalidUnitRequest] = []

    def of(self, check: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the check returns; if it refuses, a value that no one may use, since ``raise_all`` raises."""
        try:
            return check(*args, **kwargs)
        except (InvalidLockRequest, InvalidUnitRequest) as refused:
            # Two clients may lack the same setting.
            if str(refused) not in map(str, self._found):
                self._found.append(refused)
            return cast(T, None)

    def raise_all(self, kind: type[InvalidLockRequest] | type[InvalidUnitRequest] = InvalidLockRequest) -> None:
        """End the checks.

        Raises:
            kind: a check has refused; the error tells what every one has refused.
        """
        if self._found:
            raise all_at_once(kind, self._found)


def text(field: str, value: Any, max_bytes: int, refused: RefusalType = InvalidLockRequest) -> str:
    """Check that ``value`` is 1 to ``max_bytes`` bytes of valid UTF-8 text; returns it as a ``str`` of no subclass.

    Raises:
        refused: it is not; names the field.
    """
    has = ""
    if isinstance(value, str):
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            raise refused(field, value, _allowed_text(max_bytes)) from None
        if 1 <= size <= max_bytes:
            # A member of a (str, Enum) is equal to its value, and has another hash.
            return str.__str__(value)
        has = f" (this has {size:,})"
    raise refused(field, value, _allowed_text(max_bytes) + has)


def _allowed_text(max_bytes: int) -> str:
    return f"text of 1 to {max_bytes:,} bytes in UTF-8"


def name_text(field: str, value: Any, max_bytes: int, refused: RefusalType = InvalidLockRequest) -> str:
    """Check that ``value`` is a name, and return its text, of 1 to ``max_bytes`` bytes.

    Raises:
        refused: it is not; names the field, and says what to write instead.
    """
    found = text_of(value)
    if found is None:
        raise refused(field, value, allowed_instead(value, f" of 1 to {max_bytes:,} bytes in UTF-8"))
    return text(field, found, max_bytes, refused)


def whole_number(field: str, value: Any, least: int, most: int, refused: RefusalType = InvalidLockRequest) -> int:
    """Check that ``value`` is an integer within bounds.

    Raises:
        refused: it is not; names the field.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise refused(field, value, f"a whole number from {least:,} to {most:,}")
    return value


def boolean(field: str, value: Any, refused: RefusalType = InvalidLockRequest) -> bool:
    """Check that ``value`` is a bool, not something that Python only treats as true or false.

    Raises:
        refused: it is not; names the field.
    """
    if not isinstance(value, bool):
        raise refused(field, value, "true or false")
    return value


def callback(field: str, value: Any) -> Any:
    """Check that ``value`` is callable, or None.

    Raises:
        InvalidLockRequest: it is neither; names the field.
    """
    if value is not None and not callable(value):
        raise InvalidLockRequest(field, value, "a callable, or None")
    return value


def in_seconds(value: Any) -> Any:
    """Convert a ``timedelta`` to seconds; return anything else unchanged."""
    return value.total_seconds() if isinstance(value, timedelta) else value


def duration_ms(field: str, value: Any, least_ms: int, most_ms: int, refused: RefusalType = InvalidLockRequest) -> int:
    """Read a duration: a number of seconds, or a ``timedelta``; in milliseconds, rounded up.

    Raises:
        refused: it is something else, or out of its bounds; names the field.
    """
    seconds = in_seconds(value)
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not least_ms <= seconds * 1_000 <= most_ms:
        raise refused(field, value, f"seconds, or a timedelta, from {least_ms / 1_000} to {most_ms / 1_000:,}")
    milliseconds: int = math.ceil(seconds * 1_000)
    return milliseconds
