"""What one wait sees, and its caller is told."""

import logging
from collections.abc import Callable

from ticketlock.client._pace import Pace
from ticketlock.locks._names import LockName
from ticketlock.locks._outcomes import Position

_log = logging.getLogger("ticketlock")


class WaitEnded(BaseException):
    """The caller's ``on_wait`` has raised.

    Attributes:
        error: what it has raised.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class Waits:
    """What one wait sees: told to the caller, and remembered.

    Args:
        on_wait: the caller's, told of each look that found the lock taken.

    Attributes:
        lock: what is waited for.
        pace: when it looks.
        expects_others: whether others are taken to wait for it already.
        saw_others: whether anybody held the lock, or stood before this one.
        is_over: whether it was broken off, and is leaving the queue.
    """

    def __init__(
        self, lock: LockName, on_wait: Callable[[Position], object] | None, pace: Pace, *, expects_others: bool
    ) -> None:
        self.lock = lock
        self.pace = pace
        self.expects_others = expects_others
        self.saw_others = self.is_over = False
        self._on_wait = on_wait
        self._looks = 0

    def __call__(self, seen: Position) -> None:
        _log.debug("waiting for %r: ticket %s, %s ahead", self.lock.entity, seen.place.ticket, seen.ahead)
        self._looks += 1
        # The first report comes from joining: its count may include the dead.
        self.saw_others |= bool(seen.holders) or (self._looks > 1 and seen.ahead > 0)
        if self._on_wait is None:
            return
        try:
            self._on_wait(seen)
        except BaseException as error:
            raise WaitEnded(error) from error
