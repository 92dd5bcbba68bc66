"""Many operating-system processes that increment a counter, with the lock and without it."""

import pytest
from kit.kept import Kept
from kit.programs import INCREMENTS, Counter, Programs, Shared, count_under_the_lock, count_without_the_lock

pytestmark = [
    pytest.mark.shows("exclusion", "order"),
    pytest.mark.verify("eight processes; the simulated world asks the same of many machines"),
]

PROCESSES = 8


def test_eight_processes_under_the_lock_lose_no_increment_and_take_turns(
    programs: Programs, shared: Shared, kept: Kept
) -> None:
    programs.all_at_once(count_under_the_lock, PROCESSES)
    counted = Counter(shared).read()
    assert counted == PROCESSES * INCREMENTS == len(kept.read().updates) == 400
    with shared.locks() as locks:
        kept.check({shared.entity: locks.inspect(shared.entity)}, {shared.entity: counted})


def test_the_same_processes_without_the_lock_lose_increments(programs: Programs, shared: Shared) -> None:
    programs.all_at_once(count_without_the_lock, PROCESSES)
    assert 0 < Counter(shared).read() < PROCESSES * INCREMENTS
