"""Hand-over by callback to several at once: readers behind a writer, and permits of a limit."""

import pytest
from kit.world import World
from locks.waiting_line import Line, Waiter

from ticketlock import Grant, Position

pytestmark = pytest.mark.shows("order")


def park(*waiters: Waiter) -> None:
    for waiter in waiters:
        assert waiter.stays_parked()


def come_in_as_woken(waiters: list[Waiter]) -> list[Waiter]:
    """Each woken waiter polls, and wakes the next; returns the new holders, in order."""
    polled: list[Waiter] = []
    inside: list[Waiter] = []
    while woken := [waiter for waiter in waiters if waiter.has_word() and waiter not in polled]:
        polled.append(woken[0])
        # A wake-up is a hint: beyond a waiter that was woken and has not polled yet, others are woken too.
        if isinstance(woken[0].comes_in().to_the_end(), Grant):
            inside.append(woken[0])
    return inside


@pytest.mark.parametrize("readers", [1, 2, 5, 12])
def test_a_writers_release_lets_all_readers_in_one_waking_the_next(line: Line, readers: int) -> None:
    line.held()
    waiters = [line.waiter(shared=True) for _ in range(readers)]
    park(*waiters)
    line.releases().run()
    assert line.service.answered
    assert come_in_as_woken(waiters) == waiters


def test_the_chain_ends_at_the_writer_behind_the_readers(line: Line) -> None:
    line.held()
    readers = [line.waiter(shared=True) for _ in range(3)]
    writer, late = line.waiter(), line.waiter(shared=True)
    park(*readers, writer, late)
    line.releases().run()
    assert come_in_as_woken(readers) == readers
    assert not writer.has_word()
    assert not late.has_word()


def test_the_last_reader_wakes_the_writer_and_no_one_behind_it(line: Line) -> None:
    line.held(shared=True).held(shared=True)
    writer, late = line.waiter(), line.waiter(shared=True)
    park(writer, late)
    line.releases(0).run()
    assert line.service.answered == []
    line.releases(1).run()
    assert line.service.answered == [writer.token]
    assert isinstance(writer.polls(), Grant)
    assert isinstance(late.polls(), Position)


def test_a_writer_that_gives_up_lets_the_readers_behind_it_join_the_holders(line: Line) -> None:
    line.held(shared=True)
    writer = line.waiter()
    readers = [line.waiter(shared=True) for _ in range(3)]
    park(writer, *readers)
    writer.gives_up().run()
    assert come_in_as_woken(readers) == readers


def test_each_new_holder_wakes_the_next_until_the_limit_is_reached(world: World) -> None:
    line = Line(world, permits=3).held().held().held()
    waiters = [line.waiter() for _ in range(5)]
    park(*waiters)
    for holder in range(3):
        line.releases(holder).run()
    assert come_in_as_woken(waiters) == waiters[:3]
