"""An acquisition that has not begun: ``await`` it, give it to a task, or enter it."""

import asyncio
import warnings
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

from ticketlock.aio._lease import Lease, LeaseGroup

H = TypeVar("H", covariant=True)
E = TypeVar("E", bound=Lease | LeaseGroup)


class Asking(Coroutine[Any, Any, H]):
    """What has not begun: ``await`` it. Each time is one of its own.

    The caller, who holds what comes of it, is the task that awaits it. A task that was made for nothing else, as
    ``asyncio.gather``, ``create_task`` and, before Python 3.12, ``wait_for`` make one, asks for whoever called: that
    one may hold the lock already, and waits for this task.

    Args:
        begin: is given the caller.
    """

    def __init__(self, begin: Callable[[object], Coroutine[Any, Any, H]]) -> None:
        self._begin = begin
        self._called_by = _current_task()
        # Of the tasks whose coroutine this is.
        self._begun: dict[object, Coroutine[Any, Any, H]] = {}
        self._was_used = False

    def __await__(self) -> Generator[Any, None, H]:
        self._was_used = True
        return self._begin(_current_task()).__await__()

    def __bool__(self) -> bool:
        raise TypeError("an acquisition that was not awaited is neither true nor false: await it")

    def __del__(self) -> None:
        if not self._was_used:
            warnings.warn("an acquisition was never awaited", RuntimeWarning, stacklevel=2, source=self)

    def handed_on(self) -> Callable[[object], Coroutine[Any, Any, H]]:
        """What begins it for a caller, for another acquisition that is made of it."""
        self._was_used = True
        return self._begin

    # What a task calls whose coroutine this is.

    def send(self, value: Any) -> Any:
        """Begin, or go on."""
        return self._go_on(lambda begun: begun.send(value))

    def throw(self, *error: Any) -> Any:
        """Raise an exception in it."""
        return self._go_on(lambda begun: begun.throw(*error))

    def close(self) -> None:
        """End it."""
        self._was_used = True
        begun = self._begun.pop(_current_task(), None)
        if begun is not None:
            begun.close()

    def _go_on(self, how: Callable[[Coroutine[Any, Any, H]], Any]) -> Any:
        self._was_used, task = True, _current_task()
        if task not in self._begun:
            self._begun[task] = self._begin(self._called_by or task)
        try:
            return how(self._begun[task])
        except BaseException:
            # Its end, StopIteration as well.
            self._begun.pop(task, None)
            raise


class Acquiring(Asking[E]):
    """An acquisition that has not begun: ``await`` it, or enter it with ``async with``.

    Each time is one of its own, and several tasks may be inside at once: each leaves what it has entered itself.
    """

    def __init__(self, begin: Callable[[object], Coroutine[Any, Any, E]]) -> None:
        super().__init__(begin)
        self._entered: list[tuple[object, E]] = []

    async def __aenter__(self) -> E:
        held = await self
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


def _current_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:
        # Called before the loop runs.
        return None
