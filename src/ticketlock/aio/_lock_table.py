"""The lock table for tasks."""

from collections.abc import Callable

from ticketlock.locks._claim import Claim, check_lease
from ticketlock.locks._hand_over import contender_class
from ticketlock.locks._protocol import Contender
from ticketlock.locks._reads import TIME_CHECK
from ticketlock.wire._actions import Actions, T
from ticketlock.wire._async_performer import AsyncPerformer
from ticketlock.wire._requests import Steps


class LockTable(AsyncPerformer):
    """A DynamoDB table of locks, as the tasks of one event loop reach it."""

    _time_check = TIME_CHECK

    @property
    def contender(self) -> type[Contender]:
        """What contends for its locks: one that calls the next in line, where it can."""
        return contender_class(calls=self._step_functions is not None)

    def contending(self, claim: Claim, steps: Callable[[Contender], Steps[T]]) -> Actions[T]:
        """Steps of one claim, as calls and sleeps to be driven.

        Raises:
            InvalidLockRequest: a request that hangs could take the claim's whole lease.
        """
        check_lease(claim.lease_ms, self.client)
        return self._driver.run(lambda now: steps(self.contender(claim, now)))
