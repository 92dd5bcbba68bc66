"""Taking, holding and freeing a lock; what is stored, for how long; and what a wait in vain says."""

import datetime
from typing import Any

import pytest
from kit.world import LEASE_MS, Process, World
from locks.waiting_line import item_of

from ticketlock import (
    Grant,
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


def test_an_unused_lock_is_granted_at_once_by_one_write(alice: Process, lock: LockName) -> None:
    operations = alice.operations(lambda: alice.granted(alice.claim(lock)))
    assert operations == ["UpdateItem"]


def test_a_lock_that_was_used_before_is_granted_at_once_by_one_write(
    alice: Process, bob: Process, lock: LockName
) -> None:
    claim = alice.claim(lock)
    alice.table.release(claim, alice.granted(claim))
    assert bob.operations(lambda: bob.granted(bob.claim(lock))) == ["UpdateItem"]


def test_a_release_is_one_write(alice: Process, lock: LockName) -> None:
    claim = alice.claim(lock)
    grant = alice.granted(claim)
    assert alice.operations(lambda: alice.table.release(claim, grant)) == ["UpdateItem"]


def test_a_renewal_is_one_write(world: World, alice: Process, lock: LockName) -> None:
    claim = alice.claim(lock)
    grant = alice.granted(claim)
    world.advance(LEASE_MS // 2)
    assert alice.operations(lambda: alice.table.renew(claim, grant.fencing_token)) == ["UpdateItem"]


def test_the_next_owner_of_a_held_lock_joins_the_queue(alice: Process, bob: Process, lock: LockName) -> None:
    alice.granted(alice.claim(lock))
    assert isinstance(bob.take(bob.claim(lock)), Position)


def test_fencing_tokens_rise_from_grant_to_grant(alice: Process, bob: Process, lock: LockName) -> None:
    first, second = alice.claim(lock), bob.claim(lock)
    earlier = alice.granted(first)
    alice.table.release(first, earlier)
    assert bob.granted(second).fencing_token > earlier.fencing_token


def test_a_renewal_keeps_the_fencing_token(world: World, alice: Process, lock: LockName) -> None:
    claim = alice.claim(lock)
    grant = alice.granted(claim)
    world.advance(LEASE_MS // 2)
    assert alice.table.renew(claim, grant.fencing_token).fencing_token == grant.fencing_token


def test_fencing_tokens_rise_across_the_deletion_of_the_item(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    first = alice.claim(lock)
    earlier = alice.granted(first)
    alice.table.release(first, earlier)
    world.advance(60 * 24 * 3_600_000)
    alice.client.delete_item(TableName=world.engine.table_name, Key=lock_key(lock))
    assert bob.granted(bob.claim(lock)).fencing_token > earlier.fencing_token


def test_a_renewal_gives_a_full_lease(world: World, alice: Process, lock: LockName) -> None:
    claim = alice.claim(lock)
    grant = alice.granted(claim)
    world.advance(LEASE_MS // 2)
    renewed = alice.table.renew(claim, grant.fencing_token)
    # Less what a slow clock may lose in between.
    assert 0.999 * LEASE_MS <= renewed.deadline_ms - alice.read().local_ms <= LEASE_MS


def test_a_record_wait_of_0_fails_at_once_if_there_is_a_holder(alice: Process, bob: Process, lock: LockName) -> None:
    alice.granted(alice.claim(lock))
    with pytest.raises(RecordWaitExceeded):
        bob.take(bob.claim(lock), record_wait_ms=0)


def test_a_record_wait_of_0_leaves_no_row(alice: Process, bob: Process, lock: LockName) -> None:
    alice.granted(alice.claim(lock))
    before = alice.table.inspect(lock)
    with pytest.raises(RecordWaitExceeded):
        bob.take(bob.claim(lock), record_wait_ms=0)
    after = alice.table.inspect(lock)
    assert (after.item, after.rows) == (before.item, before.rows)


def test_a_record_wait_of_0_fails_if_there_is_a_waiter_but_no_holder(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    first = alice.claim(lock)
    grant = alice.granted(first)
    bob.queued(bob.claim(lock))
    alice.table.release(first, grant)
    with pytest.raises(RecordWaitExceeded):
        carol.take(carol.claim(lock), record_wait_ms=0)


def test_a_release_with_an_old_token_does_not_free_the_lock_of_the_next_holder(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    first = alice.claim(lock)
    stale = alice.granted(first)
    world.advance(LEASE_MS + 5_000)
    successor = bob.granted(bob.claim(lock))
    with pytest.raises(LockLost):
        alice.table.release(first, stale)
    assert [holder.fencing_token for holder in item_of(bob, lock).holders] == [successor.fencing_token]


def test_inspect_shows_the_grant(alice: Process, bob: Process, lock: LockName) -> None:
    holder, waiter = alice.claim(lock, data="build 17"), bob.claim(lock)
    grant = alice.granted(holder)
    place = bob.queued(waiter).place
    state = alice.table.inspect(lock)
    assert state.item is not None
    assert [(h.owner, h.fencing_token, h.data) for h in state.item.holders] == [
        (holder.owner, grant.fencing_token, "build 17")
    ]
    assert [(row.owner, row.ticket) for row in state.rows] == [(waiter.owner, place.ticket)]
    assert (state.item.held, state.item.waiting) == (1, 1)


def test_inspect_of_an_unused_lock_shows_no_item(alice: Process, lock: LockName) -> None:
    state = alice.table.inspect(lock)
    assert (state.item, state.rows) == (None, ())


def test_three_permits_are_held_by_three_and_the_fourth_waits(world: World, lock: LockName) -> None:
    found = [(process := world.process()).take(process.claim(lock, permits=3)) for _ in range(4)]
    assert [isinstance(each, Grant) for each in found] == [True, True, True, False]


def test_with_several_permits_the_waiters_ahead_keep_their_permits(world: World, lock: LockName) -> None:
    holders = [world.process() for _ in range(2)]
    claims = [holder.claim(lock, permits=2) for holder in holders]
    grants = [holder.granted(claim) for holder, claim in zip(holders, claims, strict=True)]
    first, second = world.process(), world.process()
    first_claim, second_claim = first.claim(lock, permits=2), second.claim(lock, permits=2)
    first_place, second_place = first.queued(first_claim), second.queued(second_claim)
    holders[0].table.release(claims[0], grants[0])
    # One permit is free, and it is the first waiter's, whichever polls first.
    assert isinstance(second.poll(second_claim, second_place), Position)
    assert isinstance(first.poll(first_claim, first_place), Grant)


def test_another_number_of_permits_is_refused_and_writes_nothing(alice: Process, bob: Process, lock: LockName) -> None:
    alice.granted(alice.claim(lock, permits=1))
    before = alice.table.inspect(lock)
    with pytest.raises(PermitsMismatch, match="1 permit, not 2"):
        bob.take(bob.claim(lock, permits=2))
    assert alice.table.inspect(lock).item == before.item


@pytest.mark.leaves_a_promise_broken("no version that we have can read the lock item", error=UnsupportedFormat)
def test_a_newer_data_format_is_refused_by_name(world: World, alice: Process, bob: Process, lock: LockName) -> None:
    alice.granted(alice.claim(lock))
    alice.client.update_item(
        TableName=world.engine.table_name,
        Key=lock_key(lock),
        UpdateExpression="SET #format = :newer",
        ExpressionAttributeNames={"#format": "format"},
        ExpressionAttributeValues={":newer": {"N": "2"}},
    )
    with pytest.raises(UnsupportedFormat, match="format 2"):
        bob.take(bob.claim(lock))


@pytest.mark.parametrize("record_wait_ms", [float("nan"), float("inf"), -1, "60", True, 1.5])
def test_an_invalid_record_wait_is_refused_and_writes_nothing(
    alice: Process, bob: Process, lock: LockName, record_wait_ms: Any
) -> None:
    alice.granted(alice.claim(lock))
    with pytest.raises(InvalidLockRequest, match=r"^record_wait_ms is "):
        bob.take(bob.claim(lock), record_wait_ms=record_wait_ms)
    assert bob.table.inspect(lock).rows == ()


@pytest.mark.parametrize("wait_until_ms", [float("nan"), -1, "soon", False])
def test_an_invalid_end_of_the_record_wait_is_refused(
    alice: Process, bob: Process, lock: LockName, wait_until_ms: Any
) -> None:
    alice.granted(alice.claim(lock))
    claim = bob.claim(lock)
    position = bob.queued(claim)
    with pytest.raises(InvalidLockRequest, match=r"^wait_until_ms is "):
        bob.poll(claim, position, wait_until_ms=wait_until_ms)


# Every stored item has the second from which time to live may delete it.


DAY_S = 24 * 3_600
LEASE_S = LEASE_MS // 1_000


def expires_in_s(process: Process, key: Any) -> int:
    """From now to the item's ``expiresAt``, less the lease."""
    item = process.client.get_item(TableName=process.table.table_name, Key=key, ConsistentRead=True)["Item"]
    return integer(item["expiresAt"]) - process.world.now_ms // 1_000 - LEASE_S


def test_a_lock_may_be_deleted_four_weeks_after_its_lease(alice: Process, lock: LockName) -> None:
    alice.granted(alice.claim(lock))
    assert expires_in_s(alice, lock_key(lock)) == pytest.approx(28 * DAY_S, abs=5)


def test_every_write_to_a_lock_postpones_its_deletion(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    claim = alice.claim(lock)
    grant = alice.granted(claim)
    for do in (
        lambda: alice.table.renew(claim, grant.fencing_token),
        lambda: bob.queued(bob.claim(lock)),
        lambda: alice.table.release(claim, grant),
    ):
        world.advance(20_000)
        do()
        assert expires_in_s(alice, lock_key(lock)) == pytest.approx(28 * DAY_S, abs=5)


def test_a_row_may_be_deleted_a_day_after_its_lease_and_an_extension_postpones_it(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    alice.granted(alice.claim(lock))
    claim = bob.claim(lock)
    position = bob.queued(claim)
    key = row_key(lock, position.place.ticket)
    assert expires_in_s(bob, key) == pytest.approx(DAY_S, abs=5)
    world.advance(LEASE_MS // 2)
    bob.poll(claim, position)
    assert expires_in_s(bob, key) == pytest.approx(DAY_S, abs=5)


def test_a_session_may_be_deleted_a_day_after_its_lease(alice: Process, lock: LockName) -> None:
    claim = alice.claim(lock)
    grant = alice.granted(claim)
    session = Session("arn:aws:states:::execution:serialize:" + lock.entity, "serialize")
    alice.table.run(lambda now: beat(Contender(claim, now), grant, session, "token", 1))
    assert expires_in_s(alice, session.key()) == pytest.approx(DAY_S, abs=5)


def test_a_session_that_only_the_release_wrote_may_be_deleted_too(alice: Process, lock: LockName) -> None:
    claim = alice.claim(lock)
    grant = alice.granted(claim)
    session = Session("arn:aws:states:::execution:serialize:" + lock.entity, "serialize")
    alice.table.run(lambda now: finish(Contender(claim, now), grant, session))
    assert expires_in_s(alice, session.key()) == pytest.approx(DAY_S, abs=5)


# The error of a record wait that ended names the holders: owner, since when, until when.


HELD_MS = 10_000
AS_EXACT_AS_TABLE_TIME = datetime.timedelta(seconds=3)


def moment(ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ms / 1_000, datetime.UTC)


def in_vain(process: Process, lock: LockName, *, waits: bool) -> RecordWaitExceeded:
    """The error of a try without a wait, or after one."""
    claim = process.claim(lock)
    if not waits:
        with pytest.raises(RecordWaitExceeded) as at_once:
            process.take(claim, record_wait_ms=0)
        return at_once.value
    place = process.queued(claim)
    with pytest.raises(RecordWaitExceeded) as later:
        process.poll(claim, place, wait_until_ms=0)
    return later.value


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after a wait"])
def test_the_holder_is_named_with_its_start_and_the_end_of_its_lease(
    waits: bool, world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    alice.granted(alice.claim(lock, "build-7"))
    granted_ms = world.now_ms
    world.advance(HELD_MS)
    error = in_vain(bob, lock, waits=waits)
    ((owner, since, until),) = error.holders
    assert owner == "build-7"
    assert abs(since - moment(granted_ms)) <= AS_EXACT_AS_TABLE_TIME
    assert abs(until - moment(granted_ms + LEASE_MS)) <= AS_EXACT_AS_TABLE_TIME
    told = f'held by "build-7" since {since:%Y-%m-%dT%H:%M:%SZ}, its lease runs until {until:%Y-%m-%dT%H:%M:%SZ}'
    assert str(error).endswith(told)
    assert not error.is_closed


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after a wait"])
def test_a_closed_lock_is_named_as_closed(waits: bool, alice: Process, bob: Process, lock: LockName) -> None:
    alice.table.set_limit(lock, 0)
    error = in_vain(bob, lock, waits=waits)
    assert (error.is_closed, error.holders) == (True, ())
    assert str(error).endswith("closed: an operator has set its limit to 0")


def test_the_text_names_three_of_many_holders_and_the_attribute_has_all(
    alice: Process, bob: Process, lock: LockName
) -> None:
    owners = [f"reader-{index}" for index in range(5)]
    for owner in owners:
        alice.granted(alice.claim(lock, owner, shared=True))
    error = in_vain(bob, lock, waits=False)
    assert [owner for owner, _, _ in error.holders] == owners
    assert str(error).count("held by") == 3
    assert str(error).endswith("and by 2 more")


def test_without_a_holder_no_one_is_named(alice: Process, bob: Process, carol: Process, lock: LockName) -> None:
    claim = alice.claim(lock)
    grant = alice.granted(claim)
    bob.queued(bob.claim(lock))
    alice.table.release(claim, grant)
    error = in_vain(carol, lock, waits=False)
    assert error.holders == ()
    assert str(error) == "the lock cannot be taken at once, and the record wait is 0"
