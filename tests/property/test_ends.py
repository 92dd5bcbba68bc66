"""The limits of the promises: schedules that break one, as the guarantees say."""

import pytest
from kit.invariants import Broken
from property.chance import Recorded
from property.clocks import Machine
from property.faults import JUMPS_MS, PAUSES_MS, Faults
from property.parties import Hold
from property.scripts import FIVE_WEEKS_MS, holder
from property.world import World

pytestmark = pytest.mark.shows("order")

PAST_THE_LEASE = ("freeze", PAUSES_MS.index(30_000))
SET_BACK = ("jump", JUMPS_MS.index(-90_000))


def world_of_holders(names: str) -> World:
    """A world without faults of its own, whose clocks are right."""
    world = World(Recorded([]), Faults())
    for name in names:
        world.add(name, holder(shared=False), rate=1, wall_is_off_ms=0)
    return world


def test_a_request_that_is_built_before_the_item_is_deleted_and_sent_weeks_later_takes_the_token_back() -> None:
    world = world_of_holders("ab")
    late, other = world.machines
    # It has asked for the table's time, and is about to take the lock.
    _continues_to(world, late, "update_item")
    late.pause(FIVE_WEEKS_MS)
    _ends(world, other)
    world.time.now_ms += FIVE_WEEKS_MS
    world.expires()
    with pytest.raises(Broken, match="fencing: a/1 was granted"):
        world.go_on(late)


@pytest.mark.parametrize(
    "faults",
    [[PAST_THE_LEASE, SET_BACK], [SET_BACK, PAST_THE_LEASE]],
    ids=["frozen, then set back", "set back, then frozen"],
)
def test_a_machine_that_was_frozen_and_whose_wall_clock_is_set_back_counts_on_its_lease_for_too_long(
    faults: list[tuple[str, int]],
) -> None:
    world = world_of_holders("ab")
    frozen, other = world.machines
    held = _acquires(world, frozen)
    for fault, how in faults:
        world.strikes(fault, frozen, how)
    assert _acquires(world, other).is_believed()
    assert held.lease.is_held()


def test_a_machine_that_was_frozen_finds_by_its_wall_clock_that_its_lease_is_over() -> None:
    world = world_of_holders("ab")
    frozen, other = world.machines
    held = _acquires(world, frozen)
    fault, how = PAST_THE_LEASE
    world.strikes(fault, frozen, how)
    assert _acquires(world, other).is_believed()
    assert not held.lease.is_held()


def _acquires(world: World, machine: Machine) -> Hold:
    while not any(hold.machine is machine for hold in world.checker.holds):
        world.go_on(machine) if machine.is_ready() else world.let_time_pass(1_000)
    return world.checker.holds[-1]


def test_a_poll_that_finds_the_lock_as_it_is_and_the_rows_as_they_were_overtakes_once_more() -> None:
    world = world_of_holders("hrxy")
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
