"""The lock table for tasks."""

from collections.abc import Callable

from ticketlock.locks._outcomes import Claim, check_lease
from ticketlock.locks._protocol import Contender
from ticketlock.locks._reads import TIME_CHECK
from ticketlock.wire._actions import Actions, T
from ticketlock.wire._for_tasks import AsyncPerformer
from ticketlock.wire._requests import Steps
from ticketlock.wire._table_time import Moment


class LockTable(AsyncPerformer):
    """A DynamoDB table of locks, for the tasks of one event loop."""

    _time_check = TIME_CHECK

    def contender(self, claim: Claim, now: Moment) -> Contender:
        """A contender of this table; with a Step Functions client it wakes the next in line."""
        return Contender(claim, now, wakes=self._step_functions is not None)

    def contending(
        self, claim: Claim, steps: Callable[[Contender], Steps[T]], *, until_ms: int | None = None
    ) -> Actions[T]:
        """Perform the steps of one claim; see ``ticketlock.LockTable.contending``."""
        check_lease(claim.lease_ms, self.client)
        return self._driver.run(lambda now: steps(self.contender(claim, now)), until_ms=until_ms)
