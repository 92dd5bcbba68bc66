"""Acquiring a lock, waiting for it in the order of the tickets, and releasing it; its data; resuming it elsewhere."""

import math

import pytest
from kit.places import Emulated, Moved, Wire, meanwhile, outcome, until
from kit.sentences.acquiring import *  # noqa: F403 -- pytest collects the tests that it brings
from kit.sentences.acquiring import Line

from ticketlock import LockClient, LockLost, Position

pytestmark = pytest.mark.shows("order", "left queue")


def test_an_infinite_record_wait_outlasts_every_other(moved: Moved, entity: str) -> None:
    day_s = 24 * 3_600
    lease = moved.client().acquire(entity, lease=2 * day_s)
    polls: list[Position] = []
    waiting = meanwhile(lambda: moved.client().acquire(entity, record_wait=math.inf, on_wait=polls.append))
    until(lambda: polls)
    moved.clock.advance(day_s)
    seen = len(polls)
    until(lambda: len(polls) > seen + 1)
    lease.release()
    assert outcome(waiting).is_held()


# Not so with fault injection: a ticket whose reply was lost is minted twice, and counts as one ahead until a later row
# is written.
def test_on_wait_gets_the_position_of_each_poll(locks: LockClient, line: Line) -> None:
    lease = locks.acquire(line.entity)
    line.stand("first")
    ahead: list[int] = []
    other = line.place.client()
    waiting = meanwhile(lambda: other.acquire(line.entity, on_wait=lambda seen: ahead.append(seen.ahead)))
    until(lambda: ahead)
    assert ahead[0] == 1
    lease.release()
    outcome(waiting).release()
    line.all_done()
    assert ahead == sorted(ahead, reverse=True)


def test_a_lease_that_was_released_is_not_entered_again(locks: LockClient, entity: str) -> None:
    with locks.acquire(entity) as lease:
        pass
    with pytest.raises(LockLost, match="has ended"), lease:
        pytest.fail("entered")


# Data beside a holder, and a lock that another process resumes.


def test_data_is_shown_beside_the_holder_and_may_be_changed_and_taken_away(
    place: Emulated, locks: LockClient, entity: str
) -> None:
    def is_shown(data: str | None) -> bool:
        (holder,) = place.item_of(entity).holders
        return lease.data == holder.data == data and holder.owner == lease.owner

    lease = locks.acquire(entity, data="step 1")
    assert is_shown("step 1")
    for data in ("step 2", None):
        lease.set_data(data)
        assert is_shown(data)


def test_another_process_continues_with_a_lock_by_its_owner(
    place: Emulated, locks: LockClient, others: LockClient, entity: str
) -> None:
    first = locks.acquire(entity, owner="invoice-7", data="by hand")
    first.detach()
    locks.close()
    assert place.holders_of(entity) == 1
    resumed = others.resume(entity, "invoice-7")
    assert resumed.is_held()
    assert resumed.fencing_token == first.fencing_token
    assert resumed.data == "by hand"
    resumed.release()
    assert place.is_free(entity)


def test_resuming_gives_the_lock_a_full_lease(moved: Moved, entity: str) -> None:
    first = moved.client(heartbeat=False).acquire(entity, owner="invoice-7")
    full_s = first.remaining_s
    first.detach()
    moved.clock.advance(full_s - 10)
    assert moved.client().resume(entity, "invoice-7").remaining_s > full_s - 1


@pytest.mark.parametrize("was_held", [False, True], ids=["never held", "its lease has ended"])
def test_a_lock_that_its_owner_does_not_hold_is_not_resumed(moved: Moved, entity: str, was_held: bool) -> None:
    if was_held:
        moved.client(heartbeat=False, lease=60).acquire(entity, owner="invoice-7").detach()
        moved.clock.advance(61)
    with pytest.raises(LockLost):
        moved.client().resume(entity, "invoice-7")


def test_resuming_with_a_lease_that_is_too_short_is_refused_and_nothing_is_sent(place: Emulated, entity: str) -> None:
    wire = Wire()
    locks = place.client(wire=wire)
    locks.acquire(entity, owner="invoice-7").detach()
    sent = len(wire.sent)
    with pytest.raises(ValueError, match="four read time-outs"):
        locks.resume(entity, "invoice-7", lease=1)
    assert len(wire.sent) == sent


def test_list_names_every_lock_with_its_holders(moved: Moved) -> None:
    locks = moved.client()
    leases = [locks.acquire(f"order-{number}", namespace="billing") for number in range(5)]
    assert {summary.lock: summary.held for summary in locks.list()} == {lease.lock: 1 for lease in leases}
