"""Waiters get the lock in the order of their tickets, and leave no row when they give up."""

import pytest
from kit.places import meanwhile, outcome, until
from kit.sentences.waiting_in_line import *  # noqa: F403 -- pytest collects the tests that it brings
from kit.sentences.waiting_in_line import Line

from ticketlock import LockClient

pytestmark = pytest.mark.shows("order", "left queue")


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
