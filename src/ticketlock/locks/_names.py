"""Names of locks and owners, and record waits: their checks."""

import math
from dataclasses import dataclass
from typing import Any

from ticketlock._checks import in_seconds, text
from ticketlock.errors import InvalidLockRequest

DEFAULT_NAMESPACE = "default"
_ENTITY_BYTES = 1_024
_NAMESPACE_BYTES = 255
_OWNER_BYTES = 1_024
# Some thirty years: longer than any execution, and still exact in milliseconds.
MAX_RECORD_WAIT_MS = 10**12


@dataclass(frozen=True, slots=True)
class LockName:
    """The name of one lock: an entity, and a namespace that lets several independent locks exist on it.

    Both are compared byte by byte: no normalisation, no trimming, no case folding.

    Attributes:
        entity: 1 to 1,024 bytes of UTF-8 text.
        namespace: 1 to 255 bytes of UTF-8 text without ``/``.

    Raises:
        InvalidLockRequest: one of them is out of these bounds.
    """

    entity: str
    namespace: str = DEFAULT_NAMESPACE

    def __post_init__(self) -> None:
        text("entity", self.entity, _ENTITY_BYTES)
        text("namespace", self.namespace, _NAMESPACE_BYTES)
        if "/" in self.namespace:
            raise InvalidLockRequest("namespace", self.namespace, "text without '/'")


def lock_name(value: object) -> LockName:
    """Check that ``value`` is a ``LockName``; an entity alone has no namespace."""
    if not isinstance(value, LockName):
        raise InvalidLockRequest("lock", value, "a LockName, as `lock(entity)` of a client returns it")
    return value


def owner_id(value: object) -> str:
    """Check the identity of one acquisition: 1 to 1,024 bytes of text, chosen before the first request."""
    return text("owner", value, _OWNER_BYTES)


def record_wait_ms(field: str, value: Any, infinity: str = "math.inf") -> int | None:
    """Read a record wait: seconds from 0, a ``timedelta``, or infinity, also as ``"Infinity"``.

    Args:
        field: the caller's name for it.
        value: the record wait.
        infinity: how an error names an unlimited one.

    Returns:
        Milliseconds, rounded up; None for an unlimited wait, or one of more than 10^9 seconds.

    Raises:
        InvalidLockRequest: it is something else; names the field.
    """
    if isinstance(value, str) and value == "Infinity":
        return None
    given, value = value, in_seconds(value)
    # `not value >= 0` is also true for NaN.
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InvalidLockRequest(field, given, f"a number of seconds from 0 on, or {infinity}")
    if value * 1_000 > MAX_RECORD_WAIT_MS:
        return None
    return math.ceil(value * 1_000)
