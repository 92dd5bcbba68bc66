"""This machine's clocks."""

import time
from typing import Protocol

from ticketlock.wire._table_time import Reading

# Linux's CLOCK_BOOTTIME continues while the machine is suspended; so does CLOCK_MONOTONIC on macOS.
_LOCAL_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


class Clocks(Protocol):
    """The source of clock readings: the machine, or a test."""

    def read(self) -> Reading:
        """Read the clocks."""
        ...


class SystemClocks:
    """The machine's own clocks."""

    def read(self) -> Reading:
        """Read the clocks."""
        local_ns = time.clock_gettime_ns(_LOCAL_CLOCK) if _LOCAL_CLOCK is not None else time.monotonic_ns()
        return Reading(local_ms=local_ns // 1_000_000, wall_ms=time.time_ns() // 1_000_000)
