"""Leases that are lost, and releases that do not reach the table or are retried: who learns of it, and when."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import FrameType
from typing import Any

import pytest
from kit.places import Moved, Wire, is_release, meanwhile, outcome, until

from ticketlock import LockClient, LockLost, OutcomeUnknown, RequestNotApplied, TableError, TableNotFound
from ticketlock.client import _client
from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB

pytestmark = pytest.mark.shows("lost requests")

LEASE_S = 60
"""A place's clients have it by default."""


def test_a_lease_has_ended_and_is_shown_so_at_its_deadline_without_any_event(moved: Moved, entity: str) -> None:
    lease = moved.client(heartbeat=False).acquire(entity)
    moved.clock.advance(LEASE_S - 0.1)
    assert lease.is_held()
    assert ", held, 0.0 s left>" in repr(lease)
    moved.clock.advance(0.1)
    assert (lease.is_held(), lease.remaining_s) == (False, 0)
    assert ", not held, its lease has expired>" in repr(lease)


# What has happened to a lock under its holder x how the holder ends its hold.


def expired(moved: Moved, _: str) -> None:
    moved.clock.advance(LEASE_S + 1)


def expired_and_taken(moved: Moved, entity: str) -> None:
    moved.clock.advance(LEASE_S + 5)
    moved.client().acquire(entity)


def freed(moved: Moved, entity: str) -> None:
    moved.lose(entity)


def freed_and_taken(moved: Moved, entity: str) -> None:
    moved.lose(entity)
    moved.client().acquire(entity)


def freed_by_its_owner_elsewhere(moved: Moved, entity: str) -> None:
    moved.client().resume(entity, "nightly").release()


Happens = Callable[[], object]


def by_a_release(lease: Any, happens: Happens) -> None:
    happens()
    lease.release()


def by_a_best_effort(lease: Any, happens: Happens) -> None:
    happens()
    lease.release(best_effort=True)


def by_the_end_of_a_block(lease: Any, happens: Happens) -> None:
    with lease:
        happens()


def by_a_block_that_fails(lease: Any, happens: Happens) -> None:
    with lease:
        happens()
        raise LookupError("in the block")


@pytest.mark.parametrize(
    ("ended", "error"),
    [
        (by_a_release, LockLost),
        (by_a_best_effort, None),
        (by_the_end_of_a_block, LockLost),
        (by_a_block_that_fails, LookupError),
    ],
)
@pytest.mark.parametrize("happened", [expired, expired_and_taken, freed, freed_and_taken, freed_by_its_owner_elsewhere])
def test_the_holder_of_a_lost_lock_learns_of_it_by_any_end_of_its_hold_and_no_other_holder_is_affected(
    moved: Moved,
    entity: str,
    caplog: pytest.LogCaptureFixture,
    happened: Callable[[Moved, str], None],
    ended: Callable[[Any, Happens], None],
    error: type[Exception] | None,
) -> None:
    told: list[object] = []
    lease = moved.client(heartbeat=False).acquire(entity, owner="nightly", on_lost=told.append)
    with pytest.raises(error) if error is not None else nullcontext():
        ended(lease, lambda: happened(moved, entity))
    if error is not LockLost:
        assert "was not released" in caplog.text
    if happened not in (expired, expired_and_taken):
        until(lambda: told == [lease])
        assert ", lost> is lost: " in caplog.text
    assert not lease.is_held()
    # Another release does nothing.
    lease.release()
    assert moved.holders_of(entity) == (happened in (expired_and_taken, freed_and_taken))


@pytest.mark.parametrize(
    ("ended", "error"),
    [
        (by_a_release, RequestNotApplied),
        (by_a_best_effort, None),
        (by_the_end_of_a_block, None),
        (by_a_block_that_fails, LookupError),
    ],
)
def test_a_lock_that_cannot_be_released_stays_locked_until_its_lease_ends_unless_the_release_is_tried_again(
    moved: Moved,
    entity: str,
    caplog: pytest.LogCaptureFixture,
    ended: Callable[[Any, Happens], None],
    error: type[Exception] | None,
) -> None:
    leases = [moved.client(heartbeat=False).acquire(each) for each in (entity, f"{entity}, again")]
    with moved.time_flies(times=10), moved.memory.outage(Fault.REQUEST_LOST):
        for lease in leases:
            with pytest.raises(error) if error is not None else nullcontext():
                ended(lease, lambda: None)
    if error is not RequestNotApplied:
        assert "was not released" in caplog.text
    assert not any(lease.is_held() for lease in leases)
    assert moved.holders_of(entity) == moved.holders_of(f"{entity}, again") == 1
    leases[1].release()
    assert moved.is_free(f"{entity}, again")
    moved.clock.advance(LEASE_S + 5)
    assert moved.client().acquire(entity, record_wait=0).is_held()


def test_a_release_with_an_unknown_outcome_is_an_error_and_the_lock_does_not_count_as_held(
    moved: Moved, entity: str
) -> None:
    lease = moved.client().acquire(entity)
    with moved.time_flies(), moved.memory.outage(Fault.REPLY_LOST), pytest.raises(TableError):
        lease.release()
    assert not lease.is_held()
    with pytest.raises(LockLost):
        lease.renew()
    with pytest.raises(LockLost), lease:
        pytest.fail("entered")


