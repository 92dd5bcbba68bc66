"""Waiting in the queue."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import pytest
from kit.engines import Engine, engine_names_but_moto, exact_engine_names, first_on, table_of_its_own
from kit.world import LEASE_MS, Process, World
from locks.waiting_line import MARGIN_MS, Held, Queued, counts, holds, item_of, waits

from ticketlock import Grant, LockName, Place, Position, RecordWaitExceeded
from ticketlock.locks._items import LockItem, Row, lock_key, row_key
from ticketlock.locks._outcomes import Claim
from ticketlock.locks._protocol import Contender
from ticketlock.locks._queue import Queue
from ticketlock.locks._writes import MINTED_TOGETHER_MS, mint_ticket, put_row
from ticketlock.wire._actions import integer, number
from ticketlock.wire._table_time import Moment

pytestmark = pytest.mark.shows("order", "cost")

MOST_IN_A_BATCH = 25


def test_grants_follow_ticket_order_in_any_order_of_polls_with_wrong_clocks_and_no_newcomer_overtakes(
    world: World, lock: LockName
) -> None:
    held = holds(world.process(), lock)
    minutes_off = [0, 4, -4, 4, 0]
    waiters = [waits(world.process(wall_is_off_ms=off * 60_000), lock) for off in minutes_off]
    held.releases()
    waiters.append(waits(world.process(), lock))
    order: list[int] = []
    while len(order) < len(waiters):
        for index in reversed(range(len(waiters))):
            if index not in order and isinstance(found := waiters[index].polls(), Grant):
                order.append(index)
                Held(waiters[index].process, waiters[index].claim, found).releases()
    assert order == list(range(len(waiters)))


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
            holds(alice, lock, **asked)
        first = waits(bob, lock, **asked)
        stand_in_line(world, alice, lock, first.ticket, extra, lease_ms=asked["lease_ms"])
        behind = waits(last, lock, **asked)
        assert behind.seen.ahead == extra + 1
        assert last.operations(behind.polls) == ["Query"]
        assert last.sent[-1].response["ScannedCount"] == 1 + permits + 1


def test_a_readers_poll_reads_past_a_hundred_readers_and_no_further(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    holds(alice, lock)
    stand_in_line(world, alice, lock, waits(bob, lock, shared=True).ticket, 250, {"shared": {"BOOL": True}})
    behind = waits(carol, lock, shared=True)
    assert carol.operations(behind.polls) == ["Query", "Query"]
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
    for start in range(0, how_many, MOST_IN_A_BATCH):
        batch = requests[start : start + MOST_IN_A_BATCH]
        process.client.batch_write_item(RequestItems={world.engine.table_name: batch})
    process.client.update_item(
        TableName=world.engine.table_name,
        Key=lock_key(lock),
        UpdateExpression="SET issued = issued + :many, waiting = waiting + :many",
        ExpressionAttributeValues={":many": number(how_many)},
    )


def outlast_a_lease(world: World, held: Held, waiters: Sequence[Queued], halves: int = 3) -> None:
    """The holder renews and these waiters poll, again and again."""
    for _ in range(halves):
        world.advance(LEASE_MS // 2)
        held.renews()
        for each in waiters:
            each.still_waits()


def test_a_waiter_keeps_its_place_past_its_lease_by_polling(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    held, waiter, _ = holds(alice, lock), waits(bob, lock), waits(carol, lock)
    ticket = waiter.ticket
    outlast_a_lease(world, held, [waiter], halves=6)
    held.releases()
    found = waiter.polls()
    assert isinstance(found, Grant)
    assert found.ticket == ticket


@pytest.mark.parametrize("late_ms", [0, 5_000, LEASE_MS // 4 - 3_000])
def test_a_waiter_that_sleeps_as_long_as_advised_and_polls_late_keeps_its_place(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName, late_ms: int
) -> None:
    held, sleeper = holds(alice, lock), waits(bob, lock)
    # Just before the half-life of its row: what this poll leaves of the lease must last for the sleep and the delay.
    world.advance(LEASE_MS // 2 - 500)
    sleeper.still_waits()
    behind = waits(carol, lock)
    held.renews()
    world.advance(LEASE_MS // 2 + late_ms)
    behind.polls()
    assert not sleeper.still_waits().place_lost


def test_a_row_that_is_extended_while_it_is_swept_is_not_overtaken(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    """Found by a random schedule: a refused sweep means that the poll is out of date."""
    held, sleeper = holds(alice, lock), waits(bob, lock)
    world.advance(LEASE_MS // 2)
    behind = waits(carol, lock)
    held.renews()
    held.releases()
    world.advance(LEASE_MS // 2 + MARGIN_MS)
    poll = carol.steps(behind.claim, lambda me: me.check_position(behind.seen.place))
    poll.step()
    bob.steps(sleeper.claim, lambda me: me.extend(sleeper.seen.place, is_read=True)).to_the_end()
    assert isinstance(poll.to_the_end(), Position)


def test_the_queue_moves_on_past_a_waiter_that_does_not_poll_which_joins_at_the_end_if_it_lives(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    held, sleeper, behind = holds(alice, lock), waits(bob, lock), waits(carol, lock)
    outlast_a_lease(world, held, [behind])
    assert [row.owner for row in carol.table.inspect(lock).rows] == [behind.claim.owner]
    found = sleeper.still_waits()
    assert (found.place_lost, found.place.ticket > behind.ticket) == (True, True)
    held.releases()
    behind.enters().releases()
    sleeper.enters()


@pytest.mark.parametrize("is_free", [False, True], ids=["the lock is held", "its turn has come"])
def test_a_waiter_whose_record_wait_has_ended_leaves_the_queue_unless_its_turn_has_come(
    alice: Process, bob: Process, lock: LockName, is_free: bool
) -> None:
    held, waiter = holds(alice, lock), waits(bob, lock)
    ends_ms = waiter.seen.now.likely_ms
    if is_free:
        held.releases()
        assert isinstance(waiter.polls(wait_until_ms=ends_ms), Grant)
    else:
        with pytest.raises(RecordWaitExceeded):
            waiter.polls(wait_until_ms=ends_ms)
    assert counts(bob, lock) == (1, 0, 0)


def test_a_waiter_that_withdraws_lets_the_next_one_through(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    held, leaving, behind = holds(alice, lock), waits(bob, lock), waits(carol, lock)
    assert bob.table.withdraw(leaving.claim, leaving.ticket) is None
    held.releases()
    behind.enters()


def test_a_whole_crashed_queue_costs_a_few_acquisitions_and_then_nothing(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    held = holds(alice, lock)
    stand_in_line(world, bob, lock, waits(bob, lock).ticket, 59)
    held.releases()
    world.advance(2 * LEASE_MS)
    for _ in range(3):
        holds(bob, lock).releases()
    assert bob.table.inspect(lock).rows == ()
    assert alice.operations(lambda: holds(alice, lock)) == ["UpdateItem"]


@pytest.mark.parametrize("engine", first_on("moto", exact_engine_names()), indirect=True)
def test_tickets_of_38_digits_keep_their_order(world: World, alice: Process, bob: Process, lock: LockName) -> None:
    held = holds(alice, lock)
    huge = 10**37 + 7
    alice.client.update_item(
        TableName=world.engine.table_name,
        Key=lock_key(lock),
        UpdateExpression="SET issued = :huge",
        ExpressionAttributeValues={":huge": number(huge)},
    )
    waiters = [waits(bob, lock) for _ in range(3)]
    assert [waiter.ticket for waiter in waiters] == [huge + 1, huge + 2, huge + 3]
    held.releases()
    for waiter in waiters:
        waiter.enters().releases()


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
    held, waiter = holds(alice, lock), waits(bob, lock)
    held.releases()
    poll = bob.steps(waiter.claim, lambda me: me.check_position(waiter.seen.place))
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


@pytest.mark.parametrize(("newer_by", "counts_as"), [(1, "live"), (0, "stale")])
def test_a_row_of_a_holder_is_stale_only_if_its_ticket_was_issued_before_the_lock_item_was_read(
    alice: Process, bob: Process, lock: LockName, newer_by: int, counts_as: str
) -> None:
    """A poll reads rows page by page; until the last one the holder may have lost its grant and joined again."""
    held = holds(alice, lock)
    item = bob.table.inspect(lock).item
    assert item is not None
    now = bob.table.now()
    queue = Queue(Claim(lock, "bob", LEASE_MS), item)
    row = Row(item.issued + newer_by, held.claim.owner, now.latest_ms + LEASE_MS, now.likely_ms)
    queue.take_in(row, now)
    assert (queue.live, queue.stale) == (([row], []) if counts_as == "live" else ([], [row]))


def test_a_late_copy_of_a_mint_makes_no_fresh_ticket_old(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    """Else who heals the count would declare a ticket void whose row is on its way."""
    holds(alice, lock).releases()
    gone = alice.claim(lock)
    late = mint_ticket(gone, alice.table.now(), item_of(alice, lock))
    world.advance(LEASE_MS)
    claim = carol.claim(lock)
    minted = carol.table.contend(claim, lambda me: me.send(mint_ticket(claim, me.now, item_of(carol, lock))))
    assert minted.applied
    assert minted.item is not None
    ticket = integer(minted.item["issued"])
    alice.table.contend(gone, lambda me: me.send(late))
    first = holds(bob, lock)
    assert item_of(bob, lock).void_up_to < ticket
    carol.table.contend(claim, lambda me: me.send(put_row(claim, ticket, me.now.local_ms, me.now)))
    seen = carol.table.check_turn(claim, Place(ticket, 0), None)
    assert isinstance(seen, Position)
    assert (seen.place.ticket, seen.place_lost) == (ticket, False)
    first.releases()


@pytest.mark.parametrize(
    ("ms", "is_applied"),
    [(1, True), (MINTED_TOGETHER_MS - 1, True), (MINTED_TOGETHER_MS, True), (MINTED_TOGETHER_MS + 1, False)],
)
def test_who_mints_within_a_second_of_the_last_ticket_is_not_refused_because_another_mints_too(
    alice: Process, bob: Process, lock: LockName, ms: int, is_applied: bool
) -> None:
    holds(alice, lock)
    waits(alice, lock)
    seen = item_of(bob, lock)

    def mint_at(process: Process, at_ms: int, seen: LockItem | None) -> bool:
        claim = process.claim(lock)
        asked = partial(mint_ticket, claim, seen=seen)
        return process.table.contend(claim, lambda me: me.send(asked(replace(me.now, latest_ms=at_ms)))).applied

    assert mint_at(alice, seen.ticket_at_ms + ms + 1, None)
    assert mint_at(bob, seen.ticket_at_ms + ms, seen) is is_applied
    assert item_of(bob, lock).ticket_at_ms == seen.ticket_at_ms + ms + 1


@pytest.mark.parametrize("engine", engine_names_but_moto(), indirect=True)
def test_a_second_withdrawal_of_a_ticket_whose_row_a_late_copy_has_written_again_lowers_no_count(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    """Found by a random schedule: the first one was interrupted before its answer came."""
    holds(alice, lock)
    waits(alice, lock)
    claim = bob.claim(lock)
    ticket = bob.queued(claim).place.ticket
    assert bob.table.withdraw(claim, ticket) is None
    late = bob.table.contend(claim, lambda me: me.send(put_row(claim, ticket, me.now.local_ms, me.now)))
    assert late.applied
    alice.world.advance(5_000)
    assert carol.table.withdraw(claim, ticket) is None
    assert item_of(alice, lock).waiting == 1
    alice.client.delete_item(TableName=alice.world.engine.table_name, Key=row_key(lock, ticket))


def test_a_process_whose_bounds_of_the_time_are_lower_mints_a_ticket_and_leaves_the_later_time(
    alice: Process, bob: Process, lock: LockName
) -> None:
    holds(alice, lock)
    claim, behind = bob.claim(lock), bob.claim(lock)

    def at(me: Contender, ms: int) -> Moment:
        return replace(me.now, earliest_ms=me.now.earliest_ms + ms, latest_ms=me.now.latest_ms + ms)

    bob.table.contend(claim, lambda me: me.send(mint_ticket(claim, at(me, 1_500))))
    later_ms = item_of(bob, lock).ticket_at_ms
    refused = bob.table.contend(behind, lambda me: me.send(mint_ticket(behind, me.now)))
    assert not refused.applied
    seen = item_of(bob, lock)
    assert bob.table.contend(behind, lambda me: me.send(mint_ticket(behind, me.now, seen))).applied
    assert item_of(bob, lock).ticket_at_ms == later_ms
    assert bob.operations(lambda: waits(bob, lock)) == ["UpdateItem", "UpdateItem", "PutItem"]
