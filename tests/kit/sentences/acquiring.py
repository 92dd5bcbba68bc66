"""What is true of acquiring, waiting for and releasing a lock, with and without fault injection."""

from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest
from kit.places import Emulated, meanwhile, outcome, until

from ticketlock import LockClient, LockName, PermitsMismatch, Position, RecordWaitExceeded


def test_a_lock_is_held_from_its_acquisition_to_its_release(place: Emulated, locks: LockClient, entity: str) -> None:
    lease = locks.acquire(entity)
    assert lease.is_held()
    assert place.holders_of(entity) == 1
    lease.release()
    assert not lease.is_held()
    assert place.is_free(entity)


def test_the_end_of_with_frees_the_lock(place: Emulated, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity) as lease:
        assert lease.is_held()
    assert place.is_free(entity)


def test_a_second_release_does_nothing(place: Emulated, locks: LockClient, others: LockClient, entity: str) -> None:
    lease = locks.acquire(entity)
    lease.release()
    others.acquire(entity)
    lease.release()
    assert place.holders_of(entity) == 1


@pytest.mark.parametrize("error", [ValueError("in the block"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_what_is_raised_in_the_block_passes_through_and_the_lock_is_freed(
    place: Emulated, locks: LockClient, entity: str, error: BaseException
) -> None:
    with pytest.raises(type(error)) as raised, locks.acquire(entity):
        raise error
    assert raised.value is error
    assert place.is_free(entity)


def test_try_acquire_takes_a_free_lock(locks: LockClient, entity: str) -> None:
    lease = locks.try_acquire(entity)
    assert lease is not None
    assert lease.is_held()


def test_try_acquire_of_a_lock_that_is_taken_is_none_and_leaves_nothing_behind(
    place: Emulated, locks: LockClient, others: LockClient, entity: str
) -> None:
    others.acquire(entity)
    assert locks.try_acquire(entity) is None
    assert place.queue_of(entity) == 0


def test_try_acquire_does_not_overtake_those_who_wait(place: Emulated, entity: str) -> None:
    holder, waiter, third = (place.client() for _ in range(3))
    lease = holder.acquire(entity)
    waiting = meanwhile(lambda: waiter.acquire(entity))
    until(lambda: place.queue_of(entity) == 1)
    lease.release()
    assert third.try_acquire(entity) is None
    outcome(waiting)


@pytest.mark.parametrize("record_wait", [0, 0.05, timedelta(milliseconds=50)], ids=repr)
def test_a_record_wait_that_is_over_leaves_the_queue(
    place: Emulated, locks: LockClient, others: LockClient, entity: str, record_wait: float | timedelta
) -> None:
    lease = others.acquire(entity)
    with pytest.raises(RecordWaitExceeded):
        locks.acquire(entity, record_wait=record_wait)
    assert place.queue_of(entity) == 0
    lease.release()
    assert place.is_free(entity)


def test_the_clients_record_wait_is_that_of_its_acquisitions(place: Emulated, others: LockClient, entity: str) -> None:
    others.acquire(entity)
    with pytest.raises(RecordWaitExceeded):
        place.client(record_wait=0.05).acquire(entity)


def test_entities_and_namespaces_are_locks_of_their_own(locks: LockClient, entity: str) -> None:
    leases = [locks.acquire(entity), locks.acquire(entity + "x"), locks.acquire(entity, namespace="other")]
    assert all(lease.is_held() for lease in leases)


def test_a_lock_may_be_named_by_its_name(place: Emulated, locks: LockClient, entity: str) -> None:
    lease = locks.acquire(LockName(entity, "other"))
    assert (lease.entity, lease.namespace) == (entity, "other")
    assert lease.lock == LockName(entity, "other")
    assert place.is_free(entity)


def test_the_clients_namespace_is_that_of_its_locks(place: Emulated, entity: str) -> None:
    assert place.client(namespace="billing").acquire(entity).namespace == "billing"


def test_the_fencing_token_rises_from_grant_to_grant(locks: LockClient, others: LockClient, entity: str) -> None:
    tokens = []
    for client in (locks, others, locks, others):
        with client.acquire(entity) as lease:
            tokens.append(lease.fencing_token)
    assert tokens == sorted(set(tokens))


def test_as_many_hold_the_lock_as_it_has_permits(place: Emulated, entity: str) -> None:
    clients = [place.client() for _ in range(3)]
    held = [client.try_acquire(entity, permits=2) for client in clients]
    assert [lease is not None for lease in held] == [True, True, False]


def test_one_thread_or_task_may_take_several_permits(locks: LockClient, entity: str) -> None:
    first, second = (locks.acquire(entity, permits=2) for _ in range(2))
    assert first.is_held()
    assert second.is_held()
    assert first.fencing_token < second.fencing_token


def test_all_users_of_a_lock_must_agree_on_its_permits(locks: LockClient, others: LockClient, entity: str) -> None:
    others.acquire(entity, permits=2).release()
    with pytest.raises(PermitsMismatch) as raised:
        locks.acquire(entity, permits=3)
    assert (raised.value.asked, raised.value.stored) == (3, 2)


def test_those_who_share_hold_the_lock_together(place: Emulated, entity: str) -> None:
    leases = [place.client().acquire(entity, shared=True) for _ in range(3)]
    assert all(lease.is_held() and lease.shared for lease in leases)
    assert place.client().try_acquire(entity) is None


def test_the_same_owner_gets_the_same_grant_again(locks: LockClient, others: LockClient, entity: str) -> None:
    first = locks.acquire(entity, owner="invoice-7")
    again = others.acquire(entity, owner="invoice-7")
    assert again.fencing_token == first.fencing_token
    assert again.owner == first.owner == "invoice-7"


def test_an_owner_begins_with_the_owner_name_of_its_client(place: Emulated, entity: str) -> None:
    lease = place.client(owner_name="nightly-report").acquire(entity)
    assert lease.owner.startswith("nightly-report/")


# What is true of waiters, with and without fault injection.


class Line:
    """Waiters that have arrived one after the other."""

    def __init__(self, place: Emulated, entity: str) -> None:
        self.place = place
        self.entity = entity
        self.entered: list[str] = []
        self.waiting: list[Future[None]] = []

    def stand(self, name: str, work: Callable[[], object] = lambda: None, **wishes: Any) -> "Future[None]":
        seen: list[Position] = []
        locks = self.place.client()

        def wait() -> None:
            with locks.acquire(self.entity, on_wait=seen.append, **wishes):
                self.entered.append(name)
                work()

        done = meanwhile(wait)
        self.waiting.append(done)
        until(lambda: seen or done.done(), f"the ticket of {name}")
        return done

    def all_done(self) -> None:
        for each in self.waiting:
            outcome(each)


@pytest.fixture
def line(place: Emulated, entity: str) -> Line:
    return Line(place, entity)


def test_waiters_enter_in_the_order_of_their_tickets(locks: LockClient, line: Line) -> None:
    lease = locks.acquire(line.entity)
    names = [f"waiter {number}" for number in range(8)]
    for name in names:
        line.stand(name)
    lease.release()
    line.all_done()
    assert line.entered == names
    assert line.place.is_free(line.entity)


def test_a_waiter_that_gives_up_leaves_the_order_of_the_others(locks: LockClient, line: Line) -> None:
    lease = locks.acquire(line.entity)
    line.stand("first")
    gives_up = line.stand("gives up", record_wait=0.2)
    line.stand("third")
    with pytest.raises(RecordWaitExceeded):
        outcome(gives_up)
    line.waiting.remove(gives_up)
    assert line.place.queue_of(line.entity) == 2
    lease.release()
    line.all_done()
    assert line.entered == ["first", "third"]
    assert line.place.is_free(line.entity)


def test_no_reader_overtakes_a_waiting_writer(locks: LockClient, line: Line) -> None:
    lease = locks.acquire(line.entity, shared=True)
    line.stand("alone")
    line.stand("shares", shared=True)
    assert line.entered == []
    lease.release()
    line.all_done()
    assert line.entered == ["alone", "shares"]


def test_those_who_share_enter_together_when_their_turn_comes(locks: LockClient, line: Line) -> None:
    lease = locks.acquire(line.entity)

    def stay_until_both_are_inside() -> None:
        until(lambda: len(line.entered) == 2)

    line.stand("first", stay_until_both_are_inside, shared=True)
    line.stand("second", stay_until_both_are_inside, shared=True)
    lease.release()
    line.all_done()
    assert sorted(line.entered) == ["first", "second"]


def test_on_wait_of_a_free_lock_is_never_called(locks: LockClient, entity: str) -> None:
    polls: list[Position] = []
    locks.acquire(entity, on_wait=polls.append)
    assert polls == []


def test_an_exception_in_on_wait_ends_the_wait_and_the_queue_is_left(
    place: Emulated, locks: LockClient, others: LockClient, entity: str
) -> None:
    class EnoughOfIt(Exception):
        pass

    def raises(_: Position) -> None:
        raise EnoughOfIt

    lease = others.acquire(entity)
    with pytest.raises(EnoughOfIt):
        locks.acquire(entity, on_wait=raises)
    assert place.queue_of(entity) == 0
    lease.release()
    assert place.is_free(entity)


def test_many_threads_or_tasks_of_one_client_never_hold_the_lock_together(place: Emulated, entity: str) -> None:
    locks = place.client()
    threads, grants = 6, 5
    inside, most, counter = 0, 0, 0

    def work() -> None:
        nonlocal inside, most, counter
        for _ in range(grants):
            with locks.acquire(entity):
                inside += 1
                most = max(most, inside)
                found = counter
                # A request, during which other threads run.
                assert place.holders_of(entity) == 1
                counter = found + 1
                inside -= 1

    for done in [meanwhile(work) for _ in range(threads)]:
        outcome(done)
    assert (most, counter) == (1, threads * grants)
    assert place.is_free(entity)


def test_a_counter_in_what_holders_leave_for_the_next_loses_nothing(place: Emulated, entity: str) -> None:
    processes, grants = 5, 5

    def count() -> None:
        locks = place.client()
        for _ in range(grants):
            lease = locks.acquire(entity)
            lease.release(data_left=str(int(lease.data_left or 0) + 1))

    for done in [meanwhile(count) for _ in range(processes)]:
        outcome(done)
    assert place.client().acquire(entity).data_left == str(processes * grants)


def test_a_waiter_enters_as_soon_as_one_of_several_permits_is_free(place: Emulated, entity: str) -> None:
    first, second = (place.client().acquire(entity, permits=2) for _ in range(2))
    third = place.client()
    waiting = meanwhile(lambda: third.acquire(entity, permits=2))
    until(lambda: place.queue_of(entity) == 1)
    second.release()
    assert outcome(waiting).is_held()
    assert first.is_held()
    assert place.queue_of(entity) == 0
