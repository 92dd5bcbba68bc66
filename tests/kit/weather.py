"""Bad weather on the wire: of each request, chance says what becomes of it."""

import random
from collections.abc import Mapping
from types import MappingProxyType

from kit.mishaps import (
    Mishap,
    delivered_twice,
    gateway_failed,
    reply_broken_off,
    reply_garbled,
    reply_lost,
    reply_withheld,
    request_lost,
    slow_by,
    unharmed,
)

BAD: Mapping[Mishap, int] = MappingProxyType(
    {
        unharmed: 12,
        reply_lost: 1,
        reply_withheld: 1,
        request_lost: 1,
        reply_broken_off: 1,
        reply_garbled: 1,
        gateway_failed: 1,
        delivered_twice: 1,
        slow_by(0.02): 3,
    }
)
"""Of twenty-two requests, how many meet what."""
SURELY_MET = 350
"""Of so many requests each mishap strikes one, but once in a million runs."""


class Weather:
    """Chooses the mishap of each request.

    Args:
        seed: the same choices for the same seed; which request meets which is up to the clients, too.
        odds: how often each mishap comes beside the others.
    """

    def __init__(self, seed: str, odds: Mapping[Mishap, int] = BAD) -> None:
        self._chance = random.Random(seed)
        self._mishaps, self._weights = tuple(odds), tuple(odds.values())

    def __call__(self) -> Mishap:
        return self._chance.choices(self._mishaps, self._weights)[0]
