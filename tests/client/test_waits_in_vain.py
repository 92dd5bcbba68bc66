"""Waits that end without the lock, and waits that outlast an outage; how long a call takes at most while nothing is
answered.
"""

import math
from contextlib import ExitStack
from typing import Any

import pytest
from kit.engines import IN_MEMORY
from kit.newer import NEWER, raise_the_format
from kit.places import Moved, Wire, meanwhile, outcome, until
from kit.world import LEASE_MS, Process, Stepper, World

from ticketlock import (
    Claim,
    ClientClosed,
    Grant,
    LockName,
    LockTable,
    OutcomeUnknown,
    PermitsMismatch,
    Position,
    RecordWaitExceeded,
    RequestNotApplied,
    TableError,
    TableRefused,
    UnsupportedFormat,
)
from ticketlock.client._acquire import Wait, _next_poll, acquire, leave
from ticketlock.client._pace import Pace, PaceBounds
from ticketlock.locks._hand_over import Next, release_to
from ticketlock.locks._items import lock_key
from ticketlock.locks._protocol import Contender
from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB, Sent
from ticketlock.wire._requests import Pause


def wait(me: Contender, record_wait_ms: int | None = None) -> Wait:
    """The wait of a client whose release wakes no one."""
    return Wait(me.claim, record_wait_ms, Pace(PaceBounds()), jitter=lambda: 0.5)


def test_on_wait_gets_the_holders_and_whether_the_lock_is_closed(moved: Moved, entity: str) -> None:
    seen: list[Position] = []
    lease = moved.client().acquire(entity, owner="build-7")
    waiting = meanwhile(lambda: moved.client().acquire(entity, on_wait=seen.append, wait_if_closed=True))
    until(lambda: seen, "a poll")
    assert [holder.owner for holder in seen[-1].holders] == ["build-7"]
    assert not seen[-1].is_closed
    moved.table.set_limit(LockName(entity), 0)
    lease.release()
    with moved.time_flies():
        until(lambda: seen[-1].is_closed, "a poll of a closed lock")
        moved.table.unset_limit(LockName(entity))
        outcome(waiting).release()


@pytest.mark.parametrize("record_wait", [math.inf, 300])
@pytest.mark.parametrize("is_held", [False, True])
def test_a_closed_lock_is_told_by_the_first_poll_and_leaves_nothing(
    moved: Moved, entity: str, record_wait: float, is_held: bool
) -> None:
    polls: list[Position] = []
    lease = moved.client().acquire(entity, owner="build-7")
    if not is_held:
        lease.release()
    moved.table.set_limit(LockName(entity), 0)
    with pytest.raises(RecordWaitExceeded, match="closed: an operator has set its limit to 0") as told:
        moved.client().acquire(entity, record_wait=record_wait, on_wait=polls.append)
    assert told.value.is_closed
    assert [owner for owner, *_ in told.value.holders] == ["build-7"] * is_held
    assert [each.is_closed for each in polls] == [True]
    state = moved.table.inspect(LockName(entity))
    assert state.item is not None
    assert (state.item.waiting, state.rows) == (0, ())
    if is_held:
        lease.release()


def test_a_lock_that_is_closed_meanwhile_ends_the_wait_by_the_next_poll(moved: Moved, entity: str) -> None:
    polls: list[Position] = []
    lease = moved.client().acquire(entity)
    waiting = meanwhile(lambda: moved.client().acquire(entity, record_wait=math.inf, on_wait=polls.append))
    until(lambda: polls, "a poll")
    moved.table.set_limit(LockName(entity), 0)
    with moved.time_flies(), pytest.raises(RecordWaitExceeded, match="closed"):
        outcome(waiting)
    lease.release()


def test_polls_that_are_refused_are_logged_once_and_the_refusal_is_raised_in_the_end(
    moved: Moved, entity: str, caplog: pytest.LogCaptureFixture
) -> None:
    polls: list[Position] = []
    lease = moved.client(lease=600).acquire(entity)
    waiting = meanwhile(lambda: moved.client().acquire(entity, record_wait=30, on_wait=polls.append))
    until(lambda: polls, "a poll")
    denied = moved.memory.outage(Fault.ACCESS_DENIED.on("Query"))
    with denied, moved.time_flies(), pytest.raises(TableRefused, match="AccessDenied"):
        outcome(waiting)
    warnings = [each.getMessage() for each in caplog.records if "are refused" in each.getMessage()]
    assert len(warnings) == 1
    assert entity in warnings[0]
    # It has left the queue, and says nothing else.
    assert moved.table.inspect(LockName(entity)).rows == ()
    assert "not deleted" not in caplog.text
    lease.release()


