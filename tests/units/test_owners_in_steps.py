"""A save whose transaction is applied item by item, as DynamoDB does it, while its owner ends."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from ticketlock.errors import UnitRolledBack
from ticketlock.testing import InSteps, ManualClock, MemoryDynamoDB
from ticketlock.units import Outcome, Units, create_units_table

pytestmark = pytest.mark.shows("ended owner")


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


def saved_while_its_owner_ends(at: int, order: Callable[[int], int]) -> str | None:
    """What becomes of a unit whose owner ends after the n-th step of its save; None if the save has fewer steps."""
    clock = ManualClock()
    memory = Slow(lock_table=None, clock=clock)
    memory.comes_next = order
    create_units_table("units", client=memory.client)
    ann = Units("units", client=memory.client, clocks=clock, sleep=clock.sleep)
    unit = ann.begin()
    steps: list[int] = []

    def ends_its_owner(which: InSteps, taken: int) -> None:
        steps.append(taken)

        def sleeps(seconds: float) -> None:
            clock.sleep(seconds)
            # A wait is for an item that this transaction has reserved.
            if seconds > 0:
                which.step()

        if taken == at:
            Units("units", client=memory.client, clocks=clock, sleep=sleeps).end_owner("job")

    memory.meanwhile = ends_its_owner
    try:
        assert unit.save(owner="job") == unit.id
    except UnitRolledBack:
        assert ann.outcome(unit=unit.id) is Outcome.FORGOTTEN
        return "refused"
    if at not in steps:
        return None
    with pytest.raises(UnitRolledBack):
        ann.resume(unit.id)
    assert ann.outcome(unit=unit.id) is Outcome.ROLLED_BACK
    return "found"


@pytest.mark.parametrize("order", [head_first, head_last])
def test_a_save_that_is_half_applied_is_found_or_refused(order: Callable[[int], int]) -> None:
    ends = []
    for at in count(1):
        end = saved_while_its_owner_ends(at, order)
        if end is None:
            break
        ends.append(end)
    assert len(ends) >= 4
    assert set(ends) == {"found", "refused"}
