"""A lease that its holder extends: once, to an end that no renewal brings nearer."""

import logging
from datetime import timedelta
from typing import Any

import pytest
from kit.places import Moved, Wire, is_renewal, until

from ticketlock import InvalidLockRequest, OutcomeUnknown
from ticketlock.testing import Fault

pytestmark = pytest.mark.shows("exclusion", "liveness")

LEASE_S, WEEK_S = 60, 7 * 24 * 3_600


@pytest.mark.parametrize("mode", [{}, {"permits": 2}, {"shared": True}], ids=["alone", "permits", "shared"])
def test_an_extended_lease_counts_so_long_for_its_holder_and_for_others(
    moved: Moved, entity: str, mode: dict[str, Any]
) -> None:
    lease = moved.client(heartbeat=False).acquire(entity, **mode)
    moved.clock.advance(30)
    before, now = len(moved.memory.sent), moved.clock.read()
    told = lease.extend(timedelta(minutes=10))
    assert len(moved.memory.sent) - before == 1
    assert told == lease.deadline
    assert 599 < lease.remaining_s <= 600
    assert 599 < told.timestamp() - now.wall_ms / 1_000 <= 600
    if mode:
        return
    others = moved.client()
    moved.clock.advance(599)
    assert lease.is_held()
    assert others.try_acquire(entity) is None
    moved.clock.advance(5)
    assert not lease.is_held()
    assert others.try_acquire(entity)


@pytest.mark.parametrize(
    ("seconds", "lasts_s"), [(1, 60), (59.999, 60), (60, 60), (60.001, 60.001), (WEEK_S, WEEK_S), (0.999, None)]
)
def test_an_extension_gives_a_full_lease_at_least_and_seven_days_at_most(
    moved: Moved, entity: str, seconds: float, lasts_s: float | None
) -> None:
    lease = moved.client(heartbeat=False).acquire(entity)
    moved.clock.advance(30)
    if lasts_s is None:
        for each in (seconds, WEEK_S + 0.001):
            before = moved.memory.items()
            with pytest.raises(InvalidLockRequest, match=r"seconds is .* from 1\.0 to 604,800\.0"):
                lease.extend(each)
            assert moved.memory.items() == before
        return
    lease.extend(seconds)
    (holder,) = moved.item_of(entity).holders
    assert holder.lease_ms == lasts_s * 1_000
    # The local clock may be slow.
    assert lasts_s * 0.999 < lease.remaining_s <= lasts_s


def test_no_renewal_brings_the_end_of_an_extended_lease_nearer(moved: Moved, entity: str) -> None:
    lease = moved.client(heartbeat=False).acquire(entity)
    lease.extend(600)
    (extended,) = moved.item_of(entity).holders
    for renew in (lease.renew, lambda: lease.extend(100), lambda: lease.ensure(599)):
        renew()
        assert lease.remaining_s > 598
    resumed = moved.client().resume(entity, lease.owner)
    for renew in (lambda: None, resumed.renew):
        renew()
        assert resumed.remaining_s > 598
    resumed.detach()
    moved.clock.advance(300)
    lease.renew()
    assert 298 < lease.remaining_s <= 300
    (holder,) = moved.item_of(entity).holders
    assert 0 <= holder.lease_until_ms - extended.lease_until_ms < 1_000
    moved.clock.advance(270)
    lease.renew()
    assert 59 < lease.remaining_s <= 60


def test_the_heartbeat_goes_on_half_a_lease_before_the_end_of_an_extended_lease(moved: Moved, entity: str) -> None:
    wire = Wire()
    locks = moved.client(wire=wire)
    lease, control = locks.acquire(entity), locks.acquire(f"{entity}, control")
    lease.extend(600)
    for _ in range(1, 20):
        moved.clock.advance(29)
        # Not only sent: the reply is known before the clock moves on.
        until(lambda: control.remaining_s > LEASE_S / 2)
    assert wire.renewals(entity) == 1
    moved.clock.advance(29)
    until(lambda: wire.renewals(entity) == 2)
    until(lambda: lease.remaining_s > 55)


def test_a_heartbeat_that_was_under_way_does_not_bring_the_deadline_nearer(
    moved: Moved, entity: str, caplog: pytest.LogCaptureFixture
) -> None:
    wire = Wire()
    lease = moved.client(wire=wire).acquire(entity)
    met = wire.before(is_renewal, lambda: lease.extend(600))
    with caplog.at_level(logging.DEBUG, "ticketlock"):
        moved.clock.advance(31)
        until(met.is_set)
        until(lambda: sum("renewed" in each.message for each in caplog.records) == 2)
    assert wire.renewals(entity) == 2
    assert lease.remaining_s > 590


def test_an_extension_whose_reply_was_lost_counts_once_and_one_of_unknown_outcome_may_be_repeated(
    moved: Moved, entity: str
) -> None:
    lease = moved.client(heartbeat=False).acquire(entity)
    moved.memory.faults.append(Fault.REPLY_LOST)
    lease.extend(120)
    (holder,) = moved.item_of(entity).holders
    assert 119 < lease.remaining_s <= 120
    assert holder.lease_ms <= 121_000
    with moved.time_flies(), moved.memory.outage(Fault.REPLY_LOST), pytest.raises(OutcomeUnknown):
        lease.extend(600)
    # Until it knows, the holder relies on what it knew.
    assert 0 < lease.remaining_s < 120
    lease.extend(600)
    assert 599 < lease.remaining_s <= 600
