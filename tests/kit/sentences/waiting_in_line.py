"""What is true of waiters, with and without fault injection."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from kit.places import Emulated, meanwhile, outcome, until

from ticketlock import LockClient, LockName, Position, RecordWaitExceeded


class Line:
    """Waiters that have arrived one after the other."""

    def __init__(self, place: Emulated, entity: str) -> None:
        self.place = place
        self.entity = entity
        self.entered: list[str] = []
        self.waiting: list[Any] = []

    def stand(self, name: str, work: Callable[[], object] = lambda: None, **wishes: Any) -> None:
        seen: list[Position] = []
        locks = self.place.client()

        def wait() -> None:
            with locks.acquire(self.entity, on_wait=seen.append, **wishes):
                self.entered.append(name)
                work()

        done = meanwhile(wait)
        self.waiting.append(done)
        until(lambda: seen or done.done(), f"the ticket of {name}")

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
    line.stand("gives up", record_wait=0.2)
    line.stand("third")
    with pytest.raises(RecordWaitExceeded):
        outcome(line.waiting.pop(1))
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


def test_many_threads_or_tasks_of_one_client_never_stand_inside_together(place: Emulated, entity: str) -> None:
    locks = place.client()
    inside, most, counter = 0, 0, 0

    def work() -> None:
        nonlocal inside, most, counter
        for _ in range(5):
            with locks.acquire(entity):
                inside += 1
                most = max(most, inside)
                found = counter
                until(lambda: random.random() < 0.9)
                counter = found + 1
                inside -= 1

    for done in [meanwhile(work) for _ in range(6)]:
        outcome(done)
    assert (most, counter) == (1, 30)
    assert place.is_free(entity)


def test_a_counter_in_what_holders_leave_for_the_next_loses_nothing(place: Emulated, entity: str) -> None:
    def count() -> None:
        locks = place.client()
        for _ in range(5):
            lease = locks.acquire(entity)
            lease.release(data_left=str(int(lease.data_left or 0) + 1))

    for done in [meanwhile(count) for _ in range(5)]:
        outcome(done)
    assert place.client().acquire(entity).data_left == "25"


def test_a_waiter_of_many_permits_enters_as_soon_as_one_is_free(place: Emulated, entity: str) -> None:
    first, second = (place.client().acquire(entity, permits=2) for _ in range(2))
    third = place.client()
    waiting = meanwhile(lambda: third.acquire(entity, permits=2))
    until(lambda: place.queue_of(entity) == 1)
    second.release()
    assert outcome(waiting).is_held()
    assert first.is_held()
    assert len(place.table.inspect(LockName(entity)).rows) == 0
