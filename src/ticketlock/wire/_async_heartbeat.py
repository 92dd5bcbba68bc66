"""The heartbeat of a client: a task for each lease, and one for each renewal under way.

So a renewal that hangs delays no other's, nor the news that its own is over.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from ticketlock.wire._clocks import Clocks
from ticketlock.wire._heartbeat import Due, Watched

L = TypeVar("L", bound=Watched)

_log = logging.getLogger("ticketlock")

_LONGEST_SLEEP_S = 5.0


class Heartbeat(Generic[L]):
    """Awaits ``tend`` with each lease, and what is due about it, when it is."""

    def __init__(self, clocks: Clocks, tend: Callable[[L, Due], Coroutine[Any, Any, None]]) -> None:
        self._clocks = clocks
        self._tend = tend
        self._watches: dict[L, asyncio.Task[None]] = {}
        self._tellings: set[asyncio.Task[None]] = set()

    def watch(self, lease: L) -> None:
        """Tend a lease from now on."""
        self._watches[lease] = asyncio.create_task(self._watch(lease))

    def forget(self, lease: L) -> None:
        """Tend it no more."""
        watch = self._watches.pop(lease, None)
        # A watch that has found the loss itself is about to end.
        if watch is not None and watch is not _current_task():
            watch.cancel()

    def tell(self, lease: L, what: Due) -> None:
        """Tell its caller, in a task of its own."""
        if lease._callback(what) is None:
            return

        async def tell() -> None:
            callback = lease._callback(what)
            if callback is None:
                return
            try:
                told = callback(lease)
                if inspect.isawaitable(told):
                    await told
            except Exception:
                _log.exception("on_%s of %r failed", what, lease)

        telling = asyncio.create_task(tell())
        self._tellings.add(telling)
        telling.add_done_callback(self._tellings.discard)

    def join_idle(self) -> None:
        """Nothing: a task that was cancelled ends by itself."""

    async def _watch(self, lease: L) -> None:
        renewal: asyncio.Task[None] | None = None
        try:
            while lease._is_watched_on():
                reading = self._clocks.read()
                wait_s = (lease._due_ms(reading) - reading.local_ms) / 1_000
                if wait_s > 0:
                    wait_s = min(wait_s, _LONGEST_SLEEP_S)
                    if renewal is None:
                        await asyncio.sleep(wait_s)
                    elif (await asyncio.wait({renewal}, timeout=wait_s))[0]:
                        renewal = None
                    continue
                due = lease._take_due(self._clocks.read())
                if due == "renew":
                    renewal = asyncio.create_task(self._tend(lease, due))
                elif due is not None:
                    await self._tend(lease, due)
        finally:
            if renewal is not None:
                renewal.cancel()


def _current_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:
        # Called outside of the loop, as `detach` may be.
        return None
