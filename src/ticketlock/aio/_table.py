"""The lock table for tasks."""

from collections.abc import Callable

from ticketlock.locks._claim import Claim
from ticketlock.locks._protocol import Contender
from ticketlock.wire import _sdk
from ticketlock.wire._actions import Actions, T
from ticketlock.wire._async_performer import AsyncPerformer
from ticketlock.wire._requests import Steps


class Table(AsyncPerformer):
    """A lock table."""

    def contending(self, claim: Claim, steps: Callable[[Contender], Steps[T]]) -> Actions[T]:
        """Steps of one claim, as calls and sleeps to be driven.

        Raises:
            InvalidLockRequest: a request that hangs could take the claim's whole lease.
        """
        _sdk.check_lease(claim.lease_ms, self.client)
        return self._driver.run(lambda now: steps(Contender(claim, now)))
