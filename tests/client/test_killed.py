"""Holders that are killed or suspended: how soon somebody else has the lock, and what they find out themselves."""

import os
import signal
import time
from collections.abc import Callable

import pytest
from client.programs import Programs, Shared, heard, hold, tell

from ticketlock import Lease, LockClient

WITHIN_MS = 2_000


def lease_until_ms(shared: Shared) -> int:
    """As it stands in the table, seen by a client that is not used again."""
    with shared.locks() as locks:
        item = locks.inspect(shared.entity).item
    assert item is not None
    (holder,) = item.holders
    return holder.lease_until_ms


def sleep_until(wall_ms: int) -> None:
    time.sleep(max(0.0, wall_ms / 1_000 - time.time()))


def killed_holder(programs: Programs) -> int:
    """Its fencing token."""
    victim = programs.start(hold)
    token: int = heard(victim)
    victim.kill()
    assert victim.wait() == -signal.SIGKILL
    return token


def test_a_lock_of_a_killed_process_is_taken_within_two_seconds_of_its_lease(
    programs: Programs, shared: Shared
) -> None:
    token = killed_holder(programs)
    until_ms = lease_until_ms(shared)
    with shared.locks() as locks, locks.acquire(shared.entity) as lease:
        taken_ms = time.time() * 1_000
        assert lease.fencing_token > token
    assert until_ms < taken_ms <= until_ms + WITHIN_MS


def try_it(locks: LockClient, entity: str) -> Lease | None:
    return locks.try_acquire(entity)


def do_not_wait(locks: LockClient, entity: str) -> Lease | None:
    return locks.acquire(entity, record_wait=0)


@pytest.mark.parametrize("ask", [try_it, do_not_wait, LockClient.acquire])
def test_whoever_has_never_seen_a_stale_lock_takes_it_at_the_first_try(
    programs: Programs, shared: Shared, ask: Callable[[LockClient, str], Lease | None]
) -> None:
    token = killed_holder(programs)
    sleep_until(lease_until_ms(shared) + WITHIN_MS)
    with shared.locks() as locks:
        began = time.monotonic()
        lease = ask(locks, shared.entity)
        assert lease is not None
        assert lease.fencing_token > token
        assert time.monotonic() - began < 1


def test_a_process_that_was_suspended_past_its_lease_knows_at_once_that_it_does_not_hold(
    programs: Programs, shared: Shared
) -> None:
    sleeper = programs.start(hold)
    token = heard(sleeper)
    tell(sleeper, "do you hold it?")
    assert heard(sleeper) is True

    os.kill(sleeper.pid, signal.SIGSTOP)
    try:
        with shared.locks() as locks, locks.acquire(shared.entity) as lease:
            tell(sleeper, "do you hold it?")
            os.kill(sleeper.pid, signal.SIGCONT)
            assert heard(sleeper) is False
            assert lease.is_held()
            assert lease.fencing_token > token
            lease.renew()
    finally:
        os.kill(sleeper.pid, signal.SIGCONT)
