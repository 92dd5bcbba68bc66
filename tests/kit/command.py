"""Processes of the command, and what a test waits for in them."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import psutil
from ticketlock_local.cloud.deploy import client_environment
from ticketlock_local.engines.processes import wait_until

_NO_MORE: Mapping[str, str] = MappingProxyType({})
LONG_S = 40.0
"""Longer than anything takes here, on a busy machine too."""


def shell(endpoint: str, table_name: str) -> dict[str, str]:
    """The environment of a shell whose AWS tools are on an emulator, and whose locks are in a table there."""
    scripts = str(Path(sys.executable).parent)
    return {
        **os.environ,
        **client_environment(endpoint),
        "PATH": os.pathsep.join([scripts, os.environ["PATH"]]),
        "TICKETLOCK_TABLE": table_name,
        "TERM": "xterm",
    }


@dataclass(frozen=True)
class Ended:
    """The result of a process."""

    exit_code: int
    out: str
    err: str


class Running:
    """A process of the command, and its process group."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def send(self, number: int) -> None:
        """Send a signal to this process alone."""
        self.process.send_signal(number)

    def line(self) -> str:
        """The next line of its stdout."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def error_line(self) -> str:
        """The next line of its stderr."""
        assert self.process.stderr is not None
        return self.process.stderr.readline().rstrip("\n")

    def end(self, text: str | None = None) -> Ended:
        """Wait for its end, with this text for its stdin."""
        out, err = self.process.communicate(text, timeout=LONG_S)
        return Ended(self.process.returncode, out, err)


class Command:
    """Runs ``ticketlock``.

    Args:
        environment: of its processes.
        stack: ends what is left of them.
    """

    def __init__(self, environment: Mapping[str, str], stack: ExitStack) -> None:
        self.environment = dict(environment)
        self._stack = stack

    def start(
        self, *arguments: str, program: tuple[str, ...] = ("ticketlock",), env: Mapping[str, str] = _NO_MORE
    ) -> Running:
        """Start it with these arguments and additional environment variables, in a process group of its own."""
        process = subprocess.Popen(
            [*program, *arguments],
            env={**self.environment, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        self._stack.enter_context(process)
        self._stack.callback(_end, process)
        return Running(process)

    def run(self, *arguments: str, text: str | None = None, **more: str) -> Ended:
        return self.start(*arguments, env=more).end(text)


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        # It stops its own child; its process group does not reach a group that it has left behind.
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()


def until(condition: Callable[[], bool]) -> None:
    assert wait_until(condition, timeout_s=LONG_S)


def lives(pid: int) -> bool:
    """Whether the process exists, and is no zombie."""
    try:
        return psutil.Process(pid).status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    except psutil.NoSuchProcess:
        return False


def interrupt(process: Running) -> None:
    """Ctrl-C, for one process."""
    process.send(signal.SIGINT)
