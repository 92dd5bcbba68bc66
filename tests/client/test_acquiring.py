"""Acquiring a lock, and releasing it."""

import math

from kit.places import Moved, meanwhile, outcome, until
from kit.sentences.acquiring import *  # noqa: F403 -- pytest collects the tests that it brings

from ticketlock import Position


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
