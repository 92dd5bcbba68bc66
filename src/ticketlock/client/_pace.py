"""When a waiter in Python looks again: advice only, nothing safe depends on it.

Strict order means that only the first in line moves the queue: a lock stands idle until it looks. So the first looks
when the holder is expected to leave, by when it began and by how long holders keep the lock, and then at growing
distances; one poll is at the moment when the lease of one that has died is over.

Everybody behind aims at the middle of the hold before its own: then it has become the first, and sees when
that hold began. The more turns until then, the less is known of when that is: it looks early by their square root, so
that a waiter looks about as often behind two hundred others as behind ten. Nobody can wake it, though, when those
before it give up: so it never sleeps longer than twenty times the longest sleep of the first, and no free lock stands
idle for longer.

How long a turn takes is not asked of the queue alone. Whoever sleeps by the pace of a queue that is slow because its
waiters sleep too long keeps it slow. A turn is a hold, and what a hand-over takes when nobody sleeps: three requests,
as long as this waiter's own looks take. Only where the queue is faster than that, its pace counts.
"""

from dataclasses import dataclass
from math import sqrt

from ticketlock.locks._outcomes import Position
from ticketlock.locks._queue import EXPIRY_MARGIN_MS

# Before anybody has released the lock.
_HOLD_IN_SHORTEST_SLEEPS = 10

# The first in line.
_FINEST_SHARE = 0.03
_GROWTH = 0.5
_LATER_GROWTH = 0.125

# Those behind, in turns.
_EARLY = 0.5
_EARLY_BY_ROOT = 0.2
_AT_LEAST = 0.25
_TRUSTED_TURNS = 100
_OVERDUE_SHARE = 0.25
_LONGEST_A_TURN = 2
# Those before it may all leave: a free lock stands idle until it looks.
_LONGEST_BEHIND = 20

# A hand-over.
_REQUESTS = 3
_SLOWLY = 1.25
_GRANTS_THAT_TELL = 3
# Whatever was asked for, and however late it is.
_ALWAYS_MS = 5


@dataclass(frozen=True, slots=True)
class Bounds:
    """The shortest and the longest sleep of the first in line, in milliseconds."""

    shortest_ms: float = 5
    longest_ms: float = 400


