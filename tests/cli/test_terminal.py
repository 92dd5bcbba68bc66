"""A command under the lock on a terminal: the live line, and which process owns the terminal."""

import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cli.seen import waiters
from kit.command import LONG_S, Command, until
from ticketlock_local.engines.processes import wait_until

from ticketlock import LockClient

pytestmark = pytest.mark.verify("processes on a terminal of their own")

COLUMNS = 120
CTRL_C, CTRL_Z = "\x03", "\x1a"

JOB_SHELL = """
import os, signal, sys
# As a shell does it: a job in a group of its own, in the foreground; told of each stop.
def foreground(group):
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, group)
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    foreground(os.getpid())
    os.execvp(sys.argv[1], sys.argv[1:])
while True:
    _, status = os.waitpid(job, os.WUNTRACED)
    foreground(os.getpgrp())
    if not os.WIFSTOPPED(status):
        break
    print("the job has stopped", flush=True)
    input()
    foreground(job)
    os.killpg(job, signal.SIGCONT)
print("the job has ended:", os.waitstatus_to_exitcode(status), flush=True)
"""


class Session:
    """A session with its own terminal, which the test reads and types on."""

    def __init__(self, arguments: tuple[str, ...], environment: dict[str, str]) -> None:
        self._screen, terminal = pty.openpty()
        self._seen = ""
        # No echo: what is read here was written by a program.
        attributes = termios.tcgetattr(terminal)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(terminal, termios.TCSANOW, attributes)
        termios.tcsetwinsize(terminal, (24, COLUMNS))
        self.process = subprocess.Popen(
            [sys.executable, "-c", _LEADER, *arguments],
            env=environment,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        os.set_blocking(self._screen, False)

    def type(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def shows(self, pattern: str) -> str:
        """Wait until the pattern is printed; forget everything up to its end."""
        found: list[re.Match[str]] = []

        def is_shown() -> bool:
            self._reads()
            match = re.search(pattern, self._seen)
            if match is not None:
                found.append(match)
            return bool(found)

        assert wait_until(is_shown, timeout_s=LONG_S), f"not seen: {pattern!r}; seen: {self._seen!r}"
        self._seen = self._seen[found[0].end() :]
        return found[0].group()

    def rest(self) -> str:
        """What is printed until the process ends."""
        assert wait_until(lambda: self._reads() or self.process.poll() is not None, timeout_s=LONG_S)
        self.process.wait(LONG_S)
        while self._reads():
            pass
        return self._seen

    def _reads(self) -> bool:
        before = len(self._seen)
        with suppress(BlockingIOError, OSError):
            self._seen += os.read(self._screen, 65_536).decode()
        return len(self._seen) > before

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
            self.process.kill()
            self.process.wait()
        os.close(self._screen)


# A session leader gets its terminal, then executes the program.
_LEADER = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"

Open = Callable[..., Session]


@pytest.fixture
def on_a_terminal(environment: dict[str, str]) -> Iterator[Open]:
    sessions: list[Session] = []

    def start(*arguments: str) -> Session:
        sessions.append(Session(arguments, environment))
        return sessions[-1]

    yield start
    for session in sessions:
        session.close()


def test_a_waiter_shows_how_many_are_ahead_how_long_it_has_waited_and_who_holds(
    on_a_terminal: Open, command: Command, locks: LockClient, entity: str
) -> None:
    lease = locks.acquire(entity, owner="build-7")
    first = command.start("run", entity, "--", "true")
    until(lambda: waiters(locks, entity) == 1)
    session = on_a_terminal("ticketlock", "run", entity, "--", "echo", "inside")
    session.shows(rf"\r{entity}: 1 ahead, \d+ s; held for [\d.]+ \w+, lease [\d.]+ \w+ left, by build-7\x1b")
    session.shows(rf"\r{entity}: 1 ahead, [1-9]\d* s; held for [\d.]+ \w+, lease [\d.]+ \w+ left, by build-7\x1b")
    lease.release()
    assert first.end().exit_code == 0
    session.shows("\r\x1b\\[Kinside\r\n")


def test_a_waiter_shows_that_the_lock_is_closed(on_a_terminal: Open, locks: LockClient, entity: str) -> None:
    locks.table.set_limit(locks.lock(entity), 0)
    session = on_a_terminal("ticketlock", "run", entity, "--wait-if-closed", "--", "echo", "inside")
    session.shows("next in line, [0-9]+ s; closed by an operator\x1b")
    locks.table.set_limit(locks.lock(entity), 1)
    session.shows("inside")


def test_the_line_is_no_longer_than_the_terminal_is_wide(on_a_terminal: Open, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity, owner="o" * 1_000):
        session = on_a_terminal("ticketlock", "run", entity, "--", "echo", "inside")
        line = session.shows(f"{entity}: next in line, [^\x1b]*\x1b").removesuffix("\x1b")
        assert (len(line), line[-1]) == (COLUMNS - 1, "…")
    session.shows("inside")


def test_a_quiet_waiter_shows_nothing_on_a_terminal_either(on_a_terminal: Open, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity):
        session = on_a_terminal("ticketlock", "run", "--quiet", entity, "--", "echo", "inside")
        until(lambda: waiters(locks, entity) == 1)
    assert session.shows("^.*inside") == "inside"


@pytest.mark.parametrize("command", ["run", "acquire"])
def test_ctrl_c_while_a_profile_asks_for_its_code_ends_the_command(
    on_a_terminal: Open,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    entity: str,
    tmp_path: Path,
    command: str,
) -> None:
    config = tmp_path / "config"
    config.write_text(
        "[profile there]\naws_access_key_id = test\naws_secret_access_key = test\n[profile mfa]\nregion = us-east-1\n"
        "role_arn = arn:aws:iam::123456789012:role/r\nmfa_serial = arn:aws:iam::123456789012:mfa/m\n"
        "source_profile = there\n"
    )
    for name in [each for each in environment if each.startswith("AWS_")]:
        monkeypatch.delitem(environment, name)
    monkeypatch.setitem(environment, "AWS_CONFIG_FILE", str(config))
    session = on_a_terminal("ticketlock", command, entity, "--profile", "mfa")
    session.shows("MFA code")
    session.type(CTRL_C)
    assert session.process.wait(LONG_S) == 128 + signal.SIGINT


def test_ctrl_c_while_it_waits_leaves_the_queue(on_a_terminal: Open, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity):
        session = on_a_terminal("ticketlock", "run", entity, "--", "true")
        session.shows("next in line")
        session.type(CTRL_C)
        assert session.process.wait(LONG_S) == 128 + signal.SIGINT
        assert waiters(locks, entity) == 0


def test_the_command_may_read_the_terminal(on_a_terminal: Open, entity: str) -> None:
    session = on_a_terminal("ticketlock", "run", entity, "--", "sh", "-c", "echo ready; read a; echo got $a; read b")
    session.shows("ready")
    session.type("typed\n")
    session.shows("got typed")
    session.type("\n")


def test_ctrl_c_reaches_the_command_once_and_the_lock_is_released_after_it(
    on_a_terminal: Open, locks: LockClient, entity: str
) -> None:
    script = "trap 'echo got it' INT; echo ready; read x; read y; echo bye; exit 4"
    session = on_a_terminal("ticketlock", "run", entity, "--", "bash", "-c", script)
    session.shows("ready")
    session.type(CTRL_C)
    assert session.shows("got it")
    session.type("\n\n\n")
    assert "got it" not in session.shows("(?s).*bye")
    assert session.process.wait(LONG_S) == 4
    item = locks.inspect(entity).item
    assert item is not None
    assert item.held == 0


def test_the_terminal_is_given_back(on_a_terminal: Open, entity: str) -> None:
    session = on_a_terminal("bash", "-c", f"ticketlock run {entity} -- true; read a; echo the shell got $a")
    session.type("typed\n")
    session.shows("the shell got typed")


def test_a_job_that_is_stopped_from_the_terminal_continues_with_its_lock(on_a_terminal: Open, entity: str) -> None:
    job = ("ticketlock", "run", entity, "--", "sh", "-c", "echo ready; read a; echo got $a; exit 5")
    session = on_a_terminal(sys.executable, "-c", JOB_SHELL, *job)
    session.shows("ready")
    session.type(CTRL_Z)
    session.shows("the job has stopped")
    session.type("go on\n")
    session.type("typed\n")
    session.shows("got typed")
    session.shows("the job has ended: 5")


def test_a_job_that_is_stopped_for_longer_than_its_lease_does_not_continue(
    on_a_terminal: Open, locks: LockClient, entity: str
) -> None:
    work = ("sh", "-c", "echo ready; read a; echo got $a")
    session = on_a_terminal(sys.executable, "-c", JOB_SHELL, "ticketlock", "run", entity, "--lease", "3", "--", *work)
    session.shows("ready")
    session.type(CTRL_Z)
    session.shows("the job has stopped")
    with locks.acquire(entity):
        session.type("go on\n")
        session.shows(f"the lease on '{entity}' is lost: stopping the command")
        assert "got" not in session.shows("(?s).*the job has ended: 76")


def test_a_command_before_a_pipe_gets_the_terminal_when_it_asks(on_a_terminal: Open, entity: str) -> None:
    session = on_a_terminal("bash", "-c", f"ticketlock run {entity} -- sh -c 'read a; echo got $a' | cat")
    session.type("typed\n")
    session.shows("got typed")


def test_no_live_line_is_shown_if_stderr_is_no_terminal(
    on_a_terminal: Open, locks: LockClient, entity: str, tmp_path: Path
) -> None:
    errors = tmp_path / "errors"
    with locks.acquire(entity):
        session = on_a_terminal("bash", "-c", f"ticketlock run {entity} -- echo inside 2> {errors}")
        until(lambda: waiters(locks, entity) == 1)
    session.shows("inside")
    assert session.process.wait(LONG_S) == 0
    assert errors.read_text() == ""


@pytest.mark.parametrize(
    ("words", "before", "after"),
    [
        ("show ENTITY --watch", "Never used", "No one holds it"),
        ("ls --watch --busy --prefix ENTITY", "No locks", "No locks"),
        ("top --prefix ENTITY", "No lock is busy", "No lock is busy"),
    ],
)
def test_what_is_watched_is_drawn_again_until_ctrl_c_and_stays_on_the_screen(
    on_a_terminal: Open, locks: LockClient, entity: str, words: str, before: str, after: str
) -> None:
    session = on_a_terminal("ticketlock", *words.replace("ENTITY", entity).split(), "--every", "0.2")
    session.shows(before)
    with locks.acquire(entity, owner="the holder"):
        session.shows("the holder")
    session.shows(after)
    session.type(CTRL_C)
    erase_line = "\x1b[2K"
    assert after in session.rest().rpartition(erase_line)[2]
    assert session.process.returncode == 0
