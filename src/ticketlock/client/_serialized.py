"""The checks of both clients' ``serialized`` decorators. No I/O."""

from collections.abc import Mapping
from typing import Any

from ticketlock._decorating import Decorator
from ticketlock.errors import InvalidLockRequest

SERIALIZED = Decorator(
    name="serialized",
    key="key",
    refused=InvalidLockRequest,
    for_threads="ticketlock.LockClient",
    for_tasks="ticketlock.aio.LockClient",
    by_hand="acquire",
    run="without the lock",
)


def check_arguments(key: Any, options: Mapping[str, Any]) -> None:
    """Refuse options that would give each call its own lock, or let all calls run at once; for ``serialized`` only.

    Args:
        key: as the caller has given it.
        options: of ``acquire``.

    Raises:
        InvalidLockRequest: names the argument and says what to pass instead.
    """
    SERIALIZED.check_key(key)
    if options.get("owner") is not None:
        allowed = "none: calls with one owner are one acquisition, and would run at once; each gets an owner of its own"
        raise InvalidLockRequest("owner", options["owner"], allowed)
