"""When a waiter in a workflow polls, and how it waits until then. It affects waiting times only, never safety.

In strict order only the front waiter's next poll can move the queue. So a front waiter that polls does so when the
holder is expected to leave, and then often, at growing intervals. A waiter behind it sleeps about as long as the turns
before its own will take: at most half a lease, not into the last quarter of its row's lease, and at most as many of the
front waiter's longest sleeps as there are turns. A waiter that is woken needs to poll only when no one may wake it:
when a holder's lease or its own record wait ends, and at half its lease, to extend its row. Far behind others, its row
has a longer lease.

Patience with services that throttle: if nothing waits for a request, retry it for as long as the function may run. The
driver retries a request for some seconds, which is right for a step that a workflow waits for. After a mass failure
there may be thousands of events, and Step Functions describes 10 to 15 executions a second
(https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html).
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ticketlock.errors import OutcomeUnknown, RequestNotApplied, TableError
from ticketlock.locks import Position
from ticketlock.wire import Moment, Pause, Reply, Request, Steps, StillRunning, T

_FIRST_PAUSE_MS = 2_000
_LONGEST_PAUSE_MS = 30_000
# A driver's usual patience: a request with less of its own is not retried here.
_USUAL_MS = 3_600_000

_OVERDUE_SHARE = 2
# A poller that has waited for a day polls every 90 s at most: the events of its executions are limited.
_WAITED_SHARE = 1_000
_SHORTEST_MS = 1_000
_LATE_MS = 10_000


class Patience:
    """The patience for one event: its steps use it up one after the other.

    Args:
        ms: how long it lasts; the request in flight when it ends takes some seconds more.
        jitter: random numbers in [0, 1), so that retries of several functions do not collide again.
    """

    def __init__(self, ms: int, jitter: Callable[[], float] = random.random) -> None:
        self._ms = ms
        self._until_local_ms: int | None = None
        self._next_ms = _FIRST_PAUSE_MS
        self._jitter = jitter

    def run(self, steps: Steps[T], now: Moment) -> Steps[T]:
        """The same steps, but a request that was given up is sent again after a pause.

        For steps in which any request may be repeated. A hint, which has its own patience, is not repeated; nor is the
        check whether an execution is closed, if the answer was that it is not.
        """
        if self._until_local_ms is None:
            self._until_local_ms = now.local_ms + self._ms
        try:
            request = next(steps)
            while True:
                try:
                    reply = yield from self._send(request, self._until_local_ms)
                except TableError as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(reply)
        except StopIteration as end:
            result: T = end.value
            return result

    def _send(self, request: Request, until_local_ms: int) -> Steps[Reply]:
        while True:
            try:
                return (yield request)
            except (OutcomeUnknown, RequestNotApplied) as error:
                was_answered = isinstance(error.__cause__, StillRunning)
                if was_answered or request.gives_up_after_ms(_USUAL_MS) < _USUAL_MS:
                    raise
                pause = Pause(self._next_ms * (0.5 + self._jitter() / 2))
                self._next_ms = min(_LONGEST_PAUSE_MS, 2 * self._next_ms)
                if (yield pause).now.local_ms >= until_local_ms:
                    raise


@dataclass(frozen=True, slots=True)
class PollPause:
    """How to wait for the next poll: the status of the turn, and how long to sleep unless it is woken."""

    status: Literal["waiting", "parked", "parkedBehind", "parkedBriefly"]
    ms: int


def next_sleep(
    position: Position, *, lease_ms: int, poll_ms: int, rest_ms: int | None, row_ms: int = 0, slack_ms: int = 0
) -> PollPause:
    """How a waiter that can be woken waits for its next poll.

    The next in line watches the holder, which may crash, by the lease. One far behind only has to keep its row.

    Args:
        lease_ms: the lease; a parked task ends after half of it.
        row_ms: the lease of a queue row far behind, whose task ends after half of it; 0 if there is none.
        poll_ms: how long a briefly parked task waits.
        rest_ms: the remaining record wait; None for ever.
        slack_ms: a reason to poll before half the lease counts only if it comes earlier by more than this.
    """
    if rest_ms is not None and rest_ms < poll_ms:
        return PollPause("waiting", max(0, rest_ms))
    half_ms, half_row_ms = lease_ms // 2, row_ms // 2 - slack_ms
    may_sleep_ms = _until_it_may_be_next_ms(position, lease_ms)
    if row_ms > lease_ms and half_row_ms <= (may_sleep_ms if rest_ms is None else min(rest_ms, may_sleep_ms)):
        return PollPause("parkedBehind", poll_ms)
    if rest_ms is not None and rest_ms < half_ms - slack_ms:
        return PollPause("parkedBriefly", poll_ms)
    if position.lease_over_ms is not None and position.turns == 0:
        # A running holder renews at half its lease: one that is late may have crashed, and then wakes no one.
        left_ms = position.lease_over_ms - position.now.likely_ms
        if left_ms < half_ms - min(lease_ms // 10, _LATE_MS) - slack_ms:
            return PollPause("parkedBriefly", poll_ms)
    return PollPause("parked", poll_ms)


def _until_it_may_be_next_ms(seen: Position, lease_ms: int) -> int:
    """At least how long others will be next in line; 0 if the lock waits for one that may have gone."""
    is_full = seen.permits is not None and len(seen.holders) >= seen.permits
    is_over = seen.lease_over_ms is not None and seen.lease_over_ms <= seen.now.likely_ms
    turn_ms = lease_ms if seen.mean_hold_ms is None else seen.mean_hold_ms
    return (seen.turns - 1) * turn_ms if is_full and not is_over else 0


def next_poll(
    position: Position, *, lease_ms: int, poll_ms: int, waited_ms: int, rest_ms: int | None, jitter: float
) -> PollPause:
    """How a waiter that polls waits for its next poll.

    Args:
        poll_ms: the longest sleep of a front waiter that has not waited for long.
        waited_ms: how long it has waited already.
        rest_ms: the remaining record wait; None for ever.
        jitter: a random number in [0, 1), so that waiters do not poll in step.
    """
    longest_ms = max(poll_ms, min(lease_ms // 2, waited_ms // _WAITED_SHARE))
    ms = next_poll_ms(position, lease_ms=lease_ms, shortest_ms=_SHORTEST_MS, longest_ms=longest_ms, jitter=jitter)
    return PollPause("waiting", ms if rest_ms is None else min(ms, max(0, rest_ms)))


def next_poll_ms(position: Position, *, lease_ms: int, shortest_ms: int, longest_ms: int, jitter: float) -> int:
    """How long to sleep before the next poll; a front waiter, at least ``shortest_ms`` and at most ``longest_ms``."""
    row_ms = max(shortest_ms, position.place.lease_until_ms - position.now.latest_ms - lease_ms // 4)
    front_ms = max(shortest_ms, min(longest_ms, row_ms, _until_a_holder_leaves_ms(position)))
    if position.turns == 0:
        return front_ms
    turn_ms = position.mean_hold_ms if position.mean_hold_ms is not None else longest_ms
    behind_ms = position.turns * turn_ms * (0.75 + jitter / 2)
    # If the queue moves faster than the mean says, a waiter oversleeps by at most a front waiter's longest sleep for
    # each turn.
    return int(min(lease_ms / 2, row_ms, position.turns * longest_ms, max(front_ms, behind_ms)))


def _until_a_holder_leaves_ms(position: Position) -> int:
    if position.next_free_ms is None:
        return 0
    remaining_ms = position.next_free_ms - position.now.likely_ms
    if remaining_ms >= 0:
        return remaining_ms
    # Overdue: poll again after a share of the time by which it is late.
    return -remaining_ms // _OVERDUE_SHARE
