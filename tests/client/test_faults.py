"""Lost replies and lost requests: no lock is taken early, none is granted twice, and no row is left."""

import math
from typing import Any

import pytest
from kit.places import Moved, Wire, meanwhile, outcome, until
from kit.sentences.faults import *  # noqa: F403 -- pytest collects the tests that it brings
from kit.sentences.faults import Hit

from ticketlock import LockClient, Position
from ticketlock.testing import Fault

pytestmark = pytest.mark.shows("lost requests")

LEASE_S = 4
PASSING = [Fault.REQUEST_LOST, Fault.REPLY_LOST, Fault.THROTTLED, Fault.CONFLICT]


@pytest.fixture
def place(moved: Moved) -> Moved:
    return moved


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def locks(moved: Moved, wire: Wire) -> LockClient:
    return moved.client(wire=wire)


@pytest.fixture
def near(moved: Moved) -> LockClient:
    return moved.client()


@pytest.fixture(params=PASSING)
def hit(moved: Moved, wire: Wire, request: pytest.FixtureRequest) -> Hit:
    return lambda is_meant: wire.before(is_meant, lambda: moved.memory.faults.append(request.param))


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_in_a_release_that_grants_the_lock_to_the_next_grants_it_once(
    moved: Moved, entity: str, fault: Fault
) -> None:
    wire = Wire()
    holder = moved.client(wire=wire).acquire(entity)
    seen: list[Position] = []
    waiting = meanwhile(lambda: moved.client(check_every=(0.05, 60)).acquire(entity, on_wait=seen.append))
    until(lambda: any(each.is_next for each in seen))
    with wire.held_back(lambda sent: sent.operation in ("TransactWriteItems", "UpdateItem")) as turn:
        releasing = meanwhile(holder.release)
        until(turn.reached.is_set)
        moved.memory.faults.append(fault)
    outcome(releasing)
    lease = outcome(waiting)
    item = moved.item_of(entity)
    assert (item.held, item.waiting, item.fencing_token) == (1, 0, lease.fencing_token)
    assert lease.fencing_token == holder.fencing_token + 1


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_in_a_heartbeat_keeps_the_lock(moved: Moved, entity: str, fault: Fault) -> None:
    told: list[object] = []
    lease = moved.client(lease=LEASE_S).acquire(entity, on_lost=told.append)
    moved.memory.faults.append(fault)
    moved.clock.advance(LEASE_S / 2 + 0.1)
    until(lambda: lease.remaining_s > LEASE_S * 3 / 4, "a renewal")
    assert lease.is_held()
    assert told == []


@pytest.mark.parametrize("first", range(3))
def test_with_every_third_request_lost_a_counter_loses_nothing(moved: Moved, entity: str, first: int) -> None:
    clients, increments = 3, 3
    faults: list[Any] = [Fault.REPLY_LOST, None, None, Fault.REQUEST_LOST, None, None, Fault.CONFLICT, None, None]
    # More than the clients have requests.
    moved.memory.faults.extend((faults[first:] + faults[:first]) * 40)

    def count() -> None:
        locks = moved.client(lease=3_600, record_wait=math.inf)
        for _ in range(increments):
            lease = locks.acquire(entity)
            lease.release(data_left=str(int(lease.data_left or 0) + 1))

    with moved.time_flies(times=1):
        for done in [meanwhile(count) for _ in range(clients)]:
            outcome(done)
    moved.memory.faults.clear()
    assert moved.client().acquire(entity).data_left == str(clients * increments)
    assert moved.queue_of(entity) == 0