def test_polls_that_were_refused_for_a_while_say_nothing_in_the_end(moved: Moved, entity: str) -> None:
    polls: list[Position] = []
    lease = moved.client(lease=600).acquire(entity)
    waiting = meanwhile(lambda: moved.client().acquire(entity, record_wait=30, on_wait=polls.append))
    until(lambda: polls, "a poll")
    moved.memory.faults.extend([Fault.ACCESS_DENIED.on("Query")] * 3)
    with moved.time_flies(), pytest.raises(RecordWaitExceeded):
        outcome(waiting)
    lease.release()


@NEWER
def test_a_newer_version_that_uses_the_lock_ends_a_wait_which_leaves_the_queue_and_no_hold(
    moved: Moved, entity: str
) -> None:
    lease = moved.client(heartbeat=False).acquire(entity)
    polls: list[Position] = []
    waiting = meanwhile(lambda: moved.client().acquire(entity, on_wait=polls.append))
    until(lambda: polls, "a poll")
    raise_the_format(moved.memory.client, moved.table.table_name, LockName(entity))
    with moved.time_flies(), pytest.raises(UnsupportedFormat):
        outcome(waiting)
    lease.renew()
    lease.release()
    (left,) = moved.memory.items()
    assert (left["sk"], left["waiting"], left["held"]) == (lock_key(LockName(entity))["sk"], {"N": "0"}, {"N": "0"})


def test_the_clients_on_wait_is_that_of_acquisitions_without_one_and_learns_for_how_long_they_have_waited(
    moved: Moved, entity: str
) -> None:
    seen: list[Position] = []
    lease = moved.client().acquire(entity)
    client = moved.client(on_wait=seen.append)
    own = meanwhile(lambda: client.acquire(entity, record_wait=0.1, on_wait=lambda _: None))
    with moved.time_flies(), pytest.raises(RecordWaitExceeded):
        outcome(own)
    assert seen == []
    waiting = meanwhile(lambda: client.acquire(entity, record_wait=math.inf))
    with moved.time_flies():
        until(lambda: seen and seen[-1].waited_ms > 1_000, "a second")
        lease.release()
        outcome(waiting).release()
    assert {each.lock for each in seen} == {LockName(entity)}
    waits = [each.waited_ms for each in seen]
    assert waits == sorted(waits)


def test_a_waiter_that_an_operator_removed_joins_again_and_learns_of_it(moved: Moved, entity: str) -> None:
    seen: list[Position] = []
    lease = moved.client().acquire(entity)
    waiting = meanwhile(lambda: moved.client().acquire(entity, on_wait=seen.append))
    until(lambda: seen, "a poll")
    removed = moved.client().remove_waiter(entity, seen[0].place.ticket)
    assert removed is not None
    with moved.time_flies():
        until(lambda: seen[-1].place_lost, "another position")
        lease.release()
        outcome(waiting).release()


@pytest.mark.parametrize("how", ["by its next poll", "by the end of its client"])
def test_a_waiter_whose_number_of_permits_is_not_the_users_once_a_limit_is_unset_leaves_the_queue(
    moved: Moved, entity: str, how: str
) -> None:
    moved.client().acquire(entity)
    moved.table.set_limit(LockName(entity), 1)
    polls_on = how == "by its next poll"
    locks = moved.client() if polls_on else moved.client(check_every=(100, 100), lease=600)
    waiting = meanwhile(lambda: locks.acquire(entity, permits=3))
    until(lambda: moved.queue_of(entity) == 1, "a waiter")
    moved.table.unset_limit(LockName(entity))
    if not polls_on:
        locks.close()
    with moved.time_flies(), pytest.raises(PermitsMismatch if polls_on else ClientClosed):
        outcome(waiting)
    assert moved.queue_of(entity) == 0


@pytest.mark.parametrize("is_interrupted", [False, True], ids=["at its next poll", "interrupted before it"])
@pytest.mark.parametrize(
    ("asked", "unset_to"), [({"shared": True}, 3), ({"permits": 3}, 1)], ids=["a reader", "a waiter of another number"]
)
def test_a_waiter_that_a_release_grants_a_lock_whose_limit_is_unset_to_another_number_then_gives_it_back(
    memory: MemoryDynamoDB, clock: ManualClock, asked: dict[str, Any], unset_to: int, is_interrupted: bool
) -> None:
    """It has not learned of the grant; a lost reply to a transaction of its own leaves the same."""
    lock, table = LockName("order-42"), LockTable("locks", client=memory.client, clocks=clock)
    held, waiting = Claim(lock, "alice", 60_000), Claim(lock, "bob", 60_000, **asked)
    table.set_limit(lock, 1)
    grant, joined = table.take_ticket(held, None), table.take_ticket(waiting, None)
    assert isinstance(grant, Grant)
    assert isinstance(joined, Position)
    seen = table.check_turn(waiting, joined.place, None)
    assert isinstance(seen, Position)
    assert table.contend(held, lambda me: release_to(me, grant, Next(waiting, seen))).handed is not None
    table.unset_limit(lock, unset_to)
    if is_interrupted:
        table.contend(waiting, leave)
    else:
        with pytest.raises(PermitsMismatch):
            table.contend(waiting, lambda me: _next_poll(me, wait(me), seen))
    state = table.inspect(lock)
    assert state.item is not None
    assert (state.item.holders, state.rows) == ((), ())


