"""Functions that may be decorated: their work has ended when the lock is released. Others are refused before they
begin.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kit.places import Moved

from ticketlock import LockClient, LockName

OF_THREADS = pytest.mark.parametrize("kind", ["threads"])
OF_TASKS = pytest.mark.parametrize("kind", ["tasks"])


@pytest.fixture
def locks(moved: Moved) -> LockClient:
    return moved.client()


@pytest.fixture
def begun() -> list[str]:
    """What the work has done."""
    return []


def behind(work: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that does not say what it wraps."""
    return lambda *args: work(*args)


def held(moved: Moved) -> bool:
    """Whether the lock is held now; only in memory, which can be read from anywhere."""
    return moved.holders_of("order-42") == 1


class CoroutineObject:
    async def __call__(self) -> None: ...


class GeneratorObject:
    def __call__(self) -> Iterator[None]:
        yield


class AsyncGeneratorObject:
    async def __call__(self) -> AsyncIterator[None]:
        yield


async def coroutine_function() -> None: ...


def generator_function() -> Iterator[None]:
    yield


async def async_generator_function() -> AsyncIterator[None]:
    yield


GENERATORS: list[Any] = [
    generator_function,
    async_generator_function,
    functools.partial(generator_function),
    staticmethod(generator_function),
    GeneratorObject(),
    AsyncGeneratorObject(),
    functools.partial(AsyncGeneratorObject()),
]
COROUTINES: list[Any] = [
    coroutine_function,
    functools.partial(coroutine_function),
    staticmethod(coroutine_function),
    CoroutineObject(),
    CoroutineObject().__call__,
    functools.partial(CoroutineObject()),
]


@pytest.mark.parametrize("work", GENERATORS, ids=lambda work: type(work).__name__)
def test_any_kind_of_generator_function_is_refused_at_once(locks: LockClient, work: Any) -> None:
    decorate = locks.serialized("order-42")
    with pytest.raises(TypeError, match="body runs after the call has returned: use acquire"):
        decorate(work)


@OF_THREADS
@pytest.mark.parametrize("work", COROUTINES, ids=lambda work: type(work).__name__)
def test_any_kind_of_coroutine_function_is_refused_at_once(locks: LockClient, work: Any) -> None:
    decorate = locks.serialized("order-42")
    with pytest.raises(TypeError, match=r"use ticketlock\.aio"):
        decorate(work)


@pytest.fixture
def late(begun: list[str]) -> dict[str, Callable[[], Any]]:
    """Functions that return work that has yet to run."""

    async def coroutine() -> None:
        begun.append("coroutine")

    def generator() -> Iterator[None]:
        begun.append("generator")
        yield

    async def async_generator() -> AsyncIterator[None]:
        begun.append("async generator")
        yield

    @functools.wraps(coroutine)
    def wrapper() -> Any:
        return coroutine()

    return {
        "a coroutine": behind(coroutine),
        "a coroutine of a function that says what it wraps": wrapper,
        "a generator": behind(generator),
        "an async generator": behind(async_generator),
        "an iterator": lambda: map(begun.append, ["iterator"]),
        "a context manager": contextmanager(generator),
    }


LATE = [
    "a coroutine",
    "a coroutine of a function that says what it wraps",
    "a generator",
    "an async generator",
    "an iterator",
    "a context manager",
]


@OF_THREADS
@pytest.mark.parametrize("what", LATE)
def test_work_that_would_run_after_the_call_is_refused_and_never_begins(
    moved: Moved, locks: LockClient, late: dict[str, Any], begun: list[str], what: str
) -> None:
    decorated = locks.serialized("order-42")(late[what])
    with pytest.raises(TypeError, match="whose work would run without the lock"):
        decorated()
    assert begun == []
    assert moved.is_free("order-42")


@OF_TASKS
@pytest.mark.parametrize("what", LATE)
def test_work_that_would_run_after_the_coroutine_is_refused_and_never_begins(
    moved: Moved, locks: Any, late: dict[str, Any], begun: list[str], what: str
) -> None:
    async def returns_it() -> Any:
        return late[what]()

    decorated = locks.serialized("order-42")(returns_it)
    with pytest.raises(TypeError, match="whose work would run without the lock"):
        locks._loop.do(decorated)
    assert begun == []
    assert moved.is_free("order-42")


@OF_THREADS
def test_a_task_that_a_function_has_started_is_cancelled_before_it_begins(moved: Moved, begun: list[str]) -> None:
    async def work() -> None:
        begun.append("work")

    def starts() -> Any:
        started.append(asyncio.ensure_future(work()))
        return started[0]

    async def calls() -> Any:
        decorated = moved.client().serialized("order-42")(starts)
        with pytest.raises(TypeError, match="an awaitable"):
            decorated()
        await asyncio.wait(started)
        return started[0].cancelled()

    started: list[asyncio.Future[None]] = []
    assert asyncio.run(calls())
    assert begun == []


def _wrapped(work: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(work)
    def wrapper(*args: Any) -> Any:
        return work(*args)

    return wrapper


class Awaited:
    def __init__(self, work: Callable[..., Any]) -> None:
        self._work = work

    async def __call__(self) -> bool:
        return bool(await self._work())


@OF_TASKS
@pytest.mark.parametrize(
    "made_of",
    [functools.partial, _wrapped, Awaited, lambda work: functools.partial(_wrapped(work))],
    ids=["partial", "wrapper", "object", "partial of a wrapper"],
)
def test_any_kind_of_coroutine_function_runs_under_the_lock(moved: Moved, locks: Any, made_of: Any) -> None:
    async def work() -> bool:
        return held(moved)

    decorated = locks.serialized("order-42")(made_of(work))
    assert locks._loop.do(decorated) is True
    assert moved.is_free("order-42")


@OF_TASKS
def test_a_plain_function_of_the_client_for_tasks_is_refused_at_once(locks: LockClient) -> None:
    decorate: Any = locks.serialized("order-42")
    for work in (lambda: None, functools.partial(len, []), len):
        with pytest.raises(TypeError, match=r"use ticketlock\.LockClient"):
            decorate(work)


@OF_THREADS
def test_a_static_method_and_a_class_method_may_be_decorated_from_outside(moved: Moved, locks: LockClient) -> None:
    class Orders:
        @locks.serialized("{order}")
        @staticmethod
        def ship(order: str) -> int:
            return moved.holders_of(order)

        @locks.serialized("{order}")
        @classmethod
        def bill(cls, order: str) -> tuple[str, int]:
            return cls.__name__, moved.holders_of(order)

    assert (Orders.ship("order-42"), Orders().ship("order-42")) == (1, 1)
    assert Orders().bill("order-42") == ("Orders", 1)


@OF_TASKS
def test_a_static_coroutine_method_runs_under_the_lock(moved: Moved, locks: Any) -> None:
    async def ship() -> bool:
        return held(moved)

    static: Any = locks.serialized("order-42")(staticmethod(ship))
    assert isinstance(static, staticmethod)
    assert locks._loop.do(static.__func__) is True


@OF_THREADS
def test_results_without_pending_work_are_returned_unchanged(locks: LockClient) -> None:
    returned: list[Any] = [[1], {"a": 1}, "text", (1,), range(3), None, LockName("order-42")]
    for each in returned:
        assert locks.serialized("order-42")(lambda each=each: each)() is each
