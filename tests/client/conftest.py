"""Both clients, on the emulator and in memory."""

from collections.abc import Iterator

import pytest
from kit.places import Emulated
from kit.promises import counts_are_kept

from ticketlock import LockClient
from ticketlock.testing import ManualClock, MemoryDynamoDB


@pytest.fixture
def locks(place: Emulated) -> LockClient:
    return place.client()


@pytest.fixture
def others(place: Emulated) -> LockClient:
    """The client of another process."""
    return place.client()


@pytest.fixture
def memory(memory: MemoryDynamoDB, clock: ManualClock) -> Iterator[MemoryDynamoDB]:
    yield memory
    counts_are_kept(memory.items(), clock.read().wall_ms)
