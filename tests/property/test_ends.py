"""Where the promises end: schedules that break one, as the guarantees say."""

import pytest
from property.chance import Recorded
from property.clocks import Machine
from property.faults import Faults
from property.invariants import Broken
from property.scripts import FIVE_WEEKS_MS, holder
from property.witness import Hold
from property.world import World


def test_a_request_that_is_built_before_the_item_is_deleted_and_sent_weeks_later_takes_the_token_back() -> None:
    world = World(Recorded([]), Faults())
    for name in "ab":
        world.add(name, holder(shared=False), rate=1, wall_is_off_ms=0)
    late, other = world.machines
    # It has asked for the time, and is about to take the lock.
    while late.pending is None or late.pending.call.operation != "update_item":
        world.go_on(late)
    late.pause(FIVE_WEEKS_MS)
    while not other.is_over:
        world.go_on(other) if other.is_ready() else world.let_time_pass(1_000)
    world.time.now_ms += FIVE_WEEKS_MS
    world.expires()
    with pytest.raises(Broken, match="fencing: a/1 was granted"):
        world.go_on(late)


@pytest.mark.parametrize("faults", [[("freeze", 2), ("jump", 2)], [("jump", 2), ("freeze", 2)]])
def test_a_machine_that_was_frozen_and_whose_wall_clock_is_set_back_counts_on_its_lease_for_too_long(
    faults: list[tuple[str, int]],
) -> None:
    world = World(Recorded([]), Faults())
    for name in "ab":
        world.add(name, holder(shared=False), rate=1, wall_is_off_ms=0)
    frozen, other = world.machines
    held = _acquires(world, frozen)
    for fault, how in faults:
        world.strikes(fault, frozen, how)
    assert _acquires(world, other).is_believed()
    assert held.clocks_allow()


def test_a_machine_that_was_frozen_finds_by_its_wall_clock_that_its_lease_is_over() -> None:
    world = World(Recorded([]), Faults())
    for name in "ab":
        world.add(name, holder(shared=False), rate=1, wall_is_off_ms=0)
    frozen, other = world.machines
    held = _acquires(world, frozen)
    world.strikes("freeze", frozen, 2)
    assert _acquires(world, other).is_believed()
    assert not held.clocks_allow()


def _acquires(world: World, machine: Machine) -> Hold:
    while not any(hold.machine is machine for hold in world.witness.holds):
        world.go_on(machine) if machine.is_ready() else world.let_time_pass(1_000)
    return world.witness.holds[-1]
