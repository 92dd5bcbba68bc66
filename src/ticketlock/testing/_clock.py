"""Clocks that move when a test says so."""

import threading
from dataclasses import dataclass, field

from ticketlock.wire._table_time import Reading

_BEGINNING_MS = 1_800_000_000_000


@dataclass(slots=True)
class _Time:
    """The time that all machines of a test have in common."""

    passed_ms: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class ManualClock:
    """The clocks of one machine: time passes when the test says so, and at no other moment.

    Given to a LockTable (``clocks=clock, sleep=clock.sleep``) and to a MemoryDynamoDB, they agree. ``another_machine``
    has clocks of its own, for which the same time passes.

    Args:
        wall_ms: where the wall clock begins, milliseconds since the epoch.
    """

    def __init__(self, wall_ms: int = _BEGINNING_MS) -> None:
        self._time = _Time()
        self._wall_began_ms = wall_ms
        self._local_stood_still_ms = 0

    def another_machine(self, *, wall_is_off_s: float = 0) -> "ManualClock":
        """The clocks of another machine, whose wall clock is off from this one's by so much."""
        other = ManualClock(self._wall_began_ms + _ms(wall_is_off_s))
        other._time = self._time
        return other

    def read(self) -> Reading:
        """One look at the clocks."""
        with self._time.lock:
            return self._reading()

    @property
    def wall_ms(self) -> int:
        """The wall clock, milliseconds since the epoch."""
        return self.read().wall_ms

    def advance(self, seconds: float) -> None:
        """Let time pass, on every machine."""
        if seconds < 0:
            raise ValueError(f"time does not go back by {-seconds} s: set_wall does")
        with self._time.lock:
            self._time.passed_ms += _ms(seconds)

    def sleep(self, seconds: float) -> None:
        """What to give for ``time.sleep``: returns at once, that much later."""
        self.advance(seconds)

    def suspend(self, seconds: float) -> None:
        """Let this machine stand still with nothing running on it; both its clocks go on, as on Linux and macOS.

        It is ``advance`` by the name of what happens: between two statements of a test nothing runs on any machine.
        """
        self.advance(seconds)

    def freeze(self, seconds: float) -> None:
        """Let this machine stand still together with its local clock, as a snapshot or a frozen sandbox does."""
        self.advance(seconds)
        with self._time.lock:
            self._local_stood_still_ms += _ms(seconds)

    def set_wall(self, wall_ms: int) -> None:
        """Set this machine's wall clock; its local clock goes on as if nothing had happened."""
        with self._time.lock:
            self._wall_began_ms = wall_ms - self._time.passed_ms

    def _reading(self) -> Reading:
        passed_ms = self._time.passed_ms
        return Reading(local_ms=passed_ms - self._local_stood_still_ms, wall_ms=self._wall_began_ms + passed_ms)


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)
