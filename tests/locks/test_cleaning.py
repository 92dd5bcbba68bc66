"""Every stored item has the second from which time to live may delete it."""

from typing import Any

import pytest
from kit.world import LEASE_MS, Process, World

from ticketlock import LockName
from ticketlock.locks._items import Session, lock_key, row_key
from ticketlock.locks._protocol import Contender
from ticketlock.wire._actions import integer
from ticketlock.workflow._session import beat, finish

pytestmark = pytest.mark.shows("self-cleaning")

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
