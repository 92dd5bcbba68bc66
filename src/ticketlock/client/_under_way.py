"""The acquisitions and releases in progress in a client's threads; closing the client waits for them."""

import threading
import time
from collections.abc import Generator
from contextlib import suppress
from inspect import GEN_CLOSED, GEN_CREATED, getgeneratorstate
from typing import Any
from weakref import WeakKeyDictionary

from ticketlock.locks._lock_table import LockTable
from ticketlock.wire._actions import Actions, T


class Latch:
    """Closed until it is opened, for good.

    ``threading.Event`` has a mutex: a signal handler that sets it while the interrupted thread is about to wait for it
    would deadlock. This class has nothing but the lock that is waited for.
    """

    def __init__(self) -> None:
        self.is_open = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        """Open it; opening it again does nothing."""
        self.is_open = True
        self._let_pass()

    def wait(self, seconds: float) -> bool:
        """Wait for at most this long; return whether it is open."""
        if not self.is_open:
            has_passed = False
            try:
                has_passed = self._lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))
            finally:
                if has_passed or self.is_open:
                    self._let_pass()
        return self.is_open

    def _let_pass(self) -> None:
        # Several waiters may release it; one release is enough.
        with suppress(RuntimeError):
            self._lock.release()


_ACQUISITION_LEAVES_WITHIN_S = 2.0
# More than the time for which one request is retried.
_RELEASE_ENDS_WITHIN_S = 10.0
_CHECKS_EVERY_S = 0.005


class UnderWay:
    """Acquisitions and releases in progress, in all threads.

    Each is tracked by its generator, which is closed however it ends. So no entry has to be removed, and no exception
    from a signal handler can prevent that.
    """

    def __init__(self, table: LockTable) -> None:
        self._table = table
        # Re-entrant: a signal handler that closes the client may interrupt the thread that has this mutex.
        self._mutex = threading.RLock()
        self._began: WeakKeyDictionary[Generator[Any, Any, Any], tuple[int, float]] = WeakKeyDictionary()

    def acquisition(self, actions: Actions[T]) -> Actions[T]:
        """Track an acquisition: closing the client waits up to 2 s for it to leave the queue."""
        return self._followed(actions, _ACQUISITION_LEAVES_WITHIN_S)

    def release(self, actions: Actions[None]) -> None:
        """Perform a release, even if an interrupt comes before it has begun; closing the client waits for it."""
        try:
            self._table.drive(self._followed(actions, _RELEASE_ENDS_WITHIN_S))
        except BaseException:
            if getgeneratorstate(actions) == GEN_CREATED:
                self._table.drive(actions)
            raise

    def wait_for_others(self) -> None:
        """Wait until everything that other threads have begun has ended, or its time limit has passed."""
        began_s = time.monotonic()
        while any(time.monotonic() < began_s + within_s for within_s in self._of_others()):
            time.sleep(_CHECKS_EVERY_S)

    def _followed(self, actions: Actions[T], within_s: float) -> Actions[T]:
        with self._mutex:
            self._began[actions] = threading.get_ident(), within_s
        return actions

    def _of_others(self) -> list[float]:
        with self._mutex:
            began = list(self._began.items())
        return [
            within_s
            for actions, (thread, within_s) in began
            if thread != threading.get_ident() and getgeneratorstate(actions) not in (GEN_CREATED, GEN_CLOSED)
        ]
