"""The lock table for tasks."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from functools import partial
from typing import Any

from ticketlock._checks import whole_number
from ticketlock.locks._items import TICKET_DIGITS, LockName, Row, owner_id
from ticketlock.locks._operators import LockSummary, inspect, list_page, remove_waiter, resume
from ticketlock.locks._outcomes import Claim, Grant, LockState, check_lease
from ticketlock.locks._protocol import Contender
from ticketlock.locks._reads import TIME_CHECK
from ticketlock.wire import Actions, Item, Moment, Steps, T
from ticketlock.wire._for_tasks import AsyncPerformer


class LockTable(AsyncPerformer):
    """A DynamoDB table of locks, for the tasks of one event loop; see ``ticketlock.LockTable``."""

    _time_check = TIME_CHECK

    def contender(self, claim: Claim, now: Moment) -> Contender:
        """A contender of this table; with a Step Functions or a Lambda client it wakes the next in line."""
        return Contender(claim, now, wakes=self.wakes)

    def contending(
        self, claim: Claim, steps: Callable[[Contender], Steps[T]], *, until_ms: int | None = None
    ) -> Actions[T]:
        """Perform the steps of one claim."""
        check_lease(claim.lease_ms, self.client)
        return self._driver.run(lambda now: steps(self.contender(claim, now)), until_ms=until_ms)

    async def inspect(self, lock: LockName) -> LockState:
        """Read a lock, its holders and its whole queue."""
        return await self.run(lambda now: inspect(lock, now))

    def resume(self, lock: LockName, owner: str, lease_ms: int) -> Coroutine[Any, Any, tuple[Claim, Grant]]:
        """Renew the grant of an owner that holds the lock."""
        owner_id(owner)
        check_lease(lease_ms, self.client)
        return self.run(lambda now: resume(lock, owner, lease_ms, now))

    async def remove_waiter(self, lock: LockName, ticket: int) -> Row:
        """Delete a waiter's queue row."""
        whole_number("ticket", ticket, 0, 10**TICKET_DIGITS - 1)
        return await self.run(lambda now: remove_waiter(lock, ticket, now, self.contender))

    async def list_locks(self) -> AsyncGenerator[LockSummary, None]:
        """The locks of the table, in no order."""
        after: Item | None = None
        while True:
            locks, after = await self.run(partial(list_page, after))
            for lock in locks:
                yield lock
            if after is None:
                return
