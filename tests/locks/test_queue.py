"""Waiting in the queue."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from kit.engines import Engine, exact_engine_names, first_on, table_of_its_own
from kit.world import LEASE_MS, Process, World

from ticketlock import Grant, LockName, Position, RecordWaitExceeded
from ticketlock.locks._items import lock_key, row_key
from ticketlock.wire._actions import number

pytestmark = pytest.mark.shows("order", "cost")


def test_grants_follow_ticket_order_in_any_order_of_polls(world: World, lock: LockName) -> None:
    holder = world.process()
    holding = holder.claim(lock)
    grant = holder.granted(holding)
    waiters = [world.process() for _ in range(5)]
    claims = [waiter.claim(lock) for waiter in waiters]
    positions = [waiter.queued(claim) for waiter, claim in zip(waiters, claims, strict=True)]
    holder.table.release(holding, grant)
    order: list[int] = []
    while len(order) < len(waiters):
        for index in reversed(range(len(waiters))):
            if index in order:
                continue
            found = waiters[index].poll(claims[index], positions[index])
            if isinstance(found, Grant):
                order.append(index)
                waiters[index].table.release(claims[index], found)
    assert order == [0, 1, 2, 3, 4]


def test_a_newcomer_does_not_overtake_a_waiter_when_the_lock_becomes_free(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    first, second = alice.claim(lock), bob.claim(lock)
    grant = alice.granted(first)
    waiting = bob.queued(second)
    alice.table.release(first, grant)
    assert isinstance(carol.take(carol.claim(lock)), Position)
    assert isinstance(bob.poll(second, waiting), Grant)


def test_joining_is_a_refused_try_a_ticket_and_a_row(alice: Process, bob: Process, lock: LockName) -> None:
    alice.granted(alice.claim(lock))
    assert bob.operations(lambda: bob.queued(bob.claim(lock))) == ["UpdateItem", "UpdateItem", "PutItem"]


def test_a_poll_of_a_held_lock_is_one_query(alice: Process, bob: Process, lock: LockName) -> None:
    alice.granted(alice.claim(lock))
    claim = bob.claim(lock)
    position = bob.queued(claim)
    assert bob.operations(lambda: bob.poll(claim, position)) == ["Query"]


def test_my_turn_is_one_query_and_one_transaction(alice: Process, bob: Process, lock: LockName) -> None:
    first, second = alice.claim(lock), bob.claim(lock)
    grant = alice.granted(first)
    position = bob.queued(second)
    alice.table.release(first, grant)
    assert bob.operations(lambda: bob.poll(second, position)) == ["Query", "TransactWriteItems"]


@pytest.mark.parametrize(("extra", "permits"), [(2, 1), (2, 3), (10_000, 3)])
def test_a_poll_reads_one_row_more_than_permits_behind_a_few_and_behind_10_000(
    engine: Engine, extra: int, permits: int
) -> None:
    with table_of_its_own(engine) as roomy:
        world = World(roomy)
        alice, bob, last, lock = world.process(), world.process(), world.process(), world.lock()
        # An engine may take longer than a lease to write 10,000 rows.
        asked: dict[str, Any] = {"permits": permits, "lease_ms": 60 * LEASE_MS}
        for _ in range(permits):
            alice.granted(alice.claim(lock, **asked))
        first = bob.queued(bob.claim(lock, **asked))
        stand_in_line(world, alice, lock, first.place.ticket, extra, lease_ms=asked["lease_ms"])
        claim = last.claim(lock, **asked)
        position = last.queued(claim)
        assert last.operations(lambda: last.poll(claim, position)) == ["Query"]
        assert last.sent[-1].response["ScannedCount"] == 1 + permits + 1
        assert position.ahead == extra + 1


def test_a_readers_poll_reads_past_a_hundred_readers_and_no_further(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    alice.granted(alice.claim(lock))
    first = bob.queued(bob.claim(lock, shared=True))
    stand_in_line(world, alice, lock, first.place.ticket, 250, {"shared": {"BOOL": True}})
    claim = carol.claim(lock, shared=True)
    position = carol.queued(claim)
    assert carol.operations(lambda: carol.poll(claim, position)) == ["Query", "Query"]
    assert [sent.response["ScannedCount"] for sent in carol.sent[-2:]] == [3, 100]


def stand_in_line(
    world: World,
    process: Process,
    lock: LockName,
    after_ticket: int,
    how_many: int,
    more: Mapping[str, Any] = MappingProxyType({}),
    lease_ms: int = LEASE_MS,
) -> None:
    """Rows as their joins would have left them, written in bulk; with more attributes."""
    requests: list[Any] = [
        {
            "PutRequest": {
                "Item": {
                    **row_key(lock, after_ticket + 1 + index),
                    "owner": {"S": f"owner-{index}"},
                    "leaseUntilMs": number(world.now_ms + lease_ms),
                    "createdAtMs": number(world.now_ms),
                    "expiresAt": number(world.now_ms // 1_000 + 86_400),
                    **more,
                }
            }
        }
        for index in range(how_many)
    ]
    for start in range(0, how_many, 25):
        process.client.batch_write_item(RequestItems={world.engine.table_name: requests[start : start + 25]})
    process.client.update_item(
        TableName=world.engine.table_name,
        Key=lock_key(lock),
        UpdateExpression="SET issued = issued + :many, waiting = waiting + :many",
        ExpressionAttributeValues={":many": number(how_many)},
    )


def test_a_waiter_keeps_its_place_past_its_lease_by_polling(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    first, second, third = alice.claim(lock), bob.claim(lock), carol.claim(lock)
    grant = alice.granted(first)
    position: Grant | Position = bob.queued(second)
    carol.queued(third)
    ticket = position.place.ticket if isinstance(position, Position) else None
    for _ in range(6):
        world.advance(LEASE_MS // 2)
        grant = alice.table.renew(first, grant.fencing_token)
        assert isinstance(position, Position)
        position = bob.poll(second, position)
    alice.table.release(first, grant)
    assert isinstance(position, Position)
    found = bob.poll(second, position)
    assert isinstance(found, Grant)
    assert found.ticket == ticket


@pytest.mark.parametrize("late_ms", [0, 5_000, LEASE_MS // 4 - 3_000])
def test_a_waiter_that_sleeps_as_long_as_advised_and_polls_late_keeps_its_place(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName, late_ms: int
) -> None:
    first, sleeper, third = alice.claim(lock), bob.claim(lock), carol.claim(lock)
    grant = alice.granted(first)
    joined = bob.queued(sleeper)
    # Just before the half-life of its row: what this poll leaves of the lease must last for the sleep and the delay.
    world.advance(LEASE_MS // 2 - 500)
    slept = bob.poll(sleeper, joined)
    assert isinstance(slept, Position)
    behind = carol.queued(third)
    alice.table.renew(first, grant.fencing_token)
    world.advance(LEASE_MS // 2 + late_ms)
    carol.poll(third, behind)
    woken = bob.poll(sleeper, slept)
    assert isinstance(woken, Position)
    assert not woken.place_lost


def test_a_row_that_is_extended_while_it_is_swept_is_not_overtaken(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    """Found by a random schedule: a refused sweep means that the poll is out of date."""
    first, sleeper, third = alice.claim(lock), bob.claim(lock), carol.claim(lock)
    grant = alice.granted(first)
    slept = bob.queued(sleeper)
    world.advance(LEASE_MS // 2)
    waiting = carol.queued(third)
    alice.table.release(first, alice.table.renew(first, grant.fencing_token))
    world.advance(LEASE_MS // 2 + 4_000)
    poll = carol.steps(third, lambda me: me.check_position(waiting.place))
    poll.step()
    woken = bob.steps(sleeper, lambda me: me.extend(slept.place))
    woken.to_the_end()
    assert isinstance(poll.to_the_end(), Position)


def test_a_crashed_waiter_is_swept_and_the_queue_moves_on(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    first, crashed, third = alice.claim(lock), bob.claim(lock), carol.claim(lock)
    grant = alice.granted(first)
    bob.queued(crashed)
    position = carol.queued(third)
    for _ in range(3):
        world.advance(LEASE_MS // 2)
        grant = alice.table.renew(first, grant.fencing_token)
        polled = carol.poll(third, position)
        assert isinstance(polled, Position)
        position = polled
    alice.table.release(first, grant)
    assert isinstance(carol.poll(third, position), Grant)
    assert carol.table.inspect(lock).rows == ()


def test_a_waiter_whose_row_was_swept_learns_it_and_joins_at_the_end(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    first, sleeper, third = alice.claim(lock), bob.claim(lock), carol.claim(lock)
    grant = alice.granted(first)
    slept = bob.queued(sleeper)
    position = carol.queued(third)
    for _ in range(3):
        world.advance(LEASE_MS // 2)
        grant = alice.table.renew(first, grant.fencing_token)
        polled = carol.poll(third, position)
        assert isinstance(polled, Position)
        position = polled
    woken = bob.poll(sleeper, slept)
    assert isinstance(woken, Position)
    assert woken.place_lost
    assert woken.place.ticket > position.place.ticket


def test_a_waiter_whose_record_wait_has_ended_leaves_the_queue(alice: Process, bob: Process, lock: LockName) -> None:
    alice.granted(alice.claim(lock))
    claim = bob.claim(lock)
    position = bob.queued(claim)
    with pytest.raises(RecordWaitExceeded):
        bob.poll(claim, position, wait_until_ms=position.now.likely_ms)
    state = bob.table.inspect(lock)
    assert state.item is not None
    assert (state.rows, state.item.waiting) == ((), 0)


def test_a_waiter_whose_record_wait_has_ended_still_takes_its_turn(
    alice: Process, bob: Process, lock: LockName
) -> None:
    first, second = alice.claim(lock), bob.claim(lock)
    grant = alice.granted(first)
    position = bob.queued(second)
    alice.table.release(first, grant)
    assert isinstance(bob.poll(second, position, wait_until_ms=position.now.likely_ms), Grant)


def test_a_waiter_that_withdraws_lets_the_next_one_through(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    first, second, third = alice.claim(lock), bob.claim(lock), carol.claim(lock)
    grant = alice.granted(first)
    leaving = bob.queued(second)
    position = carol.queued(third)
    assert bob.table.withdraw(second, leaving.place.ticket) is None
    alice.table.release(first, grant)
    assert isinstance(carol.poll(third, position), Grant)


def test_when_the_queue_is_empty_again_a_grant_is_one_write_again(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    first, second = alice.claim(lock), bob.claim(lock)
    grant = alice.granted(first)
    position = bob.queued(second)
    alice.table.release(first, grant)
    found = bob.poll(second, position)
    assert isinstance(found, Grant)
    bob.table.release(second, found)
    assert carol.operations(lambda: carol.granted(carol.claim(lock))) == ["UpdateItem"]


def test_a_whole_crashed_queue_costs_a_few_acquisitions_and_then_nothing(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    claim = alice.claim(lock)
    grant = alice.granted(claim)
    stand_in_line(world, bob, lock, bob.queued(bob.claim(lock)).place.ticket, 59)
    alice.table.release(claim, grant)
    world.advance(2 * LEASE_MS)
    for _ in range(3):
        claim = bob.claim(lock)
        bob.table.release(claim, bob.granted(claim))
    assert bob.table.inspect(lock).rows == ()
    assert alice.operations(lambda: alice.granted(alice.claim(lock))) == ["UpdateItem"]


@pytest.mark.parametrize("engine", first_on("moto", exact_engine_names()), indirect=True)
def test_tickets_of_38_digits_keep_their_order(world: World, alice: Process, bob: Process, lock: LockName) -> None:
    first = alice.claim(lock)
    grant = alice.granted(first)
    huge = 10**37 + 7
    alice.client.update_item(
        TableName=world.engine.table_name,
        Key=lock_key(lock),
        UpdateExpression="SET issued = :huge",
        ExpressionAttributeValues={":huge": number(huge)},
    )
    claims = [bob.claim(lock) for _ in range(3)]
    positions = [bob.queued(claim) for claim in claims]
    assert [position.place.ticket for position in positions] == [huge + 1, huge + 2, huge + 3]
    alice.table.release(first, grant)
    for claim, position in zip(claims, positions, strict=True):
        found = bob.poll(claim, position)
        assert isinstance(found, Grant)
        assert found.ticket == position.place.ticket
        bob.table.release(claim, found)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            "SET waiting = :zero",
            marks=pytest.mark.leaves_a_promise_broken("the count is set to less than stand in the queue"),
        ),
        "SET voidUpTo = issued + :zero",
        "SET fencingToken = fencingToken + :one",
    ],
)
def test_a_turn_is_refused_if_the_lock_has_changed_since_the_poll(
    world: World, alice: Process, bob: Process, lock: LockName, change: str
) -> None:
    first, second = alice.claim(lock), bob.claim(lock)
    grant = alice.granted(first)
    waiting = bob.queued(second)
    alice.table.release(first, grant)
    poll = bob.steps(second, lambda me: me.check_position(waiting.place))
    poll.step()
    alice.client.update_item(
        TableName=world.engine.table_name,
        Key=lock_key(lock),
        UpdateExpression=change,
        ExpressionAttributeValues={
            name: number(value) for name, value in ((":zero", 0), (":one", 1)) if name in change
        },
    )
    turn = poll.next_request
    assert turn is not None
    assert not bob.table.perform(turn).applied
    state = bob.table.inspect(lock)
    assert state.item is not None
    assert (state.item.held, len(state.rows)) == (0, 1)
    assert state.item.waiting >= 0
