"""An acquisition that has not begun: ``await`` it, or enter it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

from ticketlock.aio._lease import Lease, LeaseGroup

H = TypeVar("H", bound=Lease | LeaseGroup)


class Acquiring(Awaitable[H]):
    """An acquisition that has not begun: ``await`` it, or enter it with ``async with``.

    Each time is one of its own, and several tasks may be inside at once: each leaves what it has entered itself.
    """

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, H]]) -> None:
        self._begin = begin
        self._entered: list[tuple[asyncio.Task[Any] | None, H]] = []

    def __await__(self) -> Generator[Any, None, H]:
        return self._begin().__await__()

    async def __aenter__(self) -> H:
        held = await self._begin()
        self._entered.append((asyncio.current_task(), held))
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        caller = asyncio.current_task()
        # The last of its own; or of all, in a task that has entered none, as where an exit stack is handed on.
        own = [index for index, (task, _) in enumerate(self._entered) if task is caller]
        _, held = self._entered.pop(own[-1] if own else -1)
        await held.__aexit__(kind, error, traceback)
