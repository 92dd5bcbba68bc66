"""A grant that is given up unused: no work was done under it, and another process may use it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kit.places import Emulated, Wire, meanwhile, outcome, until

from ticketlock import ClientClosed, Lease, LockClient, RecordWaitExceeded
from ticketlock.testing import MemoryDynamoDB

TOO_MUCH = 1 << 47
"""A stack size for which no address space has room."""


@contextmanager
def no_thread_can_be_started() -> Iterator[None]:
    before = threading.stack_size(TOO_MUCH)
    try:
        yield
    finally:
        threading.stack_size(before)


@pytest.fixture
def mine(memory: MemoryDynamoDB) -> LockClient:
    return LockClient("locks", client=memory.client)


@pytest.fixture
def theirs(memory: MemoryDynamoDB) -> LockClient:
    return LockClient("locks", client=memory.client, heartbeat=False)


@pytest.fixture
def memory() -> MemoryDynamoDB:
    return MemoryDynamoDB()


def test_a_group_that_cannot_be_acquired_keeps_the_grant_of_another_process_with_the_same_owner(
    locks: LockClient, others: LockClient, entity: str
) -> None:
    lease = others.acquire(entity, owner="build-7")
    others.acquire(f"{entity}, taken")
    with pytest.raises(RecordWaitExceeded):
        locks.acquire_all([entity, f"{entity}, taken"], owner="build-7", record_wait=0)
    lease.renew()
    # Nor does closing the client free it.
    locks.close()
    lease.renew()


def test_a_group_that_cannot_be_acquired_keeps_the_outer_hold_of_its_own_thread_or_task(
    place: Emulated, locks: LockClient, others: LockClient, entity: str
) -> None:
    outer = locks.acquire(entity, owner="build-7", reentrant=True)
    others.acquire(f"{entity}, taken")
    with pytest.raises(RecordWaitExceeded):
        locks.acquire_all([entity, f"{entity}, taken"], owner="build-7", reentrant=True, record_wait=0)
    assert outer.is_held()
    outer.release()
    assert place.is_free(entity)


def test_a_grant_that_arrives_while_the_client_is_closed_is_kept_for_another_process_with_the_same_owner(
    place: Emulated, others: LockClient, entity: str
) -> None:
    lease = others.acquire(entity, owner="build-7")
    _arrives_while_the_client_is_closed(place, entity, owner="build-7")
    lease.renew()


def test_a_grant_that_arrives_while_the_client_is_closed_keeps_the_data_for_the_next_holder(
    place: Emulated, others: LockClient, entity: str
) -> None:
    others.acquire(entity).release(data_left="page 7")
    _arrives_while_the_client_is_closed(place, entity)
    assert others.acquire(entity).data_left == "page 7"


def test_a_lock_that_could_not_be_renewed_is_released_with_the_data_that_it_came_with(
    mine: LockClient, theirs: LockClient
) -> None:
    theirs.acquire("e").release(data_left="page 7")
    with no_thread_can_be_started(), pytest.raises(RuntimeError, match="thread"):
        mine.acquire("e")
    assert theirs.acquire("e").data_left == "page 7"


def test_a_lock_that_could_not_be_renewed_is_kept_for_another_process_with_the_same_owner(
    mine: LockClient, theirs: LockClient
) -> None:
    lease = theirs.acquire("e", owner="build-7")
    with no_thread_can_be_started(), pytest.raises(RuntimeError, match="thread"):
        mine.acquire("e", owner="build-7")
    lease.renew()


def test_a_lock_that_could_not_be_resumed_with_a_heartbeat_is_neither_renewed_nor_released(
    mine: LockClient, theirs: LockClient
) -> None:
    lease = theirs.acquire("e", owner="build-7")
    with no_thread_can_be_started(), pytest.raises(RuntimeError, match="thread"):
        mine.resume("e", "build-7", heartbeat=True)
    other: Lease = mine.acquire("other")
    watched = list(mine._heartbeat._leases)
    mine.close()
    assert watched == [other]
    lease.renew()


def _arrives_while_the_client_is_closed(place: Emulated, entity: str, owner: str | None = None) -> None:
    """A grant does."""
    wire = Wire()
    locks = place.client(wire=wire)
    with wire.held_back(lambda sent: "if_not_exists" in str(sent.parameters)) as gate:
        acquiring = meanwhile(lambda: locks.acquire(entity, owner=owner))
        assert gate.reached.wait(30)
        closing = meanwhile(locks.close)
        until(lambda: locks._holdings.is_closed)
    outcome(closing)
    with pytest.raises(ClientClosed):
        outcome(acquiring)
