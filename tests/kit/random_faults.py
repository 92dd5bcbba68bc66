"""Random fault injection on the wire: chooses a fault for each request from a seed."""

import random
from collections.abc import Mapping
from types import MappingProxyType

from kit.faults import (
    Fault,
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

DEFAULT_ODDS: Mapping[Fault, int] = MappingProxyType(
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
"""How many requests of twenty-two get each fault, on average."""
SURELY_INJECTED = 350
"""Among so many requests each fault is injected at least once, except in one of a million runs."""


class RandomFaults:
    """Chooses the fault of each request.

    Args:
        seed: the same seed gives the same sequence of faults; their requests depend on the order of the clients, too.
        odds: the relative frequency of each fault.
    """

    def __init__(self, seed: str, odds: Mapping[Fault, int] = DEFAULT_ODDS) -> None:
        self._chance = random.Random(seed)
        self._faults, self._weights = tuple(odds), tuple(odds.values())

    def __call__(self) -> Fault:
        return self._chance.choices(self._faults, self._weights)[0]
