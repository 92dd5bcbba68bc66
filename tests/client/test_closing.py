"""Closing a client: its locks are released, its waiters woken, and no thread or task is left; unused grants."""

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from kit.places import Emulated, Moved, Wire, is_grant, is_release, is_renewal, meanwhile, outcome, until

from ticketlock import ClientClosed, Lease, LockClient, RecordWaitExceeded, TableError
from ticketlock.client import _client
from ticketlock.testing import Fault, MemoryDynamoDB

pytestmark = pytest.mark.shows("left queue", "end of a client")

ENOUGH_TO_END_EARLY_S = 0.5
GIVEN_UP_AFTER_S = 8
"""For how long one request is retried."""
OF_THREADS = pytest.mark.parametrize("kind", ["threads"])


HOLDS: dict[str, tuple[int, dict[str, Any], int]] = {
    "once": (1, {}, 1),
    "several times": (3, {"reentrant": True}, 1),
    "with several permits": (2, {"permits": 2}, 2),
}


@pytest.mark.parametrize("how", HOLDS)
def test_a_client_that_is_closed_releases_what_one_thread_or_task_holds_with_one_request_for_each(
    place: Emulated, entity: str, how: str
) -> None:
    times, wishes, requests = HOLDS[how]
    wire = Wire()
    locks = place.client(wire=wire)
    with ExitStack() as stack:
        leases = [stack.enter_context(locks.acquire(entity, **wishes)) for _ in range(times)]
        stack.pop_all()
    before = len(wire.sent)
    locks.close()
    # Again, which does nothing.
    locks.close()
    assert [is_release(sent) for sent in wire.sent[before:]] == [True] * requests
    assert not any(lease.is_held() for lease in leases)
    assert place.is_free(entity)


def test_the_end_of_with_closes_the_client(place: Emulated, entity: str) -> None:
    with place.client() as locks:
        locks.acquire(entity)
    assert place.is_free(entity)
    with pytest.raises(ClientClosed):
        locks.acquire(entity)


def test_closing_wakes_the_waiters_which_leave_the_queue(
    place: Emulated, locks: LockClient, others: LockClient, entity: str
) -> None:
    lease = others.acquire(entity)
    waiting = [meanwhile(lambda: locks.acquire(entity)) for _ in range(3)]
    until(lambda: place.queue_of(entity) == 3)
    locks.close()
    assert place.queue_of(entity) == 0
    for each in waiting:
        with pytest.raises(ClientClosed):
            outcome(each)
    lease.release()
    assert place.is_free(entity)


def test_a_closed_client_refuses_everything(locks: LockClient, entity: str) -> None:
    locks.close()
    for refused in (
        lambda: locks.acquire(entity),
        lambda: locks.try_acquire(entity),
        lambda: locks.acquire_all([entity]),
        lambda: locks.resume(entity, "invoice-7"),
        lambda: locks.inspect(entity),
        lambda: list(locks.list()),
    ):
        with pytest.raises(ClientClosed):
            refused()


def test_closing_does_not_wait_for_a_renewal_that_hangs(place: Emulated, entity: str) -> None:
    wire = Wire()
    locks = place.client(wire=wire, lease=10)
    locks.acquire(entity)
    with wire.renewals_held_back(entity) as gate:
        until(gate.reached.is_set)
        locks.close()
        assert not gate.opened.is_set()
    assert place.is_free(entity)


def test_closing_does_not_wait_for_ever_for_a_waiter_whose_request_hangs(place: Emulated, entity: str) -> None:
    wire = Wire()
    place.client().acquire(entity)
    locks = place.client(wire=wire)
    with wire.held_back(lambda sent: sent.operation == "Query") as gate:
        waiting = meanwhile(lambda: locks.acquire(entity))
        until(gate.reached.is_set)
        closing = meanwhile(locks.close)
        if place.kind == "threads":
            outcome(closing)
            assert not gate.opened.is_set()
    outcome(closing)
    with pytest.raises(ClientClosed):
        outcome(waiting)
    until(lambda: place.queue_of(entity) == 0)


def test_a_waiter_may_close_its_own_client(place: Emulated, locks: LockClient, others: LockClient, entity: str) -> None:
    others.acquire(entity)

    def close(_: object) -> None:
        if place.kind == "threads":
            locks.close()
        else:
            meanwhile(locks.close)

    with pytest.raises(ClientClosed):
        locks.acquire(entity, on_wait=close)
    until(lambda: place.queue_of(entity) == 0)


