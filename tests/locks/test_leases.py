"""Leases: renewed, ended, taken over; and clocks that are wrong."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from kit.engines import engine_names_but_moto, first_on
from kit.world import LEASE_MS, Process, World, reply_lost
from locks.waiting_line import MARGIN_MS, holds, item_of, waits

from ticketlock import Claim, Grant, LockLost, LockName
from ticketlock.locks import _writes as write
from ticketlock.locks._modes import MAX_HOLDERS

pytestmark = pytest.mark.shows("exclusion")

MINUTE_MS = 60_000
OFF = [0, -4 * MINUTE_MS, 4 * MINUTE_MS]
"""How far the wall clock of a process is off."""
EITHER_IS_OFF = pytest.mark.parametrize(
    ("holder_is_off_ms", "newcomer_is_off_ms"), [*((off_ms, 0) for off_ms in OFF), *((0, off_ms) for off_ms in OFF[1:])]
)


def off(world: World, wall_is_off_ms: int) -> Process:
    return world.process(wall_is_off_ms=wall_is_off_ms, cold=True)


@EITHER_IS_OFF
def test_a_holder_is_not_replaced_before_its_lease_has_expired_though_wall_clocks_are_wrong(
    world: World, lock: LockName, holder_is_off_ms: int, newcomer_is_off_ms: int
) -> None:
    holds(off(world, holder_is_off_ms), lock)
    world.advance(LEASE_MS - 1)
    waits(off(world, newcomer_is_off_ms), lock)


@EITHER_IS_OFF
@pytest.mark.parametrize("record_wait_ms", [None, 0])
def test_an_expired_holder_is_replaced_by_the_first_try_without_an_earlier_observation_though_wall_clocks_are_wrong(
    world: World, lock: LockName, holder_is_off_ms: int, newcomer_is_off_ms: int, record_wait_ms: int | None
) -> None:
    holds(off(world, holder_is_off_ms), lock)
    world.advance(LEASE_MS + 5_000)
    newcomer = off(world, newcomer_is_off_ms)
    found = newcomer.take(newcomer.claim(lock), record_wait_ms)
    assert isinstance(found, Grant)
    assert found.took_over == 1


def test_an_expired_holder_is_replaced_by_the_first_in_line(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    holds(alice, lock)
    first, last = waits(bob, lock), waits(carol, lock)
    world.advance(LEASE_MS // 2)
    for each in (first, last):
        each.still_waits()
    world.advance(LEASE_MS // 2 + MARGIN_MS)
    last.still_waits()
    found = first.polls()
    assert isinstance(found, Grant)
    assert found.took_over == 1


def taken_at_once(alice: Process, _: Process, claim: Claim) -> None:
    alice.granted(claim)


def taken_in_turn(alice: Process, bob: Process, claim: Claim) -> None:
    held = holds(alice, claim.lock)
    place = bob.queued(claim)
    held.releases()
    assert isinstance(bob.poll(claim, place), Grant)


def renewed(alice: Process, _: Process, claim: Claim) -> None:
    held = holds(alice, claim.lock, claim.owner)
    alice.world.advance(LEASE_MS // 2)
    alice.table.renew(claim, held.token)


def resumed(alice: Process, bob: Process, claim: Claim) -> None:
    holds(alice, claim.lock, claim.owner)
    alice.world.advance(LEASE_MS // 2)
    bob.table.resume(claim.lock, claim.owner, claim.lease_ms)


def granted_whole(alice: Process, _: Process, claim: Claim) -> None:
    """By an acquisition that finds the grant of its own earlier try."""
    holds(alice, claim.lock, claim.owner)
    alice.world.advance(LEASE_MS // 2)
    alice.granted(claim)


@pytest.mark.parametrize("written", [taken_at_once, taken_in_turn, renewed, resumed, granted_whole])
def test_the_lock_item_says_how_long_a_lease_is_and_when_it_was_last_written(
    world: World, alice: Process, bob: Process, lock: LockName, written: Callable[[Process, Process, Claim], None]
) -> None:
    claim = alice.claim(lock, lease_ms=2 * LEASE_MS)
    written(alice, bob, claim)
    (holder,) = item_of(alice, lock).holders
    assert (holder.owner, holder.lease_ms) == (claim.owner, 2 * LEASE_MS)
    assert abs(holder.renewed_ms - world.now_ms) <= MARGIN_MS


@pytest.mark.parametrize("is_taken", [False, True], ids=["no one took the lock", "a successor holds it"])
@pytest.mark.parametrize("off_ms", OFF)
def test_an_expired_lease_is_not_revived_by_a_renewal_whether_it_is_sent_or_arrives_late(
    world: World, alice: Process, bob: Process, lock: LockName, off_ms: int, is_taken: bool
) -> None:
    held = holds(alice, lock)
    on_its_way = alice.steps(held.claim, lambda me: me.renew(held.token))
    world.advance(LEASE_MS + (MARGIN_MS if is_taken else 1))
    tokens = [holds(bob, lock).token] if is_taken else [held.token]
    with pytest.raises(LockLost):
        on_its_way.to_the_end()
    with pytest.raises(LockLost):
        off(world, off_ms).table.renew(held.claim, held.token)
    with pytest.raises(LockLost):
        off(world, off_ms).table.contend(held.claim, lambda me: me.renew(held.token, me.now.latest_ms + 10 * LEASE_MS))
    assert [holder.fencing_token for holder in item_of(bob, lock).holders] == tokens


def test_a_renewal_that_arrives_late_does_not_shorten_the_lease(world: World, alice: Process, lock: LockName) -> None:
    held = holds(alice, lock)
    world.advance(10_000)
    late = write.renew(held.claim, held.token, alice.table.now())
    world.advance(10_000)
    renewed = held.renews()
    assert not alice.table.perform(late).applied
    assert item_of(alice, lock).holders[0].lease_until_ms == renewed.lease_until_ms


def test_a_late_copy_of_an_extension_changes_neither_a_longer_lease_nor_another_grant(
    alice: Process, bob: Process, lock: LockName
) -> None:
    held = holds(alice, lock)
    now = alice.table.now()
    extension = write.renew(held.claim, held.token, now, now.latest_ms + 2 * LEASE_MS)
    assert alice.table.perform(extension).applied
    extended = item_of(alice, lock)
    assert extended.holders[0].lease_until_ms == now.latest_ms + 2 * LEASE_MS
    assert not alice.table.perform(extension).applied
    assert item_of(alice, lock) == extended
    held.releases()
    other = holds(bob, lock)
    assert not alice.table.perform(extension).applied
    assert [holder.fencing_token for holder in item_of(bob, lock).holders] == [other.token]


def test_a_renewal_of_an_earlier_grant_of_the_same_owner_is_refused(
    world: World, alice: Process, lock: LockName
) -> None:
    earlier = holds(alice, lock)
    earlier.releases()
    alice.granted(earlier.claim)
    before = item_of(alice, lock)
    world.advance(1_000)
    with pytest.raises(LockLost, match=f"fencing token {earlier.token}"):
        earlier.renews()
    assert item_of(alice, lock) == before


def test_a_release_after_the_lease_reports_it_and_frees_the_lock(world: World, alice: Process, lock: LockName) -> None:
    held = holds(alice, lock)
    world.advance(LEASE_MS + 10_000)
    assert held.releases().lease_was_over
    assert item_of(alice, lock).holders == ()


def test_a_holders_deadline_comes_before_any_other_process_may_take_its_lease_as_expired(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    held = holds(alice, lock)
    bob.table.inspect(lock)
    world.advance(held.grant.deadline_ms - alice.read().local_ms)
    waits(bob, lock)


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
    held = holds(alice, lock)
    alice.wall_is_off_ms += 5_000
    assert alice.operations(held.releases) == ["GetItem", "UpdateItem"]


def test_a_grant_whose_reply_was_lost_lasts_a_lease_and_no_longer(world: World, bob: Process, lock: LockName) -> None:
    """Found by a random schedule: a deadline of minutes under a lease of one, when the wall clock was minutes fast."""
    fast = off(world, 4 * MINUTE_MS)
    fast.table.now()
    fast.faults = [reply_lost]
    held = holds(fast, lock)
    assert held.grant.deadline_ms - fast.read().local_ms <= LEASE_MS
    world.advance(LEASE_MS + MARGIN_MS)
    holds(bob, lock)


@pytest.mark.parametrize("off_ms", OFF[1:], ids=["slow", "fast"])
def test_a_lease_that_is_renewed_by_a_process_whose_wall_clock_is_wrong_or_jumps_is_neither_longer_nor_shorter(
    world: World, alice: Process, bob: Process, lock: LockName, off_ms: int
) -> None:
    held = holds(alice, lock)
    world.advance(LEASE_MS // 2)
    renewed = off(world, off_ms).table.renew(held.claim, held.token)
    assert abs(renewed.lease_until_ms - (world.now_ms + LEASE_MS)) <= 4_000
    world.advance(LEASE_MS // 2)
    alice.wall_is_off_ms = off_ms
    held.renews()
    world.advance(LEASE_MS - 5_000)
    waits(bob, lock)


# A lock whose holders have all expired is taken at once, however many they are.


_SHORT_MS = 10_000
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
_LONGEST_EXPRESSION_BYTES = 4 * 1024
_MOST_OPERATORS = 300
_OPERATOR = re.compile(r"\b(?:AND|OR|NOT|IN|BETWEEN)\b|<>|<=|>=|[=<>+-]|attribute_(?:not_)?exists|if_not_exists")

ON_DEEP_ENGINES = pytest.mark.parametrize("engine", first_on("memory", engine_names_but_moto()), indirect=True)


def granted_to_many(process: Process, lock: LockName, count: int, **claim: Any) -> None:
    for number in range(count):
        process.granted(Claim(lock, f"owner-{number}", _SHORT_MS, **claim))


@pytest.mark.parametrize("expired", [3, 10, 11])
def test_a_writer_replaces_more_than_ten_expired_readers_by_one_grant(
    world: World, alice: Process, bob: Process, lock: LockName, expired: int
) -> None:
    granted_to_many(bob, lock, expired, shared=True)
    world.advance(2 * _SHORT_MS)
    grant = alice.granted(alice.claim(lock))
    assert grant.took_over == expired
    assert [holder.owner for holder in item_of(alice, lock).holders] == [grant.owner]


def test_a_permit_is_free_again_though_twelve_holders_expired_and_the_limit_was_lowered_since(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    granted_to_many(bob, lock, 12, permits=20)
    world.advance(2 * _SHORT_MS)
    alice.table.set_limit(lock, 2)
    assert alice.granted(alice.claim(lock, permits=20)).took_over == 12


def test_only_the_expired_holders_are_removed_and_the_others_keep_their_permits(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    granted_to_many(bob, lock, 11, permits=12)
    living = holds(alice, lock, permits=12)
    world.advance(2 * _SHORT_MS)
    assert bob.granted(bob.claim(lock, permits=12)).took_over == 11
    living.renews()


@ON_DEEP_ENGINES
@pytest.mark.parametrize("waits_in_line", [False, True], ids=["a newcomer", "the first in line"])
def test_a_hundred_expired_holders_are_removed_within_the_limits_of_an_expression(
    world: World, alice: Process, bob: Process, lock: LockName, waits_in_line: bool
) -> None:
    granted_to_many(bob, lock, MAX_HOLDERS, shared=True)
    waiter = waits(alice, lock) if waits_in_line else None
    world.advance(2 * _SHORT_MS)
    found = waiter.polls() if waiter is not None else alice.take(alice.claim(lock))
    assert isinstance(found, Grant)
    assert found.took_over == MAX_HOLDERS
    sent = alice.sent[-1]
    if waits_in_line:
        assert sent.operation == "TransactWriteItems"
        assert_bounded(sent.parameters["TransactItems"][0]["Update"])
    else:
        assert_bounded(sent.parameters)


def assert_bounded(request: dict[str, Any]) -> None:
    for expression in (request["ConditionExpression"], request["UpdateExpression"]):
        assert len(expression.encode()) <= _LONGEST_EXPRESSION_BYTES
    operators = _OPERATOR.findall(request["ConditionExpression"] + request["UpdateExpression"])
    assert len(operators) <= _MOST_OPERATORS
