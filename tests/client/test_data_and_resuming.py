"""Data beside a holder, data for the next one, and a lock that another process resumes."""

import pytest
from kit.places import Emulated, Moved, Wire

from ticketlock import LockClient, LockLost, LockName, TicketLockError


def test_data_is_shown_beside_the_holder(locks: LockClient, others: LockClient, entity: str) -> None:
    lease = locks.acquire(entity, data="step 1")
    assert lease.data == "step 1"
    assert _shown(others, entity) == ["step 1"]


def test_data_may_be_changed_while_the_lock_is_held(locks: LockClient, others: LockClient, entity: str) -> None:
    lease = locks.acquire(entity, data="step 1")
    lease.set_data("step 2")
    assert lease.data == "step 2"
    assert _shown(others, entity) == ["step 2"]


def test_data_may_be_taken_away(locks: LockClient, others: LockClient, entity: str) -> None:
    lease = locks.acquire(entity, data="step 1")
    lease.set_data(None)
    assert lease.data is None
    assert _shown(others, entity) == [None]


def test_data_of_a_lock_that_was_lost_is_not_changed(place: Emulated, locks: LockClient, entity: str) -> None:
    lease = locks.acquire(entity, data="step 1")
    place.lose(entity)
    with pytest.raises(LockLost):
        lease.set_data("step 2")


def test_the_next_holder_gets_the_data_that_the_last_one_left(
    locks: LockClient, others: LockClient, entity: str
) -> None:
    locks.acquire(entity).release(data_left="page 7")
    assert others.acquire(entity).data_left == "page 7"


def test_data_for_the_next_holder_is_removed_after_it(locks: LockClient, others: LockClient, entity: str) -> None:
    locks.acquire(entity).release(data_left="page 7")
    others.acquire(entity).release()
    assert locks.acquire(entity).data_left is None


def test_a_detached_lock_stays_held(place: Emulated, locks: LockClient, entity: str) -> None:
    locks.acquire(entity, owner="invoice-7").detach()
    locks.close()
    assert place.holders_of(entity) == 1


def test_another_process_continues_with_a_lock_by_its_owner(
    place: Emulated, locks: LockClient, others: LockClient, entity: str
) -> None:
    first = locks.acquire(entity, owner="invoice-7", data="by hand")
    first.detach()
    resumed = others.resume(entity, "invoice-7")
    assert resumed.is_held()
    assert resumed.fencing_token == first.fencing_token
    assert resumed.data == "by hand"
    resumed.release()
    assert place.is_free(entity)


def test_resuming_gives_the_lock_a_full_lease(moved: Moved, entity: str) -> None:
    moved.client(heartbeat=False).acquire(entity, owner="invoice-7").detach()
    moved.clock.advance(50)
    assert moved.client().resume(entity, "invoice-7").remaining_s > 50


def test_a_lock_that_its_owner_does_not_hold_is_not_resumed(locks: LockClient, entity: str) -> None:
    with pytest.raises(LockLost):
        locks.resume(entity, "invoice-7")


def test_a_lock_whose_lease_ended_is_not_resumed(moved: Moved, entity: str) -> None:
    moved.client(heartbeat=False).acquire(entity, owner="invoice-7").detach()
    moved.clock.advance(61)
    with pytest.raises(LockLost):
        moved.client().resume(entity, "invoice-7")


def test_a_detached_lease_is_not_renewed_any_more(moved: Moved, entity: str) -> None:
    wire = Wire()
    locks = moved.client(wire=wire, lease=1)
    locks.acquire(entity, owner="invoice-7").detach()
    moved.clock.advance(3_600)
    locks.acquire(f"{entity}, another").release()
    assert wire.renewals(entity) == 0


def test_resuming_with_a_lease_that_is_too_short_is_refused_and_nothing_is_sent(place: Emulated, entity: str) -> None:
    wire = Wire()
    locks = place.client(wire=wire)
    locks.acquire(entity, owner="invoice-7").detach()
    sent = len(wire.sent)
    with pytest.raises(ValueError, match="four read time-outs"):
        locks.resume(entity, "invoice-7", lease=1)
    assert len(wire.sent) == sent


def test_inspect_shows_holders_and_waiters(locks: LockClient, others: LockClient, entity: str) -> None:
    lease = locks.acquire(entity)
    state = others.inspect(entity)
    assert state.item is not None
    assert [holder.owner for holder in state.item.holders] == [lease.owner]
    assert state.rows == ()


def test_list_names_every_lock_with_its_holders(moved: Moved) -> None:
    locks = moved.client()
    for number in range(5):
        locks.acquire(f"order-{number}", namespace="billing")
    listed = {summary.lock: summary for summary in locks.list()}
    assert set(listed) == {LockName(f"order-{number}", "billing") for number in range(5)}
    assert all(summary.held == 1 for summary in listed.values())


def test_a_lock_of_a_later_holder_is_not_freed_by_an_earlier_holder(
    place: Emulated, locks: LockClient, others: LockClient, entity: str
) -> None:
    lease = locks.acquire(entity)
    place.lose(entity)
    current = others.acquire(entity)
    with pytest.raises(TicketLockError):
        lease.renew()
    lease.release(best_effort=True)
    assert current.is_held()
    assert place.holders_of(entity) == 1


def _shown(locks: LockClient, entity: str) -> list[str | None]:
    item = locks.inspect(entity).item
    assert item is not None
    return [holder.data for holder in item.holders]
