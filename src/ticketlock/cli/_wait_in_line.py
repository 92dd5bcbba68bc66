"""Standing in line: the options of it, the line on the terminal, and leaving when a signal comes."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from ticketlock import Lease, RecordWaitExceeded
from ticketlock.cli._durations import Duration
from ticketlock.cli._exits import WAIT_IS_OVER, Ended, after_signal
from ticketlock.cli._settings import Settings
from ticketlock.cli._signals import Signals
from ticketlock.cli._waiting_line import WaitingLine
from ticketlock.cli._wording import plain

F = TypeVar("F", bound=Callable[..., Any])

_REDRAWN_EVERY_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What was said about one acquisition."""

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


namespace_option = click.option(
    "--namespace", default="default", show_default=True, help="Which of several independent locks on the entity."
)
lease_option = click.option(
    "--lease",
    type=Duration("1s", "7d"),
    default=60.0,
    metavar="TIME",
    help="How long the lock outlives a holder that does not renew it: 90, 5m, 1h30m.  [default: 60s]",
)


def waiting_options(command: F) -> F:
    """Let a command say how it stands in line."""
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
            click.option("--no-wait", is_flag=True, help="Fail at once if anybody holds the lock or waits for it."),
            lease_option,
            click.option("--shared", is_flag=True, help="Hold it together with others who share it."),
            click.option("--permits", type=int, default=1, show_default=True, help="How many may hold it at once."),
            click.option("--data", metavar="TEXT", help="Up to 256 bytes to show beside the holder."),
            click.option(
                "--quiet", "-q", is_flag=True, help="Show no line while waiting, and none when it was in vain."
            ),
            click.option(
                "--conflict-exit-code",
                "-E",
                type=click.IntRange(0, 255),
                default=WAIT_IS_OVER,
                metavar="N",
                help=f"The exit code when the wait is over.  [default: {WAIT_IS_OVER}]",
            ),
        ]
    ):
        command = option(command)
    return command


class Interrupted(Exception):
    """A signal came while the lock was waited for."""


class _Nap:
    """How the client waits between looks: any signal ends it, once; its other sleeps are just sleeps."""

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


def stand_in_line(settings: Settings, wish: Wish, signals: Signals, **options: Any) -> Lease:
    """Wait for the lock and hold it.

    Args:
        options: as ``LockClient.acquire`` has them.

    Raises:
        Ended: the wait was in vain, or a signal came; then the queue is left, and the lock is not held.
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
        # It came with the grant: whoever sent it does not want the lock any more.
        lease._give_back()
        raise Ended(None, after_signal(number))
    return lease
