"""Leases that end unexpectedly: who learns of it, and when; and releases that do not reach the table."""

import pytest
from kit.places import Emulated, Moved, Wire, meanwhile, outcome

from ticketlock import LockClient, LockLost, OutcomeUnknown, RequestNotApplied, TableError, TableNotFound
from ticketlock.testing import Fault


def test_a_lease_has_ended_at_its_deadline_without_any_event(moved: Moved, entity: str) -> None:
    lease = moved.client(heartbeat=False).acquire(entity)
    moved.clock.advance(59.9)
    assert lease.is_held()
    moved.clock.advance(0.1)
    assert not lease.is_held()
    assert lease.remaining_s == 0


def test_a_lease_is_shown_as_held_until_its_deadline(moved: Moved, entity: str) -> None:
    lease = moved.client(heartbeat=False).acquire(entity)
    moved.clock.advance(59.9)
    assert ", held, 0.0 s left>" in repr(lease)
    moved.clock.advance(0.1)
    assert ", not held, its lease has expired>" in repr(lease)


def test_the_log_of_a_loss_that_a_release_finds_shows_the_lease_as_lost(
    moved: Moved, entity: str, caplog: pytest.LogCaptureFixture
) -> None:
    lease = moved.client(heartbeat=False).acquire(entity)
    moved.lose(entity)
    with pytest.raises(LockLost):
        lease.release()
    assert ", lost> is lost: " in caplog.text


def test_a_release_after_the_end_of_the_lease_raises_LockLost(moved: Moved, entity: str) -> None:
    lease = moved.client(heartbeat=False).acquire(entity)
    moved.clock.advance(61)
    with pytest.raises(LockLost):
        lease.release()
    assert moved.is_free(entity)


def test_a_late_release_does_not_affect_the_next_holder(moved: Moved, entity: str) -> None:
    lease = moved.client(heartbeat=False).acquire(entity)
    moved.clock.advance(65)
    moved.client().acquire(entity)
    with pytest.raises(LockLost):
        lease.release()
    assert moved.holders_of(entity) == 1


def test_a_block_without_an_error_under_a_lost_lease_ends_in_lock_lost(moved: Moved, entity: str) -> None:
    locks = moved.client(heartbeat=False)
    with pytest.raises(LockLost), locks.acquire(entity):
        moved.clock.advance(61)


def test_a_block_that_failed_under_a_lost_lease_ends_in_its_own_exception(moved: Moved, entity: str) -> None:
    locks = moved.client(heartbeat=False)

    def work() -> None:
        moved.clock.advance(61)
        raise ValueError("in the block")

    with pytest.raises(ValueError, match="in the block"), locks.acquire(entity):
        work()


def test_a_best_effort_release_of_a_lost_lock_is_logged(
    moved: Moved, entity: str, caplog: pytest.LogCaptureFixture
) -> None:
    lease = moved.client(heartbeat=False).acquire(entity)
    moved.clock.advance(61)
    lease.release(best_effort=True)
    assert "was not released" in caplog.text


def test_the_table_may_be_unreachable_at_the_end_of_a_block(
    moved: Moved, entity: str, caplog: pytest.LogCaptureFixture
) -> None:
    lease = moved.client().acquire(entity)
    with moved.time_flies(), moved.memory.outage(Fault.REQUEST_LOST), lease:
        pass
    assert "was not released, and stays locked until its lease ends" in caplog.text
    assert not lease.is_held()
    moved.clock.advance(65)
    assert moved.client().acquire(entity, record_wait=0).is_held()


def test_a_release_that_cannot_reach_the_table_raises_an_error(moved: Moved, entity: str) -> None:
    lease = moved.client().acquire(entity)
    with moved.time_flies(), moved.memory.outage(Fault.REQUEST_LOST), pytest.raises(RequestNotApplied):
        lease.release()


def test_a_release_with_an_unknown_outcome_is_an_error_and_the_lock_does_not_count_as_held(
    moved: Moved, entity: str
) -> None:
    lease = moved.client().acquire(entity)
    with moved.time_flies(), moved.memory.outage(Fault.REPLY_LOST), pytest.raises(TableError):
        lease.release()
    assert not lease.is_held()
    with pytest.raises(LockLost):
        lease.renew()


def test_a_failed_release_may_be_retried(moved: Moved, entity: str) -> None:
    lease = moved.client().acquire(entity)
    with moved.time_flies(), moved.memory.outage(Fault.REQUEST_LOST), pytest.raises(TableError):
        lease.release()
    lease.release()
    assert moved.is_free(entity)


def test_a_best_effort_release_that_cannot_reach_the_table_is_logged(
    moved: Moved, entity: str, caplog: pytest.LogCaptureFixture
) -> None:
    lease = moved.client().acquire(entity)
    with moved.time_flies(), moved.memory.outage(Fault.REQUEST_LOST):
        lease.release(best_effort=True)
    assert "was not released" in caplog.text


@pytest.mark.leaves_a_promise_broken("there is no table to ask", error=KeyError)
def test_a_missing_table_is_an_error_of_its_own_that_names_it(moved: Moved, entity: str) -> None:
    locks = moved.client()
    moved.memory.delete_table(TableName="locks")
    with pytest.raises(TableNotFound, match="there is no table 'locks' in this account and Region"):
        locks.acquire(entity)


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.THROTTLED, Fault.CONFLICT])
def test_a_lock_in_an_unreachable_table_is_not_acquired(moved: Moved, entity: str, fault: Fault) -> None:
    locks = moved.client()
    with moved.time_flies(), moved.memory.outage(fault), pytest.raises(RequestNotApplied):
        locks.acquire(entity)
    assert moved.is_free(entity)


def test_a_lock_from_an_acquisition_with_an_unknown_outcome_is_freed_as_soon_as_the_outcome_is_known(
    moved: Moved, entity: str
) -> None:
    wire = Wire()
    locks = moved.client(wire=wire, lease=3_600)
    locks.acquire(f"{entity}, before").release()
    with wire.held_back(lambda sent: sent.operation == "Query") as leaving:
        with moved.time_flies(), moved.memory.outage(Fault.REPLY_LOST):
            acquiring = meanwhile(lambda: locks.acquire(entity))
            assert leaving.reached.wait(30)
        assert moved.holders_of(entity) == 1
    with pytest.raises(OutcomeUnknown):
        outcome(acquiring)
    assert moved.is_free(entity)


def test_a_renewal_of_a_lock_that_was_freed_by_force_raises_LockLost(
    place: Emulated, locks: LockClient, entity: str
) -> None:
    lease = locks.acquire(entity)
    place.lose(entity)
    with pytest.raises(LockLost):
        lease.renew()
    assert not lease.is_held()
