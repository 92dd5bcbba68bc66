"""Leases that are lost, and releases that do not reach the table or are retried: who learns of it, and when."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError
from kit.places import Moved, Wire, meanwhile, outcome, until

from ticketlock import (
    LockClient,
    LockLost,
    LockName,
    LockTable,
    OutcomeUnknown,
    PermitsMismatch,
    RequestNotApplied,
    TableError,
    TableNotFound,
)
from ticketlock.client import _client
from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB

pytestmark = pytest.mark.shows("lost requests")


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


# A lock that is freed under its holder before the lease ends: once one call learns of it, all users of the lease know.


def write_something(lease: Any) -> None:
    table = lease.condition_check()["ConditionCheck"]["TableName"]
    lease.transact_write([{"Put": {"TableName": table, "Item": {"pk": {"S": "order-7"}, "sk": {"S": "mine"}}}}])


class Loss:
    """A held lock that is not renewed, and what its callbacks were told."""

    def __init__(self, moved: Moved, entity: str) -> None:
        self.told: list[object] = []
        self.moved, self.entity = moved, entity
        self.client = moved.client(heartbeat=False)
        self.lease = self.client.acquire(entity, on_lost=self.told.append)

    def comes(self, and_goes_to: LockClient | None = None) -> None:
        self.moved.lose(self.entity)
        if and_goes_to is not None:
            and_goes_to.acquire(self.entity)


@pytest.fixture
def loss(moved: Moved, entity: str) -> Loss:
    return Loss(moved, entity)


def test_the_end_of_a_block_raises_LockLost_if_another_owner_has_held_the_lock(loss: Loss) -> None:
    with pytest.raises(LockLost, match="another client has freed it"), loss.lease:
        loss.comes(and_goes_to=loss.moved.client())
    until(lambda: loss.told == [loss.lease])


def test_the_end_of_a_block_raises_LockLost_if_the_lock_was_freed_even_if_no_one_has_taken_it(loss: Loss) -> None:
    with pytest.raises(LockLost), loss.lease:
        loss.comes()


def test_a_release_raises_LockLost_once(loss: Loss) -> None:
    loss.comes()
    with pytest.raises(LockLost):
        loss.lease.release()
    loss.lease.release()
    until(lambda: loss.told == [loss.lease])


def test_a_lock_that_its_owner_released_elsewhere_is_lost_here(moved: Moved, entity: str) -> None:
    lease = moved.client(heartbeat=False).acquire(entity, owner="nightly")
    moved.client().resume(entity, "nightly").release()
    with pytest.raises(LockLost):
        lease.release()


@pytest.mark.parametrize(
    "ask",
    [
        lambda lease: lease.set_data("step 2"),
        write_something,
        lambda lease: lease.ensure(60),
    ],
    ids=["set_data", "transact_write", "ensure"],
)
def test_a_loss_that_one_call_learns_of_is_known_to_all(loss: Loss, ask: Callable[[Any], object]) -> None:
    loss.moved.clock.advance(1)
    loss.comes()
    with pytest.raises(LockLost):
        ask(loss.lease)
    assert not loss.lease.is_held()
    with pytest.raises(LockLost):
        loss.lease.ensure(0)
    until(lambda: loss.told == [loss.lease])


# Retried releases: after an outage, when the client closes, and after an interrupt by a signal handler.


def test_a_release_in_time_whose_reply_was_lost_succeeds_if_it_is_retried_past_the_lease(
    moved: Moved, entity: str
) -> None:
    told: list[object] = []
    lease = moved.client(heartbeat=False).acquire(entity, on_lost=told.append)
    with moved.time_flies(), moved.memory.outage(Fault.REPLY_LOST), pytest.raises(OutcomeUnknown):
        lease.release()
    moved.clock.advance(65)
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


class Struck:
    """An SDK client that calls the given function in the middle of its next release."""

    def __init__(self, memory: MemoryDynamoDB) -> None:
        self._memory = memory
        self.then: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory.client, name)

    def update_item(self, **parameters: Any) -> Any:
        if self.then is not None and "REMOVE" in parameters["UpdateExpression"]:
            then, self.then = self.then, None
            then()
        return self._memory.client.update_item(**parameters)


def test_the_end_of_the_interpreter_completes_a_release_that_a_handler_with_close_and_exit_interrupted(
    memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    struck: Any = Struck(memory)
    locks = LockClient("locks", client=struck, clocks=clock, sleep=clock.sleep, heartbeat=False)

    def terminated() -> None:
        locks.close()
        sys.exit(0)

    struck.then = terminated
    with pytest.raises(SystemExit), locks.acquire("order-42"):
        pass
    _client._release_all()
    item = LockTable("locks", client=memory.client, clocks=clock).inspect(LockName("order-42")).item
    assert item is not None
    assert item.holders == ()


class Unset:
    """An SDK client: the replies of a transaction are lost until it polls again, and then an operator acts."""

    def __init__(self, memory: MemoryDynamoDB, comes: Callable[[], object]) -> None:
        self._memory, self._comes = memory, comes
        self._lost = self._has_come = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory.client, name)

    def transact_write_items(self, **parameters: Any) -> Any:
        reply = self._memory.client.transact_write_items(**parameters)
        if self._has_come:
            return reply
        self._lost = True
        raise ReadTimeoutError(endpoint_url="the reply")

    def query(self, **parameters: Any) -> Any:
        if self._lost and not self._has_come:
            self._has_come = True
            self._comes()
        return self._memory.client.query(**parameters)


def test_a_waiter_that_leaves_because_of_another_number_of_permits_releases_its_grant_too(
    memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    lock, users = LockName("order-42"), LockClient("locks", client=memory.client, clocks=clock, heartbeat=False)
    operator = LockTable("locks", client=memory.client, clocks=clock)
    first = users.acquire(lock.entity)
    operator.set_limit(lock, 1)

    def sleep(seconds: float) -> None:
        clock.advance(seconds)
        first.release()

    struck: Any = Unset(memory, lambda: operator.unset_limit(lock))
    waiter = LockClient("locks", client=struck, clocks=clock, sleep=sleep, heartbeat=False)
    with pytest.raises(PermitsMismatch):
        waiter.acquire(lock.entity, permits=3, record_wait=60)
    state = operator.inspect(lock)
    assert state.item is not None
    assert (state.item.holders, state.rows) == ((), ())


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