class Pace:
    """What one waiter learns of how fast its queue moves.

    Args:
        bounds: of the first in line's sleep.
        hand_over_ms: what a hand-over takes, as the last wait for the same lock found it; 0 where there was none.
    """

    def __init__(self, bounds: Bounds, hand_over_ms: float = 0) -> None:
        self._bounds = bounds
        # Half of it: a wait that slept too long by it had no look to correct it.
        self.hand_over_ms = max(hand_over_ms / 2, 2 * bounds.shortest_ms)
        self._woke_ms: float | None = None
        self._counted: tuple[int, int] | None = None
        self._grant_ms: float | None = None
        self._token: int | None = None
        self._unchanged_since_ms = 0

    @property
    def longest_ms(self) -> float:
        """The longest sleep of the first in line."""
        return self._bounds.longest_ms

    def sleep_ms(self, seen: Position, *, lease_ms: int, rest_ms: float | None, jitter: float) -> float:
        """How long to sleep after a look.

        Args:
            seen: what it found.
            lease_ms: the lease of the waiter's row.
            rest_ms: what is left of the record wait; None for ever.
            jitter: a random number in [0, 1), so that waiters do not look in step.
        """
        self._learn(seen)
        shortest_ms = self._bounds.shortest_ms
        hold_ms = seen.mean_hold_ms
        if hold_ms is None:
            hold_ms = int(min(_HOLD_IN_SHORTEST_SLEEPS * shortest_ms, self._bounds.longest_ms))
        if seen.next_free_ms is not None:
            until_free_ms = seen.next_free_ms - seen.now.likely_ms
        elif seen.fencing_token is None:
            # The item was not seen.
            until_free_ms = 0
        else:
            # Nobody holds it, and yet nobody gets it: it is closed. Overdue since the last grant, or the first look.
            until_free_ms = self._unchanged_since_ms - seen.now.local_ms
        if seen.turns == 0:
            ms = self._in_front_ms(until_free_ms, hold_ms, jitter)
            if seen.lease_over_ms is not None:
                # If the holder has died, a poll takes the lock from this moment on, and none does before.
                until_over_ms = seen.lease_over_ms + EXPIRY_MARGIN_MS - seen.now.earliest_ms
                ms = min(ms, until_over_ms + shortest_ms) if until_over_ms >= 0 else ms
        else:
            ms = self._behind_ms(seen, until_free_ms, hold_ms, jitter)
        # The row has to be extended before its last quarter.
        row_ms = seen.place.lease_until_ms - seen.now.latest_ms - lease_ms // 4
        ms = min(max(shortest_ms, ms), max(_ALWAYS_MS, row_ms), lease_ms / 2)
        if rest_ms is not None:
            ms = max(0, min(ms, rest_ms))
        self._woke_ms = seen.now.local_ms + ms
        return ms

    def _in_front_ms(self, until_free_ms: float, hold_ms: float, jitter: float) -> float:
        shortest_ms, longest_ms = self._bounds.shortest_ms, self._bounds.longest_ms
        if until_free_ms > -shortest_ms:
            ms = max(0, until_free_ms) + shortest_ms * (0.5 + jitter)
        else:
            # Half of what it is late, up to half a hold; beyond, the mean is no guide.
            late_ms = -until_free_ms
            ms = min(late_ms * _GROWTH, max(shortest_ms, hold_ms / 2, late_ms * _LATER_GROWTH))
        return min(max(ms, hold_ms * _FINEST_SHARE), longest_ms)

    def _behind_ms(self, seen: Position, until_free_ms: float, hold_ms: float, jitter: float) -> float:
        shortest_ms, longest_ms = self._bounds.shortest_ms, self._bounds.longest_ms
        turn_ms = hold_ms + min(self.hand_over_ms, hold_ms / 2 + 4 * shortest_ms)
        if self._grant_ms is not None:
            # Those who may enter together are as many grants in one turn.
            turn_ms = min(turn_ms, max(2 * shortest_ms, self._grant_ms * max(1, seen.ahead) / seen.turns))
        early = _EARLY + _EARLY_BY_ROOT * (sqrt(seen.turns) - 1 + jitter)
        # Whatever is overdue, a holder or a first in line who sleeps, may take as long again: a part of it is no loss.
        overdue_ms = -until_free_ms if seen.holders else seen.now.local_ms - self._unchanged_since_ms
        leaving_ms = max(until_free_ms, overdue_ms * _OVERDUE_SHARE)
        ms = leaving_ms + max(_AT_LEAST, seen.turns - early) * turn_ms
        if self._grant_ms is None:
            # One mean may be that of one slow hold: the first sleep behind many is shorter, and tells their pace.
            ms /= 1 + seen.turns / _TRUSTED_TURNS
        # Should the holds suddenly be short, nobody sleeps through many of them.
        return min(ms, seen.turns * _LONGEST_A_TURN * longest_ms, _LONGEST_BEHIND * longest_ms)

    def _learn(self, seen: Position) -> None:
        local_ms = seen.now.local_ms
        if self._woke_ms is not None:
            hand_over_ms = self._bounds.shortest_ms + _REQUESTS * max(1, local_ms - self._woke_ms)
            # Down at once, up slowly: one slow request is not the next one.
            self.hand_over_ms = min(hand_over_ms, self.hand_over_ms * _SLOWLY)
        if seen.fencing_token is None:
            return
        if self._token != seen.fencing_token:
            self._token, self._unchanged_since_ms = seen.fencing_token, local_ms
        if self._counted is None:
            self._counted = (local_ms, seen.fencing_token)
            return
        grants = seen.fencing_token - self._counted[1]
        if grants >= _GRANTS_THAT_TELL:
            self._grant_ms = (local_ms - self._counted[0]) / grants
            self._counted = (local_ms, seen.fencing_token)