@pytest.mark.parametrize("why", ["it was lost", "it could not be released before"])
def test_a_lease_that_cannot_be_released_does_not_keep_the_rest_from_being_released(
    moved: Moved, entity: str, why: str
) -> None:
    locks = moved.client(lease=600)
    entities = [f"{entity}{number}" for number in range(3)]
    leases = [locks.acquire(each) for each in entities]
    if why == "it was lost":
        moved.lose(entities[1])
    else:
        with moved.memory.outage(Fault.THROTTLED), moved.time_flies(), pytest.raises(TableError):
            leases[1].release()
    locks.close()
    assert all(moved.is_free(each) for each in entities)


def test_closing_does_not_try_every_lease_if_the_table_is_unreachable(moved: Moved, entity: str) -> None:
    locks = moved.client(lease=600)
    leases = [locks.acquire(f"{entity}{number}") for number in range(20)]
    began_ms = moved.clock.read().local_ms
    with moved.memory.outage(Fault.THROTTLED), moved.time_flies():
        locks.close()
    assert moved.clock.read().local_ms - began_ms < 1_000 * GIVEN_UP_AFTER_S * len(leases) / 2
    assert not any(lease.is_held() for lease in leases)


def test_a_lease_that_could_not_be_released_is_forgotten_when_it_has_ended(moved: Moved, entity: str) -> None:
    wire = Wire()
    locks = moved.client(wire=wire, lease=60, heartbeat=False)
    for number in range(3):
        lease = locks.acquire(f"{entity}{number}")
        with moved.memory.outage(Fault.THROTTLED), moved.time_flies(), pytest.raises(TableError):
            lease.release()
        moved.clock.advance(60)
        assert len(locks._holdings._held.all()) <= 1
    sent = len(wire.sent)
    locks.close()
    assert len(wire.sent) == sent


def test_closing_waits_for_a_release_in_progress(moved: Moved, entity: str) -> None:
    wire = Wire()
    locks = moved.client(wire=wire)
    lease = locks.acquire(entity)
    with wire.held_back(is_release) as gate:
        releasing = meanwhile(lease.release)
        until(gate.reached.is_set)
        closing = meanwhile(locks.close)
        until(lambda: _is_closed(locks))
        assert not wait([closing], ENOUGH_TO_END_EARLY_S).done
    outcome(closing)
    assert moved.is_free(entity)
    outcome(releasing)


@pytest.mark.parametrize("ends", ["at exit", "release"])
def test_a_client_that_is_forgotten_lives_until_it_holds_nothing_or_the_interpreter_exits(ends: str) -> None:
    memory = MemoryDynamoDB()

    def forgotten() -> tuple[weakref.ref[LockClient], Lease | None]:
        locks = LockClient("locks", client=memory.client, heartbeat=False)
        lease = locks.acquire("order-42")
        return weakref.ref(locks), lease if ends == "release" else None

    client, lease = forgotten()
    gc.collect()
    assert client() is not None
    if lease is not None:
        lease.release()
    else:
        _client._release_all()
    with LockClient("locks", client=memory.client) as others:
        assert others.try_acquire("order-42")
    del lease
    gc.collect()
    assert client() is None


def _is_closed(locks: LockClient) -> bool:
    return locks._holdings.is_closed


@OF_THREADS
def test_one_thread_watches_any_number_of_leases_and_is_gone_when_the_last_has_ended_or_the_client_is_closed(
    locks: LockClient, entity: str
) -> None:
    with locks.acquire(entity, heartbeat=False):
        assert _heartbeats() == 0
    for _ in range(2):
        with locks.acquire(entity):
            assert _heartbeats() == 1
        assert _heartbeats() == 0
    for number in range(20):
        locks.acquire(f"{entity}{number}")
    assert _heartbeats() == 1
    locks.close()
    until(lambda: _heartbeats() == 0)


