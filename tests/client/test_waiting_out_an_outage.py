"""A waiter keeps its place while the table is unreachable, until the lease of its row ends."""

import pytest
from kit.engines import ON_ONE_ENGINE
from kit.world import LEASE_MS, Process, Stepper, World

from ticketlock import Grant, LockName, OutcomeUnknown, RequestNotApplied, TableError, TableRefused
from ticketlock.client._acquire import acquire
from ticketlock.client._pace import Bounds, Pace
from ticketlock.wire._requests import Pause

pytestmark = ON_ONE_ENGINE
OUT_OF_REACH_MS = 8_000


def waiting(process: Process, lock: LockName, record_wait_ms: int | None = None) -> Stepper[Grant]:
    """A waiter that has slept once in the queue, and is about to poll."""
    waiter = process.steps(
        process.claim(lock),
        lambda me: acquire(me, record_wait_ms, Pace(Bounds()), on_wait=lambda _: None, jitter=lambda: 0.5),
    )
    while not isinstance(waiter.next_request, Pause):
        waiter.step()
    waiter.step()
    return waiter


def fails(waiter: Stepper[Grant], world: World, error: type[TableError]) -> None:
    """One poll fails after its retries, and the waiter sleeps again."""
    world.advance(OUT_OF_REACH_MS)
    waiter.fail(error("the table is out of reach"))
    if isinstance(waiter.next_request, Pause):
        waiter.step()


@pytest.mark.parametrize("error", [RequestNotApplied, OutcomeUnknown, TableRefused])
def test_a_waiter_without_a_record_wait_outlasts_an_outage_of_forty_seconds(
    world: World, alice: Process, bob: Process, lock: LockName, error: type[TableError]
) -> None:
    first = alice.claim(lock)
    grant = alice.granted(first)
    waiter = waiting(bob, lock)
    (row,) = alice.table.inspect(lock).rows
    for _ in range(5):
        fails(waiter, world, error)
    alice.table.release(first, grant)
    granted = waiter.to_the_end()
    assert granted.ticket == row.ticket


def test_an_outage_longer_than_its_rows_lease_ends_the_wait(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    alice.granted(alice.claim(lock))
    waiter = waiting(bob, lock)
    while not waiter.done:
        fails(waiter, world, RequestNotApplied)
    assert isinstance(waiter.error, RequestNotApplied)
    (row,) = alice.table.inspect(lock).rows
    assert row.lease_until_ms <= world.now_ms + 1_000 < row.lease_until_ms + LEASE_MS


def test_a_record_wait_ends_in_the_middle_of_an_outage(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    alice.granted(alice.claim(lock))
    waiter = waiting(bob, lock, record_wait_ms=10_000)
    fails(waiter, world, RequestNotApplied)
    assert not waiter.done
    fails(waiter, world, RequestNotApplied)
    waiter.fail(RequestNotApplied("nor can it leave the queue"))
    assert isinstance(waiter.error, RequestNotApplied)
