"""Each request of a client x what can happen to it: it takes effect once, and its sender learns of that.

A layer says by its fixture ``hit`` what happens: ``hit(is_meant)`` injects a fault into the next such request of
``locks``, and returns an event that is set then. ``near`` is the client of another process, without faults.
"""

import threading
from collections.abc import Callable

import pytest
from kit.places import (
    Place,
    is_grant,
    is_leave,
    is_poll,
    is_release,
    is_renewal,
    is_row,
    is_ticket,
    is_time,
    meanwhile,
    outcome,
    until,
)

from ticketlock import Claim, Grant, LockClient, LockName, Position, RecordWaitExceeded
from ticketlock.testing import Sent

_LEASE_S = 60
_FRESH_S = 45
"""More is left of a lease that was written just now, on a busy machine too."""

Hit = Callable[[Callable[[Sent], bool]], threading.Event]


@pytest.mark.parametrize("what", [is_time, is_grant])
def test_a_free_lock_is_granted_once(
    place: Place, locks: LockClient, entity: str, hit: Hit, what: Callable[[Sent], bool]
) -> None:
    met = hit(what)
    lease = locks.acquire(entity)
    assert met.is_set()
    item = place.item_of(entity)
    assert (item.held, len(item.holders), item.fencing_token) == (1, 1, lease.fencing_token)
    assert lease.remaining_s > _FRESH_S
    lease.release()
    assert place.is_free(entity)


def test_a_turn_is_granted_once(place: Place, locks: LockClient, entity: str, hit: Hit) -> None:
    elsewhere = Claim(LockName(entity), "another process", _LEASE_S * 1_000)
    held = place.table.take_ticket(elsewhere, 0)
    assert isinstance(held, Grant)
    waiting = meanwhile(lambda: locks.acquire(entity))
    until(lambda: place.queue_of(entity) == 1)
    met = hit(is_grant)
    place.table.release(elsewhere, held)
    lease = outcome(waiting)
    assert met.is_set()
    item = place.item_of(entity)
    assert (len(item.holders), place.queue_of(entity)) == (1, 0)
    assert lease.fencing_token == item.fencing_token == held.fencing_token + 1


def test_a_refusal_is_reported_as_one(place: Place, locks: LockClient, near: LockClient, entity: str, hit: Hit) -> None:
    holder = near.acquire(entity)
    met = hit(is_grant)
    assert locks.try_acquire(entity) is None
    assert met.is_set()
    assert place.queue_of(entity) == 0
    holder.renew()


@pytest.mark.parametrize("what", [is_ticket, is_row, is_poll])
def test_a_waiter_has_one_place(
    place: Place, locks: LockClient, near: LockClient, entity: str, hit: Hit, what: Callable[[Sent], bool]
) -> None:
    holder = near.acquire(entity)
    met = hit(what)
    polls: list[Position] = []
    waiting = meanwhile(lambda: locks.acquire(entity, on_wait=polls.append))
    until(lambda: len(polls) > 1)
    assert met.is_set()
    until(lambda: place.queue_of(entity) == 1)
    holder.release()
    assert outcome(waiting).is_held()
    assert (place.holders_of(entity), place.queue_of(entity)) == (1, 0)


def test_a_waiter_that_gives_up_leaves_the_queue(
    place: Place, locks: LockClient, near: LockClient, entity: str, hit: Hit
) -> None:
    holder = near.acquire(entity)
    met = hit(is_leave)
    waiting = meanwhile(lambda: locks.acquire(entity, record_wait=0.1))
    until(lambda: place.queue_of(entity) == 1 or waiting.done())
    place.advance(1)
    with pytest.raises(RecordWaitExceeded):
        outcome(waiting)
    assert met.is_set()
    assert place.queue_of(entity) == 0
    holder.release()
    assert place.is_free(entity)


def test_a_renewal_by_hand_keeps_the_lock(place: Place, locks: LockClient, entity: str, hit: Hit) -> None:
    lease = locks.acquire(entity, heartbeat=False)
    before = lease.deadline
    place.advance(_LEASE_S / 2)
    met = hit(is_renewal)
    lease.renew()
    assert met.is_set()
    assert lease.deadline > before
    assert lease.remaining_s > _FRESH_S
    assert place.item_of(entity).fencing_token == lease.fencing_token


def test_a_release_frees_the_lock_at_once(
    place: Place, locks: LockClient, near: LockClient, entity: str, hit: Hit
) -> None:
    lease = locks.acquire(entity)
    met = hit(is_release)
    lease.release()
    assert met.is_set()
    assert place.is_free(entity)
    assert near.acquire(entity, record_wait=0).fencing_token == lease.fencing_token + 1
