"""Retried releases: after an outage, when the client closes, and after an interrupt by a signal handler."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError
from kit.places import Moved, until

from ticketlock import LockClient, LockLost, LockName, LockTable, OutcomeUnknown, PermitsMismatch, RequestNotApplied
from ticketlock.client import _client
from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB


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
