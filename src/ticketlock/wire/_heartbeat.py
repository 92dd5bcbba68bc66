"""The heartbeat of a client: one thread for all that it watches, each on a schedule of its own.

What is watched says itself what is due about it, and when; the heartbeat knows nothing else of it.

The thread that watches sends nothing: each renewal has a thread of its own, up to so many, and the others wait for one.
So a request that hangs delays the news of no lease's end. The last one ends with the last lease.

``watch``, ``forget``, ``join_idle`` and ``close`` run on the callers' threads, where a signal handler may raise at any
point, or call ``close``: nothing is counted there that would have to be counted off.
"""

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Literal, Protocol, TypeVar

from ticketlock.wire._clocks import Clocks
from ticketlock.wire._table_time import Reading

_log = logging.getLogger("ticketlock")

# A clock of the system may go on while the process is suspended, and a wait of Python's may not.
_LONGEST_WAIT_S = 5.0
# To start and end a thread takes as long as a request: one that would be needed again at once stays for so long.
_LINGERS_S = 0.05
_MANY_IN_A_ROW = 5
_MOST_RENEWALS = 128
_SETTLES_WITHIN_S = 0.05
# By less than this the two clocks part without anything being due sooner: a lease is renewed half of it before its end.
_CLOCKS_PART_MS = 100


Due = Literal["renew", "danger", "lost"]


class Watched(Protocol):
    """What a heartbeat asks of what it watches: a lease, for example."""

    def _due_ms(self, reading: Reading) -> int:
        """When something is due next, on the local clock."""
        ...

    def _take_due(self, reading: Reading) -> Due | None:
        """What is due now, once."""
        ...

    def _is_watched_on(self) -> bool:
        """Whether anything can be due yet."""
        ...

    def _callback(self, what: Due) -> Callable[[Any], object] | None:
        """Whom to tell what was due; None for nobody."""
        ...


L = TypeVar("L", bound=Watched)


class Heartbeat(Generic[L]):
    """Calls ``tend`` with each lease, and what is due about it, when it is.

    A client may hold thousands: what comes next is found among numbers that are kept, not by asking every lease.
    """

    def __init__(self, clocks: Clocks, tend: Callable[[L, Due], None]) -> None:
        self._clocks = clocks
        self._tend = tend
        # Entered by its C methods: a signal handler that raises within those of a Condition would leave it locked.
        self._mutex = threading.RLock()
        self._changed = threading.Condition(self._mutex)
        # Each with the moment, on the local clock, at which it is to be looked at.
        self._leases: dict[L, int] = {}
        self._wall_ahead_ms = 0
        # Who watches: any other thread that comes to it ends. One that has not been started is nobody.
        self._watcher: threading.Thread | None = None
        # When the watcher looks again at the latest; whether it lingers with nothing to watch.
        self._looks_at_ms = 0.0
        self._lingers = False
        # Leases taken within 50 ms of the last one's end, in a row.
        self._in_a_row = 0
        self._left_at_ms = float("-inf")
        # Renewals that wait for a thread, and how many threads renew.
        self._due: deque[L] = deque()
        self._renewing = 0
        self._threads: set[threading.Thread] = set()

    def watch(self, lease: L) -> None:
        """Tend a lease from now on."""
        with self._mutex:
            follows = self._clocks.read().local_ms - self._left_at_ms < _LINGERS_S * 1_000
            self._in_a_row = self._in_a_row + 1 if follows else 0
            self._look_at(lease)
            self._ensure_a_watcher()

    def forget(self, lease: L) -> None:
        """Tend it no more. After the last one the thread ends by itself, while its lease is being released."""
        with self._mutex:
            self._leases.pop(lease, None)
            if not self._leases:
                self._left_at_ms = self._clocks.read().local_ms
                if not self._lingers:
                    self._changed.notify_all()

    def tell(self, lease: L, what: Due) -> None:
        """Tell its caller, on a thread of its own."""
        if lease._callback(what) is None:
            return

        def tell() -> None:
            callback = lease._callback(what)
            if callback is None:
                return
            try:
                callback(lease)
            except Exception:
                _log.exception("on_%s of %r failed", what, lease)

        try:
            threading.Thread(target=tell, name=f"ticketlock-on-{what}", daemon=True).start()
        except RuntimeError as error:
            _log.error("nobody could be told on_%s of %r: %s", what, lease, error)

    def join_idle(self) -> None:
        """See that no thread is left that waits for nothing; but where one lock follows the other all the time."""
        if self._in_a_row < _MANY_IN_A_ROW:
            self._join()

    def close(self) -> None:
        """End the thread that has nothing to watch."""
        with self._mutex:
            self._in_a_row = 0
            self._changed.notify_all()
        self._join()

    def _join(self) -> None:
        with self._mutex:
            idle = [] if self._leases else [each for each in self._alive() if each is not threading.current_thread()]
        # Those that wait end at once; those whose requests hang end with them.
        last_s = time.monotonic() + _SETTLES_WITHIN_S
        for thread in idle:
            thread.join(max(0.0, last_s - time.monotonic()))

    @property
    def threads(self) -> int:
        """How many threads there are."""
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
            # An interpreter that is about to exit starts no thread: whatever is held is released by then.
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
        # Without another thread the one that watches renews.
        self._renew()

    def _renew(self) -> None:
        """Renew what is due, one after the other, until nothing is."""
        while True:
            with self._mutex:
                if not self._due:
                    self._renewing -= 1
                    return
                lease = self._due.popleft()
                if lease not in self._leases:
                    # Released or over by now.
                    continue
            self._tend_safely(lease, "renew")
            with self._mutex:
                if lease in self._leases:
                    self._look_at(lease)

    def _tend_safely(self, lease: L, due: Due) -> None:
        try:
            self._tend(lease, due)
        except Exception:
            _log.exception("the heartbeat of %r failed", lease)

    def _next(self) -> tuple[L, Due] | None:
        """Wait until something is due; None when there is nothing to watch any more."""
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
                self._looks_at_ms = due_ms
                self._changed.wait(min((due_ms - reading.local_ms) / 1_000, _LONGEST_WAIT_S))
            if self._watcher is threading.current_thread():
                self._watcher = None
            return None

    def _look_at(self, lease: L) -> None:
        self._leases[lease] = due_ms = lease._due_ms(self._clocks.read())
        if due_ms < self._looks_at_ms:
            self._changed.notify_all()

    def _ask_all_if_the_clocks_parted(self, reading: Reading) -> None:
        """The machine was frozen, or its wall clock set: a lease may be in doubt at once."""
        wall_ahead_ms = reading.wall_ms - reading.local_ms
        if abs(wall_ahead_ms - self._wall_ahead_ms) > _CLOCKS_PART_MS:
            self._wall_ahead_ms = wall_ahead_ms
            self._leases = {lease: lease._due_ms(reading) for lease in self._leases}

    def _linger(self) -> bool:
        """Wait for the next lease for a moment, if many came in a row; whether one has come, and perhaps gone."""
        if (before := self._in_a_row) < _MANY_IN_A_ROW:
            return False
        self._lingers = True
        self._looks_at_ms = self._clocks.read().local_ms + _LINGERS_S * 1_000
        self._changed.wait(_LINGERS_S)
        self._lingers = False
        return bool(self._leases) or self._in_a_row > before
