"""Crashes between any two requests, duplicate requests, late requests, lost replies.

``kit.sentences.faults`` has each request of a client, and what can happen to it; this file has what follows for others.
"""

from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from kit.world import LEASE_MS, Process, Stepper, World, reply_lost
from locks.waiting_line import MARGIN_MS, Queued, counts, holds, item_of, waits

from ticketlock import Grant, LockName, OutcomeUnknown, Place, Position, RequestNotApplied
from ticketlock.errors import TableError
from ticketlock.locks import _writes as write
from ticketlock.wire._requests import Request, TransactWrite, Write

pytestmark = pytest.mark.shows("liveness", "lost requests")


def stalled_before_its_row(process: Process, lock: LockName) -> tuple[Queued, Stepper[Any]]:
    """A refused try and a ticket; the row is its next request, the position its result."""
    claim = process.claim(lock)
    joining = process.steps(claim, lambda me: me.take_ticket(None))
    joining.step()
    joining.step()
    return Queued(process, claim, Position(Place(0, 0), 0, None, None, (), process.table.now())), joining


def joined(waiter: Queued, joining: Stepper[Any]) -> Queued:
    found = joining.to_the_end()
    assert isinstance(found, Position)
    return replace(waiter, seen=found)


def joins_in_one_transaction(process: Process, lock: LockName) -> Stepper[Any]:
    """Its row comes too late for its ticket: its next request writes another ticket and its row together."""
    joining = process.steps(process.claim(lock), lambda me: me.join())
    joining.step()
    joining.fail(RequestNotApplied("throttled"))
    joining.step()
    return joining


def test_the_same_acquisition_asked_for_twice_is_one_grant(alice: Process, bob: Process, lock: LockName) -> None:
    claim = alice.claim(lock)
    assert alice.granted(claim).fencing_token == bob.granted(claim).fencing_token
    assert counts(alice, lock) == (1, 0, 0)


