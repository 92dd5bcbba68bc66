"""What one wait sees, and its caller is told."""

import logging
from collections.abc import Callable

from ticketlock.client._pace import Pace
from ticketlock.locks._claim import Claim
from ticketlock.locks._handing import Next
from ticketlock.locks._names import LockName
from ticketlock.locks._outcomes import HandedOver, Position

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
        claim: what is waited for.
        pace: when it looks.
        expects_others: whether others are taken to wait for it already.
        saw_others: whether anybody held the lock, or stood before this one.
        is_over: whether it was broken off, and is leaving the queue.
        sleeps: whether it is between two polls, where a release may wake it.
        wake: ends the present sleep; may be called by any thread.
    """

    def __init__(
        self,
        claim: Claim,
        on_wait: Callable[[Position], object] | None,
        pace: Pace,
        *,
        expects_others: bool,
    ) -> None:
        self.claim = claim
        self.pace = pace
        self.expects_others = expects_others
        self.saw_others = self.is_over = self.sleeps = False
        self.wake: Callable[[], object] = _nobody_sleeps
        self._on_wait = on_wait
        self._looks = 0
        self._seen: Position | None = None
        self._token: int | None = None
        self._handed: HandedOver | None = None

    def __call__(self, seen: Position) -> None:
        _log.debug("waiting for %r: ticket %s, %s ahead", self.lock.entity, seen.place.ticket, seen.ahead)
        self._looks += 1
        # The first report comes from joining: its count may include the dead.
        self.saw_others |= bool(seen.holders) or (self._looks > 1 and seen.ahead > 0)
        self._seen = seen
        if self._on_wait is not None:
            try:
                self._on_wait(seen)
            except BaseException as error:
                raise WaitEnded(error) from error
        self.sleeps = True

    @property
    def lock(self) -> LockName:
        """The lock that is waited for."""
        return self.claim.lock

    @property
    def ticket(self) -> int | None:
        """Its ticket, by the last poll; None before it has one."""
        return self._seen.place.ticket if self._seen is not None else None

    @property
    def is_called(self) -> bool:
        """Whether a release or a grant that was heard of makes this one the next, by what the last poll found.

        Those before it have been granted the lock since, one with each fencing token, or have left; one that came past
        the queue is counted as well: then it polls once too early.
        """
        seen, token = self._seen, self._token
        if self._handed is not None:
            return True
        if seen is None or token is None or seen.fencing_token is None:
            return False
        return seen.turns <= token - seen.fencing_token

    def hears_of(self, fencing_token: int) -> None:
        """There is room after this grant."""
        self._token = fencing_token
        if self.is_called:
            self.wake()

    @property
    def following(self) -> Next | None:
        """What a release needs to grant it the lock; None where it polls, or is not known to be the next."""
        return Next(self.claim, self._seen) if self.sleeps and self._seen is not None and self._seen.is_next else None

    def is_granted(self, handed: HandedOver) -> None:
        """A release has granted it the lock."""
        self._handed = handed
        self.wake()

    def wakes(self) -> HandedOver | None:
        """The end of a sleep: the grant that a release has written for this waiter; None where none was heard of."""
        self.sleeps = False
        handed, self._token, self._handed = self._handed, None, None
        return handed


def _nobody_sleeps() -> None:
    pass
