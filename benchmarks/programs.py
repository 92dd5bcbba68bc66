"""Programs that a benchmark starts, and talks to in lines."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ticketlock_local.errors import LocalCloudError


@dataclass(frozen=True)
class Program:
    """A running program."""

    name: str
    process: "subprocess.Popen[str]"

    def line(self) -> str:
        """The next line that it prints; it is a LocalCloudError if it has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            raise LocalCloudError(f"the program of {self.name} has ended, with {self.process.wait()}")
        return line

    def ask(self, *words: object) -> str:
        """The line with which it answers a line."""
        print(*words, file=self.process.stdin, flush=True)
        return self.line()

    def rest(self, timeout_s: float) -> list[str]:
        """All further lines, after its end; it is a LocalCloudError if it has failed."""
        lines = self.process.communicate(timeout=timeout_s)[0].splitlines()
        if self.process.returncode != 0 or not lines:
            raise LocalCloudError(f"the program of {self.name} has failed, see above")
        return lines


@contextmanager
def program(
    name: str, command: Sequence[str], *, env: Mapping[str, str] | None = None, quiet: bool = False
) -> Iterator[Program]:
    """Start a program, and end it; its standard input ends with this process, too. The name is for messages."""
    errors = subprocess.DEVNULL if quiet else None
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=errors, env=env, text=True, start_new_session=True
    ) as process:
        try:
            yield Program(name, process)
        finally:
            process.kill()
