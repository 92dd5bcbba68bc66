"""A lease that its holder extends: once, to an end that no renewal brings nearer."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from kit.places import Moved, Wire, is_renewal, meanwhile, outcome, until

from ticketlock import InvalidLockRequest, LockLost, OutcomeUnknown, RequestNotApplied
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


def test_an_extension_counts_though_a_heartbeat_that_has_seen_its_end_is_answered_before_it(
    moved: Moved, entity: str, caplog: pytest.LogCaptureFixture
) -> None:
    wire = Wire()
    lease = moved.client(wire=wire).acquire(entity)
    with caplog.at_level(logging.DEBUG, "ticketlock"), wire.renewals_held_back(entity) as heartbeat:
        moved.clock.advance(31)
        until(heartbeat.reached.is_set)
        heartbeat.is_meant = nothing
        with wire.answers_held_back(is_renewal) as extension:
            extending = meanwhile(lambda: lease.extend(600))
            until(extension.reached.is_set)
            extension.is_meant = nothing
            heartbeat.opened.set()
            until(lambda: "renewed" in caplog.text)
        assert outcome(extending) == lease.deadline
    assert lease.remaining_s > 590


def nothing(_: object) -> bool:
    return False


# A renewal that is under way at the lease's end: the lock is lost, and what it has written is given up.


RENEWALS = pytest.mark.parametrize(
    "renew",
    [lambda lease: lease.renew(), lambda lease: lease.extend(600), lambda lease: lease.ensure(59)],
    ids=["renew", "extend", "ensure"],
)


@RENEWALS
@pytest.mark.parametrize(
    ("is_watched", "fault"), [(True, Fault.REPLY_LOST), (False, Fault.REPLY_LOST), (True, Fault.THROTTLED)]
)
def test_a_renewal_is_not_sent_after_the_leases_end_and_the_lock_is_lost(
    moved: Moved, entity: str, renew: Callable[[Any], object], is_watched: bool, fault: Fault
) -> None:
    told: list[object] = []
    lease = moved.client(heartbeat=False).acquire(entity, on_lost=told.append if is_watched else None)
    moved.clock.advance(LEASE_S - 4)
    # No other try may fit in before the end: then it has not been lost yet.
    given_up = {Fault.REPLY_LOST: OutcomeUnknown, Fault.THROTTLED: RequestNotApplied}[fault]
    with moved.time_flies(), moved.memory.outage(fault), pytest.raises((LockLost, given_up)):
        renew(lease)
    moved.clock.advance(10)
    assert not lease.is_held()
    until(lambda: told == [lease] * is_watched)
    assert moved.client().try_acquire(entity)


@RENEWALS
@pytest.mark.parametrize(
    ("is_watched", "hangs"), [(True, "answers_held_back"), (False, "answers_held_back"), (True, "held_back")]
)
def test_a_renewal_that_is_answered_after_the_leases_end_is_given_up_and_the_lock_is_lost(
    moved: Moved, entity: str, renew: Callable[[Any], object], is_watched: bool, hangs: str
) -> None:
    wire, told = Wire(), list[object]()
    moved.client().acquire(entity).release(data_left="page 7")
    locks = moved.client(wire=wire, heartbeat=False)
    lease = locks.acquire(entity, on_lost=told.append if is_watched else None)
    moved.clock.advance(LEASE_S - 4)
    with getattr(wire, hangs)(is_renewal) as gate:
        renewing = meanwhile(lambda: renew(lease))
        until(gate.reached.is_set)
        moved.clock.advance(10)
        until(lambda: told == [lease] * is_watched)
    with pytest.raises(LockLost):
        outcome(renewing)
    assert told == [lease] * is_watched
    assert not lease.is_held()
    assert ", lost>" in repr(lease)
    # Nobody waits for the end that the renewal asked for, and the next holder gets what was left before.
    assert moved.client().acquire(entity, record_wait=0).data_left == "page 7"


@RENEWALS
def test_a_renewal_that_begins_after_the_end_of_which_nobody_was_told_asks_the_table(
    moved: Moved, entity: str, renew: Callable[[Any], object]
) -> None:
    lease = moved.client(heartbeat=False).acquire(entity)
    moved.clock.advance(LEASE_S + 10)
    with moved.time_flies(), moved.memory.outage(Fault.THROTTLED), pytest.raises(RequestNotApplied):
        renew(lease)
    assert not lease.is_held()
    with pytest.raises(LockLost):
        renew(lease)


def test_a_heartbeat_that_is_answered_after_the_leases_end_is_given_up(moved: Moved, entity: str) -> None:
    wire, told = Wire(), list[object]()
    locks = moved.client(wire=wire)
    lease = locks.acquire(entity, on_lost=told.append)
    with wire.answers_held_back(is_renewal) as gate:
        moved.clock.advance(31)
        until(gate.reached.is_set)
        moved.clock.advance(30)
        until(lambda: told == [lease])
        assert moved.holders_of(entity) == 1
    until(lambda: moved.is_free(entity))


def test_a_renewal_of_a_grant_that_others_may_use_is_kept_after_the_leases_end(moved: Moved, entity: str) -> None:
    wire = Wire()
    lease = moved.client(wire=wire, heartbeat=False).acquire(entity, owner="nightly")
    with wire.answers_held_back(is_renewal) as gate:
        renewing = meanwhile(lease.renew)
        until(gate.reached.is_set)
        moved.clock.advance(LEASE_S)
    with pytest.raises(LockLost):
        outcome(renewing)
    assert moved.holders_of(entity) == 1


def test_a_lock_whose_renewal_was_answered_too_late_stays_as_it_is_if_it_was_detached(
    moved: Moved, entity: str
) -> None:
    wire = Wire()
    lease = moved.client(wire=wire, heartbeat=False).acquire(entity)
    with wire.answers_held_back(is_renewal) as gate:
        renewing = meanwhile(lease.renew)
        until(gate.reached.is_set)
        lease.detach()
        moved.clock.advance(LEASE_S)
    with pytest.raises(LockLost):
        outcome(renewing)
    assert moved.holders_of(entity) == 1
