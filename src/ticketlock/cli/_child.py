"""The command that runs under the lock, in its own process group."""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

from ticketlock.cli._exits import NOT_EXECUTABLE, NOT_FOUND, Ended, after_signal, of_failed_start
from ticketlock.cli._wording import plain


def check_executable(command: str) -> None:
    """Check before the wait that the command can be run.

    Raises:
        Ended: it cannot.
    """
    if shutil.which(command) is not None:
        return
    if os.path.dirname(command) and os.path.exists(command):
        raise Ended(f"cannot run '{plain(command)}': it is not an executable file", NOT_EXECUTABLE)
    raise Ended(f"cannot run '{plain(command)}': there is no such command", NOT_FOUND)


class Child:
    """The command, from its start until its exit is collected.

    Args:
        command: the program and its arguments.
        environment: variables that it gets in addition to ours.

    Attributes:
        group: the id of its process group, which is also its process id.
        exit_code: how it ended, in a shell's numbers; None while it runs.

    Raises:
        Ended: it could not be started.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.exit_code: int | None = None
        try:
            # Inherited file descriptors stay open: a job server's, or a file that the shell has opened.
            self._process = subprocess.Popen(
                command, env={**os.environ, **environment}, process_group=0, close_fds=False
            )
        except OSError as error:
            raise Ended(f"cannot run '{plain(command[0])}': {error.strerror}", of_failed_start(error)) from error
        self.group = self._process.pid

    def stopped_by(self) -> int | None:
        """Note its end; return the signal that has stopped it since the last poll, or None."""
        if self.exit_code is not None:
            return None
        pid, status = os.waitpid(self.group, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return None
        if os.WIFSTOPPED(status):
            return os.WSTOPSIG(status)
        code = os.waitstatus_to_exitcode(status)
        self._process.returncode = code
        self.exit_code = code if code >= 0 else after_signal(-code)
        return None

    def send(self, number: int) -> None:
        """Send a signal to the processes that remain in its group."""
        with suppress(ProcessLookupError, PermissionError):  # macOS: no permission for a group of zombies
            os.killpg(self.group, number)

    def has_left_others(self) -> bool:
        """Whether, after its end, its group still has processes."""
        try:
            os.killpg(self.group, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return False
        return True

    def end(self) -> None:
        """Kill it if it has not ended."""
        if self.exit_code is None:
            self.send(signal.SIGKILL)
            self._process.wait()
            self.exit_code = after_signal(signal.SIGKILL)
