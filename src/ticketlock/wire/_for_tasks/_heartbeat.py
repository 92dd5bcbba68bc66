"""The heartbeat of a client for tasks."""

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
# Some tries: what a renewal gives up, it gives up in one.
_RENEWALS_END_WITHIN_S = 2.0


class AsyncHeartbeat(Generic[L]):
    """Calls ``tend`` with each lease and what is due for it, when it is due.

    Each lease has a task, and so has each renewal in progress: a renewal that hangs delays neither other renewals nor
    the report that its own lease has ended.
    """

    def __init__(self, clocks: Clocks, tend: Callable[[L, Due], Coroutine[Any, Any, None]]) -> None:
        self._clocks = clocks
        self._tend = tend
        self._watches: dict[L, asyncio.Task[None]] = {}
        # A loop holds only weak references to its tasks.
        self._callbacks: set[asyncio.Task[None]] = set()
        self._renewals: set[asyncio.Task[None]] = set()

    def watch(self, lease: L) -> None:
        """Watch a lease from now on."""
        self._watches[lease] = asyncio.create_task(self._watch(lease))

    def forget(self, lease: L) -> None:
        """Stop watching a lease."""
        watch, caller = self._watches.pop(lease, None), _current_task()
        # A watcher or a renewal that has found the loss itself is about to end, and the renewal's watcher with it.
        if watch is not None and caller is not watch and caller not in self._renewals:
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

    async def close(self) -> None:
        """Wait a moment for the renewals of lost leases, which give up what they have written."""
        if self._renewals:
            _, late = await asyncio.wait(self._renewals, timeout=_RENEWALS_END_WITHIN_S)
            for renewal in late:
                renewal.cancel()

    def _renew(self, lease: L) -> "asyncio.Task[None]":
        renewal = asyncio.create_task(self._tend(lease, "renew"))
        self._renewals.add(renewal)
        renewal.add_done_callback(self._renewals.discard)
        return renewal

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
                    renewal = self._renew(lease)
                elif due is not None:
                    await self._tend(lease, due)
        except BaseException:
            if renewal is not None:
                renewal.cancel()
            raise


def _current_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:
        # Not called from the loop, as `detach` may be.
        return None
