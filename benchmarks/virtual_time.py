"""An event loop whose time moves on when all tasks wait: an hour of waiting takes as long as its work."""

import asyncio
import math
import selectors
from typing import Any

from ticketlock.testing import ManualClock


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Its tasks sleep by a clock that moves on at once to the next moment for which a task waits.

    Args:
        clock: moves in whole milliseconds, and only by this loop and its tasks.
    """

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(_Skipping(clock))
        self._clock = clock
        # Times that asyncio treats as the same moment.
        self._clock_resolution = 0.001

    def time(self) -> float:
        """Seconds, from an arbitrary origin."""
        return self._clock.read().local_ms / 1_000


class _Skipping(selectors.SelectSelector):
    """Lets time pass instead of waiting."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError("all tasks wait, and none of them for a moment in time")
        self._clock.advance(math.ceil(timeout * 1_000) / 1_000)
        return []
