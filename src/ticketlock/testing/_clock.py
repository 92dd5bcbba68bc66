"""Clocks that move only when a test moves them."""

import threading
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from ticketlock.client import Lease
from ticketlock.errors import LockLost
from ticketlock.wire import Reading

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

T = TypeVar("T")

_BEGINNING_MS = 1_800_000_000_000

_PATIENCE_S = 5.0


@dataclass(slots=True)
class _Time:
    """The time that all machines of a test share."""

    passed_ms: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class ManualClock:
    """The clocks of one machine: time passes only when the test says so.

    Pass it to a LockClient (``clocks=clock, sleep=clock.sleep``) and to a MemoryDynamoDB, and both use the same time.
    Clients of ``ticketlock.aio`` have no ``sleep``: ``run`` runs them in a loop that goes by this clock.
    ``another_machine`` has its own clocks, for which the same time passes.

    Args:
        wall_ms: the wall clock's first reading, in milliseconds since the epoch.
    """

    def __init__(self, wall_ms: int = _BEGINNING_MS) -> None:
        self._time = _Time()
        self._wall_began_ms = wall_ms
        self._local_stood_still_ms = 0

    def another_machine(self, *, wall_is_off_s: float = 0) -> "ManualClock":
        """The clocks of another machine, whose wall clock differs from this one's by so much."""
        other = ManualClock(self._wall_began_ms + _ms(wall_is_off_s))
        other._time = self._time
        return other

    def read(self) -> Reading:
        """Read the clocks."""
        with self._time.lock:
            return self._reading()

    @property
    def wall_ms(self) -> int:
        """The wall clock's reading, milliseconds since the epoch."""
        return self.read().wall_ms

    @property
    def local_s(self) -> float:
        """The local clock's reading, in seconds: the time of ``new_event_loop``."""
        return self.read().local_ms / 1_000

    def advance(self, seconds: float) -> None:
        """Let time pass, on every machine."""
        if seconds < 0:
            raise ValueError(f"time does not go back by {-seconds} s: set_wall does")
        with self._time.lock:
            self._time.passed_ms += _ms(seconds)

    def sleep(self, seconds: float) -> None:
        """A replacement for ``time.sleep``: moves the time on, and returns at once."""
        self.advance(seconds)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine as ``asyncio.run`` does, in a loop of ``new_event_loop``; return its result."""
        from asyncio import Runner

        with Runner(loop_factory=self.new_event_loop) as runner:
            return runner.run(main)

    def new_event_loop(self) -> "AbstractEventLoop":
        """A loop of asyncio that goes by this machine's local clock, for a test runner that takes a loop's factory.

        ``asyncio.sleep`` and all time-outs, the tests' own and those of heartbeats and polls, go by the clock. While a
        task can run, time stands still; if all of them wait, the clock moves on to the first time that one waits for.
        So ``await asyncio.sleep(60)`` lets 60 s pass in which the other tasks run, and ``advance(60)`` lets them pass
        at once, as if the loop were blocked. While a function of ``asyncio.to_thread`` runs, the clock moves only if
        someone moves it. A network is not waited for: its time-outs end at once.
        """
        # Imported here: threads need no asyncio.
        from ticketlock.testing._loop import LoopOfClock

        return LoopOfClock(self)

    def suspend(self, seconds: float) -> None:
        """Pause this machine while both its clocks continue, as on Linux and macOS.

        The same as ``advance``, named after what happens: between two statements of a test no machine runs.
        """
        self.advance(seconds)

    def freeze(self, seconds: float) -> None:
        """Pause this machine and its local clock, as a snapshot or a frozen sandbox does."""
        self.advance(seconds)
        with self._time.lock:
            self._local_stood_still_ms += _ms(seconds)

    def set_wall(self, wall_ms: int) -> None:
        """Set this machine's wall clock; its local clock is not affected."""
        with self._time.lock:
            self._wall_began_ms = wall_ms - self._time.passed_ms

    def _reading(self) -> Reading:
        passed_ms = self._time.passed_ms
        return Reading(local_ms=passed_ms - self._local_stood_still_ms, wall_ms=self._wall_began_ms + passed_ms)


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)


def lose(lease: Lease) -> None:
    """Take a lease's lock away, as an operator does by force, and let its client notice at once.

    Afterwards the lock is free for others, ``lease.is_held()`` is false, and ``on_lost`` has been called and has
    returned, unless it takes longer than five seconds.

    Raises:
        LockLost: the lock was not held any more.
    """
    lease._table.force_release(lease.lock, lease.fencing_token)
    before = set(threading.enumerate())
    with suppress(LockLost):
        lease.renew()
    for thread in set(threading.enumerate()) - before:
        if thread.name == "ticketlock-on-lost":
            thread.join(_PATIENCE_S)
