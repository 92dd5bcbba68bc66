"""What threads wait for that happens once, and that a signal handler may bring about."""

import threading
from contextlib import suppress


class Latch:
    """Closed until it is opened, for good.

    ``threading.Event`` has a mutex: a handler that sets it, while the thread that it interrupts is about to wait for
    it, waits for itself. Here the lock that is waited for is all there is.
    """

    def __init__(self) -> None:
        self.is_open = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        """Open it; again does nothing."""
        self.is_open = True
        self._let_pass()

    def wait(self, seconds: float) -> bool:
        """Wait for at most so long; whether it is open."""
        if not self.is_open:
            has_passed = False
            try:
                has_passed = self._lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))
            finally:
                if has_passed or self.is_open:
                    self._let_pass()
        return self.is_open

    def _let_pass(self) -> None:
        # Of several who let the next one pass, one is enough.
        with suppress(RuntimeError):
            self._lock.release()
