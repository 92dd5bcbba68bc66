"""A holder of several locks at once, or of one lock several times."""

import pytest
from kit.places import Emulated, Moved, Wire, is_release, meanwhile, outcome, until

from ticketlock import AlreadyHeld, InvalidLockRequest, LockClient, LockLost, LockName, RecordWaitExceeded


@pytest.fixture
def entities(entity: str) -> list[str]:
    return [f"{entity}-{letter}" for letter in "abc"]


def test_several_locks_are_held_and_freed_together(place: Emulated, locks: LockClient, entities: list[str]) -> None:
    with locks.acquire_all(entities) as group:
        assert group.is_held()
        assert [place.holders_of(each) for each in entities] == [1, 1, 1]
    assert not group.is_held()
    assert all(place.is_free(each) for each in entities)


def test_several_locks_are_taken_in_one_order_however_they_are_listed(locks: LockClient, entities: list[str]) -> None:
    group = locks.acquire_all([entities[2], entities[0], entities[1]])
    assert [lease.entity for lease in group.leases] == entities


def test_namespaces_count_after_entities(locks: LockClient, entities: list[str]) -> None:
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


def test_a_group_of_which_one_was_lost_is_not_held(place: Emulated, locks: LockClient, entities: list[str]) -> None:
    group = locks.acquire_all(entities)
    place.lose(entities[1])
    with pytest.raises(LockLost):
        group.leases[1].renew()
    assert not group.is_held()


def test_the_end_of_a_group_of_which_one_was_lost_raises_LockLost_and_frees_the_others(
    place: Emulated, locks: LockClient, entities: list[str]
) -> None:
    def work() -> None:
        with locks.acquire_all(entities) as group:
            place.lose(entities[1])
            with pytest.raises(LockLost):
                group.leases[1].renew()

    with pytest.raises(LockLost):
        work()
    assert all(place.is_free(each) for each in entities)


def test_a_group_of_which_one_was_lost_is_not_entered_and_the_others_are_freed(
    place: Emulated, locks: LockClient, entities: list[str]
) -> None:
    group = locks.acquire_all(entities)
    place.lose(entities[1])
    with pytest.raises(LockLost):
        group.leases[1].renew()
    with pytest.raises(LockLost), group:
        pytest.fail("entered")
    assert all(place.is_free(each) for each in entities)


def test_a_group_that_was_released_is_not_entered_again(locks: LockClient, entities: list[str]) -> None:
    with locks.acquire_all(entities) as group:
        pass
    with pytest.raises(LockLost), group:
        pytest.fail("entered")


def test_a_group_is_released_by_hand(place: Emulated, locks: LockClient, entities: list[str]) -> None:
    group = locks.acquire_all(entities)
    group.release()
    assert all(place.is_free(each) for each in entities)


def test_an_exception_under_a_group_passes_through(place: Emulated, locks: LockClient, entities: list[str]) -> None:
    with pytest.raises(ZeroDivisionError), locks.acquire_all(entities):
        _ = 1 / 0
    assert all(place.is_free(each) for each in entities)


def test_a_lock_named_twice_is_refused_and_nothing_is_taken(
    place: Emulated, locks: LockClient, entities: list[str]
) -> None:
    with pytest.raises(InvalidLockRequest):
        locks.acquire_all([*entities, entities[0]])
    assert all(place.is_free(each) for each in entities)


@pytest.mark.parametrize("wrong", [[], "order-42"])
def test_several_locks_are_refused_in_anything_but_a_list_and_in_an_empty_one(
    locks: LockClient, wrong: list[str]
) -> None:
    with pytest.raises(InvalidLockRequest):
        locks.acquire_all(wrong)


def test_the_options_apply_to_each_of_several_locks(locks: LockClient, entities: list[str]) -> None:
    group = locks.acquire_all(entities, namespace="stock", data="count")
    assert {(lease.namespace, lease.data) for lease in group.leases} == {("stock", "count")}


# A holder that asks for its lock again.


def test_a_second_acquisition_is_refused_at_once_instead_of_waiting_for_itself(
    place: Emulated, locks: LockClient, entity: str
) -> None:
    lease = locks.acquire(entity)
    with pytest.raises(AlreadyHeld):
        locks.acquire(entity)
    assert lease.is_held()
    assert place.queue_of(entity) == 0


def test_another_thread_or_task_of_the_same_client_waits(place: Emulated, locks: LockClient, entity: str) -> None:
    lease = locks.acquire(entity)
    waiting = meanwhile(lambda: locks.acquire(entity))
    until(lambda: place.queue_of(entity) == 1)
    lease.release()
    assert outcome(waiting).is_held()


def test_the_lock_may_be_acquired_again_after_its_release(locks: LockClient, entity: str) -> None:
    locks.acquire(entity).release()
    assert locks.acquire(entity).is_held()


def test_a_lock_that_is_held_twice_is_freed_by_the_second_release(
    place: Emulated, locks: LockClient, entity: str
) -> None:
    with locks.acquire(entity, reentrant=True) as outer:
        with locks.acquire(entity, reentrant=True) as inner:
            assert inner == outer
        assert outer.is_held()
        assert place.holders_of(entity) == 1
    assert not outer.is_held()
    assert place.is_free(entity)


def test_holding_a_lock_again_sends_nothing(place: Emulated, entity: str) -> None:
    from kit.places import Wire

    wire = Wire()
    locks = place.client(wire=wire)
    locks.acquire(entity, reentrant=True)
    before = len(wire.sent)
    locks.acquire(entity, reentrant=True)
    assert len(wire.sent) == before


def test_a_shared_lock_is_not_held_again_exclusively(locks: LockClient, entity: str) -> None:
    locks.acquire(entity, shared=True)
    with pytest.raises(AlreadyHeld):
        locks.acquire(entity, reentrant=True)


def test_a_lease_that_was_lost_is_not_held_again(place: Emulated, locks: LockClient, entity: str) -> None:
    lease = locks.acquire(entity, reentrant=True)
    place.lose(entity)
    with pytest.raises(Exception, match="is not held"):
        lease.renew()
    again = locks.acquire(entity, reentrant=True)
    assert again.fencing_token > lease.fencing_token


def test_try_acquire_by_its_holder_says_so(locks: LockClient, entity: str) -> None:
    locks.acquire(entity)
    with pytest.raises(AlreadyHeld):
        locks.try_acquire(entity)


def test_another_client_of_the_same_thread_is_another_holder(
    locks: LockClient, others: LockClient, entity: str
) -> None:
    locks.acquire(entity)
    with pytest.raises(RecordWaitExceeded):
        others.acquire(entity, record_wait=0)
