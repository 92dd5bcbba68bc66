"""The limits of the promises: schedules that break one, as the guarantees say."""

import pytest
from kit.invariants import Broken
from property.chance import Recorded
from property.clocks import Machine
from property.faults import Faults
from property.parties import Hold
from property.scripts import FIVE_WEEKS_MS, holder
from property.world import World

pytestmark = pytest.mark.shows("order")


def test_a_request_that_is_built_before_the_item_is_deleted_and_sent_weeks_later_takes_the_token_back() -> None:
    world = World(Recorded([]), Faults())
    for name in "ab":
        world.add(name, holder(shared=False), rate=1, wall_is_off_ms=0)
    late, other = world.machines
    # It has asked for the table's time, and is about to take the lock.
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
    assert held.lease.is_held()


def test_a_machine_that_was_frozen_finds_by_its_wall_clock_that_its_lease_is_over() -> None:
    world = World(Recorded([]), Faults())
    for name in "ab":
        world.add(name, holder(shared=False), rate=1, wall_is_off_ms=0)
    frozen, other = world.machines
    held = _acquires(world, frozen)
    world.strikes("freeze", frozen, 2)
    assert _acquires(world, other).is_believed()
    assert not held.lease.is_held()


def _acquires(world: World, machine: Machine) -> Hold:
    while not any(hold.machine is machine for hold in world.checker.holds):
        world.go_on(machine) if machine.is_ready() else world.let_time_pass(1_000)
    return world.checker.holds[-1]


def test_a_poll_that_finds_the_lock_as_it_is_and_the_rows_as_they_were_overtakes_once_more() -> None:
    world = World(Recorded([]), Faults())
    for name in "hrxy":
        world.add(name, holder(shared=False), rate=1, wall_is_off_ms=0)
    before, passed, first, second = world.machines
    _acquires(world, before)
    _continues_to(world, passed, "put_item")
    for machine in (first, second):
        _sleeps(world, machine)
    _ends(world, before)
    for machine in (first, second):
        _continues_to(world, machine, "query")
    # Both poll before the row is put; one poll takes so long that the other machine has come and gone.
    world.befalls("torn", second)
    _continues_to(world, first, "transact_write_items")
    _sleeps(world, passed)
    _ends(world, first)
    # The lock item in its new state, the row in its old one, absent; the other's row in its new state, gone.
    world.chance = Recorded([1, 1, 0])
    _ends(world, second)
    assert list(world.checker.tokens) == ["h/1", "x/1", "y/1"]
    assert [each.row.owner for each in world.checker.rows.values()] == ["r/1"]
    assert world.checker.slips == world.checker.rows.keys()


def _continues_to(world: World, machine: Machine, operation: str) -> None:
    """Continue it until it has sent such a request."""
    while machine.pending is None or machine.pending.call.operation != operation:
        world.go_on(machine) if machine.is_ready() else world.let_time_pass()


def _sleeps(world: World, machine: Machine) -> None:
    """Continue it until it sleeps."""
    while machine.is_ready():
        world.go_on(machine)


def _ends(world: World, machine: Machine) -> None:
    """Continue it to its end."""
    while not machine.is_over:
        world.go_on(machine) if machine.is_ready() else world.let_time_pass(1)
