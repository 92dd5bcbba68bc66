"""A waiter keeps its place while the table is unreachable, until the lease of its row ends; and how long a call of a
client takes at most while nothing is answered.
"""

from contextlib import ExitStack

import pytest
from kit.engines import ON_ONE_ENGINE
from kit.places import Moved, Wire
from kit.world import LEASE_MS, Process, Stepper, World

from ticketlock import Grant, LockName, OutcomeUnknown, RequestNotApplied, TableError, TableRefused
from ticketlock.client._acquire import acquire
from ticketlock.client._pace import Pace, PaceBounds
from ticketlock.testing import Fault, Sent
from ticketlock.wire._requests import Pause

PATIENCE_S = 8
OUT_OF_REACH_MS = PATIENCE_S * 1_000
TIME_OUT_S = 2


def waiting(process: Process, lock: LockName, record_wait_ms: int | None = None) -> Stepper[Grant]:
    """A waiter that has slept once in the queue, and is about to poll."""
    waiter = process.steps(
        process.claim(lock),
        lambda me: acquire(me, record_wait_ms, Pace(PaceBounds()), on_wait=lambda _: None, jitter=lambda: 0.5),
    )
    while not isinstance(waiter.next_request, Pause):
        waiter.step()
    waiter.step()
    return waiter


def fails(waiter: Stepper[Grant], world: World, error: type[TableError]) -> None:
    """One poll fails after its retries, and the waiter sleeps again."""
    world.advance(OUT_OF_REACH_MS)
    waiter.fail(error("the table is out of reach"))
    if isinstance(waiter.next_request, Pause):
        waiter.step()


@ON_ONE_ENGINE
@pytest.mark.parametrize("error", [RequestNotApplied, OutcomeUnknown, TableRefused])
def test_a_waiter_without_a_record_wait_outlasts_an_outage_of_forty_seconds(
    world: World, alice: Process, bob: Process, lock: LockName, error: type[TableError]
) -> None:
    first = alice.claim(lock)
    grant = alice.granted(first)
    waiter = waiting(bob, lock)
    (row,) = alice.table.inspect(lock).rows
    for _ in range(5):
        fails(waiter, world, error)
    alice.table.release(first, grant)
    granted = waiter.to_the_end()
    assert granted.ticket == row.ticket


@ON_ONE_ENGINE
def test_an_outage_longer_than_its_rows_lease_ends_the_wait(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    alice.granted(alice.claim(lock))
    waiter = waiting(bob, lock)
    while not waiter.done:
        fails(waiter, world, RequestNotApplied)
    assert isinstance(waiter.error, RequestNotApplied)
    (row,) = alice.table.inspect(lock).rows
    assert row.lease_until_ms <= world.now_ms + 1_000 < row.lease_until_ms + LEASE_MS


@ON_ONE_ENGINE
def test_a_record_wait_ends_in_the_middle_of_an_outage(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    alice.granted(alice.claim(lock))
    waiter = waiting(bob, lock, record_wait_ms=10_000)
    fails(waiter, world, RequestNotApplied)
    assert not waiter.done
    fails(waiter, world, RequestNotApplied)
    waiter.fail(RequestNotApplied("nor can it leave the queue"))
    assert isinstance(waiter.error, RequestNotApplied)


class Silent(Wire):
    """Each request takes as long as a time-out, and no other time passes."""

    def __init__(self, moved: Moved) -> None:
        super().__init__()
        self._clock = moved.clock

    def pass_through(self, sent: Sent) -> None:
        self._clock.advance(TIME_OUT_S)
        super().pass_through(sent)


@pytest.mark.parametrize("record_wait", [0, 3])
def test_while_nothing_is_answered_an_acquisition_ends_after_one_patience(
    moved: Moved, entity: str, record_wait: float
) -> None:
    began = moved.clock.wall_ms
    locks = moved.client(wire=Silent(moved))
    with moved.memory.outage(Fault.REQUEST_LOST), pytest.raises(RequestNotApplied):
        locks.acquire(entity, record_wait=record_wait)
    assert moved.clock.wall_ms - began == PATIENCE_S * 1_000


def test_the_clean_up_of_a_request_that_may_be_applied_is_tried_once_after_that(moved: Moved, entity: str) -> None:
    wire = Silent(moved)
    locks = moved.client(wire=wire, lease=3_600)
    locks.acquire(f"{entity}, before").release()
    began, sent_before = moved.clock.wall_ms, len(wire.sent)
    with moved.memory.outage(Fault.REPLY_LOST), pytest.raises(OutcomeUnknown):
        locks.try_acquire(entity)
    assert [sent.operation for sent in wire.sent[sent_before:]] == [*["UpdateItem"] * 4, "Query"]
    assert moved.clock.wall_ms - began == (PATIENCE_S + TIME_OUT_S) * 1_000


def test_a_record_wait_and_one_patience_bound_a_wait_that_an_outage_meets(moved: Moved, entity: str) -> None:
    moved.client(lease=3_600).acquire(entity)
    locks = moved.client(wire=Silent(moved), lease=3_600)
    began = moved.clock.wall_ms
    with ExitStack() as outage, pytest.raises(RequestNotApplied):
        locks.acquire(
            entity, record_wait=10, on_wait=lambda _: outage.enter_context(moved.memory.outage(Fault.REQUEST_LOST))
        )
    # The last try of the withdrawal, and the only one of the clean-up.
    assert moved.clock.wall_ms - began <= (10 + PATIENCE_S + 2 * TIME_OUT_S) * 1_000
