"""The lock table for tasks."""

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from ticketlock.errors import TicketLockError
from ticketlock.locks._outcomes import Claim, check_lease
from ticketlock.locks._protocol import Contender
from ticketlock.locks._reads import TIME_CHECK
from ticketlock.wire._actions import Actions, T, briefly
from ticketlock.wire._async_performer import AsyncPerformer
from ticketlock.wire._requests import Steps
from ticketlock.wire._sdk import client_config
from ticketlock.wire._table_time import Moment

_log = logging.getLogger("ticketlock")


def make_client(options: Mapping[str, Any]) -> Any:
    """Return a context manager that opens a DynamoDB client: short time-outs, no retries of its own."""
    # Imported here: not needed if the caller passes a client.
    from aiobotocore.session import get_session

    return get_session().create_client("dynamodb", **{"config": client_config(), **options})


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


class ToTheEnd:
    """The tasks of one client that continue if their callers are cancelled; `close` waits for them.

    Attributes:
        under_way: the running tasks.
    """

    def __init__(self) -> None:
        self.under_way: set[asyncio.Task[None]] = set()

    async def __call__(self, work: Coroutine[Any, Any, None], what: str) -> None:
        """Do the work in a task of its own.

        Args:
            what: what the work does, for the log: if the caller was cancelled, only the log shows a failure.
        """
        task = asyncio.create_task(work)
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(functools.partial(_log_failure, what))
            raise
        except TicketLockError as error:
            raise briefly(error)  # noqa: B904  # the same error


def _log_failure(what: str, task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("failed %s, after the caller was cancelled: %s", what, error)
