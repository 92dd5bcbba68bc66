"""The error of a record wait that ended names the holders: owner, since when, until when."""

import datetime

import pytest
from kit.world import LEASE_MS, Process, World

from ticketlock import LockName, RecordWaitExceeded

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
