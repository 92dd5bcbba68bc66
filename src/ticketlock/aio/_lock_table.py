"""The lock table for tasks."""

from collections.abc import Callable

from ticketlock.locks._hand_over import contender_class
from ticketlock.locks._outcomes import Claim, check_lease
from ticketlock.locks._protocol import Contender
from ticketlock.locks._reads import TIME_CHECK
from ticketlock.wire._actions import Actions, T
from ticketlock.wire._async_performer import AsyncPerformer
from ticketlock.wire._requests import Steps


class LockTable(AsyncPerformer):
    """A DynamoDB table of locks, for the tasks of one event loop."""

    _time_check = TIME_CHECK

    @property
    def contender(self) -> type[Contender]:
        """The class of its contenders; with a Step Functions client they wake the next in line."""
        return contender_class(wakes=self._step_functions is not None)

    def contending(
        self, claim: Claim, steps: Callable[[Contender], Steps[T]], *, until_ms: int | None = None
    ) -> Actions[T]:
        """Perform the steps of one claim, as a generator of calls and sleeps; see ``ticketlock.LockTable.contending``.

        Raises:
            InvalidLockRequest: the lease is so short that it could end during one request that hangs.
        """
        check_lease(claim.lease_ms, self.client)
        return self._driver.run(lambda now: steps(self.contender(claim, now)), until_ms=until_ms)
