"""Whose the terminal is: a group that reads it must be its foreground group, or it is stopped."""

import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_STDIN, _STDOUT = 0, 1


class Terminal:
    """The terminal on stdin, if there is one, lent to the command's process group.

    A command that is followed by a pipe gets it only when it asks: who stands behind the pipe is in our group, and may
    be a pager, which wants the terminal as well.

    Args:
        group: the command's.

    Attributes:
        is_there: whether stdin is one.
    """

    def __init__(self, group: int) -> None:
        self._group = group
        self.is_there = _is_terminal(_STDIN)
        if self.is_there and not _is_pipe(_STDOUT):
            self.lend()

    def lend(self) -> bool:
        """Hand it over if it is ours; whether it was."""
        return self._pass_on(os.getpgrp(), self._group)

    def take_back(self) -> None:
        """Have it again, if the command has it."""
        self._pass_on(self._group, os.getpgrp())

    def stop_us(self) -> None:
        """Stop our own group, as the terminal's suspend key would have, until the shell lets it go on.

        Where no shell could do that, the system lets it go on at once; where there is no terminal, nothing happens.
        """
        if not self.is_there:
            return
        self.take_back()
        with _handled(signal.SIGTSTP, signal.SIG_DFL):
            os.killpg(os.getpgrp(), signal.SIGTSTP)

    def _pass_on(self, owner: int, to: int) -> bool:
        if not self.is_there:
            return False
        # A terminal that was hung up belongs to nobody; a group that has ended cannot have it.
        with suppress(OSError), _handled(signal.SIGTTOU, signal.SIG_IGN):
            if os.tcgetpgrp(_STDIN) == owner:
                os.tcsetpgrp(_STDIN, to)
                return True
        return False


@contextmanager
def _handled(number: int, handler: signal.Handlers) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def _is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


def _is_pipe(descriptor: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except OSError:
        return False
