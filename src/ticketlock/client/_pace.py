"""How often a waiter polls: what it learns about the speed of its queue. Why: docs/decisions/0019-pace.md."""

from dataclasses import dataclass
from math import sqrt

from ticketlock.locks import EXPIRY_MARGIN_MS, Position

# For a lock that has not been released yet.
_HOLD_IN_SHORTEST_SLEEPS = 10

# For the first in line.
_FINEST_SHARE = 0.03
_GROWTH = 0.5
_LATER_GROWTH = 0.125

# A release that wakes it should come before its poll: such a release cannot grant the lock to a waiter that is polling.
_AFTER_THE_RELEASE_SHARE = 0.5
_AFTER_THE_RELEASE_IN_SHORTEST_SLEEPS = 4

# For the waiters behind it, in turns.
_EARLY_TURNS = 0.5
_EARLY_TURNS_BY_ROOT = 0.2
_LEAST_TURNS = 0.25
_TRUSTED_TURNS = 100
_OVERDUE_SHARE = 0.25
_LONGEST_A_TURN = 2
# All waiters before it may leave: a free lock stays idle until it polls.
_LONGEST_BEHIND = 20

# For a hand-over.
_REQUESTS = 3
_RISES_BY = 1.25
_GRANTS_THAT_TELL = 3

# A row that is due is extended no more often than this.
_EXTENDED_EVERY_MS = 5


@dataclass(frozen=True, slots=True)
class PaceBounds:
    """The shortest and the longest sleep of the first in line, in milliseconds."""

    shortest_ms: float = 5
    longest_ms: float = 400


class Pace:
    """What one waiter learns about the speed of its queue.

    Args:
        bounds: those of the sleep of the first in line.
        hand_over_ms: how long a hand-over takes, as the last wait for the same lock measured it; 0 without one.

    Attributes:
        hand_over_ms: how long this wait has found it to take, or assumes.
    """

    def __init__(self, bounds: PaceBounds, hand_over_ms: float = 0) -> None:
        self._bounds = bounds
        # Half of it: a wait that slept too long because of it made no poll that could correct it.
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

    def sleep_ms(
        self, seen: Position, *, lease_ms: int, rest_ms: float | None, jitter: float, will_be_woken: bool = False
    ) -> float:
        """How long to sleep after a poll.

        Args:
            seen: the position that the poll found.
            lease_ms: the lease of the waiter's row.
            rest_ms: the remaining record wait; None for ever.
            jitter: a random number in [0, 1), so that waiters do not poll in step.
            will_be_woken: whether the release will wake the first in line.
        """
        self._learn(seen)
        shortest_ms = self._bounds.shortest_ms
        hold_ms = seen.mean_hold_ms
        if hold_ms is None:
            hold_ms = int(min(_HOLD_IN_SHORTEST_SLEEPS * shortest_ms, self._bounds.longest_ms))
        until_free_ms: float
        if seen.next_free_ms is not None:
            until_free_ms = seen.next_free_ms - seen.now.likely_ms
        elif seen.fencing_token is None:
            # The item was not read.
            until_free_ms = 0
        else:
            # It has no holder and yet is not granted: it is closed. Count from the last grant, or the first poll.
            until_free_ms = self._unchanged_since_ms - seen.now.local_ms
        if seen.turns == 0:
            if will_be_woken:
                least_ms = _AFTER_THE_RELEASE_IN_SHORTEST_SLEEPS * shortest_ms
                until_free_ms += max(least_ms, hold_ms * _AFTER_THE_RELEASE_SHARE)
            ms = self._in_front_ms(until_free_ms, hold_ms, jitter)
            if seen.lease_over_ms is not None:
                # If the holder has crashed, a poll after this moment takes the lock, and none before.
                until_over_ms = seen.lease_over_ms + EXPIRY_MARGIN_MS - seen.now.earliest_ms
                ms = min(ms, until_over_ms + shortest_ms) if until_over_ms >= 0 else ms
        else:
            ms = self._behind_ms(seen, until_free_ms, hold_ms, jitter)
        # The row must be extended before the last quarter of its lease.
        row_ms = seen.place.lease_until_ms - seen.now.latest_ms - lease_ms // 4
        ms = min(max(shortest_ms, ms), max(_EXTENDED_EVERY_MS, row_ms), lease_ms / 2)
        if rest_ms is not None:
            ms = max(0, min(ms, rest_ms))
        self._woke_ms = seen.now.local_ms + ms
        return ms

    def _in_front_ms(self, until_free_ms: float, hold_ms: float, jitter: float) -> float:
        shortest_ms, longest_ms = self._bounds.shortest_ms, self._bounds.longest_ms
        if until_free_ms > -shortest_ms:
            ms = max(0, until_free_ms) + shortest_ms * (0.5 + jitter)
        else:
            # Half of the time by which the holder is late, up to half a hold; beyond that the mean says nothing.
            late_ms = -until_free_ms
            ms = min(late_ms * _GROWTH, max(shortest_ms, hold_ms / 2, late_ms * _LATER_GROWTH))
        return min(max(ms, hold_ms * _FINEST_SHARE), longest_ms)

    def _behind_ms(self, seen: Position, until_free_ms: float, hold_ms: float, jitter: float) -> float:
        shortest_ms, longest_ms = self._bounds.shortest_ms, self._bounds.longest_ms
        turn_ms = hold_ms + min(self.hand_over_ms, hold_ms / 2 + 4 * shortest_ms)
        if self._grant_ms is not None:
            # Waiters that may hold the lock together are several grants in one turn.
            turn_ms = min(turn_ms, max(2 * shortest_ms, self._grant_ms * max(1, seen.ahead) / seen.turns))
        early = _EARLY_TURNS + _EARLY_TURNS_BY_ROOT * (sqrt(seen.turns) - 1 + jitter)
        # A holder that is late, or a first in line that sleeps, may take as long again: waiting a part of that loses
        # nothing.
        overdue_ms = -until_free_ms if seen.holders else seen.now.local_ms - self._unchanged_since_ms
        leaving_ms = max(until_free_ms, overdue_ms * _OVERDUE_SHARE)
        ms = leaving_ms + max(_LEAST_TURNS, seen.turns - early) * turn_ms
        if self._grant_ms is None:
            # The mean may come from one slow hold: the first sleep behind many waiters is shorter, and measures their
            # pace.
            ms /= 1 + seen.turns / _TRUSTED_TURNS
        # If the holds suddenly become short, no waiter sleeps through many of them.
        return min(ms, seen.turns * _LONGEST_A_TURN * longest_ms, _LONGEST_BEHIND * longest_ms)

    def _learn(self, seen: Position) -> None:
        local_ms = seen.now.local_ms
        if self._woke_ms is not None:
            hand_over_ms = self._bounds.shortest_ms + _REQUESTS * max(1, local_ms - self._woke_ms)
            # Down at once, up slowly: the request after a slow one need not be slow.
            self.hand_over_ms = min(hand_over_ms, self.hand_over_ms * _RISES_BY)
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
