"""A holder of several locks at once, or of one lock several times."""

import re
from contextlib import ExitStack

import pytest
from kit.places import Emulated, Moved, Wire, is_grant, is_release, meanwhile, outcome, until

from ticketlock import (
    AlreadyHeld,
    LeaseGroup,
    LockClient,
    LockLost,
    LockName,
    RecordWaitExceeded,
    TableError,
    aio,
)
from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB


@pytest.fixture
def entities(entity: str) -> list[str]:
    return [f"{entity}-{letter}" for letter in "abc"]


def test_several_locks_are_held_and_freed_together(place: Emulated, locks: LockClient, entities: list[str]) -> None:
    with locks.acquire_all(entities) as group:
        assert group.is_held()
        assert [place.holders_of(each) for each in entities] == [1, 1, 1]
    assert not group.is_held()
    assert all(place.is_free(each) for each in entities)


def test_several_locks_are_taken_in_one_order_however_they_are_listed_by_entity_and_then_namespace(
    locks: LockClient, entities: list[str]
) -> None:
    names = [LockName(entities[1], "a"), LockName(entities[0], "b"), LockName(entities[0], "a")]
    group = locks.acquire_all(names)
    assert [lease.lock for lease in group.leases] == [names[2], names[1], names[0]]


def test_two_callers_with_opposite_orders_do_not_wait_for_each_other(
    place: Emulated, locks: LockClient, others: LockClient, entities: list[str]
) -> None:
    def work(client: LockClient, order: list[str]) -> None:
        for _ in range(10):
            with client.acquire_all(order) as group:
                assert group.is_held()

    both = [meanwhile(lambda: work(locks, entities)), meanwhile(lambda: work(others, entities[::-1]))]
    for each in both:
        outcome(each)
    assert all(place.is_free(each) for each in entities)


def test_if_one_of_several_locks_cannot_be_acquired_the_others_are_freed_the_last_one_first(
    place: Emulated, entities: list[str]
) -> None:
    wire = Wire()
    place.client().acquire(entities[2])
    locks = place.client(wire=wire)
    with pytest.raises(RecordWaitExceeded):
        locks.acquire_all(entities, record_wait=0)
    assert [place.is_free(each) for each in entities] == [True, True, False]
    released = [sent.parameters["Key"]["pk"]["S"] for sent in wire.sent if is_release(sent)]
    assert released == [entities[1], entities[0]]


def test_the_record_wait_is_one_for_several_locks(moved: Moved, entities: list[str]) -> None:
    holder = moved.client(lease=600)
    first, last = holder.acquire(entities[0]), holder.acquire(entities[2])
    locks = moved.client(lease=600)
    waiting = meanwhile(lambda: locks.acquire_all(entities, record_wait=30))
    until(lambda: moved.queue_of(entities[0]) == 1)
    moved.clock.advance(20)
    first.release()
    until(lambda: moved.queue_of(entities[2]) == 1)
    moved.clock.advance(11)
    with pytest.raises(RecordWaitExceeded):
        outcome(waiting)
    assert last.is_held()
    assert moved.is_free(entities[0])
    assert moved.is_free(entities[1])


def test_a_client_and_a_group_of_locks_say_what_they_are() -> None:
    clock = ManualClock()
    memory = MemoryDynamoDB(clock=clock)

    async def of_tasks() -> tuple[str, str]:
        async with aio.LockClient("locks", client=memory.async_client, clocks=clock) as locks:
            return repr(locks), repr(await locks.acquire_all(["order-1", "order-2"]))

    shown = clock.run(of_tasks())
    with LockClient("locks", client=memory.client, clocks=clock) as locks, locks.acquire_all(["order-3"]) as group:
        for told in (shown, (repr(locks), repr(group))):
            assert told[0] == "<LockClient of the table 'locks'>"
            assert re.fullmatch(r"<LeaseGroup \[(<Lease 'order-\d' in 'default', [^>]*, held, [^>]*>,? ?)+\]>", told[1])


def lose_the_second(place: Emulated, group: LeaseGroup) -> None:
    second = group.leases[1]
    place.lose(second.entity)
    with pytest.raises(LockLost):
        second.renew()
    assert not group.is_held()


def test_a_group_of_which_one_was_lost_in_the_block_is_not_held_and_the_block_ends_in_LockLost_and_frees_the_others(
    place: Emulated, locks: LockClient, entities: list[str]
) -> None:
    with pytest.raises(LockLost), locks.acquire_all(entities) as group:
        lose_the_second(place, group)
    assert all(place.is_free(each) for each in entities)


def test_a_group_of_which_one_was_lost_before_the_block_is_not_entered_and_the_others_are_freed(
    place: Emulated, locks: LockClient, entities: list[str]
) -> None:
    group = locks.acquire_all(entities)
    lose_the_second(place, group)
    with pytest.raises(LockLost), group:
        pytest.fail("entered")
    assert all(place.is_free(each) for each in entities)


def test_a_group_that_was_released_by_hand_is_free_and_not_entered_again(
    place: Emulated, locks: LockClient, entities: list[str]
) -> None:
    group = locks.acquire_all(entities)
    group.release()
    assert all(place.is_free(each) for each in entities)
    with pytest.raises(LockLost), group:
        pytest.fail("entered")


