"""How a command waits in the queue: its options, and the status line that it shows on a terminal."""

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click
from rich.text import Text

from ticketlock import Lease, RecordWaitExceeded
from ticketlock.cli._exits import WAIT_IS_OVER, Ended, after_signal
from ticketlock.cli._settings import CommandSettings, Duration
from ticketlock.cli._signals import Signals
from ticketlock.cli._wording import lease, plain, span
from ticketlock.locks._outcomes import Position

_USUAL_COLUMNS = 80

F = TypeVar("F", bound=Callable[..., Any])

_REDRAWN_EVERY_S = 1.0

namespace_option = click.option(
    "--namespace", default="default", show_default=True, help="Which of several independent locks on the entity."
)
lease_option = click.option(
    "--lease",
    type=Duration("1s", "7d"),
    default=60.0,
    metavar="TIME",
    help="How long the lock stays held without a renewal: 90, 5m, 1h30m.  [default: 60s]",
)


class WaitingLine:
    """One line on stderr, redrawn during the wait and erased after it. Nothing is shown if stderr is not a terminal.

    Args:
        entity: the lock's entity.
        quiet: whether to show nothing on a terminal either.
    """

    def __init__(self, entity: str, *, quiet: bool) -> None:
        self._entity = plain(entity)
        self._shows = not quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._began_s = time.monotonic()
        self._seen: Position | None = None
        self._seen_s = 0.0
        self._drawn = False

    def see(self, position: Position) -> None:
        """Take the result of a poll, and show it."""
        self._seen, self._seen_s = position, time.monotonic()
        self.draw()

    def draw(self) -> None:
        """Show the result of the last poll, and how long the wait has lasted."""
        if self._shows and self._seen is not None:
            waited_s = int(time.monotonic() - self._began_s)
            line = Text(f"{self._entity}: {_place(self._seen)}, {waited_s} s; {self._obstacle(self._seen)}")
            # A line that the terminal wraps cannot be overwritten.
            line.truncate(_columns() - 1, overflow="ellipsis")
            self._write(f"\r{line.plain}\x1b[K")
            self._drawn = True

    def _obstacle(self, seen: Position) -> str:
        """What the wait is for: the holder, or a closed lock."""
        if seen.is_closed:
            return "closed by an operator"
        if not seen.holders:
            return "no one holds it"
        now_ms = seen.now.likely_ms + round((time.monotonic() - self._seen_s) * 1_000)
        first = min(seen.holders, key=lambda holder: holder.lease_until_ms)
        more = f" and {len(seen.holders) - 1} more" if len(seen.holders) > 1 else ""
        of_lease = lease(first.lease_until_ms - now_ms)
        return f"held for {span(now_ms - first.since_ms)}, lease {of_lease}, by {plain(first.owner)}{more}"

    def wipe(self) -> None:
        """Erase the line."""
        if self._drawn:
            self._write("\r\x1b[K")
            self._drawn = False

    @staticmethod
    def _write(text: str) -> None:
        click.echo(text, err=True, nl=False)


def _place(seen: Position) -> str:
    return "next in line" if seen.ahead == 0 else f"{seen.ahead} ahead"


def _columns() -> int:
    """The width of the terminal; 80 columns if it is unknown."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _USUAL_COLUMNS
    except OSError:
        return _USUAL_COLUMNS


@dataclass(frozen=True, kw_only=True)
class Wish:
    """The options of one acquisition."""

    entity: str
    namespace: str
    wait: float
    no_wait: bool
    lease: float
    shared: bool
    permits: int
    data: str | None
    quiet: bool
    conflict_exit_code: int
    owner: str | None = None


def waiting_options(command: F) -> F:
    """Add the options for waiting in the queue to a command."""
    for option in reversed(
        [
            namespace_option,
            click.option(
                "--wait",
                type=Duration(forever=True),
                default=60.0,
                metavar="TIME|forever",
                help="How long to wait in line: 90, 5m, 1h30m.  [default: 60s]",
            ),
            click.option("--no-wait", is_flag=True, help="Fail at once if the lock is held or has waiters."),
            lease_option,
            click.option("--shared", is_flag=True, help="Hold it together with others that share it."),
            click.option("--permits", type=int, default=1, show_default=True, help="How many may hold it at once."),
            click.option("--data", metavar="TEXT", help="Up to 256 bytes that `show` prints beside the holder."),
            click.option(
                "--quiet",
                "-q",
                is_flag=True,
                help="Show no status line while waiting; no message if it times out.",
            ),
            click.option(
                "--conflict-exit-code",
                "-E",
                type=click.IntRange(0, 255),
                default=WAIT_IS_OVER,
                metavar="N",
                help=f"The exit code when the wait has timed out.  [default: {WAIT_IS_OVER}]",
            ),
        ]
    ):
        command = option(command)
    return command


class Interrupted(Exception):
    """A signal arrived during the wait for the lock."""


class _Nap:
    """The client's sleep between polls: a signal ends the wait, once. Its other sleeps are ordinary ones."""

    def __init__(self, signals: Signals, line: WaitingLine) -> None:
        self._signals = signals
        self._line = line
        self.may_be_broken_off = True

    def __call__(self, seconds: float) -> None:
        if not self.may_be_broken_off or threading.current_thread() is not threading.main_thread():
            time.sleep(seconds)
            return
        until_s = time.monotonic() + seconds
        while True:
            if self._signals.ending() is not None:
                self.may_be_broken_off = False
                raise Interrupted
            rest_s = until_s - time.monotonic()
            if rest_s <= 0:
                return
            self._line.draw()
            self._signals.wait(min(rest_s, _REDRAWN_EVERY_S))


def stand_in_line(settings: CommandSettings, wish: Wish, signals: Signals, **options: Any) -> Lease:
    """Wait for the lock and hold it.

    Args:
        options: further arguments of ``LockClient.acquire``.

    Raises:
        Ended: the wait timed out, or a signal arrived; this process has left the queue and does not hold the lock.
    """
    line = WaitingLine(wish.entity, quiet=wish.quiet)
    nap = _Nap(signals, line)
    locks = settings.locks(lease_s=wish.lease, namespace=wish.namespace, sleep=nap)
    try:
        lease = locks.acquire(
            wish.entity,
            record_wait=0 if wish.no_wait else wish.wait,
            permits=wish.permits,
            shared=wish.shared,
            data=wish.data,
            owner=wish.owner,
            on_wait=line.see,
            **options,
        )
    except Interrupted:
        raise Ended(None, after_signal(signals.ending() or 0)) from None
    except RecordWaitExceeded as over:
        message = None if wish.quiet else f"no lock on '{plain(wish.entity)}' within the wait: {plain(str(over))}"
        raise Ended(message, wish.conflict_exit_code) from None
    finally:
        nap.may_be_broken_off = False
        line.wipe()
    number = signals.ending()
    if number is not None:
        # The signal arrived with the grant: its sender does not want the lock any more.
        lease._give_back()
        raise Ended(None, after_signal(number))
    return lease
