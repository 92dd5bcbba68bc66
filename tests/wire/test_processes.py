"""Many operating-system processes that increment a counter under fault injection."""

import pytest
from kit.kept import Kept
from kit.places import until
from kit.programs import FEW, Counter, Programs, Shared, count_under_faults

from ticketlock import LockClient

pytestmark = pytest.mark.shows("exclusion")

PROCESSES = 3


def is_healed(locks: LockClient, entity: str) -> bool:
    """Whether only waiters that exist are counted, once the lock has been taken and released."""
    locks.acquire(entity).release()
    item = locks.inspect(entity).item
    return item is not None and item.waiting == 0


@pytest.mark.usefixtures("random_faults")
def test_no_increment_is_lost_and_the_processes_take_turns(
    programs: Programs, shared: Shared, beside_the_table: Shared, kept: Kept
) -> None:
    programs.all_at_once(count_under_faults, PROCESSES)
    counted = Counter(beside_the_table).read()
    assert counted == PROCESSES * FEW == len(kept.read().updates)
    with beside_the_table.locks() as locks:
        until(lambda: is_healed(locks, shared.entity))
        kept.check({shared.entity: locks.inspect(shared.entity)}, {shared.entity: counted})
