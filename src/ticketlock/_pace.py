"""When a waiter in Python looks again: advice only, nothing safe depends on it.

Strict order means that only the first in line moves the queue: a lock stands idle until it looks. So the first looks
when the holder is expected to leave, by when it began and by how long holders keep the lock, and then at growing
distances. Everybody behind sleeps until shortly before the turn is expected: a twentieth of the way early, so that a
waiter looks about as often behind two hundred others as behind ten.
"""

from dataclasses import dataclass

from ticketlock._outcomes import Position

_EARLY_SHARE = 0.06
_EARLY_TURNS = 0.25
_GROWTH = 2


@dataclass(frozen=True, slots=True)
class Bounds:
    """The shortest and the longest sleep of the first in line, in milliseconds."""

    shortest_ms: float = 5
    longest_ms: float = 400


class Pace:
    """What one waiter learns of how fast its queue moves.

    Args:
        bounds: of the first in line's sleep.
        hand_over_ms: the time between two holds, as the last wait for the same lock found it.
    """

    def __init__(self, bounds: Bounds, hand_over_ms: float = 0) -> None:
        self._bounds = bounds
        self.hand_over_ms = hand_over_ms
        self._first: tuple[int, int] | None = None

    def sleep_ms(self, seen: Position, *, lease_ms: int, rest_ms: float | None, jitter: float) -> float:
        """How long to sleep after a look.

        Args:
            seen: what it found.
            lease_ms: the lease of the waiter's row.
            rest_ms: what is left of the record wait; None for ever.
            jitter: a random number in [0, 1), so that waiters do not look in step.
        """
        self._learn(seen)
        shortest_ms, longest_ms = self._bounds.shortest_ms, self._bounds.longest_ms
        hold_ms = seen.mean_hold_ms if seen.mean_hold_ms is not None else longest_ms
        turn_ms = hold_ms + min(self.hand_over_ms, hold_ms)
        until_free_ms = 0 if seen.next_free_ms is None else seen.next_free_ms - seen.now.likely_ms
        if seen.turns == 0 and until_free_ms > -shortest_ms:
            ms = min(until_free_ms + shortest_ms * (0.5 + jitter), longest_ms)
        elif seen.turns == 0:
            # Overdue: at growing distances, up to half of what a hold takes.
            ms = min(-until_free_ms / _GROWTH, max(shortest_ms, hold_ms / 2), longest_ms)
        else:
            early = _EARLY_SHARE * seen.turns * (0.5 + jitter) + _EARLY_TURNS
            # Should the line move faster than the mean says, nobody sleeps for more than half of its time.
            ms = min(max(0, until_free_ms) + (seen.turns - early) * turn_ms, seen.turns * max(longest_ms, hold_ms / 2))
        # The row has to be extended before its last quarter.
        row_ms = max(shortest_ms, seen.place.lease_until_ms - seen.now.latest_ms - lease_ms // 4)
        ms = max(shortest_ms, min(ms, row_ms, lease_ms / 2))
        return ms if rest_ms is None else max(0, min(ms, rest_ms))

    def _learn(self, seen: Position) -> None:
        """How fast fencing tokens rise while somebody waits tells the length of a turn."""
        if seen.fencing_token is None:
            return
        if self._first is None:
            self._first = (seen.now.local_ms, seen.fencing_token)
            return
        grants = seen.fencing_token - self._first[1]
        if grants >= 3 and seen.mean_hold_ms is not None:
            turn_ms = (seen.now.local_ms - self._first[0]) / grants
            self.hand_over_ms = max(0, turn_ms - seen.mean_hold_ms)
