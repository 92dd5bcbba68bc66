"""Renewals: at half-life, each lease for itself, and never after its release."""

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from kit.places import Emulated, Moved, Wire, is_renewal, until

from ticketlock import InvalidLockRequest, LockClient, LockLost
from ticketlock.testing import Fault, ManualClock
from ticketlock.wire._table_time import Reading

pytestmark = pytest.mark.shows("reported loss")

SHORT_S, LEASE_S = 6.0, 60
"""Leases that are long enough for a busy machine, and for a moved clock."""
RENEWED_BY_S, IN_DANGER_BY_S = 0.6 * SHORT_S, 0.8 * SHORT_S
"""Past half-life; less than a quarter of the lease is left."""
MANY = 300
MORE_THAN_RENEW_AT_ONCE = 160
READS_A_LEASE = MANY // 3
"""How often the clock may be read for each: as often as there are leases, if a renewal reads it for all. A slow machine
looks at those under way some more times.
"""


class Told:
    """What a lease's callbacks were told, in order."""

    def __init__(self) -> None:
        self.news: list[str] = []

    def wishes(self) -> dict[str, Any]:
        return {
            "on_danger": lambda _: self.news.append("danger"),
            "on_lost": lambda _: self.news.append("lost"),
        }


@dataclass
class CountingClocks:
    """Clocks that count how often they are read."""

    clock: ManualClock
    reads: int = 0

    def read(self) -> Reading:
        self.reads += 1
        return self.clock.read()


@pytest.fixture
def told() -> Told:
    return Told()


def test_each_lease_is_renewed_at_its_own_half_life(place: Emulated, entity: str) -> None:
    wire = Wire()
    slow = f"{entity}, slow"
    locks = place.client(wire=wire, shortest_lease=SHORT_S)
    leases = [locks.acquire(entity, lease=SHORT_S), locks.acquire(slow, lease=3 * SHORT_S)]
    began, renewed, slow_renewed = time.monotonic(), wire.renewals(entity), wire.renewals(slow)
    until(lambda: wire.renewals(slow) > slow_renewed)
    passed_s = time.monotonic() - began
    # Past the first end of the shorter one.
    assert passed_s > SHORT_S
    assert all(lease.is_held() for lease in leases)
    assert place.client().try_acquire(entity) is None
    # Never much before half-life: each renewal costs money.
    assert 2 <= wire.renewals(entity) - renewed <= passed_s / (0.4 * SHORT_S)


@pytest.mark.parametrize("how", ["without a heartbeat", "released", "detached", "lost"])
def test_a_lease_without_a_heartbeat_or_whose_hold_has_ended_here_is_not_renewed(
    moved: Moved, entity: str, told: Told, how: str
) -> None:
    wire = Wire()
    locks = moved.client(wire=wire, lease=SHORT_S)
    lease = locks.acquire(entity, owner="build-7", heartbeat=how != "without a heartbeat", **told.wishes())
    if how == "released":
        lease.release()
    elif how == "detached":
        with lease:
            lease.detach()
        assert locks.resume(entity, "build-7", heartbeat=False).fencing_token == lease.fencing_token
    elif how == "lost":
        moved.lose(entity)
        moved.clock.advance(RENEWED_BY_S)
        until(lambda: told.news == ["lost"])
        with pytest.raises(LockLost):
            lease.renew()
    renewed = wire.renewals(entity)
    _let_renewals_be_due(moved, locks, wire, entity)
    assert wire.renewals(entity) == renewed


def test_a_renewal_in_progress_during_the_release_neither_revives_the_lease_nor_is_retried(
    moved: Moved, entity: str, told: Told
) -> None:
    wire = Wire()
    locks = moved.client(wire=wire, lease=SHORT_S)
    lease = locks.acquire(entity, **told.wishes())
    with wire.renewals_held_back(entity) as gate:
        moved.clock.advance(RENEWED_BY_S)
        until(gate.reached.is_set)
        lease.release()
        renewed = wire.renewals(entity)
    _let_renewals_be_due(moved, locks, wire, entity)
    assert wire.renewals(entity) == renewed
    assert not lease.is_held()
    assert moved.is_free(entity)
    assert told.news == []


def test_renewals_that_hang_delay_neither_other_renewals_nor_the_report_of_their_own_loss(
    place: Emulated, entity: str, told: Told
) -> None:
    wire = Wire()
    locks = place.client(wire=wire, lease=SHORT_S)
    hung = locks.acquire(f"{entity}, hung", **told.wishes())
    for number in range(8):
        locks.acquire(f"{entity}, hung {number}")
    other = locks.acquire(f"{entity}, other")
    with wire.held_back(lambda sent: is_renewal(sent) and "hung" in str(sent.parameters["Key"])) as gate:
        until(gate.reached.is_set)
        until(lambda: "lost" in told.news)
        assert not hung.is_held()
        renewed = wire.renewals(f"{entity}, other")
        until(lambda: wire.renewals(f"{entity}, other") > renewed)
        assert other.is_held()
    assert told.news == ["danger", "lost"]


