"""What a client remembers of the locks it has used: advice only, what is forgotten is learned again. No I/O."""

import math
from dataclasses import dataclass

from ticketlock.client._pace import Bounds, Pace
from ticketlock.client._wait import Waits
from ticketlock.locks._names import LockName
from ticketlock.locks._outcomes import Released

_MOST_LOCKS = 1_000
_CROWDED_MS = 1_000
# Long enough for the count to be healed by the first tries that follow.
_DISTRUSTED_MS = 30_000


@dataclass(slots=True)
class _Known:
    """What is known of one lock.

    Attributes:
        hand_over_ms: what a hand-over takes, as the last wait has found it.
        crowded_until_ms: until when those who waited at a release are taken to wait still.
        distrusted_until_ms: until when that is not believed: whoever was counted there turned out to be nobody.
    """

    hand_over_ms: float = 0.0
    crowded_until_ms: float = -math.inf
    distrusted_until_ms: float = -math.inf


class KnownLocks:
    """What is known of so many locks and no more.

    Args:
        bounds: of the first in line's sleep.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._locks: dict[LockName, _Known] = {}

    def pace(self, lock: LockName) -> Pace:
        """When a waiter for this lock looks, as far as the waits before tell."""
        known = self._locks.get(lock)
        return Pace(self._bounds, known.hand_over_ms if known is not None else 0.0)

    def others_wait(self, lock: LockName, local_ms: int) -> bool:
        """Whether others waited a moment ago, more than have gone since; said once."""
        known = self._locks.get(lock)
        if known is None or local_ms >= known.crowded_until_ms:
            return False
        known.crowded_until_ms = -math.inf
        return True

    def waited(self, waits: Waits, local_ms: int) -> None:
        """What a wait has told that ended with the lock."""
        known = self._of(waits.lock)
        known.hand_over_ms = waits.pace.hand_over_ms
        if waits.expects_others and not waits.saw_others:
            # A count that a dead waiter left is not asked again.
            known.distrusted_until_ms = local_ms + _DISTRUSTED_MS

    def released(self, lock: LockName, released: Released, local_ms: int) -> None:
        """What a release has told: whether others wait."""
        known = self._of(lock)
        known.crowded_until_ms = -math.inf
        counted = local_ms >= known.distrusted_until_ms and released.waiting is not None and released.waiting > 1
        if counted or released.handed is not None:
            known.crowded_until_ms = local_ms + min(released.held_ms, _CROWDED_MS)

    def _of(self, lock: LockName) -> _Known:
        known = self._locks.get(lock)
        if known is None:
            if len(self._locks) >= _MOST_LOCKS:
                self._locks.clear()
            known = self._locks[lock] = _Known()
        return known
