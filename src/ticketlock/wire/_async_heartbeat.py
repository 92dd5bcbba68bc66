"""The heartbeat of a client for tasks: one task for each lease, and one for each renewal in progress.

So a renewal that hangs delays neither other renewals nor the report that its own lease has ended.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from ticketlock.wire._driver import Clocks
from ticketlock.wire._heartbeat import Due, Watched

L = TypeVar("L", bound=Watched)

_log = logging.getLogger("ticketlock")

_LONGEST_SLEEP_S = 5.0


class AsyncHeartbeat(Generic[L]):
    """Calls ``tend`` with each lease and what is due for it, when it is due."""

    def __init__(self, clocks: Clocks, tend: Callable[[L, Due], Coroutine[Any, Any, None]]) -> None:
        self._clocks = clocks
        self._tend = tend
        self._watches: dict[L, asyncio.Task[None]] = {}
        self._callbacks: set[asyncio.Task[None]] = set()

    def watch(self, lease: L) -> None:
        """Watch a lease from now on."""
        self._watches[lease] = asyncio.create_task(self._watch(lease))

    def forget(self, lease: L) -> None:
        """Stop watching a lease."""
        watch = self._watches.pop(lease, None)
        # A watcher that has found the loss itself is about to end.
        if watch is not None and watch is not _current_task():
            watch.cancel()

    def tell(self, lease: L, what: Due) -> None:
        """Call the lease's callback, in a task of its own."""
        if lease._callback(what) is None:
            return

        async def call() -> None:
            callback = lease._callback(what)
            if callback is None:
                return
            try:
                result = callback(lease)
                if inspect.isawaitable(result):
                    await result
            except Exception:
                _log.exception("on_%s of %r failed", what, lease)

        calling = asyncio.create_task(call())
        self._callbacks.add(calling)
        calling.add_done_callback(self._callbacks.discard)

    def join_idle(self) -> None:
        """Nothing to do: a cancelled task ends by itself."""

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
        # Not called from the loop, as `detach` may be.
        return None