@pytest.mark.parametrize("kind", ["threads"])
def test_a_silent_table_does_not_delay_the_report_of_any_loss_among_many_leases(moved: Moved, entity: str) -> None:
    """More renewals hang than there are threads for them."""
    wire, told = Wire(), {"danger": set[str](), "lost": set[str]()}
    locks = moved.client(wire=wire, lease=SHORT_S)
    for number in range(MORE_THAN_RENEW_AT_ONCE):
        locks.acquire(
            f"{entity} {number}",
            on_danger=lambda lease: told["danger"].add(lease.entity),
            on_lost=lambda lease: told["lost"].add(lease.entity),
        )
    with wire.held_back(is_renewal) as gate:
        moved.clock.advance(RENEWED_BY_S)
        until(gate.reached.is_set)
        moved.clock.advance(IN_DANGER_BY_S - RENEWED_BY_S)
        until(lambda: len(told["danger"]) == MORE_THAN_RENEW_AT_ONCE)
        moved.clock.advance(SHORT_S - IN_DANGER_BY_S)
        until(lambda: len(told["lost"]) == MORE_THAN_RENEW_AT_ONCE)


def test_a_renewal_among_many_leases_does_not_read_the_clock_for_each(moved: Moved, entity: str) -> None:
    clocks = CountingClocks(moved.clock)
    locks = moved.client(lease=SHORT_S, clocks=clocks)
    leases = [locks.acquire(f"{entity} {number}") for number in range(MANY)]
    clocks.reads = 0
    moved.clock.advance(RENEWED_BY_S)
    # The leases' own ``remaining_s`` reads the clock.
    until(lambda: all(lease._remaining_ms(moved.clock.read()) > 900 * SHORT_S for lease in leases))
    assert clocks.reads < READS_A_LEASE * MANY


def test_throttled_renewals_are_retried_until_one_succeeds(moved: Moved, entity: str, told: Told) -> None:
    wire = Wire()
    lease = moved.client(wire=wire, lease=SHORT_S).acquire(entity, **told.wishes())
    with moved.memory.outage(Fault.THROTTLED):
        moved.clock.advance(RENEWED_BY_S)
        until(lambda: wire.renewals(entity) >= 3)
    until(lambda: lease.remaining_s > 0.9 * SHORT_S)
    assert lease.is_held()
    assert told.news == []


@pytest.mark.parametrize("fault", [Fault.THROTTLED, Fault.REQUEST_LOST])
def test_a_lease_that_cannot_be_renewed_is_in_danger_and_then_lost_and_each_is_reported_once(
    moved: Moved, entity: str, told: Told, fault: Fault
) -> None:
    wire = Wire()
    locks = moved.client(wire=wire, lease=SHORT_S)
    lease = locks.acquire(entity, **told.wishes())
    with moved.memory.outage(fault):
        moved.clock.advance(RENEWED_BY_S)
        until(lambda: wire.renewals(entity))
        moved.clock.advance(IN_DANGER_BY_S - RENEWED_BY_S)
        until(lambda: told.news == ["danger"])
        assert lease.is_held()
        moved.clock.advance(SHORT_S - IN_DANGER_BY_S)
        until(lambda: told.news == ["danger", "lost"])
    assert not lease.is_held()
    _let_a_lease_be_lost(moved, f"{entity}, control")
    assert told.news == ["danger", "lost"]


def test_danger_is_reported_when_it_is_asked_for_and_once_even_after_a_recovery(
    moved: Moved, entity: str, told: Told
) -> None:
    lease = moved.client(lease=4, heartbeat=False).acquire(entity, danger=3, **told.wishes())
    moved.clock.advance(1)
    until(lambda: told.news == ["danger"])
    assert lease.is_held()
    lease.renew()
    moved.clock.advance(8)
    until(lambda: "lost" in told.news)
    assert told.news == ["danger", "lost"]


def test_the_end_of_a_released_lease_is_not_reported(moved: Moved, entity: str, told: Told) -> None:
    lease = moved.client(lease=SHORT_S, heartbeat=False).acquire(entity, **told.wishes())
    lease.release()
    moved.clock.advance(10 * SHORT_S)
    _let_a_lease_be_lost(moved, f"{entity}, control")
    assert told.news == []


def test_an_exception_in_on_danger_is_logged_and_the_loss_is_reported_nevertheless(
    moved: Moved, entity: str, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: object) -> None:
        raise RuntimeError("in on_danger")

    wishes = {**told.wishes(), "on_danger": fails}
    lease = moved.client(lease=SHORT_S, heartbeat=False).acquire(entity, **wishes)
    moved.clock.advance(IN_DANGER_BY_S)
    until(lambda: "in on_danger" in caplog.text)
    moved.clock.advance(SHORT_S)
    until(lambda: told.news == ["lost"])
    assert not lease.is_held()


