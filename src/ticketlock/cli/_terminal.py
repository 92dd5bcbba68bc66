"""The terminal's foreground group: a process group that reads the terminal must be it, or is stopped."""

import os
import signal
import stat
from contextlib import suppress
from typing import Self

_STDIN, _STDOUT = 0, 1


class Terminal:
    """The terminal on stdin, if there is one, lent to the command's process group.

    A command whose output goes to a pipe gets the terminal only when it asks: the program that reads the pipe is in our
    group, and may be a pager, which needs the terminal as well.

    Args:
        group: the command's process group.

    Attributes:
        is_there: whether stdin is a terminal.
    """

    def __init__(self, group: int) -> None:
        self._group = group
        self.is_there = _is_terminal(_STDIN)

    def __enter__(self) -> Self:
        # SIGTTOU must not stop us when we hand the terminal over, or write to stderr while the command has it.
        self._before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        if not _is_pipe(_STDOUT):
            self.lend()
        return self

    def __exit__(self, *_: object) -> None:
        self._pass_on(self._group, os.getpgrp())
        signal.signal(signal.SIGTTOU, self._before)

    def lend(self) -> bool:
        """Hand the terminal over if it is ours; return whether it was."""
        return self._pass_on(os.getpgrp(), self._group)

    def stop_us(self) -> None:
        """Stop our own group, as the terminal's suspend key does, until the shell continues it.

        If no shell can do that, the system continues it at once; without a terminal nothing happens.
        """
        if not self.is_there:
            return
        self._pass_on(self._group, os.getpgrp())
        before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.killpg(os.getpgrp(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, before)

    def _pass_on(self, owner: int, to: int) -> bool:
        if not self.is_there:
            return False
        # A terminal that was hung up has no foreground group; a group that has ended cannot become it.
        with suppress(OSError):
            if os.tcgetpgrp(_STDIN) == owner:
                os.tcsetpgrp(_STDIN, to)
                return True
        return False


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
