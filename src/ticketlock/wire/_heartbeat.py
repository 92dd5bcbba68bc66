"""The heartbeat of a client for threads: one thread watches all leases, each on its own schedule.

A lease says itself what is due for it, and when; the heartbeat knows nothing else about it.

The watching thread sends nothing: each renewal has a thread of its own, up to a maximum; further ones wait for a free
thread. So a request that hangs does not delay the report that another lease has ended. The last thread ends with the
last lease.

``watch``, ``forget``, ``join_idle`` and ``close`` run on the callers' threads, where a signal handler may raise at any
point, or call ``close``: so they keep no count that they would have to lower again.
"""

import inspect
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Literal, Protocol, TypeVar

from ticketlock.wire._driver import Clocks
from ticketlock.wire._table_time import Reading

_log = logging.getLogger("ticketlock")

# A system clock may continue while the process is suspended, and a wait of Python's may not.
_LONGEST_WAIT_S = 5.0
# Starting and ending a thread takes as long as a request: a thread that may be needed again at once stays for so long.
_LINGERS_S = 0.05
_MANY_IN_A_ROW = 5
_MOST_RENEWALS = 128
_SETTLES_WITHIN_S = 0.05
# A smaller jump between the clocks makes nothing due sooner: a lease is renewed half of it before its end.
_CLOCKS_PART_MS = 100

Due = Literal["renew", "danger", "lost"]


class Watched(Protocol):
    """What a heartbeat watches, for example a lease."""

    def _due_ms(self, reading: Reading) -> int:
        """When something is due next, on the local clock."""
        ...

    def _take_due(self, reading: Reading) -> Due | None:
        """What is due now, reported once."""
        ...

    def _is_watched_on(self) -> bool:
        """Whether anything can still become due."""
        ...

    def _callback(self, what: Due) -> Callable[[Any], object] | None:
        """The callback for what was due; None for none."""
        ...


L = TypeVar("L", bound=Watched)


