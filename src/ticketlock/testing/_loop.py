"""An event loop of asyncio that goes by a test's clock."""

import asyncio
import math
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol, TypeVar, TypeVarTuple

T = TypeVar("T")
Args = TypeVarTuple("Args")

# The loop rounds its own times to nanoseconds.
_NOISE_MS = 1e-6
_CHECKS_EVERY_S = 0.01


class MovedClock(Protocol):
    """What the loop needs of a clock."""

    @property
    def local_s(self) -> float:
        """The local clock's reading, in seconds."""
        ...

    def sleep(self, seconds: float) -> None:
        """Move the time on."""
        ...


class LoopOfClock(asyncio.SelectorEventLoop):
    """A loop that waits for no time: if all of its tasks wait, the clock moves on to the first time that one waits for.

    As trio's ``MockClock`` does with its ``autojump_threshold``
    (https://trio.readthedocs.io/en/stable/reference-testing.html). While the loop's executor is at work
    (``asyncio.to_thread``), the clock does not move by itself.
    """

    def __init__(self, clock: MovedClock) -> None:
        self._clock = clock
        self._in_threads: set[object] = set()
        super().__init__(_Selector(clock, lambda: bool(self._in_threads)))

    def time(self) -> float:
        """The clock's local time."""
        return self._clock.local_s

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Args], T], *args: *Args
    ) -> "asyncio.Future[T]":
        """As of any loop; the clock waits for its end."""
        done = super().run_in_executor(executor, func, *args)
        self._in_threads.add(done)
        done.add_done_callback(self._in_threads.discard)
        return done

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ARG002 no time passes
        """Wait for the threads, which takes no time of the clock."""
        await super().shutdown_default_executor()


class _Selector(selectors.DefaultSelector):
    def __init__(self, clock: MovedClock, is_at_work: Callable[[], bool]) -> None:
        super().__init__()
        self._clock, self._is_at_work = clock, is_at_work

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready; moves the clock on if nothing is, and a task waits for a time."""
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        if self._is_at_work():
            # In between, a thread may move the clock.
            return super().select(min(timeout, _CHECKS_EVERY_S))
        ready = super().select(0)
        if not ready:
            self._clock.sleep(math.ceil(timeout * 1_000 - _NOISE_MS) / 1_000)
        return ready
