"""Patience with services that throttle: if nothing waits for a request, retry it for as long as the function may run.

The driver retries a request for some seconds, which is right for a step that a workflow waits for. After a mass failure
there may be thousands of events, and Step Functions describes 10 to 15 executions a second
(https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html).
"""

import random
from collections.abc import Callable

from ticketlock.errors import OutcomeUnknown, RequestNotApplied, TableError
from ticketlock.wire._actions import T
from ticketlock.wire._answers import Reply, StillRunning
from ticketlock.wire._requests import Pause, Request, Steps
from ticketlock.wire._table_time import Moment

_FIRST_PAUSE_MS = 2_000
_LONGEST_PAUSE_MS = 30_000
# A driver's usual patience: a request with less of its own is not retried here.
_USUAL_MS = 3_600_000


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