class Heartbeat(Generic[L]):
    """Calls ``tend`` with each lease and what is due for it, when it is due.

    A client may hold thousands of leases: their due times are stored, so that not every lease has to be asked.
    """

    def __init__(self, clocks: Clocks, tend: Callable[[L, Due], None]) -> None:
        self._clocks = clocks
        self._tend = tend
        # Entered by its C methods: a signal handler that raises inside a Condition's own methods would leave it locked.
        self._mutex = threading.RLock()
        self._changed = threading.Condition(self._mutex)
        # Each lease, with the moment on the local clock at which it is checked next.
        self._leases: dict[L, int] = {}
        self._wall_ahead_ms = 0
        # The watching thread: any other thread in the loop ends. A thread that was not started does not count.
        self._watcher: threading.Thread | None = None
        # When the watcher checks again at the latest; whether it stays although there is nothing to watch.
        self._checks_at_ms = 0.0
        self._lingers = False
        # How many leases in a row began within 50 ms of the end of the one before.
        self._in_a_row = 0
        self._left_at_ms = float("-inf")
        # Renewals that wait for a thread, and the number of renewing threads.
        self._due: deque[L] = deque()
        self._renewing = 0
        self._threads: set[threading.Thread] = set()

    def watch(self, lease: L) -> None:
        """Watch a lease from now on."""
        with self._mutex:
            reading = self._clocks.read()
            follows = reading.local_ms - self._left_at_ms < _LINGERS_S * 1_000
            self._in_a_row = self._in_a_row + 1 if follows else 0
            self._schedule(lease, reading)
            self._ensure_a_watcher()

    def forget(self, lease: L) -> None:
        """Stop watching a lease. After the last one the thread ends by itself, while the lease is being released."""
        with self._mutex:
            self._leases.pop(lease, None)
            if not self._leases:
                self._left_at_ms = self._clocks.read().local_ms
                if not self._lingers:
                    self._changed.notify_all()

    def tell(self, lease: L, what: Due) -> None:
        """Call the lease's callback, on a thread of its own."""
        if lease._callback(what) is None:
            return

        def call() -> None:
            callback = lease._callback(what)
            if callback is None:
                return
            try:
                if inspect.isawaitable(callback(lease)):
                    _log.error("on_%s of %r has not run: no one awaits what it returned", what, lease)
            except Exception:
                _log.exception("on_%s of %r failed", what, lease)

        try:
            threading.Thread(target=call, name=f"ticketlock-on-{what}", daemon=True).start()
        except RuntimeError as error:
            _log.error("on_%s of %r could not be called: %s", what, lease, error)

    def join_idle(self) -> None:
        """Wait for a thread that has nothing left to watch, unless one lease follows another all the time."""
        if self._in_a_row < _MANY_IN_A_ROW:
            self._join()

    def close(self) -> None:
        """End a thread that has nothing to watch."""
        with self._mutex:
            self._in_a_row = 0
            self._changed.notify_all()
        self._join()

    def _join(self) -> None:
        with self._mutex:
            idle = set() if self._leases else self._alive() - {threading.current_thread()}
        # Threads that wait end at once; threads whose requests hang end with them.
        last_s = time.monotonic() + _SETTLES_WITHIN_S
        for thread in idle:
            thread.join(max(0.0, last_s - time.monotonic()))

    @property
    def threads(self) -> int:
        """The number of threads."""
        with self._mutex:
            return len(self._alive())

    def _alive(self) -> set[threading.Thread]:
        self._threads = {each for each in self._threads if each.is_alive()}
        watcher = self._watcher
        return self._threads | {watcher} if watcher is not None and watcher.is_alive() else self._threads

    def _ensure_a_watcher(self) -> None:
        if self._watcher is not None and self._watcher.is_alive():
            return
        try:
            self._watcher = self._thread(self._watch)
            self._watcher.start()
        except RuntimeError:
            # An interpreter that is about to exit starts no thread; it has released its locks by then.
            if not sys.is_finalizing():
                raise

    @staticmethod
    def _thread(target: Callable[[], None]) -> threading.Thread:
        return threading.Thread(target=target, name="ticketlock-heartbeat", daemon=True)

    def _watch(self) -> None:
        with self._mutex:
            self._threads.add(threading.current_thread())
        while (found := self._next()) is not None:
            lease, due = found
            if due == "renew":
                self._begin_to_renew(lease)
            else:
                self._tend_safely(lease, due)

    def _begin_to_renew(self, lease: L) -> None:
        with self._mutex:
            self._due.append(lease)
            if self._renewing >= _MOST_RENEWALS:
                return
            self._renewing += 1
            thread = self._thread(self._renew)
            try:
                thread.start()
                self._threads = {thread, *self._alive()}
                return
            except RuntimeError:
                self._renewing -= 1
                if self._renewing:
                    return
                self._renewing += 1
        # No other thread can be started: the watcher renews.
        self._renew()

    def _renew(self) -> None:
        """Renew the leases that are due, one by one, until none is."""
        while True:
            with self._mutex:
                if not self._due:
                    self._renewing -= 1
                    return
                lease = self._due.popleft()
                if lease not in self._leases:
                    # Released or ended by now.
                    continue
            self._tend_safely(lease, "renew")
            with self._mutex:
                if lease in self._leases:
                    self._schedule(lease, self._clocks.read())

    def _tend_safely(self, lease: L, due: Due) -> None:
        try:
            self._tend(lease, due)
        except Exception:
            _log.exception("the heartbeat of %r failed", lease)

    def _next(self) -> tuple[L, Due] | None:
        """Wait until something is due; None if there is nothing left to watch."""
        with self._mutex:
            while self._watcher is threading.current_thread() and (self._leases or self._linger()):
                if not self._leases:
                    continue
                reading = self._clocks.read()
                self._ask_all_if_the_clocks_parted(reading)
                lease = min(self._leases, key=self._leases.__getitem__)
                due_ms = self._leases[lease]
                if due_ms <= reading.local_ms:
                    due = lease._take_due(reading)
                    self._leases[lease] = lease._due_ms(reading)
                    if due == "lost" or not lease._is_watched_on():
                        del self._leases[lease]
                    if due is None:
                        continue
                    return lease, due
                self._checks_at_ms = due_ms
                self._changed.wait(min((due_ms - reading.local_ms) / 1_000, _LONGEST_WAIT_S))
            if self._watcher is threading.current_thread():
                self._watcher = None
            return None

    def _schedule(self, lease: L, reading: Reading) -> None:
        self._leases[lease] = due_ms = lease._due_ms(reading)
        if due_ms < self._checks_at_ms:
            self._changed.notify_all()

    def _ask_all_if_the_clocks_parted(self, reading: Reading) -> None:
        """If the machine was frozen, or its wall clock set, a lease may need a check at once."""
        wall_ahead_ms = reading.wall_ms - reading.local_ms
        if abs(wall_ahead_ms - self._wall_ahead_ms) > _CLOCKS_PART_MS:
            self._wall_ahead_ms = wall_ahead_ms
            self._leases = {lease: lease._due_ms(reading) for lease in self._leases}

    def _linger(self) -> bool:
        """If many leases came in a row, wait a moment for the next; return whether one came, even if it has ended
        already.
        """
        if (before := self._in_a_row) < _MANY_IN_A_ROW:
            return False
        self._lingers = True
        self._checks_at_ms = self._clocks.read().local_ms + _LINGERS_S * 1_000
        self._changed.wait(_LINGERS_S)
        self._lingers = False
        return bool(self._leases) or self._in_a_row > before
