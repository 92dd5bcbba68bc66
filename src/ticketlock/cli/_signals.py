"""Signals to wait for: the handlers only note them, and the main thread asks for them when it is ready."""

import os
import select
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any, Self

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""The signals that end a wait or a hold."""

_LONGEST_WAIT_S = 3_600.0


class Stopped(BaseException):
    """A signal arrived in a block that may be broken off."""


class Signals:
    """Notes the signals of this process while the ``with`` block runs. For the main thread."""

    def __init__(self) -> None:
        self._noted: deque[int] = deque()
        self._mutex = threading.Lock()
        self._open = False
        self._breaks_off = False

    def __enter__(self) -> Self:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._open = True
        self._stack = ExitStack()
        self._stack.callback(self._close)
        self._stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False))
        # If SIGCHLD is ignored, the exit code of a child cannot be collected.
        self._stack.enter_context(self.noting((*ENDING, signal.SIGCHLD)))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def noting(self, numbers: Iterable[int]) -> Iterator[None]:
        """Note these signals too, within the block. Signals that this process was started to ignore stay ignored."""
        before: dict[int, Any] = {}
        try:
            for number in numbers:
                if number == signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN:
                    before[number] = signal.signal(number, self._note)
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def breaking_off(self) -> Iterator[None]:
        """Raise ``Stopped`` within the block as soon as a signal arrives that ends a wait: for work without effects."""
        self._breaks_off = True
        try:
            if self.ending() is not None:
                raise Stopped
            yield
        finally:
            self._breaks_off = False

    def ending(self) -> int | None:
        """The first noted signal that ends a wait; it stays noted."""
        # Another may be noted meanwhile.
        return next((number for number in self._noted.copy() if number in ENDING), None)

    def take(self) -> list[int]:
        """The signals noted since the last call, in order."""
        taken = []
        while self._noted:
            taken.append(self._noted.popleft())
        return taken

    def wait(self, seconds: float | None) -> None:
        """Sleep until a signal arrives, ``wake`` is called, or the time is over."""
        timeout = _LONGEST_WAIT_S if seconds is None else max(0.0, min(seconds, _LONGEST_WAIT_S))
        if select.select([self._reader], [], [], timeout)[0]:
            # Empties the pipe: its bytes only end the wait. Any that are left end the next wait at once.
            os.read(self._reader, 4_096)

    def wake(self) -> None:
        """End the wait; any thread may call it at any time."""
        with self._mutex:
            if self._open:
                with suppress(BlockingIOError):  # the pipe is full: the wait ends anyway
                    os.write(self._writer, b"\0")

    def _note(self, number: int, _: FrameType | None) -> None:
        self._noted.append(number)
        if self._breaks_off and number in ENDING:
            # Once: what ends the block may take a moment.
            self._breaks_off = False
            raise Stopped

    def _close(self) -> None:
        with self._mutex:
            self._open = False
            os.close(self._reader)
            os.close(self._writer)
