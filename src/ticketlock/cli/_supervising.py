"""What happens while the command runs: it gets signals and the terminal, and a lost lease stops it."""

import signal
import threading
import time
from collections.abc import Callable

from ticketlock import Lease
from ticketlock.cli._child import Child
from ticketlock.cli._signals import ENDING, Signals
from ticketlock.cli._terminal import Terminal

FORWARDED = (
    *ENDING,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
    signal.SIGTSTP,
    signal.SIGCONT,
)
_CHECKS_FOR_THE_REST_EVERY_S = 0.05
_TTY_STOPS = (signal.SIGTTIN, signal.SIGTTOU)


class Supervision:
    """One command under one lease, from its start to its end. For the main thread.

    Args:
        child: the command.
        lease: what it runs under.
        signals: notes this process's signals.
        lost: another thread sets it when the lease is lost, and wakes ``signals``.
        kill_after_s: the seconds between SIGTERM and SIGKILL.
        on_loss: called once, before the command is stopped because the lease is lost.
    """

    def __init__(
        self,
        child: Child,
        lease: Lease,
        signals: Signals,
        lost: threading.Event,
        *,
        kill_after_s: float,
        on_loss: Callable[[], object],
    ) -> None:
        self._child = child
        self._lease = lease
        self._signals = signals
        self._lost = lost
        self._kill_after_s = kill_after_s
        self._on_loss = on_loss
        self._kill_at_s: float | None = None

    def to_the_end(self) -> bool:
        """Wait until the command ends, or its whole group if the lease is lost. Return whether it was lost."""
        with self._signals.also(FORWARDED), Terminal(self._child.group) as terminal:
            # It may have asked for the terminal before it got it, and been stopped for that.
            self._child.send(signal.SIGCONT)
            self._tend(terminal)
            while not self._is_over():
                self._signals.wait(self._next_check_s())
                self._pass_signals_on(terminal)
                self._tend(terminal)
        return self._kill_at_s is not None

    def _is_over(self) -> bool:
        if self._child.exit_code is None:
            return False
        return self._kill_at_s is None or not self._child.has_left_others()

    def _next_check_s(self) -> float | None:
        if self._kill_at_s is None:
            return None
        if self._child.exit_code is not None:
            return _CHECKS_FOR_THE_REST_EVERY_S
        return max(_CHECKS_FOR_THE_REST_EVERY_S, self._kill_at_s - time.monotonic())

    def _pass_signals_on(self, terminal: Terminal) -> None:
        for number in self._signals.take():
            if number == signal.SIGCONT:
                terminal.lend()
            if number != signal.SIGCHLD:
                self._child.send(number)

    def _tend(self, terminal: Terminal) -> None:
        stop = self._child.stopped_by()
        if stop is not None and not (stop in _TTY_STOPS and terminal.lend()):
            # The user wants the shell back; without a terminal, the process that stopped it must continue it.
            terminal.stop_us()
            terminal.lend()
        if self._lost.is_set() or not self._lease.is_held():
            self._stop_for_loss()
        elif stop is not None and terminal.is_there:
            self._child.send(signal.SIGCONT)

    def _stop_for_loss(self) -> None:
        now_s = time.monotonic()
        if self._kill_at_s is None:
            self._kill_at_s = now_s + self._kill_after_s
            self._on_loss()
            self._child.send(signal.SIGTERM)
            self._child.send(signal.SIGCONT)
        elif now_s >= self._kill_at_s:
            self._child.send(signal.SIGKILL)
