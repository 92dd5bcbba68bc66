"""A free lock with a waiter, without faults: impatient waiters leave before a patient one."""

import pytest
from kit.invariants import LEASE_MS, Broken
from property.chance import Recorded
from property.clocks import Machine
from property.faults import Faults
from property.operators import Script
from property.scripts import at_once, hold
from property.world import World

from ticketlock.client import _pace
from ticketlock.client._waiters import LocalWaiters
from ticketlock.locks._outcomes import Claim
from ticketlock.wire._actions import Actions, Sleep
from ticketlock.wire._driver import Driver

HOLDS_MS = 19_000
FREE_MS = 2 * HOLDS_MS
"""When the holder has released the lock for the second time, roughly."""
IMPATIENT, IMPATIENT_WAIT_MS = 40, 2_000


@pytest.fixture(autouse=True)
def none_wakes_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each waiter were of another process: only the pace decides when it polls."""
    for hint in ("note_left", "tell_first_waiter"):
        monkeypatch.setattr(LocalWaiters, hint, lambda *_: None)


def acquires_at(begins_ms: int, wait_ms: int | None, *holds_ms: int) -> Script:
    """Acquires once for each of these times, from a moment on, and holds the lock for so long."""

    def script(world: World, machine: Machine, driver: Driver) -> Actions[None]:
        yield Sleep(begins_ms)
        for number, holds in enumerate(holds_ms):
            claim = Claim(world.lock, f"{machine.name}/{number}", LEASE_MS)
            acquisition = at_once(world, machine, driver, claim, wait_ms)
            yield from hold(world, machine, driver, claim, wait_ms, acquisition, [(holds, "work")])

    return script


def left_by_the_impatient() -> World:
    """A holder holds for long, twice; in the second hold many waiters come and leave, and one comes behind them."""
    world = World(Recorded([]), Faults())
    world.checker.is_fair = True
    world.add("h", acquires_at(0, None, HOLDS_MS, HOLDS_MS), rate=1, wall_is_off_ms=0)
    impatient = acquires_at(FREE_MS - IMPATIENT_WAIT_MS - 150, IMPATIENT_WAIT_MS, 1)
    for number in range(IMPATIENT):
        world.add(f"i{number}", impatient, rate=1, wall_is_off_ms=0)
    world.add("patient", acquires_at(FREE_MS - 200, None, 1), rate=1, wall_is_off_ms=0)
    while world.step():
        pass
    return world


def test_a_patient_waiter_finds_the_lock_free_within_one_poll_though_many_before_it_have_left() -> None:
    assert left_by_the_impatient().checker.last_owner == "patient/0"


def test_a_pace_that_only_counts_the_waiters_ahead_leaves_the_lock_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pace, "_LONGEST_BEHIND", 1_000)
    with pytest.raises(Broken, match=r"^idle: "):
        left_by_the_impatient()
