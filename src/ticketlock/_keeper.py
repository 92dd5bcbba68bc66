"""The heartbeat of a client: one thread for all its leases, each on a schedule of its own.

While a renewal is under way another thread takes over the watch, and the one that is left over ends: so a request
that hangs delays no other lease's, nor the news that its own is over. The last one ends with the last lease.
"""

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ticketlock._clocks import Clocks

if TYPE_CHECKING:
    from ticketlock._held import Lease

_log = logging.getLogger("ticketlock")

# A clock of the system may go on while the process is suspended, and a wait of Python's may not.
_LONGEST_WAIT_S = 5.0
_MOST_THREADS = 16


class Keeper:
    """Calls ``tend`` with each lease when something about it is due."""

    def __init__(self, clocks: Clocks, tend: Callable[["Lease"], None]) -> None:
        self._clocks = clocks
        self._tend = tend
        self._changed = threading.Condition()
        self._leases: set[Lease] = set()
        self._watchers = 0
        self._threads: set[threading.Thread] = set()

    def watch(self, lease: "Lease") -> None:
        """Tend a lease from now on."""
        with self._changed:
            self._leases.add(lease)
            self._ensure_a_watcher()
            self._changed.notify_all()

    def forget(self, lease: "Lease") -> None:
        """Tend it no more; returns when no thread waits for nothing."""
        with self._changed:
            self._leases.discard(lease)
            if self._leases:
                return
            self._changed.notify_all()
            idle = [thread for thread in self._threads if thread is not threading.current_thread()]
        for thread in idle:
            # Those that wait end at once; one whose request hangs ends with it.
            thread.join(0.05)

    @property
    def threads(self) -> int:
        """How many threads there are."""
        with self._changed:
            return len(self._threads)

    def _ensure_a_watcher(self) -> None:
        if self._watchers or not self._leases or len(self._threads) >= _MOST_THREADS:
            return
        thread = threading.Thread(target=self._run, name="ticketlock-heartbeat", daemon=True)
        self._threads.add(thread)
        self._watchers += 1
        try:
            thread.start()
        except RuntimeError:
            # The interpreter is about to exit: whatever is held is released by then.
            self._threads.discard(thread)
            self._watchers -= 1

    def _run(self) -> None:
        try:
            while (lease := self._next()) is not None:
                try:
                    self._tend(lease)
                except Exception:
                    _log.exception("the heartbeat of %r failed", lease)
                with self._changed:
                    if self._watchers:
                        return
                    self._watchers += 1
        finally:
            with self._changed:
                self._threads.discard(threading.current_thread())

    def _next(self) -> "Lease | None":
        """Wait until something is due, and hand the watch over."""
        with self._changed:
            while self._leases:
                lease = min(self._leases, key=lambda each: each._due_ms())
                wait_s = (lease._due_ms() - self._clocks.read().local_ms) / 1_000
                if wait_s <= 0:
                    self._watchers -= 1
                    self._ensure_a_watcher()
                    return lease
                self._changed.wait(min(wait_s, _LONGEST_WAIT_S))
            self._watchers -= 1
            return None
