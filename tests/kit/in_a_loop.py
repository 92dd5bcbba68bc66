"""The client for tasks, for tests with threads: a loop in a thread, with one task for each calling thread.

So the same tests run on both clients: the test's ``locks.acquire("order-42")`` is awaited in the loop, by the task that
takes the place of the calling thread.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session

from ticketlock import aio

_OF_TASKS = aio.Lease | aio.LeaseGroup | aio.Unit | aio.UnitClient
_PATIENCE_S = 30.0
"""For the end of the loop, which cancels everything; a loop that hangs must not hang the session."""


class Loop:
    """An event loop in a thread; closed at the end of ``with``."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="the tests' loop", daemon=True)
        self._of_this_thread = threading.local()
        self._open = AsyncExitStack()
        # A loop holds only weak references to its tasks.
        self._tasks: list[asyncio.Task[None] | None] = []

    def __enter__(self) -> "Loop":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(_PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_S)
        self._loop.close()

    def do(self, what: "Callable[[], Any] | _Block") -> Any:
        """Call something in the loop, in the task of this thread; await its result, if it is awaitable. Or enter a
        block there.
        """
        self._is_not_here()
        done: Future[Any] = Future()
        if not hasattr(self._of_this_thread, "inbox"):
            self._of_this_thread.inbox = asyncio.Queue()
            serving = _serve_all(self._of_this_thread.inbox, self._tasks)
            asyncio.run_coroutine_threadsafe(serving, self._loop)
        self._loop.call_soon_threadsafe(self._of_this_thread.inbox.put_nowait, (what, done))
        return _in_this(self, done.result())

    def dynamodb(self, *, session: Any = None, **options: Any) -> Any:
        """A DynamoDB client of aiobotocore, open until the loop ends."""
        self._is_not_here()

        async def make() -> Any:
            config = AioConfig(**options.pop("config"))
            client = (session or get_session()).create_client("dynamodb", config=config, **options)
            return await self._open.enter_async_context(client)

        return asyncio.run_coroutine_threadsafe(make(), self._loop).result()

    def _is_not_here(self) -> None:
        """A caller in the loop that waits for the loop would wait for ever, and so would every later test."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("the tests' loop would wait for itself here: call this before the coroutine")

    async def _end(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._open.aclose()
        await self._loop.shutdown_default_executor()


class InALoop:
    """A client or a lease for tasks, with the methods of those for threads."""

    def __init__(self, loop: Loop, inner: Any) -> None:
        self._loop = loop
        self._inner = inner
        self._blocks: list[_Block] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return _in_this(self._loop, found)

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._loop.do(lambda: found(*args, **kwargs))

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            setattr(self._inner, name, value)

    def __enter__(self) -> "InALoop":
        block = _Block(self._inner)
        self._loop.do(block)
        self._blocks.append(block)
        return self

    def __exit__(self, *raised: Any) -> None:
        self._loop.do(partial(self._blocks.pop().__aexit__, *raised))

    def __eq__(self, other: object) -> bool:
        return self._inner is (other._inner if isinstance(other, InALoop) else other)

    def __hash__(self) -> int:
        return hash(self._inner)

    def __repr__(self) -> str:
        return repr(self._inner)


class _Block:
    """A block of a test, as one of ``async with`` in the task of its thread."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._is_left = False
        self.is_of_a_lease = isinstance(inner, aio.Lease | aio.LeaseGroup)

    async def __aenter__(self) -> Any:
        return await self._inner.__aenter__()

    async def __aexit__(self, *raised: Any) -> Any:
        """Once: a test may leave it in another thread, or out of order."""
        if self._is_left:
            return None
        self._is_left = True
        return await self._inner.__aexit__(*raised)


_DEEPEST = 150
"""How many blocks of leases are those of ``async with`` at once, in one thread: those that no test leaves stay open."""

_Inbox = asyncio.Queue[tuple[Any, Future[Any]]]


async def _serve_all(inbox: _Inbox, tasks: "list[asyncio.Task[None] | None]") -> None:
    tasks.append(asyncio.current_task())
    await _serve(inbox)


async def _serve(
    inbox: _Inbox, block: _Block | None = None, depth: int = 0
) -> tuple[BaseException | None, Future[Any]]:
    """Call what a test asks for, until it leaves the block; with what exception it does."""
    while True:
        what, done = await inbox.get()
        if isinstance(what, _Block) and what.is_of_a_lease and depth < _DEEPEST:
            await _serve_within(what, done, inbox, depth + 1)
            continue
        if isinstance(what, _Block):
            what = what.__aenter__
        if block is not None and isinstance(what, partial) and what.func == block.__aexit__:
            return what.args[1], done
        try:
            result = what()
            if inspect.isawaitable(result):
                result = await result
            elif inspect.isasyncgen(result):
                result = [each async for each in result]
        except asyncio.CancelledError:
            done.cancel()
            raise
        except BaseException as error:
            # Also exceptions that a test raises as a signal handler would.
            done.set_exception(error)
        else:
            done.set_result(result)


async def _serve_within(block: _Block, done: Future[Any], inbox: _Inbox, depth: int) -> None:
    error: BaseException | None = None
    try:
        async with block:
            done.set_result(None)
            error, done = await _serve(inbox, block, depth)
            if error is not None:
                raise error
    except BaseException as raised:
        if raised is error:
            pass
        elif isinstance(raised, asyncio.CancelledError):
            done.cancel()
            raise
        else:
            done.set_exception(raised)
            return
    done.set_result(None)


def _in_this(loop: Loop, found: Any) -> Any:
    if isinstance(found, tuple) and found and isinstance(found[0], aio.Lease):
        return tuple(InALoop(loop, each) for each in found)
    return InALoop(loop, found) if isinstance(found, _OF_TASKS) else found
