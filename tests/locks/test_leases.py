"""Leases: renewed, ended, taken over; and clocks that are wrong."""

import re
from typing import Any

import pytest
from kit.engines import first_on, roomy_engine_names
from kit.world import LEASE_MS, Process, World, reply_lost
from locks.waiting_line import item_of

from ticketlock import Claim, Grant, LockLost, LockName, Position
from ticketlock.locks import _writes as write
from ticketlock.locks._modes import MAX_HOLDERS

pytestmark = pytest.mark.shows("exclusion")

MINUTE_MS = 60_000


def test_an_expired_holder_is_replaced_by_the_first_try_without_an_earlier_observation(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    alice.granted(alice.claim(lock))
    world.advance(LEASE_MS + 4_000)
    assert bob.granted(bob.claim(lock)).took_over == 1


def test_an_expired_holder_is_replaced_by_a_caller_with_a_record_wait_of_0(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    alice.granted(alice.claim(lock))
    world.advance(LEASE_MS + 4_000)
    assert isinstance(bob.take(bob.claim(lock), record_wait_ms=0), Grant)


def test_a_holder_is_not_replaced_before_its_lease_has_expired(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    alice.granted(alice.claim(lock))
    world.advance(LEASE_MS - 1)
    assert isinstance(bob.take(bob.claim(lock)), Position)


def test_an_expired_holder_is_replaced_by_the_first_in_line(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    alice.granted(alice.claim(lock))
    second, third = bob.claim(lock), carol.claim(lock)
    first_place, last_place = bob.queued(second), carol.queued(third)
    world.advance(LEASE_MS // 2)
    kept, kept_too = bob.poll(second, first_place), carol.poll(third, last_place)
    world.advance(LEASE_MS // 2 + 4_000)
    assert isinstance(kept, Position)
    assert isinstance(kept_too, Position)
    assert isinstance(carol.poll(third, kept_too), Position)
    found = bob.poll(second, kept)
    assert isinstance(found, Grant)
    assert found.took_over == 1


def test_a_holder_that_was_replaced_cannot_renew(world: World, alice: Process, bob: Process, lock: LockName) -> None:
    claim = alice.claim(lock)
    grant = alice.granted(claim)
    world.advance(LEASE_MS + 4_000)
    bob.granted(bob.claim(lock))
    with pytest.raises(LockLost):
        alice.table.renew(claim, grant.fencing_token)


def test_an_expired_lease_is_not_revived_even_if_no_one_took_the_lock(
    world: World, alice: Process, lock: LockName
) -> None:
    claim = alice.claim(lock)
    grant = alice.granted(claim)
    world.advance(LEASE_MS + 1)
    with pytest.raises(LockLost):
        alice.table.renew(claim, grant.fencing_token)


def test_a_renewal_that_arrives_late_does_not_shorten_the_lease(world: World, alice: Process, lock: LockName) -> None:
    claim = alice.claim(lock)
    grant = alice.granted(claim)
    world.advance(10_000)
    late = write.renew(claim, grant.fencing_token, alice.table.now())
    world.advance(10_000)
    renewed = alice.table.renew(claim, grant.fencing_token)
    assert not alice.table.perform(late).applied
    assert item_of(alice, lock).holders[0].lease_until_ms == renewed.lease_until_ms


def test_a_renewal_of_an_earlier_grant_of_the_same_owner_is_refused(
    world: World, alice: Process, lock: LockName
) -> None:
    claim = alice.claim(lock)
    earlier = alice.granted(claim)
    alice.table.release(claim, earlier)
    alice.granted(claim)
    before = alice.table.inspect(lock).item
    world.advance(1_000)
    with pytest.raises(LockLost, match=f"fencing token {earlier.fencing_token}"):
        alice.table.renew(claim, earlier.fencing_token)
    assert alice.table.inspect(lock).item == before


def test_a_release_after_the_lease_reports_it_and_frees_the_lock(world: World, alice: Process, lock: LockName) -> None:
    claim = alice.claim(lock)
    grant = alice.granted(claim)
    world.advance(LEASE_MS + 10_000)
    assert alice.table.release(claim, grant).lease_was_over
    assert item_of(alice, lock).holders == ()


def test_a_holders_deadline_comes_before_any_other_process_may_take_its_lease_as_expired(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    grant = alice.granted(alice.claim(lock))
    bob.table.inspect(lock)
    world.advance(grant.deadline_ms - alice.read().local_ms)
    assert isinstance(bob.take(bob.claim(lock)), Position)


def test_a_grants_deadline_is_the_same_moment_on_both_clocks(world: World, alice: Process, lock: LockName) -> None:
    """Found by a random schedule: a machine was frozen after its grant, while it woke the next one in line."""
    claim = alice.claim(lock)
    for grant in (alice.granted(claim), alice.granted(claim)):
        reading = alice.read()
        assert grant.deadline_wall_ms - reading.wall_ms == grant.deadline_ms - reading.local_ms > 0
        world.advance(LEASE_MS // 2)


def test_a_cold_process_asks_for_the_time_once(world: World, lock: LockName) -> None:
    cold = world.process(cold=True)
    claim = cold.claim(lock)
    assert cold.operations(lambda: cold.granted(claim)) == ["GetItem", "UpdateItem"]
    assert cold.operations(lambda: cold.take(claim)) == ["UpdateItem"]


def test_a_process_that_was_suspended_asks_for_the_time_again(alice: Process, lock: LockName) -> None:
    claim = alice.claim(lock)
    grant = alice.granted(claim)
    alice.wall_is_off_ms += 5_000
    assert alice.operations(lambda: alice.table.release(claim, grant)) == ["GetItem", "UpdateItem"]


def test_a_grant_whose_reply_was_lost_lasts_a_lease_and_no_longer(world: World, bob: Process, lock: LockName) -> None:
    """Found by a random schedule: a deadline of minutes under a lease of one, when the wall clock was minutes fast."""
    fast = world.process(wall_is_off_ms=4 * MINUTE_MS, cold=True)
    fast.table.now()
    fast.faults = [reply_lost]
    grant = fast.granted(fast.claim(lock))
    assert grant.deadline_ms - fast.read().local_ms <= LEASE_MS
    world.advance(LEASE_MS + 4_000)
    assert isinstance(bob.take(bob.claim(lock)), Grant)


@pytest.fixture(params=[-4 * MINUTE_MS, 4 * MINUTE_MS], ids=["slow", "fast"])
def off(world: World, request: pytest.FixtureRequest) -> Process:
    """A process whose wall clock is wrong."""
    return world.process(wall_is_off_ms=request.param, cold=True)


def test_a_process_whose_wall_clock_is_wrong_does_not_take_a_lock_that_is_held(
    alice: Process, lock: LockName, off: Process
) -> None:
    alice.granted(alice.claim(lock))
    assert isinstance(off.take(off.claim(lock)), Position)


def test_a_process_whose_wall_clock_is_wrong_does_not_lose_the_lock_that_it_holds(
    world: World, bob: Process, lock: LockName, off: Process
) -> None:
    off.granted(off.claim(lock))
    world.advance(LEASE_MS - 5_000)
    assert isinstance(bob.take(bob.claim(lock)), Position)


def test_a_process_whose_wall_clock_is_wrong_does_not_keep_the_lock_past_its_lease(
    world: World, bob: Process, lock: LockName, off: Process
) -> None:
    off.granted(off.claim(lock))
    world.advance(LEASE_MS + 5_000)
    assert isinstance(bob.take(bob.claim(lock)), Grant)


def test_a_process_whose_wall_clock_is_wrong_does_not_revive_an_expired_lease(
    world: World, alice: Process, lock: LockName, off: Process
) -> None:
    claim = alice.claim(lock)
    grant = alice.granted(claim)
    world.advance(LEASE_MS + 10_000)
    with pytest.raises(LockLost):
        off.table.renew(claim, grant.fencing_token)


def test_a_process_whose_wall_clock_is_wrong_that_crashes_at_once_delays_the_next_one_by_no_more_than_its_lease(
    world: World, bob: Process, lock: LockName, off: Process
) -> None:
    claim = off.claim(lock)
    off.crash_after(1, claim, lambda me: me.acquire_at_once())
    world.advance(LEASE_MS + 5_000)
    assert isinstance(bob.take(bob.claim(lock)), Grant)


def test_a_process_whose_wall_clock_is_wrong_renews_with_a_cold_start_in_between(
    world: World, alice: Process, lock: LockName, off: Process
) -> None:
    claim = alice.claim(lock)
    grant = alice.granted(claim)
    world.advance(LEASE_MS // 2)
    renewed = off.table.renew(claim, grant.fencing_token)
    assert abs(renewed.lease_until_ms - (world.now_ms + LEASE_MS)) <= 4_000


def test_a_process_whose_wall_clock_is_wrong_that_jumps_while_it_holds_knows_no_less(
    world: World, alice: Process, bob: Process, lock: LockName, off: Process
) -> None:
    claim = alice.claim(lock)
    grant = alice.granted(claim)
    world.advance(LEASE_MS // 2)
    alice.wall_is_off_ms = off.wall_is_off_ms
    alice.table.renew(claim, grant.fencing_token)
    world.advance(LEASE_MS - 5_000)
    assert isinstance(bob.take(bob.claim(lock)), Position)


# A lock whose holders have all expired is taken at once, however many they are.


_SHORT_MS = 10_000
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
_LONGEST_EXPRESSION_BYTES = 4 * 1024
_MOST_OPERATORS = 300
_OPERATOR = re.compile(r"\b(?:AND|OR|NOT|IN|BETWEEN)\b|<>|<=|>=|[=<>+-]|attribute_(?:not_)?exists|if_not_exists")

ON_DEEP_ENGINES = pytest.mark.parametrize("engine", first_on("memory", roomy_engine_names()), indirect=True)


def expired_readers(world: World, lock: LockName, count: int) -> None:
    reader = world.process()
    for number in range(count):
        reader.granted(Claim(lock, f"reader-{number}", _SHORT_MS, shared=True))
    world.advance(2 * _SHORT_MS)


@pytest.mark.parametrize("expired", [10, 11])
def test_a_writer_replaces_more_than_ten_expired_readers_by_one_grant(
    world: World, alice: Process, lock: LockName, expired: int
) -> None:
    expired_readers(world, lock, expired)
    assert alice.granted(alice.claim(lock)).took_over == expired


def test_a_waiting_writer_replaces_eleven_expired_readers(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    for number in range(11):
        bob.granted(Claim(lock, f"reader-{number}", _SHORT_MS, shared=True))
    claim = alice.claim(lock)
    place = alice.queued(claim)
    world.advance(2 * _SHORT_MS)
    assert isinstance(alice.poll(claim, place), Grant)


def test_a_permit_is_free_again_though_twelve_holders_expired_and_the_limit_was_lowered_since(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    for number in range(12):
        bob.granted(Claim(lock, f"owner-{number}", _SHORT_MS, permits=20))
    world.advance(2 * _SHORT_MS)
    alice.table.set_limit(lock, 2)
    assert alice.granted(alice.claim(lock, permits=20)).took_over == 12


def test_only_the_expired_holders_are_removed_and_the_others_keep_their_permits(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    for number in range(11):
        bob.granted(Claim(lock, f"expired-{number}", _SHORT_MS, permits=12))
    living = alice.claim(lock, permits=12)
    held = alice.granted(living)
    world.advance(2 * _SHORT_MS)
    assert bob.granted(bob.claim(lock, permits=12)).took_over == 11
    alice.table.renew(living, held.fencing_token)


@ON_DEEP_ENGINES
def test_a_hundred_expired_holders_are_removed_within_the_limits_of_an_expression(
    world: World, alice: Process, lock: LockName
) -> None:
    expired_readers(world, lock, MAX_HOLDERS)
    assert alice.granted(alice.claim(lock)).took_over == MAX_HOLDERS
    assert_bounded(alice.sent[-1].parameters)


@ON_DEEP_ENGINES
def test_the_first_in_line_removes_them_within_these_limits_too(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    for number in range(MAX_HOLDERS):
        bob.granted(Claim(lock, f"reader-{number}", _SHORT_MS, shared=True))
    claim = alice.claim(lock)
    place = alice.queued(claim)
    world.advance(2 * _SHORT_MS)
    assert isinstance(alice.poll(claim, place), Grant)
    (transaction,) = (sent for sent in alice.sent if sent.operation == "TransactWriteItems")
    assert_bounded(transaction.parameters["TransactItems"][0]["Update"])


def assert_bounded(write: dict[str, Any]) -> None:
    for expression in (write["ConditionExpression"], write["UpdateExpression"]):
        assert len(expression.encode()) <= _LONGEST_EXPRESSION_BYTES
    operators = _OPERATOR.findall(write["ConditionExpression"] + write["UpdateExpression"])
    assert len(operators) <= _MOST_OPERATORS
