"""Clocks that are wrong, are set, or stop: none of it makes a holder rely on a lock for too long, or lets another take
it early.
"""

from collections.abc import Callable

import pytest
from kit.places import Moved, Wire, meanwhile, outcome, until

from ticketlock import AlreadyHeld, LockClient, LockLost, Position, RecordWaitExceeded
from ticketlock.testing import ManualClock
from ticketlock.wire._table_time import Reading

pytestmark = pytest.mark.shows("exclusion", "is_held")

LEASE_S = 60
FOUR_MINUTES_MS = 240_000
A_WEEK_S = 7 * 24 * 3_600


@pytest.fixture
def machine(moved: Moved) -> ManualClock:
    """The clocks of the client's machine, beside those of the service."""
    return moved.clock.another_machine()


@pytest.fixture
def locks(moved: Moved, machine: ManualClock) -> LockClient:
    return moved.client(clocks=machine, heartbeat=False, lease=LEASE_S)


@pytest.mark.parametrize(
    "stops",
    [
        lambda machine: machine.suspend(LEASE_S + 1),
        # A local clock does not see it.
        lambda machine: machine.freeze(LEASE_S + 1),
        lambda machine: (machine.freeze(LEASE_S - 20), machine.freeze(21)),
    ],
    ids=["a suspension", "a freeze", "two freezes"],
)
def test_a_lease_has_ended_at_once_after_its_machine_has_stopped_past_its_end(
    locks: LockClient, machine: ManualClock, entity: str, stops: Callable[[ManualClock], object]
) -> None:
    lease = locks.acquire(entity)
    stops(machine)
    assert not lease.is_held()


def test_a_freeze_within_the_lease_leaves_it_held(locks: LockClient, machine: ManualClock, entity: str) -> None:
    lease = locks.acquire(entity)
    machine.freeze(LEASE_S - 10)
    assert lease.is_held()
    assert lease.remaining_s <= 10


def test_a_lock_that_another_owner_got_during_a_freeze_cannot_be_renewed(
    moved: Moved, locks: LockClient, machine: ManualClock, entity: str
) -> None:
    lease = locks.acquire(entity)
    machine.freeze(LEASE_S + 5)
    current = moved.client(heartbeat=False).acquire(entity)
    with pytest.raises(LockLost):
        lease.ensure(1)
    assert current.is_held()


def test_a_wall_clock_that_is_set_forward_counts_as_a_freeze_until_the_table_is_asked(
    locks: LockClient, machine: ManualClock, entity: str
) -> None:
    lease = locks.acquire(entity)
    machine.set_wall(machine.wall_ms + FOUR_MINUTES_MS)
    assert not lease.is_held()
    lease.ensure(30)
    assert lease.is_held()


def test_a_holder_whose_wall_clock_was_set_forward_does_not_wait_for_itself_but_holds_the_lock_once_more(
    locks: LockClient, machine: ManualClock, entity: str
) -> None:
    with locks.acquire(entity) as lease:
        machine.set_wall(machine.wall_ms + FOUR_MINUTES_MS)
        with pytest.raises(AlreadyHeld):
            locks.acquire(entity, record_wait=0)
        machine.set_wall(machine.wall_ms + FOUR_MINUTES_MS)
        with locks.acquire(entity, reentrant=True, record_wait=0) as again:
            assert again == lease
        assert lease.is_held()


def test_a_machine_that_was_frozen_asks_the_table_and_reports_the_loss(moved: Moved, entity: str) -> None:
    told: list[object] = []
    lease = moved.client(lease=LEASE_S).acquire(entity, on_lost=told.append)
    moved.lose(entity)
    moved.clock.freeze(10 * LEASE_S)
    until(lambda: told)
    assert not lease.is_held()


def test_a_holder_that_lost_the_lock_in_a_freeze_joins_the_queue_for_it(
    moved: Moved, locks: LockClient, machine: ManualClock, entity: str
) -> None:
    locks.acquire(entity).__enter__()
    machine.freeze(LEASE_S + 5)
    moved.client(heartbeat=False).acquire(entity)
    with pytest.raises(RecordWaitExceeded):
        locks.acquire(entity, reentrant=True, record_wait=0)


