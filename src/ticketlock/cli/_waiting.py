"""How a command waits in the queue: what it is told, and what a signal does meanwhile."""

import threading
import time
from dataclasses import dataclass
from typing import Any

from ticketlock import Lease, RecordWaitExceeded
from ticketlock.cli._exits import Ended, after_signal
from ticketlock.cli._settings import CommandSettings
from ticketlock.cli._signals import Signals
from ticketlock.cli._wording import WaitingLine
from ticketlock.report import plain

_REDRAWN_EVERY_S = 1.0


@dataclass(frozen=True, kw_only=True)
class WaitOptions:
    """The options of one acquisition, times in seconds.

    They are named as the library's arguments, so that an error about an argument names the option.
    """

    entity: str
    namespace: str
    wait: float
    no_wait: bool
    lease: float
    shared: bool
    permits: int
    data: str | None
    wait_if_closed: bool
    quiet: bool
    conflict_exit_code: int
    owner: str | None = None


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


def stand_in_line(settings: CommandSettings, options: WaitOptions, signals: Signals, **more: Any) -> Lease:
    """Wait for the lock and hold it.

    Raises:
        Ended: the wait timed out, or a signal arrived; this process has left the queue and does not hold the lock.
    """
    line = WaitingLine(options.entity, quiet=options.quiet)
    nap = _Nap(signals, line)
    locks = settings.locks(lease_s=options.lease, namespace=options.namespace, sleep=nap)
    try:
        lease = locks.acquire(
            options.entity,
            record_wait=0 if options.no_wait else options.wait,
            permits=options.permits,
            shared=options.shared,
            data=options.data,
            owner=options.owner,
            wait_if_closed=options.wait_if_closed,
            on_wait=line.see,
            **more,
        )
    except Interrupted:
        raise Ended(None, after_signal(signals.ending() or 0)) from None
    except RecordWaitExceeded as over:
        message = None if options.quiet else f"no lock on '{plain(options.entity)}' within the wait: {plain(str(over))}"
        raise Ended(message, options.conflict_exit_code) from None
    finally:
        nap.may_be_broken_off = False
        line.wipe()
    number = signals.ending()
    if number is not None:
        # The signal arrived with the grant: its sender does not want the lock any more.
        lease._give_back()
        raise Ended(None, after_signal(number))
    return lease