@pytest.mark.parametrize(("heartbeat", "why"), [(True, "it could not be renewed"), (False, "nothing renewed it")])
def test_the_log_says_why_a_lease_has_ended(
    moved: Moved, entity: str, caplog: pytest.LogCaptureFixture, heartbeat: bool, why: str
) -> None:
    lost: list[object] = []
    moved.client(lease=SHORT_S, heartbeat=heartbeat).acquire(entity, on_lost=lost.append)
    with moved.memory.outage(Fault.REQUEST_LOST):
        moved.clock.advance(SHORT_S)
        until(lambda: lost)
    assert f"its lease has ended, and {why}" in caplog.text


def test_a_lock_that_was_taken_away_is_lost_within_one_heartbeat(place: Emulated, entity: str, told: Told) -> None:
    wire = Wire()
    lease = place.client(wire=wire, lease=SHORT_S).acquire(entity, **told.wishes())
    renewed = wire.renewals(entity)
    place.lose(entity)
    until(lambda: told.news == ["lost"])
    assert wire.renewals(entity) == renewed + 1
    assert not lease.is_held()


def test_a_lock_whose_item_was_deleted_is_lost_within_one_heartbeat(moved: Moved, entity: str, told: Told) -> None:
    lease = moved.client(lease=SHORT_S).acquire(entity, **told.wishes())
    moved.memory.delete_all(entity)
    moved.clock.advance(RENEWED_BY_S)
    until(lambda: told.news == ["lost"])
    assert not lease.is_held()


@pytest.mark.parametrize(("at_least_s", "sent"), [(9.9, 0), (30, 1)], ids=["enough is left", "too little is left"])
def test_ensure_renews_a_lease_of_which_too_little_is_left_and_sends_nothing_otherwise(
    moved: Moved, entity: str, at_least_s: float, sent: int
) -> None:
    lease = moved.client(heartbeat=False).acquire(entity)
    moved.clock.advance(50)
    before = len(moved.memory.sent)
    lease.ensure(at_least_s)
    assert len(moved.memory.sent) - before == sent
    assert (lease.remaining_s > 55) == (sent > 0)


@pytest.mark.parametrize("at_least_s", [45, LEASE_S, 7 * 24 * 3_600])
def test_to_make_sure_of_more_than_a_renewal_leaves_is_refused_and_the_lock_stays_held(
    moved: Moved, entity: str, at_least_s: float
) -> None:
    lease = moved.client(lease=30, heartbeat=False).acquire(entity)
    before = len(moved.memory.sent)
    with pytest.raises(InvalidLockRequest, match=r"at_least is .*22\.5 s, three quarters of the lease"):
        lease.ensure(at_least_s)
    assert len(moved.memory.sent) == before
    assert lease.is_held()
    lease.extend(100)
    lease.ensure(45)


@pytest.mark.parametrize("danger_s", [31, 40, timedelta(seconds=45)])
def test_danger_is_not_reported_while_renewals_work_however_early_it_is_asked_for(
    moved: Moved, entity: str, told: Told, danger_s: Any
) -> None:
    lease = moved.client(lease=LEASE_S).acquire(entity, danger=danger_s, **told.wishes())
    for _ in range(4):
        # Past half of what is left until the danger.
        moved.clock.advance(15 if danger_s == 31 else 11 if danger_s == 40 else 8)
        until(lambda: lease.remaining_s > 55)
    assert told.news == []
    with moved.memory.outage(Fault.THROTTLED):
        moved.clock.advance(30)
        until(lambda: told.news == ["danger"])


def test_danger_so_early_that_no_heartbeat_can_renew_before_is_refused(moved: Moved, entity: str) -> None:
    locks = moved.client(lease=LEASE_S)
    with pytest.raises(InvalidLockRequest, match=r"danger is 46; allowed: up to 45\.0 s, three quarters of the lease"):
        locks.acquire(entity, danger=46)
    assert moved.memory.sent == []
    assert locks.acquire(entity, danger=46, heartbeat=False)


def _let_renewals_be_due(moved: Moved, locks: LockClient, wire: Wire, entity: str) -> None:
    """Each renewal of another lock of the client shows that what was due has been sent."""
    control = locks.acquire(f"{entity}, control")
    moved.clock.advance(RENEWED_BY_S)
    until(lambda: wire.renewals(control.entity) >= 1, "a renewal of the control lock")
    moved.clock.advance(RENEWED_BY_S)
    until(lambda: wire.renewals(control.entity) >= 2, "renewals of the control lock")


def _let_a_lease_be_lost(moved: Moved, entity: str) -> None:
    """The client is busy with another lock's end, so everything else that was due has been done."""
    lost: list[object] = []
    moved.client(lease=1, heartbeat=False).acquire(entity, on_lost=lost.append)
    moved.clock.advance(1)
    until(lambda: lost)
