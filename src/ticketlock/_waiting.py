"""When to look again: advice only, nothing safe depends on it.

Strict order means that only the front waiter's next look can move the queue. So the front looks when the holder is
expected to leave, and then often, at growing distances; everybody behind sleeps about as long as the turns before its
own will take, never past half a lease nor into the last quarter of its row's, nor past as many of the front's longest
sleeps as there are turns.
"""

from ticketlock._outcomes import Position

_OVERDUE_SHARE = 2


def next_look_ms(position: Position, *, lease_ms: int, shortest_ms: int, longest_ms: int, jitter: float) -> int:
    """How long to sleep before the next look, in milliseconds.

    Args:
        position: what the last look found.
        lease_ms: the lease of the waiter's row.
        shortest_ms, longest_ms: the bounds of the front waiter's sleep.
        jitter: a random number in [0, 1), so that waiters do not look in step.
    """
    row_ms = max(shortest_ms, position.place.lease_until_ms - position.now.latest_ms - lease_ms // 4)
    front_ms = max(shortest_ms, min(longest_ms, row_ms, _until_a_holder_leaves_ms(position)))
    if position.ahead == 0:
        return front_ms
    turn_ms = position.mean_hold_ms if position.mean_hold_ms is not None else longest_ms
    behind_ms = position.ahead * turn_ms * (0.75 + jitter / 2)
    # Should the line move faster than the mean says, nobody oversleeps by more than a front waiter might, a turn.
    return int(min(lease_ms / 2, row_ms, position.ahead * longest_ms, max(front_ms, behind_ms)))


def _until_a_holder_leaves_ms(position: Position) -> int:
    if position.next_free_ms is None:
        return 0
    remaining_ms = position.next_free_ms - position.now.likely_ms
    if remaining_ms >= 0:
        return remaining_ms
    # Overdue: look again after a share of the time by which it is late.
    return -remaining_ms // _OVERDUE_SHARE
