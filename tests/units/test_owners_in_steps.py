"""A save whose transaction is applied item by item, as DynamoDB does it, while its owner ends."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from ticketlock.errors import UnitRolledBack
from ticketlock.testing import InSteps, ManualClock, MemoryDynamoDB
from ticketlock.units import Units, create_units_table


def head_first(_left: int) -> int:
    return 0


def head_last(left: int) -> int:
    return left - 1


class Slow(MemoryDynamoDB):
    """Performs its next transaction that writes step by step, and lets others act after some of them."""

    meanwhile: Callable[[InSteps, int], object] | None = None

    def transact_write_items(self, **parameters: Any) -> Any:
        which, act = self.in_steps("transact_write_items", **parameters), self.meanwhile
        self.meanwhile = None
        taken = 0
        while which.step():
            taken += 1
            if act is not None:
                act(which, taken)
        return which.finish()


@pytest.mark.parametrize("order", [head_first, head_last])
@pytest.mark.parametrize("at", range(1, 5))
def test_a_save_that_is_half_applied_is_found_or_refused(at: int, order: Callable[[int], int]) -> None:
    clock = ManualClock()
    memory = Slow(lock_table=None, clock=clock)
    memory.comes_next = order
    create_units_table("units", client=memory.client)
    ann = Units("units", client=memory.client, clocks=clock, sleep=clock.sleep)
    unit, saved = ann.begin(), []

    def ends_its_owner(which: InSteps, taken: int) -> None:
        def sleeps(seconds: float) -> None:
            clock.sleep(seconds)
            which.step()

        if taken == at:
            Units("units", client=memory.client, clocks=clock, sleep=sleeps).end_owner("job")

    memory.meanwhile = ends_its_owner
    with suppress(UnitRolledBack):
        saved.append(unit.save(owner="job"))
    for name in saved:
        with pytest.raises(UnitRolledBack):
            ann.resume(name)
