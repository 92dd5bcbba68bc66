"""``ticketlock run``: runs a command under a lock, or holds the lock until a signal arrives."""

import os
import shutil
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

import click

from ticketlock import Lease, LockLost, TableError
from ticketlock.cli._exits import (
    CONFIGURATION,
    LEASE_LOST,
    NOT_EXECUTABLE,
    NOT_FOUND,
    SIGNALLED,
    UNAVAILABLE,
    USAGE,
    WAIT_IS_OVER,
    Ended,
    Explained,
    after_signal,
    of_failed_start,
)
from ticketlock.cli._options import Duration, table_options, waiting_options
from ticketlock.cli._settings import settings_of
from ticketlock.cli._signals import ENDING, Signals
from ticketlock.cli._waiting import WaitOptions, stand_in_line
from ticketlock.report import plain

_STDIN, _STDOUT = 0, 1

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


def check_executable(command: str) -> None:
    """Check before the wait that the command can be run."""
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


class Supervision:
    """One command under one lease, from its start to its end. For the main thread.

    Args:
        child: the command.
        lease: what it runs under.
        signals: notes this process's signals.
        lost: another thread sets it when the lease is lost, and wakes ``signals``.
        kill_after_s: the seconds between SIGTERM and SIGKILL.
        on_loss: called once, when the command was told to stop because the lease is lost.
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
        with self._signals.noting(FORWARDED), Terminal(self._child.group) as terminal:
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
            self._child.send(signal.SIGTERM)
            self._child.send(signal.SIGCONT)
            # Last: what it does may take time, or fail.
            self._on_loss()
        elif now_s >= self._kill_at_s:
            self._child.send(signal.SIGKILL)


class _UnderLock(Explained):
    """Splits the words: from the first word after ENTITY that is not our option, they are the program's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse our words, and leave the program's unchanged."""
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        before, rest = self._options(ctx, args)
        if rest[:1] == ["--"]:
            if not (len(rest) > 1 and rest[1].startswith("-")):
                raise click.UsageError("which lock? Put ENTITY before '--'.", ctx)
            # An ENTITY that would be read as an option.
            del rest[0]
        behind, command = self._options(ctx, rest[1:])
        if command == ["--"]:
            raise click.UsageError("nothing follows '--': give a COMMAND, or leave '--' out to hold the lock.", ctx)
        if command[:1] == ["--"]:
            del command[0]
        return super().parse_args(ctx, [*before, *behind, "--", *rest[:1], *command])

    def _options(self, ctx: click.Context, words: list[str]) -> tuple[list[str], list[str]]:
        """The leading options, and the other words, from '--' or from the first word that is not an option."""
        parser = click.Command(None, params=[each for each in self.get_params(ctx) if isinstance(each, click.Option)])
        parser.add_help_option = False
        options = parser.make_parser(ctx)
        options.allow_interspersed_args = False

        def read_of(words: list[str]) -> int:
            _, rest, _ = options.parse_args(list(words))
            return len(words) - len(rest)

        read = read_of(words)
        # click removes '--', unless it is the value of an option, which would be missing without it.
        if read and words[read - 1] == "--":
            with suppress(click.BadOptionUsage):
                read = read_of(words[: read - 1])
        return words[:read], words[read:]


@click.command(
    cls=_UnderLock,
    example="ticketlock run order-42 --wait 5m -- ./migrate.sh --all",
    ends=(
        *(0, USAGE, UNAVAILABLE, WAIT_IS_OVER, LEASE_LOST, CONFIGURATION),
        *(NOT_EXECUTABLE, NOT_FOUND, SIGNALLED),
    ),
)
@click.argument("entity")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@waiting_options
@click.option(
    "--kill-after",
    type=Duration(),
    default=10.0,
    metavar="TIME",
    help="If the lease is lost: the time from SIGTERM to SIGKILL.  [default: 10s]",
)
@table_options
@click.pass_context
def run(context: click.Context, /, command: tuple[str, ...], kill_after: float, **said: Any) -> None:
    """Wait for the lock on ENTITY in arrival order, run COMMAND under it, and release it.

    COMMAND begins at the first word after ENTITY that is not an option of `run`; all words from there on are its own.
    Without COMMAND the lock is held until a signal arrives. The command's environment has TICKETLOCK_FENCING_TOKEN,
    TICKETLOCK_ENTITY, TICKETLOCK_NAMESPACE, TICKETLOCK_OWNER and TICKETLOCK_TABLE. If the lease is lost, the command
    is stopped. The exit code is the command's own.
    """
    settings, options = settings_of(context), WaitOptions(**said)
    if command:
        check_executable(command[0])
    settings.ask_for_credentials()
    lost = threading.Event()
    with Signals() as signals:

        def note_loss(_: Lease) -> None:
            lost.set()
            signals.wake()

        lease = stand_in_line(settings, options, signals, on_lost=note_loss)
        name = plain(options.entity)

        def say_it_is_lost() -> None:
            click.echo(f"ticketlock: the lease on '{name}' is lost: stopping the command", err=True)

        try:
            if command:
                child = Child(command, _environment(lease, settings.table_name))
                try:
                    supervision = Supervision(
                        child, lease, signals, lost, kill_after_s=kill_after, on_loss=say_it_is_lost
                    )
                    was_lost = supervision.to_the_end()
                finally:
                    child.end()
                exit_code = child.exit_code or 0
            else:
                if not options.quiet:
                    click.echo(f"ticketlock: holding '{name}', fencing token {lease.fencing_token}", err=True)
                was_lost, exit_code = _hold(lease, signals, lost), 0
        finally:
            still_ours = _released(lease, name)
    if was_lost or not still_ours:
        raise Ended(f"the lease on '{name}' was lost before the end", LEASE_LOST)
    context.exit(exit_code)


def _environment(lease: Lease, table_name: str) -> dict[str, str]:
    return {
        "TICKETLOCK_ENTITY": lease.entity,
        "TICKETLOCK_FENCING_TOKEN": str(lease.fencing_token),
        "TICKETLOCK_NAMESPACE": lease.namespace,
        "TICKETLOCK_OWNER": lease.owner,
        "TICKETLOCK_TABLE": table_name,
    }


def _hold(lease: Lease, signals: Signals, lost: threading.Event) -> bool:
    """Wait for a signal; return whether the lease was lost first."""
    while signals.ending() is None:
        if lost.is_set() or not lease.is_held():
            return True
        signals.wait(None)
    return False


def _released(lease: Lease, name: str) -> bool:
    """Release the lock; return whether it was held until then."""
    try:
        lease.release()
    except LockLost:
        return False
    except TableError as error:
        click.echo(f"ticketlock: '{name}' was not released; it is free when its lease ends: {error}", err=True)
        # Otherwise the exit of this process would try again, for as long.
        lease.detach()
    return True