def test_a_grant_that_is_found_late_gets_a_full_lease_before_it_is_reported(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    claim = holds(alice, lock).claim
    world.advance(LEASE_MS + 10_000)
    again = bob.granted(claim)
    assert again.deadline_ms - bob.read().local_ms >= LEASE_MS * 3 // 4
    assert counts(bob, lock) == (1, 0, 0)


def test_a_transaction_is_repeated_under_the_token_that_it_was_sent_with(
    alice: Process, bob: Process, lock: LockName
) -> None:
    """Found by a random schedule: late copies of the first attempt and of the row counted off a second waiter."""
    holds(alice, lock)
    waiter = waits(bob, lock)
    bob.faults = [reply_lost]
    before = len(bob.sent)
    assert bob.table.withdraw(waiter.claim, waiter.ticket) is None
    tokens = [
        sent.parameters["ClientRequestToken"] for sent in bob.sent[before:] if sent.operation == "TransactWriteItems"
    ]
    assert len(tokens) == 2
    assert len(set(tokens)) == 1


@pytest.mark.parametrize("code", ["ProvisionedThroughputExceededException", "TransactionConflictException"])
def test_a_request_that_the_service_keeps_refusing_is_not_applied(alice: Process, lock: LockName, code: str) -> None:
    def refused(operation: str) -> None:
        response: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": 400}}
        raise ClientError(response, operation)

    alice.faults = [refused] * 1_000
    with pytest.raises(RequestNotApplied):
        alice.take(alice.claim(lock))


@pytest.mark.parametrize("rows_error", [OutcomeUnknown, RequestNotApplied])
def test_a_failed_join_is_unknown_if_its_first_row_may_have_been_written(
    alice: Process, bob: Process, lock: LockName, rows_error: type[TableError]
) -> None:
    holds(alice, lock)
    joining = bob.steps(bob.claim(lock), lambda me: me.join())
    joining.step()
    joining.fail(rows_error("the row"))
    joining.step()
    joining.fail(RequestNotApplied("the transaction"))
    assert joining.done
    assert type(joining.error) is rows_error


def test_the_next_try_recognises_a_row_of_its_own_whose_outcome_was_unknown(
    alice: Process, bob: Process, lock: LockName
) -> None:
    holds(alice, lock)
    joining = joins_in_one_transaction(bob, lock)
    together = joining.next_request
    assert isinstance(together, TransactWrite)
    assert bob.table.perform(together).applied
    place, _ = joining.to_the_end()
    assert [row.ticket for row in bob.table.inspect(lock).rows] == [place.ticket]
    assert counts(bob, lock) == (1, 1, 1)


def test_a_ticket_that_was_minted_with_its_row_is_too_young_to_be_declared_void(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    holds(alice, lock)
    joining = bob.steps(bob.claim(lock), lambda me: me.join())
    joining.step()
    world.advance(60_000)
    joining.fail(RequestNotApplied("late"))
    joining.step()
    joining.step()
    assert item_of(alice, lock).ticket_at_ms > world.now_ms - 5_000


@pytest.mark.parametrize("takes_ms", [900, 1_000, 1_001, 4_000])
def test_a_table_whose_requests_take_over_a_second_lets_newcomers_in_and_counts_them_once(
    world: World, alice: Process, bob: Process, lock: LockName, takes_ms: int
) -> None:
    """A ticket that no row can follow in time: the next one is minted together with its row."""
    held = holds(alice, lock)
    bob.faults = [lambda _: world.advance(takes_ms)] * 100
    line = [waits(bob, lock) for _ in range(3)]
    assert counts(alice, lock) == (1, 3, 3)
    bob.faults.clear()
    held.releases()
    for waiter in line:
        waiter.enters().releases()
    assert counts(alice, lock) == (0, 0, 0)


def test_two_waiters_that_join_in_one_transaction_get_tickets_in_order(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    holds(alice, lock)
    racing = [joins_in_one_transaction(each, lock) for each in (bob, carol)]
    (first, _), (second, _) = (each.to_the_end() for each in racing)
    assert first.ticket < second.ticket
    assert counts(alice, lock) == (1, 2, 2)


def test_a_join_in_one_transaction_succeeds_though_ten_others_come_first(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    """Found by a random schedule."""
    holds(alice, lock)
    joining = joins_in_one_transaction(bob, lock)
    for _ in range(10):
        waits(carol, lock)
        joining.step()
    joining.to_the_end()
    assert counts(alice, lock) == (1, 11, 11)


def test_a_crash_between_ticket_and_row_costs_the_next_acquisition_one_poll(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    held = holds(alice, lock)
    stalled_before_its_row(bob, lock)
    held.releases()
    assert counts(alice, lock) == (0, 1, 0)
    world.advance(6_000)
    healed, next_one = holds(world.process(), lock), world.process()
    assert counts(alice, lock) == (1, 0, 0)
    healed.releases()
    assert next_one.operations(lambda: holds(next_one, lock)) == ["UpdateItem"]


def test_a_waiter_that_extends_its_expired_row_before_the_healing_keeps_its_place(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    """Found by a random schedule."""
    held, waiter = holds(alice, lock), waits(bob, lock)
    held.releases()
    world.advance(LEASE_MS + 5_000)
    _, newcomer = stalled_before_its_row(carol, lock)
    assert isinstance(bob.table.contend(waiter.claim, lambda me: me.extend(waiter.seen.place, is_read=True)), Place)
    assert isinstance(newcomer.to_the_end(), Position)
    waiter.enters()


def test_a_young_ticket_without_a_row_is_not_declared_void(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    held = holds(alice, lock)
    stalled = stalled_before_its_row(bob, lock)
    held.releases()
    holds(carol, lock)
    assert not joined(*stalled).still_waits().place_lost


def test_a_row_is_not_written_later_than_a_second_after_its_ticket(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    holds(alice, lock)
    stalled = bob.steps(bob.claim(lock), lambda me: me.join())
    world.advance(1_500)
    stalled.step()
    first_number = item_of(bob, lock).issued
    place, _ = stalled.to_the_end()
    assert place is not None
    assert place.ticket > first_number


def test_a_row_that_arrives_after_its_ticket_was_declared_void_is_ignored(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    held = holds(alice, lock)
    waiter, stalled = stalled_before_its_row(bob, lock)
    held.releases()
    world.advance(6_000)
    healed = holds(carol, lock)
    row = stalled.next_request
    assert isinstance(row, Write)
    # Sent in time, but late on the way: the sender's own deadline did not stop it.
    stalled.next_request = replace(row, not_after_local_ms=None)
    waiter = joined(waiter, stalled)
    healed.releases()
    assert waiter.still_waits().place_lost
    waiter.enters()
    assert counts(bob, lock) == (1, 0, 0)


def joined_and_a_late_copy(process: Process, lock: LockName) -> tuple[Queued, Request]:
    """A waiter, and a copy of the request that wrote its row."""
    waiter, joining = stalled_before_its_row(process, lock)
    late_copy = joining.next_request
    assert late_copy is not None
    return joined(waiter, joining), late_copy


def test_a_late_copy_of_a_row_neither_blocks_the_line_for_long_nor_spoils_the_count(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    held = holds(alice, lock)
    waiter, late_copy = joined_and_a_late_copy(bob, lock)
    held.releases()
    waiter.enters().releases()
    assert bob.table.perform(late_copy).applied
    held = holds(carol, lock)
    last = waits(world.process(), lock)
    held.releases()
    world.advance(LEASE_MS // 2)
    last.still_waits()
    world.advance(LEASE_MS // 2 + MARGIN_MS)
    last.enters()
    assert counts(alice, lock) == (1, 0, 0)


def test_a_late_copy_of_a_holders_row_is_ignored(alice: Process, bob: Process, carol: Process, lock: LockName) -> None:
    first = holds(alice, lock)
    waiter, late_copy = joined_and_a_late_copy(bob, lock)
    first.releases()
    second = waiter.enters()
    bob.table.perform(late_copy)
    third = waits(carol, lock)
    third.still_waits()
    second.releases()
    third.enters()


def test_a_retried_join_counts_once_and_keeps_the_older_row(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    held, older, behind = holds(alice, lock), waits(bob, lock), waits(carol, lock)
    newer = replace(older, seen=bob.queued(older.claim))
    assert newer.ticket > older.ticket
    held.releases()
    found = newer.polls()
    assert isinstance(found, Grant)
    assert found.ticket == older.ticket
    assert [row.owner for row in bob.table.inspect(lock).rows] == [behind.claim.owner]


def test_a_late_copy_of_a_heartbeat_after_the_release_revives_nothing(
    world: World, alice: Process, lock: LockName
) -> None:
    held = holds(alice, lock)
    world.advance(1_000)
    beat = write.renew(held.claim, held.token, alice.table.now())
    held.releases()
    assert not alice.table.perform(beat).applied
    assert counts(alice, lock) == (0, 0, 0)


def test_a_release_that_began_within_the_lease_succeeds_even_if_its_retry_comes_after_it(
    world: World, alice: Process, lock: LockName
) -> None:
    held = holds(alice, lock)
    world.advance(LEASE_MS - 1_000)

    def lost_for_three_seconds(operation: str) -> None:
        world.advance(3_000)
        reply_lost(operation)

    alice.faults = [lost_for_three_seconds]
    assert not held.releases().lease_was_over


def test_crashed_waiters_do_not_make_newcomers_after_the_next_grant_sleep_longer(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    held = holds(alice, lock)
    for _ in range(3):
        stalled_before_its_row(world.process(), lock)
    behind_the_crashed = waits(bob, lock)
    held.releases()
    behind_the_crashed.enters()
    assert waits(carol, lock).seen.ahead == 0


@pytest.mark.parametrize("requests", range(1, 6))
def test_a_crash_after_any_request_of_an_acquisition_blocks_the_lock_for_one_lease_at_most(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName, requests: int
) -> None:
    """Refused try, ticket, row, poll, turn: bob crashes after each; carol gets the lock within a lease and the
    margin.
    """
    held, crashing, third = holds(alice, lock), bob.claim(lock), carol.claim(lock)
    joining = bob.steps(crashing, lambda me: me.take_ticket(None))
    for _ in range(min(requests, 3)):
        joining.step()
    held.releases()
    if requests > 3:
        assert isinstance(joining.result, Position)
        place = joining.result.place
        bob.crash_after(requests - 3, crashing, lambda me: me.check_position(place))
    found = carol.take(third)
    waited_ms = 0
    while isinstance(found, Position) and waited_ms < LEASE_MS + 8_000:
        world.advance(2_000)
        waited_ms += 2_000
        found = carol.poll(third, found)
    assert isinstance(found, Grant)
