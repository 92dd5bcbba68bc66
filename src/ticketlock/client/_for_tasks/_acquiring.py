"""An acquisition that starts when it is awaited, given to a task, or entered."""

import asyncio
import sys
import warnings
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

from ticketlock.client._blocks import Block, Caller
from ticketlock.client._for_tasks._lease import Lease, LeaseGroup
from ticketlock.client._lock import taken_out
from ticketlock.errors import LockLost, TicketLockError
from ticketlock.wire import briefly

H = TypeVar("H", covariant=True)
E = TypeVar("E", bound=Lease | LeaseGroup)


class Asking(Coroutine[Any, Any, H]):
    """An operation that starts when it is awaited. Each ``await`` is a separate acquisition.

    The caller is the task that awaits it. If a task runs nothing else, as those that ``asyncio.gather``,
    ``create_task`` and, before Python 3.12, ``wait_for`` create, the caller is the task that made the call: it may be
    inside of a block that holds the lock already, and waits for the new task.

    Args:
        begin: starts the operation; gets the caller as its argument.
    """

    def __init__(self, begin: Callable[[Caller], Coroutine[Any, Any, H]]) -> None:
        self._begin = begin
        self._called_by = Caller()
        # For tasks whose coroutine this is.
        self._begun: dict[object, Coroutine[Any, Any, H]] = {}
        self._was_used = False

    def __await__(self) -> Generator[Any, None, H]:
        self._was_used = True
        return self._begin(Caller()).__await__()

    def __bool__(self) -> bool:
        # From Python 3.12 on the repr of a task asks it, and 3.12's asyncio.run asks for that of its own task.
        if sys._getframe(1).f_globals.get("__name__") == "asyncio.base_tasks":
            return True
        raise TypeError("an acquisition that was not awaited is neither true nor false: await it")

    def __del__(self) -> None:
        if not self._was_used:
            warnings.warn("an acquisition was never awaited", RuntimeWarning, stacklevel=2, source=self)

    def may_stay_unused(self) -> None:
        """It is kept for later: nobody has forgotten to await it."""
        self._was_used = True

    def handed_on(self) -> Callable[[Caller], Coroutine[Any, Any, H]]:
        """The function that starts it, for another acquisition that wraps this one."""
        self._was_used = True
        return self._begin

    # The coroutine protocol, which a task uses if this is its coroutine.

    def send(self, value: Any) -> Any:
        """Start it, or continue it."""
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
            self._begun[task] = self._begin(self._called_by if self._called_by.is_a_task else Caller())
        try:
            return how(self._begun[task])
        except BaseException:
            # Its end; StopIteration ends it too.
            self._begun.pop(task, None)
            raise


class Acquiring(Asking[E]):
    """An acquisition: ``await`` it, or enter it with ``async with``.

    Each ``await`` or ``async with`` is a separate acquisition. Several tasks may enter it at once; each leaves the one
    that it has entered.
    """

    def __init__(self, begin: Callable[[Caller], Coroutine[Any, Any, E]]) -> None:
        super().__init__(begin)
        self._entered: list[tuple[Block, E]] = []

    async def __aenter__(self) -> E:
        try:
            held = await self
        except TicketLockError as error:
            raise briefly(error)  # noqa: B904  # the same error
        try:
            self._entered.append((held._enter(), held))
        except LockLost:
            await held._give_back()
            raise
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        entered = taken_out(self._entered, lambda each: each[0])
        if entered is None:
            raise RuntimeError("the acquisition was not entered")
        block, held = entered
        try:
            await held._end_of_block(block, error)
        except TicketLockError as failed:
            raise briefly(failed)  # noqa: B904  # the same error


def _current_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:
        # Called before the loop runs.
        return None
