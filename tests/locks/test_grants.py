"""Taking, holding and freeing a lock; what is stored, for how long; and what a wait in vain says."""

import datetime
from functools import partial
from typing import Any

import pytest
from kit.capacity import item_bytes
from kit.newer import NEWER, raise_the_format
from kit.world import LEASE_MS, Process, World
from locks.waiting_line import Held, Queued, holds, item_of, waits

from ticketlock import (
    InvalidLockRequest,
    LockLost,
    LockName,
    PermitsMismatch,
    Position,
    RecordWaitExceeded,
    UnsupportedFormat,
)
from ticketlock.locks._items import Session, lock_key, row_key
from ticketlock.locks._protocol import Contender
from ticketlock.wire._actions import integer
from ticketlock.workflow._session import beat, finish

pytestmark = pytest.mark.shows("fencing", "cost", "self-cleaning")


def test_a_lock_that_no_one_waits_for_costs_one_write_for_each_step(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    claim = alice.claim(lock)
    assert alice.operations(lambda: alice.granted(claim)) == ["UpdateItem"]
    held = Held(alice, claim, alice.granted(claim))
    world.advance(LEASE_MS // 2)
    assert alice.operations(held.renews) == ["UpdateItem"]
    assert alice.operations(held.releases) == ["UpdateItem"]
    # It has been used before.
    assert bob.operations(lambda: holds(bob, lock)) == ["UpdateItem"]


def test_waiting_costs_three_requests_to_join_a_query_for_each_poll_and_a_transaction_for_the_turn(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    held, claim = holds(alice, lock), bob.claim(lock)
    found: list[Position] = []
    # A refused try, a ticket and a row.
    assert bob.operations(lambda: found.append(bob.queued(claim))) == ["UpdateItem", "UpdateItem", "PutItem"]
    waiter = Queued(bob, claim, found[0])
    assert bob.operations(waiter.still_waits) == ["Query"]
    held.releases()
    entered: list[Held] = []
    assert bob.operations(lambda: entered.append(waiter.enters())) == ["Query", "TransactWriteItems"]
    entered[0].releases()
    # The queue is empty again.
    assert carol.operations(lambda: holds(carol, lock)) == ["UpdateItem"]


def test_a_renewal_keeps_the_fencing_token_and_gives_a_full_lease(world: World, alice: Process, lock: LockName) -> None:
    held = holds(alice, lock)
    token = held.token
    world.advance(LEASE_MS // 2)
    renewed = held.renews()
    assert renewed.fencing_token == token
    # Less what a slow clock may lose in between.
    assert 0.999 * LEASE_MS <= renewed.deadline_ms - alice.read().local_ms <= LEASE_MS


@pytest.mark.parametrize("is_deleted", [False, True], ids=["the item is there", "the item was deleted"])
def test_fencing_tokens_rise_from_grant_to_grant_across_the_deletion_of_the_item_too(
    world: World, alice: Process, bob: Process, lock: LockName, is_deleted: bool
) -> None:
    earlier = holds(alice, lock)
    earlier.releases()
    if is_deleted:
        world.advance(60 * 24 * 3_600_000)
        alice.client.delete_item(TableName=world.engine.table_name, Key=lock_key(lock))
    assert holds(bob, lock).token > earlier.token


@pytest.mark.parametrize("in_the_way", ["a holder", "a waiter"])
def test_a_record_wait_of_0_fails_at_once_if_there_is_a_holder_or_a_waiter_and_leaves_no_row(
    alice: Process, bob: Process, carol: Process, lock: LockName, in_the_way: str
) -> None:
    held = holds(alice, lock)
    if in_the_way == "a waiter":
        waits(bob, lock)
        held.releases()
    before = alice.table.inspect(lock)
    with pytest.raises(RecordWaitExceeded):
        carol.take(carol.claim(lock), record_wait_ms=0)
    after = alice.table.inspect(lock)
    assert (after.item, after.rows) == (before.item, before.rows)


def test_a_release_with_an_old_token_does_not_free_the_lock_of_the_next_holder(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    stale = holds(alice, lock)
    world.advance(LEASE_MS + 5_000)
    successor = holds(bob, lock)
    with pytest.raises(LockLost):
        stale.releases()
    assert [holder.fencing_token for holder in item_of(bob, lock).holders] == [successor.token]


def test_inspect_shows_holders_and_waiters_and_no_item_of_an_unused_lock(
    alice: Process, bob: Process, lock: LockName
) -> None:
    state = alice.table.inspect(lock)
    assert (state.item, state.rows) == (None, ())
    held, waiter = holds(alice, lock, data="build 17"), waits(bob, lock)
    state = alice.table.inspect(lock)
    assert state.item is not None
    (holder,) = state.item.holders
    assert (holder.owner, holder.fencing_token, holder.data) == (held.claim.owner, held.token, "build 17")
    assert [(row.owner, row.ticket) for row in state.rows] == [(waiter.claim.owner, waiter.ticket)]
    assert (state.item.held, state.item.waiting) == (1, 1)


def test_with_several_permits_as_many_hold_and_the_waiters_ahead_keep_their_permits(
    world: World, lock: LockName
) -> None:
    held = [holds(world.process(), lock, permits=2) for _ in range(2)]
    first, second = (waits(world.process(), lock, permits=2) for _ in range(2))
    held[0].releases()
    # One permit is free, and it is the first waiter's, whichever polls first.
    second.still_waits()
    first.enters()


def test_another_number_of_permits_is_refused_and_writes_nothing(alice: Process, bob: Process, lock: LockName) -> None:
    alice.granted(alice.claim(lock, permits=1))
    before = alice.table.inspect(lock)
    with pytest.raises(PermitsMismatch, match="1 permit, not 2"):
        bob.take(bob.claim(lock, permits=2))
    assert alice.table.inspect(lock).item == before.item


@NEWER
def test_a_newer_data_format_is_refused_by_name(world: World, alice: Process, bob: Process, lock: LockName) -> None:
    alice.granted(alice.claim(lock))
    raise_the_format(alice.client, world.engine.table_name, lock)
    with pytest.raises(UnsupportedFormat, match="format 2"):
        bob.take(bob.claim(lock))


@NEWER
def test_who_holds_a_lock_of_a_newer_format_renews_and_releases_it(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    claim = alice.claim(lock)
    held = alice.granted(claim)
    raise_the_format(alice.client, world.engine.table_name, lock)
    renewed = alice.table.renew(claim, held.fencing_token)
    assert renewed.lease_until_ms >= held.lease_until_ms
    alice.table.set_data(claim, held.fencing_token, "step 2")
    # Another process of the same owner.
    _, resumed = bob.table.resume(lock, claim.owner, claim.lease_ms)
    assert resumed.fencing_token == held.fencing_token
    for _ in range(2):
        # The first reply may be lost.
        alice.table.release(claim, resumed)
    with pytest.raises(LockLost):
        alice.table.renew(claim, held.fencing_token)
    stored = alice.client.get_item(TableName=world.engine.table_name, Key=lock_key(lock))["Item"]
    assert stored["held"] == {"N": "0"}
    assert stored["format"] == {"N": "2"}


@NEWER
def test_a_lock_of_a_newer_format_is_released_by_its_owner_in_another_process(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    claim = alice.claim(lock)
    alice.granted(claim)
    raise_the_format(alice.client, world.engine.table_name, lock)
    bob.table.release_as(lock, claim.owner)
    with pytest.raises(LockLost):
        bob.table.release_as(lock, claim.owner)


@NEWER
def test_who_waits_for_a_lock_of_a_newer_format_leaves_the_queue(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    alice.granted(alice.claim(lock))
    claim = bob.claim(lock)
    seen = bob.take(claim)
    assert isinstance(seen, Position)
    raise_the_format(alice.client, world.engine.table_name, lock)
    assert bob.table.withdraw(claim, seen.place.ticket) is None
    stored = alice.client.get_item(TableName=world.engine.table_name, Key=lock_key(lock))["Item"]
    assert stored["waiting"] == {"N": "0"}
    assert "Item" not in alice.client.get_item(TableName=world.engine.table_name, Key=row_key(lock, seen.place.ticket))


@NEWER
def test_a_newer_lock_does_not_hide_the_others_of_a_list(world: World, alice: Process, lock: LockName) -> None:
    alice.granted(alice.claim(lock))
    raise_the_format(alice.client, world.engine.table_name, lock, "permits", "waiting", "heldShared")
    (found,) = [each for each in alice.table.list_locks() if each.lock == lock]
    assert found.held == 1


@pytest.mark.parametrize("record_wait_ms", [float("inf"), -1, "60", True, 1.5])
def test_an_invalid_record_wait_is_refused_and_writes_nothing(
    alice: Process, bob: Process, lock: LockName, record_wait_ms: Any
) -> None:
    holds(alice, lock)
    with pytest.raises(InvalidLockRequest, match=r"^record_wait_ms is "):
        bob.take(bob.claim(lock), record_wait_ms=record_wait_ms)
    assert bob.table.inspect(lock).rows == ()


@pytest.mark.parametrize("wait_until_ms", [float("nan"), -1, "soon", False])
def test_an_invalid_end_of_the_record_wait_is_refused(
    alice: Process, bob: Process, lock: LockName, wait_until_ms: Any
) -> None:
    holds(alice, lock)
    waiter = waits(bob, lock)
    with pytest.raises(InvalidLockRequest, match=r"^wait_until_ms is "):
        waiter.polls(wait_until_ms)


# Every stored item has the second from which time to live may delete it.


DAY_S = 24 * 3_600
LEASE_S = LEASE_MS // 1_000


def expires_in_s(process: Process, key: Any) -> int:
    """From now to the item's ``expiresAt``, less the lease."""
    item = process.client.get_item(TableName=process.table.table_name, Key=key, ConsistentRead=True)["Item"]
    return integer(item["expiresAt"]) - process.world.now_ms // 1_000 - LEASE_S


def test_a_lock_may_be_deleted_four_weeks_after_its_lease_and_every_write_postpones_that(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    held = holds(alice, lock)
    assert expires_in_s(alice, lock_key(lock)) == pytest.approx(28 * DAY_S, abs=5)
    for do in (held.renews, lambda: waits(bob, lock), held.releases):
        world.advance(20_000)
        do()
        assert expires_in_s(alice, lock_key(lock)) == pytest.approx(28 * DAY_S, abs=5)


def test_a_suspended_holder_keeps_its_lock_longer_than_others_do_also_once_others_have_joined(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    held = holds(alice, lock)
    lasts_s = 100 * DAY_S
    until_ms = world.now_ms + lasts_s * 1_000
    alice.table.contend(held.claim, lambda me: me.suspend(held.token, until_ms))
    assert expires_in_s(alice, lock_key(lock)) == pytest.approx(lasts_s + 28 * DAY_S, abs=LEASE_S + 5)
    waiter = waits(bob, lock)
    assert expires_in_s(alice, lock_key(lock)) == pytest.approx(28 * DAY_S, abs=5)
    waiter.polls()
    assert expires_in_s(alice, lock_key(lock)) == pytest.approx(lasts_s + 28 * DAY_S, abs=LEASE_S + 5)


def test_a_row_may_be_deleted_a_day_after_its_lease_and_an_extension_postpones_it(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    holds(alice, lock)
    waiter = waits(bob, lock)
    key = row_key(lock, waiter.ticket)
    assert expires_in_s(bob, key) == pytest.approx(DAY_S, abs=5)
    world.advance(LEASE_MS // 2)
    waiter.polls()
    assert expires_in_s(bob, key) == pytest.approx(DAY_S, abs=5)


@pytest.mark.parametrize("is_finished", [False, True], ids=["by a beat", "only by the release"])
def test_a_session_that_was_written_may_be_deleted_a_day_after_its_lease(
    alice: Process, lock: LockName, is_finished: bool
) -> None:
    held = holds(alice, lock)
    session = Session("arn:aws:states:::execution:serialize:" + lock.entity, "serialize")
    if is_finished:
        alice.table.run(lambda now: finish(Contender(held.claim, now), held.grant, session))
    else:
        alice.table.run(lambda now: beat(Contender(held.claim, now), held.grant, session, "token", 1))
    assert expires_in_s(alice, session.key()) == pytest.approx(DAY_S, abs=5)


# The error of a record wait that ended names the holders: owner, since when, until when.


HELD_MS = 10_000
AS_EXACT_AS_TABLE_TIME = datetime.timedelta(seconds=3)


def moment(ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ms / 1_000, datetime.UTC)


def in_vain(process: Process, lock: LockName, *, after_a_wait: bool) -> RecordWaitExceeded:
    """The error of a try without a wait, or after one."""
    if after_a_wait:
        asks = partial(waits(process, lock).polls, wait_until_ms=0)
    else:
        asks = partial(process.take, process.claim(lock), record_wait_ms=0)
    with pytest.raises(RecordWaitExceeded) as ended:
        asks()
    return ended.value


AFTER_A_WAIT = pytest.mark.parametrize("after_a_wait", [False, True], ids=["at once", "after a wait"])


@AFTER_A_WAIT
def test_the_holder_is_named_with_its_start_and_the_end_of_its_lease(
    after_a_wait: bool, world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    alice.granted(alice.claim(lock, "build-7"))
    granted_ms = world.now_ms
    world.advance(HELD_MS)
    error = in_vain(bob, lock, after_a_wait=after_a_wait)
    ((owner, since, until),) = error.holders
    assert owner == "build-7"
    assert abs(since - moment(granted_ms)) <= AS_EXACT_AS_TABLE_TIME
    assert abs(until - moment(granted_ms + LEASE_MS)) <= AS_EXACT_AS_TABLE_TIME
    told = f'held by "build-7" since {since:%Y-%m-%dT%H:%M:%SZ}, its lease runs until {until:%Y-%m-%dT%H:%M:%SZ}'
    assert str(error).endswith(told)
    assert not error.is_closed


@AFTER_A_WAIT
def test_a_closed_lock_is_named_as_closed(after_a_wait: bool, alice: Process, bob: Process, lock: LockName) -> None:
    alice.table.set_limit(lock, 0)
    error = in_vain(bob, lock, after_a_wait=after_a_wait)
    assert (error.is_closed, error.holders) == (True, ())
    assert str(error).endswith("closed: an operator has set its limit to 0")


def test_the_text_names_three_of_many_holders_and_the_attribute_has_all(
    alice: Process, bob: Process, lock: LockName
) -> None:
    owners = [f"reader-{index}" for index in range(5)]
    for owner in owners:
        alice.granted(alice.claim(lock, owner, shared=True))
    error = in_vain(bob, lock, after_a_wait=False)
    assert [owner for owner, _, _ in error.holders] == owners
    assert str(error).count("held by") == 3
    assert str(error).endswith("and by 2 more")


def test_without_a_holder_no_one_is_named(alice: Process, bob: Process, carol: Process, lock: LockName) -> None:
    held = holds(alice, lock)
    waits(bob, lock)
    held.releases()
    error = in_vain(carol, lock, after_a_wait=False)
    assert error.holders == ()
    assert str(error) == "the lock cannot be taken at once, and the record wait is 0"


@pytest.mark.parametrize(("size", "units"), [(600, 1), (1_024, 2)])
def test_a_lock_item_with_much_data_is_billed_as_two_units(world: World, lock: LockName, size: int, units: int) -> None:
    process = world.process()
    process.granted(process.claim(lock, data="d" * size))
    item = process.client.get_item(TableName=world.engine.table_name, Key=lock_key(lock))["Item"]
    assert -(-item_bytes(item) // 1_024) == units