# A waiter keeps its place while the table is unreachable, until the lease of its row ends.


PATIENCE_MS = 8_000
"""For how long a client retries one request."""
TIME_OUT_MS = 2_000


def sleeping_waiter(process: Process, lock: LockName, record_wait_ms: int | None = None) -> Stepper[Grant]:
    """A waiter that has slept once in the queue, and is about to poll."""
    waiter = process.steps(process.claim(lock), lambda me: acquire(me, wait(me, record_wait_ms)))
    while not isinstance(waiter.next_request, Pause):
        waiter.step()
    waiter.step()
    return waiter


def fails(waiter: Stepper[Grant], world: World, error: type[TableError]) -> None:
    """One poll fails after its retries, and the waiter sleeps again."""
    world.advance(PATIENCE_MS)
    waiter.fail(error("the table is out of reach"))
    if isinstance(waiter.next_request, Pause):
        waiter.step()


@IN_MEMORY
@pytest.mark.parametrize("error", [RequestNotApplied, OutcomeUnknown, TableRefused])
def test_a_waiter_without_a_record_wait_outlasts_an_outage_of_forty_seconds(
    world: World, alice: Process, bob: Process, lock: LockName, error: type[TableError]
) -> None:
    first = alice.claim(lock)
    grant = alice.granted(first)
    waiter = sleeping_waiter(bob, lock)
    (row,) = alice.table.inspect(lock).rows
    for _ in range(5):
        fails(waiter, world, error)
    alice.table.release(first, grant)
    granted = waiter.to_the_end()
    assert granted.ticket == row.ticket


@IN_MEMORY
def test_an_outage_longer_than_its_rows_lease_ends_the_wait(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    alice.granted(alice.claim(lock))
    waiter = sleeping_waiter(bob, lock)
    while not waiter.done:
        fails(waiter, world, RequestNotApplied)
    assert isinstance(waiter.error, RequestNotApplied)
    (row,) = alice.table.inspect(lock).rows
    assert row.lease_until_ms <= world.now_ms + 1_000 < row.lease_until_ms + LEASE_MS


@IN_MEMORY
def test_a_record_wait_ends_in_the_middle_of_an_outage(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    alice.granted(alice.claim(lock))
    waiter = sleeping_waiter(bob, lock, record_wait_ms=10_000)
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
        self._clock.advance(TIME_OUT_MS / 1_000)
        super().pass_through(sent)


@pytest.mark.parametrize("record_wait", [0, 3])
def test_while_nothing_is_answered_an_acquisition_ends_after_one_patience(
    moved: Moved, entity: str, record_wait: float
) -> None:
    began = moved.clock.wall_ms
    locks = moved.client(wire=Silent(moved))
    with moved.memory.outage(Fault.REQUEST_LOST), pytest.raises(RequestNotApplied):
        locks.acquire(entity, record_wait=record_wait)
    assert moved.clock.wall_ms - began == PATIENCE_MS


def test_the_clean_up_of_a_request_that_may_be_applied_is_tried_once_after_its_patience(
    moved: Moved, entity: str
) -> None:
    wire = Silent(moved)
    locks = moved.client(wire=wire, lease=3_600)
    locks.acquire(f"{entity}, before").release()
    began, sent_before = moved.clock.wall_ms, len(wire.sent)
    with moved.memory.outage(Fault.REPLY_LOST), pytest.raises(OutcomeUnknown):
        locks.try_acquire(entity)
    assert [sent.operation for sent in wire.sent[sent_before:]] == [
        *["UpdateItem"] * (PATIENCE_MS // TIME_OUT_MS),
        "Query",
    ]
    assert moved.clock.wall_ms - began == PATIENCE_MS + TIME_OUT_MS


def test_a_record_wait_and_one_patience_bound_a_wait_that_an_outage_meets(moved: Moved, entity: str) -> None:
    moved.client(lease=3_600).acquire(entity)
    locks = moved.client(wire=Silent(moved), lease=3_600)
    began, record_wait_s = moved.clock.wall_ms, 10
    with ExitStack() as outage, pytest.raises(RequestNotApplied):
        locks.acquire(
            entity,
            record_wait=record_wait_s,
            on_wait=lambda _: outage.enter_context(moved.memory.outage(Fault.REQUEST_LOST)),
        )
    # The last try of the withdrawal, and the only one of the clean-up.
    assert moved.clock.wall_ms - began <= 1_000 * record_wait_s + PATIENCE_MS + 2 * TIME_OUT_MS
