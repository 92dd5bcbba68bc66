"""A table that does not answer: for less than a lease, for more than a lease, and from the beginning."""

import threading
from contextlib import closing
from datetime import UTC, datetime

import pytest
from kit.far import Far
from kit.in_a_loop import Loop
from kit.places import Emulated, Kind, Wire, meanwhile, outcome, until
from kit.proxy import Proxy
from ticketlock_local.engines.emulator import Emulator

from ticketlock import Lease, LockClient

pytestmark = pytest.mark.shows("liveness", "reported loss")


def test_a_lease_that_cannot_be_renewed_is_in_danger_then_lost_and_no_one_else_holds_it_before(
    place: Far, proxy: Proxy, near: LockClient, entity: str
) -> None:
    told: list[str] = []
    lost_at: list[datetime] = []
    is_lost = threading.Event()

    def note_loss(_: Lease) -> None:
        lost_at.append(datetime.now(UTC))
        told.append("lost")
        is_lost.set()

    def no_other_owner_holds_it() -> bool:
        other = near.try_acquire(entity)
        assert other is None or not lease.is_held()
        return True

    locks = place.client(lease=4)
    lease = locks.acquire(entity, danger=3, on_danger=lambda _: told.append("danger"), on_lost=note_loss)
    with proxy.black_hole():
        deadline = lease.deadline
        until(lambda: no_other_owner_holds_it() and is_lost.is_set(), "the loss")
    assert told == ["danger", "lost"]
    assert lost_at[0] >= deadline
    assert not lease.is_held()


def test_a_lease_is_kept_through_a_silence_that_is_shorter(place: Far, proxy: Proxy, entity: str) -> None:
    lost: list[object] = []
    lease = place.client(lease=10, shortest_lease=1).acquire(entity, on_lost=lost.append)
    with proxy.black_hole() as hole:
        until(lambda: hole.met.is_set(), "a renewal")
        assert lease.is_held()
    until(lambda: lease.remaining_s > 7, "another renewal")
    assert lost == []


def test_a_waiter_keeps_its_place_through_a_silence(place: Far, proxy: Proxy, near: LockClient, entity: str) -> None:
    holder = near.acquire(entity)
    locks = place.client(lease=60, shortest_lease=2)
    first = meanwhile(lambda: locks.acquire(entity))
    until(lambda: place.queue_of(entity) == 1)
    with proxy.black_hole() as hole:
        second = meanwhile(lambda: place.near.client().acquire(entity))
        until(lambda: place.queue_of(entity) == 2)
        holder.release()
        until(lambda: hole.met.is_set(), "a poll")
    lease = outcome(first)
    lease.release()
    assert outcome(second).fencing_token == lease.fencing_token + 1 == holder.fencing_token + 2


def test_refused_connections_are_retried(place: Far, emulator: Emulator, kind: Kind, loop: Loop, entity: str) -> None:
    with Proxy(emulator.endpoint) as closed:
        wire = Wire()
        behind = Emulated(kind, loop, closed.url, place.table_name, {})
        with closing(behind):
            locks = behind.client(wire=wire)
            waiting = meanwhile(lambda: locks.acquire(entity))
            until(lambda: len(wire.sent) > 2, "a third try")
            closed.listen()
            lease = outcome(waiting)
            assert (place.holders_of(entity), place.token_of(entity)) == (1, lease.fencing_token)
        behind.keeps_its_promises()
