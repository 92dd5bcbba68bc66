"""What one thread waits for, and another one, or a signal handler, opens."""

import threading
from contextlib import suppress


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
