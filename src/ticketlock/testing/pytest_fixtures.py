"""Fixtures for pytest: a table in memory, its clock, and clients that wait by it. In your ``conftest.py``:

pytest_plugins = ["ticketlock.testing.pytest_fixtures"]

pytest-asyncio, if it is there, runs the tests that use them in a loop that goes by that clock.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

import pytest

from ticketlock.client import LockClient
from ticketlock.client import _for_tasks as _client_for_tasks
from ticketlock.testing._clock import ManualClock
from ticketlock.testing._memory import MemoryDynamoDB
from ticketlock.units import Units, create_units_table
from ticketlock.units import _for_tasks as _units_for_tasks

F = TypeVar("F", bound=Callable[..., Any])


class _TimeOfTests:
    """The clock of the running test, and the factory of the loop that goes by it: whichever is asked for first."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self) -> None:
        """A test begins: a new clock, unless a loop of several tests goes by the old one."""
        if self._loop is None or self._loop.is_closed():
            self.clock = ManualClock()

    def __call__(self) -> asyncio.AbstractEventLoop:
        self._loop = self.clock.new_event_loop()
        return self._loop


# In a process one test runs at a time.
_time = _TimeOfTests()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Before the first fixture of a test."""
    _time.begin()


@pytest.hookimpl(optionalhook=True, trylast=True)
def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that pytest-asyncio runs a test in; a hook of yours comes before this one."""
    if "ticketlock_clock" in getattr(item, "fixturenames", ()):
        return {"ticketlock": _time}
    return {"asyncio": asyncio.new_event_loop}


@pytest.fixture
def ticketlock_clock() -> ManualClock:
    """A clock that only the test moves; a loop of tests for asyncio moves it on while all tasks wait."""
    return _time.clock


@pytest.fixture
def ticketlock_memory(ticketlock_clock: ManualClock) -> MemoryDynamoDB:
    """A DynamoDB in memory with the tables ``locks`` and ``units``."""
    memory = MemoryDynamoDB(lock_table="locks", clock=ticketlock_clock)
    create_units_table("units", client=memory.client)
    memory.sent.clear()
    return memory


@pytest.fixture
def ticketlock_locks(ticketlock_memory: MemoryDynamoDB, ticketlock_clock: ManualClock) -> Iterator[LockClient]:
    """A client of the table ``locks``; a wait moves the clock. It is closed after the test."""
    clock = ticketlock_clock
    with LockClient("locks", client=ticketlock_memory.client, clocks=clock, sleep=clock.sleep) as locks:
        yield locks


@pytest.fixture
def ticketlock_units(ticketlock_memory: MemoryDynamoDB, ticketlock_clock: ManualClock) -> Units:
    """Units of work of the table ``units``; a wait moves the clock."""
    clock = ticketlock_clock
    return Units("units", client=ticketlock_memory.client, clocks=clock, sleep=clock.sleep)


def _async_fixture(function: F) -> F:
    """A fixture that runs in the loop of its test: by pytest-asyncio if it is there, or by anyio."""
    try:
        from pytest_asyncio import fixture
    except ImportError:
        return cast("F", pytest.fixture(function))
    return cast("F", fixture(function))


@_async_fixture
async def ticketlock_aio_locks(
    ticketlock_memory: MemoryDynamoDB, ticketlock_clock: ManualClock
) -> AsyncIterator[_client_for_tasks.LockClient]:
    """A client of ``ticketlock.aio`` of the table ``locks``. It is closed after the test."""
    client = ticketlock_memory.async_client
    async with _client_for_tasks.LockClient("locks", client=client, clocks=ticketlock_clock) as locks:
        yield locks


@_async_fixture
async def ticketlock_aio_units(
    ticketlock_memory: MemoryDynamoDB, ticketlock_clock: ManualClock
) -> AsyncIterator[_units_for_tasks.Units]:
    """Units of work of ``ticketlock.aio`` of the table ``units``. They are closed after the test."""
    client = ticketlock_memory.async_client
    async with _units_for_tasks.Units("units", client=client, clocks=ticketlock_clock) as units:
        yield units
