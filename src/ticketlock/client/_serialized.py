"""The decorator of both clients: what it refuses. No I/O."""

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
    """Refuse what would give each call a lock of its own, or let all calls in at once; for ``serialized`` alone.

    Args:
        key: as its caller has given it.
        options: of ``acquire``.

    Raises:
        InvalidLockRequest: names the argument, and says what to give instead.
    """
    SERIALIZED.check_key(key)
    if options.get("owner") is not None:
        allowed = "none: calls with one owner are one acquisition, and would run at once; each gets an owner of its own"
        raise InvalidLockRequest("owner", options["owner"], allowed)
