"""Many operating-system processes that count in one item, with the lock and without it."""

from collections.abc import Iterator

import pytest
from client.programs import INCREMENTS, Counter, Programs, Shared, count_under_the_lock, count_without_the_lock
from ticketlock_local.emulator import Emulator

PROCESSES = 8


@pytest.fixture
def shared(emulator: Emulator, lock_table: str, entity: str) -> Shared:
    return Shared(emulator.endpoint, lock_table, entity)


@pytest.fixture
def programs(shared: Shared) -> Iterator[Programs]:
    running = Programs(shared)
    try:
        yield running
    finally:
        running.end()


def test_eight_processes_lose_none_of_their_increments_under_the_lock(programs: Programs, shared: Shared) -> None:
    programs.all_at_once(count_under_the_lock, PROCESSES)
    assert Counter(shared).read() == PROCESSES * INCREMENTS == 400


def test_the_same_without_the_lock_loses_some(programs: Programs, shared: Shared) -> None:
    programs.all_at_once(count_without_the_lock, PROCESSES)
    assert 0 < Counter(shared).read() < PROCESSES * INCREMENTS
