"""Acquiring a lock, waiting for it in the order of the tickets, and releasing it."""

import math

import pytest
from kit.places import Moved, meanwhile, outcome, until
from kit.sentences.acquiring import *  # noqa: F403 -- pytest collects the tests that it brings
from kit.sentences.acquiring import Line

from ticketlock import LockClient, Position

pytestmark = pytest.mark.shows("order", "left queue")


def test_try_acquire_takes_a_lock_whose_holder_crashed_long_ago(moved: Moved, entity: str) -> None:
    moved.client(heartbeat=False).acquire(entity)
    moved.clock.advance(3_600)
    lease = moved.client().try_acquire(entity)
    assert lease is not None
    assert moved.holders_of(entity) == 1


def test_an_infinite_record_wait_outlasts_every_other(moved: Moved, entity: str) -> None:
    day_s = 24 * 3_600
    lease = moved.client().acquire(entity, lease=2 * day_s)
    polls: list[Position] = []
    waiting = meanwhile(lambda: moved.client().acquire(entity, record_wait=math.inf, on_wait=polls.append))
    until(lambda: polls)
    moved.clock.advance(day_s)
    seen = len(polls)
    until(lambda: len(polls) > seen + 1)
    lease.release()
    assert outcome(waiting).is_held()


# Waiters get the lock in the order of their tickets, and leave no row when they give up.


# Not so with fault injection: a ticket whose reply was lost is minted twice, and counts as one ahead until a later row
# is written.
def test_on_wait_gets_the_position_of_each_poll(locks: LockClient, line: Line) -> None:
    lease = locks.acquire(line.entity)
    line.stand("first")
    ahead: list[int] = []
    other = line.place.client()
    waiting = meanwhile(lambda: other.acquire(line.entity, on_wait=lambda seen: ahead.append(seen.ahead)))
    until(lambda: ahead)
    assert ahead[0] == 1
    lease.release()
    outcome(waiting).release()
    line.all_done()
    assert ahead == sorted(ahead, reverse=True)