def test_an_exception_under_a_group_passes_through(place: Emulated, locks: LockClient, entities: list[str]) -> None:
    with pytest.raises(ZeroDivisionError), locks.acquire_all(entities):
        _ = 1 / 0
    assert all(place.is_free(each) for each in entities)


def test_the_options_apply_to_each_of_several_locks(locks: LockClient, entities: list[str]) -> None:
    group = locks.acquire_all(entities, namespace="stock", data="count")
    assert {(lease.namespace, lease.data) for lease in group.leases} == {("stock", "count")}


# A holder that asks for its lock again.


def test_a_holder_that_does_not_ask_to_hold_the_lock_again_is_refused_at_once_instead_of_waiting_for_itself(
    place: Emulated, locks: LockClient, entity: str
) -> None:
    with locks.acquire(entity) as lease:
        for acquire in (locks.acquire, locks.try_acquire):
            with pytest.raises(AlreadyHeld):
                acquire(entity)
        assert lease.is_held()
        assert place.queue_of(entity) == 0


def test_a_lock_that_is_held_twice_is_freed_by_the_second_release_and_sends_nothing_for_the_second_hold(
    place: Emulated, entity: str
) -> None:
    wire = Wire()
    locks = place.client(wire=wire)
    with locks.acquire(entity, reentrant=True) as outer:
        before = len(wire.sent)
        with locks.acquire(entity, reentrant=True) as inner:
            assert inner == outer
        assert len(wire.sent) == before
        assert outer.is_held()
        assert place.holders_of(entity) == 1
    assert not outer.is_held()
    assert place.is_free(entity)
    assert locks.acquire(entity).is_held()


def test_a_shared_lock_is_not_held_again_exclusively(locks: LockClient, entity: str) -> None:
    with locks.acquire(entity, shared=True), pytest.raises(AlreadyHeld):
        locks.acquire(entity, reentrant=True)


def test_a_lease_that_was_lost_is_not_held_again(place: Emulated, locks: LockClient, entity: str) -> None:
    lease = locks.acquire(entity).__enter__()
    place.lose(entity)
    with pytest.raises(LockLost, match="is not held"):
        lease.renew()
    again = locks.acquire(entity, reentrant=True)
    assert again.fencing_token > lease.fencing_token


# A table that is away: the releases of several locks share one bound.

MANY, DIES_AFTER = 20, 19
PAGE_S = 19
"""The longest time after which the page says that acquire_all raises on a dead table."""


def released(wire: Wire) -> set[str]:
    return {sent.parameters["Key"]["pk"]["S"] for sent in wire.sent if is_release(sent)}


@pytest.mark.parametrize("owner", [None, "nightly"])
def test_a_group_that_dies_with_its_table_gives_up_its_releases_together(
    moved: Moved, entity: str, owner: str | None
) -> None:
    wire = Wire()
    locks = moved.client(wire=wire, lease=600, heartbeat=False)
    names = [f"{entity} {number:02}" for number in range(MANY)]
    outage = ExitStack()

    def die() -> None:
        outage.enter_context(moved.memory.outage(Fault.THROTTLED))
        outage.enter_context(moved.time_flies())

    wire.before(lambda sent: is_grant(sent) and names[DIES_AFTER] in str(sent.parameters), die)
    with outage, pytest.raises(TableError):
        locks.acquire_all(names, owner=owner)
    assert len(released(wire)) == (owner is None)
    # The end of the client tries them again.
    locks.close()
    assert all(moved.is_free(name) for name in names[:DIES_AFTER]) is (owner is None)


@pytest.mark.parametrize("fails", ["release", "the end of the block"])
def test_the_end_of_a_group_on_a_dead_table_does_not_try_every_lock(moved: Moved, entity: str, fails: str) -> None:
    wire = Wire()
    locks = moved.client(wire=wire, lease=600)
    group = locks.acquire_all([f"{entity} {number:02}" for number in range(MANY)], owner="nightly")
    with moved.memory.outage(Fault.THROTTLED), moved.time_flies():
        if fails == "release":
            with pytest.raises(TableError):
                group.release()
        else:
            with group:
                pass
    assert len(released(wire)) == 1
    assert not any(lease.is_held() for lease in group.leases)
    # Later all of them can be released.
    group.release()
    assert all(moved.is_free(lease.entity) for lease in group.leases)


@pytest.mark.parametrize("fault", [Fault.THROTTLED, Fault.REQUEST_LOST, Fault.REPLY_LOST, Fault.SERVER_ERROR])
@pytest.mark.parametrize("dies_after", [1, 10, DIES_AFTER])
def test_acquire_all_on_a_table_that_dies_raises_within_what_the_page_says(fault: Fault, dies_after: int) -> None:
    clock = ManualClock()
    memory = MemoryDynamoDB(clock=clock)
    locks = LockClient("locks", client=memory.client, clocks=clock, sleep=clock.sleep, heartbeat=False, lease=600)
    # The first request asks for the time; each lock is granted with one.
    began_ms = clock.read().local_ms
    with memory.outage(fault.on(nth=1 + dies_after + 1)), pytest.raises(TableError):
        locks.acquire_all([f"{number:02}" for number in range(MANY)])
    assert (clock.read().local_ms - began_ms) / 1_000 <= PAGE_S
    locks.close()
