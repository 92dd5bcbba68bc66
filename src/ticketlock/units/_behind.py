"""Finishes the items of committed units behind their callers, in a thread."""

import logging
import threading
from collections import deque
from collections.abc import Callable

from ticketlock.errors import CommittedUnfinished, TicketLockError
from ticketlock.wire._driver import OwnProcess
from ticketlock.wire._requests import ForkingSteps

MOST_BEHIND = 16
"""How many units are finished behind their callers at a time, all of one ``Units``; the next one finishes its items
before it returns."""

_log = logging.getLogger("ticketlock")


def log_unfinished(error: TicketLockError) -> None:
    """Log what stays unfinished: the caller, to whom it would be raised, has gone on."""
    level = logging.ERROR if isinstance(error, CommittedUnfinished) else logging.WARNING
    _log.log(level, "a committed unit is not finished: %s", error)


class BehindThreads:
    """Finishes units one after the other, in a thread that ends after the last one; a program that ends waits for it.

    Args:
        perform: performs the steps that finish a unit.
    """

    def __init__(self, perform: Callable[[ForkingSteps[None]], object]) -> None:
        self._perform = perform
        self._process = OwnProcess()
        # Re-entrant: a signal handler that commits units may interrupt the thread that has this mutex.
        self._mutex = threading.RLock()
        self._is_taking = False
        self._left: deque[ForkingSteps[None]] = deque()
        self._thread: threading.Thread | None = None

    def __call__(self, steps: ForkingSteps[None]) -> bool:
        """Finish a unit behind its caller; return whether there is room."""
        with self._mutex:
            if self._is_taking:
                # A signal handler has interrupted this very block.
                return False
            try:
                self._is_taking = True
                return self._take(steps)
            finally:
                self._is_taking = False

    def _take(self, steps: ForkingSteps[None]) -> bool:
        if len(self._left) >= MOST_BEHIND:
            return False
        self._left.append(steps)
        if self._thread is None:
            self._thread = thread = threading.Thread(target=self._finish_all, name="ticketlock-finishing")
            # Also if the caller is a daemon: a program that ends waits for it.
            thread.daemon = False
            try:
                thread.start()
            except BaseException as error:
                if not thread.is_alive():
                    self._thread = None
                    self._left.pop()
                    if isinstance(error, RuntimeError):
                        return False
                raise
        return True

    def wait(self) -> None:
        """Wait until all units are finished, or have failed."""
        while self._process.is_this and (thread := self._thread) is not None:
            thread.join()

    def _finish_all(self) -> None:
        while True:
            with self._mutex:
                if not self._left:
                    self._thread = None
                    return
                steps = self._left[0]
            try:
                self._perform(steps)
            except TicketLockError as error:
                log_unfinished(error)
            except Exception:
                _log.exception("a committed unit is not finished")
            self._left.popleft()
