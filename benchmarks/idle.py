"""How long at most a free lock is idle with a waiter when executions crash and no event tells of it, by ``row_lease``.

    make bench, or: PYTHONPATH=tests python benchmarks/idle.py

In simulated worlds, whose time is virtual: ten executions ask at once for one lock, each holds it for up to three
leases, and some crash, at any request. The lease of rows far behind is set; times are told in leases of the lock. The
minute for which a dead waiter's row remains is about a lease, as with the construct's defaults.
"""

import sys
from dataclasses import replace
from unittest.mock import patch

from frame import Run, main
from kit.invariants import LEASE_MS, UNCERTAINTY_MS
from property.chance import Seeded
from property.clocks import Machine
from property.explore import to_its_end
from property.faults import Faults
from property.scripts import hold, step_by_step
from property.world import World

from ticketlock.locks import _protocol
from ticketlock.locks._items import Session
from ticketlock.wire._actions import Actions
from ticketlock.wire._driver import Driver

SCHEDULES = 60
EXECUTIONS = "abcdefghij"
CRASHES = Faults(crash=4)
ROW_LEASES = (1, 3, 10, 30)
"""In leases of the lock; 1 is a row without a lease of its own."""


def execution(world: World, machine: Machine, driver: Driver) -> Actions[None]:
    """Waits for the lock as a workflow, holds it for a while, and releases it."""
    claim = world.claim(f"{machine.name}/1", session=Session(machine.name, "1"))
    renewals = [(LEASE_MS // 2, "renew")] * world.chance.pick(7)
    yield from hold(world, machine, driver, claim, None, step_by_step(world, machine, driver, claim, None), renewals)


def longest_idle_ms(row_leases: int, *, misjudges: bool, schedules: int) -> float:
    """In so many schedules, each the same for every lease up to the first difference that it makes."""
    longest_ms = 0.0
    for seed in range(schedules):
        world = World(Seeded(seed), replace(CRASHES), wakes=True, misjudges=misjudges)
        world.row_lease_ms = world.checker.row_lease_ms = row_leases * LEASE_MS
        for name in EXECUTIONS:
            world.add(name, execution, rate=1, wall_is_off_ms=0)
        to_its_end(world)
        longest_ms = max(longest_ms, world.checker.longest_idle_ms)
    return longest_ms


def measure(run: Run) -> None:
    """Search, and check the bounds."""
    schedules, rows = 20 if run.quick else SCHEDULES, []
    # No shorter than a row without a lease of its own, by any process's clock.
    with patch.object(_protocol, "COMES_AGAIN_MS", LEASE_MS + 2 * UNCERTAINTY_MS):
        for leases in ROW_LEASES:
            as_judged, misjudged = (
                longest_idle_ms(leases, misjudges=misjudges, schedules=schedules) / LEASE_MS
                for misjudges in (False, True)
            )
            rows.append([leases, f"{as_judged:.1f}", f"{misjudged:.1f}"])
            run.check(f"{leases}: at most half of a row's and 4 leases, as judged", as_judged <= leases / 2 + 4)
            run.check(f"{leases}: at most a row's and 4 leases, misjudged", misjudged <= leases + 4)
    columns = ("row_lease", "far behind as the pace judges", "any but the first may think so")
    run.table(f"The longest idle time, in leases ({schedules:,} schedules each)", columns, rows)


if __name__ == "__main__":
    sys.exit(main(measure, __doc__, f"20 schedules each, not {SCHEDULES}"))
