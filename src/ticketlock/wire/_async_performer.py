"""The lock table over aiobotocore: performs the protocol's requests for tasks of one event loop."""

import asyncio
from collections.abc import Callable
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from ticketlock._checks import text
from ticketlock.locks._claim import Claim
from ticketlock.locks._protocol import Contender
from ticketlock.wire import _sdk
from ticketlock.wire._actions import Actions, Sleep, T
from ticketlock.wire._clocks import Clocks
from ticketlock.wire._driver import Driver
from ticketlock.wire._requests import Steps
from ticketlock.wire._table_time import Moment

_GIVE_UP_AFTER_MS = 8_000


class Table:
    """A lock table.

    Args:
        table_name: its name.
        client: an aiobotocore client for DynamoDB: no retries (``total_max_attempts`` 1), time-outs of at most 5 s.
        step_functions: one for Step Functions, or None.
        clocks: where the time comes from.
    """

    def __init__(self, table_name: str, client: Any, step_functions: Any, clocks: Clocks) -> None:
        _sdk.check_client(client)
        self.table_name = text("table_name", table_name, 1_024)
        self.then_call = step_functions is not None
        self.client = client
        self._step_functions = step_functions
        self._driver = Driver(table_name, clocks, _GIVE_UP_AFTER_MS)

    async def contend(self, claim: Claim, steps: Callable[[Contender], Steps[T]]) -> T:
        """Drive steps of one claim to their end.

        Raises:
            InvalidLockRequest: a request that hangs could take the claim's whole lease.
        """
        _sdk.check_lease(claim.lease_ms, self.client)
        return await self.run(lambda now: steps(Contender(claim, now)))

    async def run(self, steps: Callable[[Moment], Steps[T]]) -> T:
        """Drive steps of the protocol to their end, performing each request that they yield."""
        return await self.drive(self._driver.run(steps))

    async def drive(self, actions: Actions[T], *, dynamodb: Any = None) -> T:
        """Perform calls and sleeps, and hand back what comes of them; with another DynamoDB client, if one is given."""
        try:
            action = next(actions)
            while True:
                if isinstance(action, Sleep):
                    await asyncio.sleep(action.ms / 1_000)
                    action = actions.send(None)
                    continue
                client = (dynamodb or self.client) if action.service == "dynamodb" else self._step_functions
                try:
                    answer = await getattr(client, action.operation)(**action.parameters)
                except (BotoCoreError, ClientError) as error:
                    action = actions.throw(error)
                else:
                    action = actions.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
