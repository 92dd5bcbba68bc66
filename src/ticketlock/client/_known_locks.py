"""What a client remembers of the locks that it has used."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from ticketlock.client._acquire import Wait
from ticketlock.client._pace import Pace, PaceBounds
from ticketlock.locks import LockName, Released

_MOST_LOCKS = 1_000
_CROWDED_MS = 1_000
# Long enough for the first tries that follow to heal the count.
_DISTRUSTED_MS = 30_000


@dataclass(slots=True)
class _KnownLock:
    """What a client remembers of one lock.

    Attributes:
        hand_over_ms: how long a hand-over takes, as measured by the last wait.
        crowded_until_ms: until when the waiters at the last release are assumed to be waiting still.
        handed_to: the owner to whom the last release granted the lock; None if it granted it to none.
        distrusted_until_ms: until when that is not assumed, because the counted waiters turned out to have crashed.
    """

    hand_over_ms: float = 0.0
    crowded_until_ms: float = -math.inf
    handed_to: str | None = None
    distrusted_until_ms: float = -math.inf


class KnownLocks:
    """What a client remembers of up to 1,000 locks."""

    def __init__(self, bounds: PaceBounds) -> None:
        self._bounds = bounds
        self._locks: dict[LockName, _KnownLock] = {}

    def pace(self, lock: LockName) -> Pace:
        """The pace of a new wait for this lock, with what earlier waits have measured."""
        known = self._locks.get(lock)
        return Pace(self._bounds, known.hand_over_ms if known is not None else 0.0)

    def others_wait(self, lock: LockName, local_ms: int, is_here: Callable[[str], bool]) -> bool:
        """Whether the last release, a moment ago, left more than one waiter, or granted the lock to one that has it
        still; True only once for each release.

        Args:
            is_here: whether an owner has the lock in this process, or waits for it.
        """
        known = self._locks.get(lock)
        if known is None or local_ms >= known.crowded_until_ms:
            return False
        known.crowded_until_ms = -math.inf
        return known.handed_to is None or is_here(known.handed_to)

    def waited(self, wait: Wait, local_ms: int) -> None:
        """Learn from a wait that ended with the lock."""
        known = self._of(wait.lock)
        known.hand_over_ms = wait.pace.hand_over_ms
        if wait.expects_others and not wait.saw_others:
            # The count was too high because of a crashed waiter: do not use it for a while.
            known.distrusted_until_ms = local_ms + _DISTRUSTED_MS

    def released(self, lock: LockName, released: Released, local_ms: int) -> None:
        """Learn from a release whether there are other waiters."""
        known = self._of(lock)
        known.crowded_until_ms = -math.inf
        counted = local_ms >= known.distrusted_until_ms and released.waiting is not None and released.waiting > 1
        known.handed_to = released.handed.holder.owner if released.handed is not None else None
        if counted or known.handed_to is not None:
            known.crowded_until_ms = local_ms + min(released.held_ms, _CROWDED_MS)

    def _of(self, lock: LockName) -> _KnownLock:
        known = self._locks.get(lock)
        if known is None:
            if len(self._locks) >= _MOST_LOCKS:
                self._locks.clear()
            known = self._locks[lock] = _KnownLock()
        return known
