"""Fixtures for pytest: a table in memory, its clock, and clients that wait by it. In your ``conftest.py``:

pytest_plugins = ["ticketlock.testing.pytest_fixtures"]
"""

from collections.abc import Iterator

import pytest

from ticketlock.client import LockClient
from ticketlock.testing._clock import ManualClock
from ticketlock.testing._memory import MemoryDynamoDB
from ticketlock.units import Units, create_units_table


@pytest.fixture
def ticketlock_clock() -> ManualClock:
    """A clock that only the test moves."""
    return ManualClock()


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