def test_a_renewed_lease_is_held_though_the_wall_clock_was_set_during_the_renewal(
    moved: Moved, machine: ManualClock, entity: str
) -> None:
    wire = Wire()
    locks = moved.client(wire=wire, clocks=machine, heartbeat=False)
    # Replies around the turn of a second show table time to a few milliseconds, later ones to a second.
    for _ in range(100):
        machine.advance(0.01)
        locks.inspect(entity)
    lease = locks.acquire(entity)
    with wire.renewals_held_back(entity) as gate:
        renewing = meanwhile(lease.renew)
        until(gate.reached.is_set, "a renewal")
        machine.set_wall(machine.wall_ms + FOUR_MINUTES_MS)
    outcome(renewing)
    assert lease.is_held()


def test_a_wall_clock_that_is_set_back_gives_no_lease_more_time(
    locks: LockClient, machine: ManualClock, entity: str
) -> None:
    lease = locks.acquire(entity)
    machine.set_wall(machine.wall_ms - FOUR_MINUTES_MS)
    assert lease.is_held()
    machine.advance(LEASE_S)
    assert not lease.is_held()


@pytest.mark.parametrize("off_ms", [FOUR_MINUTES_MS, -FOUR_MINUTES_MS], ids=["fast", "slow"])
def test_a_record_wait_does_not_depend_on_the_wall_clock(
    moved: Moved, machine: ManualClock, entity: str, off_ms: int
) -> None:
    holder = moved.client(lease=1_000).acquire(entity)
    polls: list[Position] = []
    waiting = meanwhile(lambda: moved.client(clocks=machine).acquire(entity, record_wait=30, on_wait=polls.append))
    until(lambda: polls)
    machine.set_wall(machine.wall_ms + off_ms)
    moved.clock.advance(25)
    seen = len(polls)
    until(lambda: len(polls) > seen + 1)
    moved.clock.advance(6)
    with pytest.raises(RecordWaitExceeded):
        outcome(waiting)
    assert holder.is_held()
    assert moved.queue_of(entity) == 0


def test_the_deadline_is_reported_by_the_wall_clock(locks: LockClient, machine: ManualClock, entity: str) -> None:
    def until_the_deadline_ms() -> int:
        return round(lease.deadline.timestamp() * 1_000) - machine.wall_ms

    # Sooner, by what a slow clock may lose in a lease.
    expected_ms = range(999 * LEASE_S, 1_000 * LEASE_S)
    lease = locks.acquire(entity)
    assert until_the_deadline_ms() in expected_ms
    machine.advance(20)
    lease.renew()
    assert until_the_deadline_ms() in expected_ms


class Slow:
    """A machine's clocks that both lose one millisecond a second."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._began = clock.read()

    def read(self) -> Reading:
        passed_ms = int((self._clock.read().local_ms - self._began.local_ms) / 1.001)
        return Reading(self._began.local_ms + passed_ms, self._began.wall_ms + passed_ms)


def test_a_long_lease_has_ended_on_a_machine_with_a_slow_clock_before_another_owner_may_take_the_lock(
    moved: Moved, entity: str
) -> None:
    lease = moved.client(clocks=Slow(moved.clock), heartbeat=False, lease=A_WEEK_S).acquire(entity)
    moved.clock.advance(A_WEEK_S + 1)
    assert not lease.is_held()


@pytest.mark.parametrize("passed_s", [10, 60 * LEASE_S], ids=["within a lease", "of an hour"])
def test_a_lock_that_is_acquired_after_a_freeze_has_a_full_lease(
    moved: Moved, locks: LockClient, machine: ManualClock, entity: str, passed_s: int
) -> None:
    locks.acquire(entity).release()
    machine.freeze(passed_s)
    lease = locks.acquire(entity)
    assert lease.remaining_s > LEASE_S - 5
    assert moved.client().try_acquire(entity) is None