@OF_THREADS
def test_the_end_of_the_last_lease_waits_once_for_all_renewals_that_hang(moved: Moved, entity: str) -> None:
    wire = Wire()
    locks = moved.client(wire=wire, lease=1)
    leases = [locks.acquire(f"{entity}{number}") for number in range(100)]
    with wire.held_back(is_renewal):
        moved.clock.advance(0.6)
        until(lambda: _heartbeats() > len(leases))
        for lease in leases[:-1]:
            lease.detach()
        began_s = time.monotonic()
        leases[-1].detach()
        # A twentieth of a second for each would take twice as long.
        assert time.monotonic() - began_s < len(leases) / 40


def _heartbeats() -> int:
    return sum(thread.name == "ticketlock-heartbeat" for thread in threading.enumerate())


# A grant that is given up unused: no work was done under it, and another process may use it.


TOO_MUCH = 1 << 47
"""A stack size for which no address space has room."""


@contextmanager
def no_thread_can_be_started() -> Iterator[None]:
    before = threading.stack_size(TOO_MUCH)
    try:
        yield
    finally:
        threading.stack_size(before)


@pytest.mark.parametrize("is_its_own", [False, True], ids=["of another process", "of its own thread or task"])
def test_a_group_that_cannot_be_acquired_keeps_an_earlier_grant_of_the_same_owner(
    locks: LockClient, others: LockClient, entity: str, is_its_own: bool
) -> None:
    lease = (locks if is_its_own else others).acquire(entity, owner="build-7").__enter__()
    others.acquire(f"{entity}, taken")
    with pytest.raises(RecordWaitExceeded):
        locks.acquire_all([entity, f"{entity}, taken"], owner="build-7", reentrant=is_its_own, record_wait=0)
    lease.renew()
    # Closing the client frees only its own.
    locks.close()
    assert lease.is_held() is not is_its_own


def close_while_a_grant_arrives(place: Emulated, entity: str, **wishes: Any) -> None:
    wire = Wire()
    locks = place.client(wire=wire)
    with wire.held_back(is_grant) as gate:
        acquiring = meanwhile(lambda: locks.acquire(entity, **wishes))
        until(gate.reached.is_set)
        closing = meanwhile(locks.close)
        until(lambda: _is_closed(locks))
    outcome(closing)
    with pytest.raises(ClientClosed):
        outcome(acquiring)


@pytest.mark.parametrize("left", [None, "page 7"], ids=["nothing", "its data"])
def test_a_grant_that_arrives_while_the_client_is_closed_is_given_back_with_what_was_left_before(
    place: Emulated, others: LockClient, entity: str, left: str | None
) -> None:
    if left is not None:
        others.acquire(entity).release(data_left=left)
    close_while_a_grant_arrives(place, entity)
    until(lambda: place.is_free(entity))
    assert others.acquire(entity).data_left == left


def test_an_earlier_grant_of_its_owner_that_arrives_while_the_client_is_closed_is_kept(
    place: Emulated, others: LockClient, entity: str
) -> None:
    earlier = others.acquire(entity, owner="build-7")
    close_while_a_grant_arrives(place, entity, owner="build-7")
    earlier.renew()


@pytest.fixture
def two() -> tuple[LockClient, LockClient]:
    """One with a heartbeat and one without, in memory and in real time."""
    memory = MemoryDynamoDB()
    return LockClient("locks", client=memory.client), LockClient("locks", client=memory.client, heartbeat=False)


def test_a_lock_that_could_not_be_renewed_is_given_back_with_what_was_left_before(
    two: tuple[LockClient, LockClient],
) -> None:
    mine, theirs = two
    theirs.acquire("e").release(data_left="page 7")
    with no_thread_can_be_started(), pytest.raises(RuntimeError, match="thread"):
        mine.acquire("e")
    assert theirs.acquire("e").data_left == "page 7"


@pytest.mark.parametrize(
    "ask",
    [lambda mine: mine.acquire("e", owner="build-7"), lambda mine: mine.resume("e", "build-7", heartbeat=True)],
    ids=["acquire", "resume"],
)
def test_an_earlier_grant_of_its_owner_that_could_not_be_renewed_is_neither_watched_nor_released(
    two: tuple[LockClient, LockClient], ask: Callable[[LockClient], Lease]
) -> None:
    mine, theirs = two
    lease = theirs.acquire("e", owner="build-7")
    with no_thread_can_be_started(), pytest.raises(RuntimeError, match="thread"):
        ask(mine)
    other = mine.acquire("other")
    watched = list(mine._heartbeat._leases)
    mine.close()
    assert watched == [other]
    lease.renew()
