"""What a client may be asked for, checked and completed. No I/O."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from inspect import Signature, signature
from typing import Any, NamedTuple

from ticketlock.locks._claim import Claim

Seconds = float | timedelta


@dataclass(frozen=True, slots=True)
class Asked:
    """One acquisition's wishes.

    Attributes:
        claim: what it asks for.
        has_own_identity: whether its owner was made for it, so that it has asked for nothing yet.
        record_wait_ms: None for ever.
        danger_ms: how long before the deadline a lease is in danger; None for a quarter of it.
    """

    claim: Claim
    has_own_identity: bool
    record_wait_ms: int | None
    danger_ms: int | None


class Wishes(NamedTuple):
    """What the caller of an acquisition has said."""

    record_wait: Seconds | None
    lease: Seconds | None
    data: str | None
    permits: int
    shared: bool
    owner: str | None
    danger: Seconds | None


def rest_s(record_wait_ms: int | None, waited_ms: int) -> float:
    """What is left of a record wait, in seconds."""
    return math.inf if record_wait_ms is None else max(0, record_wait_ms - waited_ms) / 1_000


def signature_of(function: Callable[..., Any], lease_as: str | None) -> Signature:
    """What a caller of a function has to give: all but its lease."""
    of_all = signature(function)
    return of_all.replace(parameters=[each for each in of_all.parameters.values() if each.name != lease_as])


def entity_of(key: Any, function: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The entity that a call of a function is about.

    Args:
        key: a callable that is given the call's arguments, or a template with the names of the function's parameters.
        function: its signature.
    """
    if callable(key):
        return str(key(*args, **kwargs))
    bound = function.bind(*args, **kwargs)
    bound.apply_defaults()
    return str(key).format(**bound.arguments)
