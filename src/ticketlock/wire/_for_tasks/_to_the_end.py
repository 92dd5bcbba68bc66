"""What a client for tasks goes on with if its caller is cancelled."""

import asyncio
import functools
import logging
from collections.abc import Coroutine
from typing import Any

from ticketlock.errors import TicketLockError
from ticketlock.wire._actions import briefly

_log = logging.getLogger("ticketlock")


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