@pytest.mark.leaves_a_promise_broken("there is no table to ask", error=KeyError)
def test_a_missing_table_is_an_error_of_its_own_that_names_it(moved: Moved, entity: str) -> None:
    locks = moved.client()
    moved.memory.delete_table(TableName="locks")
    with pytest.raises(TableNotFound, match="there is no table 'locks' in this account and Region"):
        locks.acquire(entity)


def test_a_lock_from_an_acquisition_with_an_unknown_outcome_is_freed_as_soon_as_the_outcome_is_known(
    moved: Moved, entity: str
) -> None:
    wire = Wire()
    locks = moved.client(wire=wire, lease=3_600)
    locks.acquire(f"{entity}, before").release()
    with wire.held_back(lambda sent: sent.operation == "Query") as leaving:
        with moved.time_flies(), moved.memory.outage(Fault.REPLY_LOST):
            acquiring = meanwhile(lambda: locks.acquire(entity))
            until(leaving.reached.is_set)
        assert moved.holders_of(entity) == 1
    with pytest.raises(OutcomeUnknown):
        outcome(acquiring)
    assert moved.is_free(entity)


# A lock that is freed under its holder before the lease ends: once one call learns of it, all users of the lease know.


def write_something(lease: Any) -> None:
    table = lease.condition_check()["ConditionCheck"]["TableName"]
    lease.transact_write([{"Put": {"TableName": table, "Item": {"pk": {"S": "order-7"}, "sk": {"S": "mine"}}}}])


@pytest.mark.parametrize(
    "ask",
    [
        lambda lease: lease.set_data("step 2"),
        write_something,
        lambda lease: lease.ensure(LEASE_S),
        lambda lease: lease.renew(),
        lambda lease: lease.extend(600),
    ],
    ids=["set_data", "transact_write", "ensure", "renew", "extend"],
)
def test_a_loss_that_one_call_learns_of_is_known_to_all(
    moved: Moved, entity: str, ask: Callable[[Any], object]
) -> None:
    told: list[object] = []
    locks = moved.client(heartbeat=False)
    lease = locks.acquire(entity, on_lost=told.append, data="step 1")
    moved.clock.advance(1)
    moved.lose(entity)
    with pytest.raises(LockLost):
        ask(lease)
    assert not lease.is_held()
    with pytest.raises(LockLost):
        lease.ensure(0)
    with pytest.raises(LockLost), lease:
        pytest.fail("entered")
    until(lambda: told == [lease])
    sent = len(moved.memory.sent)
    locks.close()
    assert len(moved.memory.sent) == sent


# Retried releases: after an outage, when the client closes, and after an interrupt by a signal handler.


def test_a_release_in_time_whose_reply_was_lost_succeeds_if_it_is_retried_past_the_lease(
    moved: Moved, entity: str
) -> None:
    told: list[object] = []
    lease = moved.client(heartbeat=False).acquire(entity, on_lost=told.append)
    with moved.time_flies(), moved.memory.outage(Fault.REPLY_LOST), pytest.raises(OutcomeUnknown):
        lease.release()
    moved.clock.advance(LEASE_S + 5)
    lease.release()
    assert not told


def test_a_release_that_certainly_was_not_applied_does_not_count_as_an_earlier_try(moved: Moved, entity: str) -> None:
    told: list[object] = []
    lease = moved.client(heartbeat=False).acquire(entity, owner="nightly", on_lost=told.append)
    with moved.time_flies(), moved.memory.outage(Fault.THROTTLED), pytest.raises(RequestNotApplied):
        lease.release()
    moved.client().resume(entity, "nightly").release()
    moved.client().acquire(entity).release()
    with pytest.raises(LockLost):
        lease.release()
    until(lambda: told == [lease])


@pytest.mark.parametrize("kind", ["threads"])
def test_the_end_of_the_interpreter_completes_a_release_that_a_handler_with_close_and_exit_interrupted(
    moved: Moved, entity: str
) -> None:
    wire = Wire()
    locks = moved.client(wire=wire, heartbeat=False)

    def close_and_exit() -> None:
        locks.close()
        sys.exit(0)

    wire.before(is_release, close_and_exit)
    with pytest.raises(SystemExit), locks.acquire(entity):
        pass
    _client._release_all()
    assert moved.is_free(entity)


def test_the_clients_mutexes_are_entered_only_by_methods_in_which_no_handler_can_raise(
    memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    entered: list[str] = []

    def called(frame: FrameType, _event: str, _argument: object) -> None:
        caller = frame.f_back.f_globals.get("__name__", "") if frame.f_back is not None else ""
        if frame.f_code.co_qualname.startswith("Condition.__e") and caller.startswith("ticketlock"):
            entered.append(caller)

    before = sys.gettrace()
    sys.settrace(called)
    try:
        with LockClient("locks", client=memory.client, clocks=clock) as locks, locks.acquire("order-42") as lease:
            lease.renew()
    finally:
        sys.settrace(before)
    assert entered == []
