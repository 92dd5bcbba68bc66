"""Crashes between any two requests, duplicate requests, late requests, lost replies."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from kit.world import LEASE_MS, Process, World, reply_lost
from locks.waiting_line import item_of

from ticketlock import Grant, LockName, OutcomeUnknown, Place, Position, RequestNotApplied
from ticketlock.errors import TableError
from ticketlock.locks import _writes as write
from ticketlock.wire._requests import TransactWrite, Write

pytestmark = pytest.mark.shows("liveness", "lost requests")


def passes(operation: str) -> None:
    """No fault."""


def refused_with(code: str, status: int = 400) -> Callable[[str], None]:
    def fault(operation: str) -> None:
        response: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
        raise ClientError(response, operation)

    return fault


def counts(process: Process, lock: LockName) -> tuple[int, int, int]:
    state = process.table.inspect(lock)
    assert state.item is not None
    assert state.item.held == len(state.item.holders)
    return state.item.held, state.item.waiting, len(state.rows)


def test_a_grant_whose_reply_was_lost_is_one_grant(alice: Process, lock: LockName) -> None:
    alice.faults = [reply_lost]
    grant = alice.granted(alice.claim(lock))
    assert counts(alice, lock) == (1, 0, 0)
    assert item_of(alice, lock).holders[0].fencing_token == grant.fencing_token


def test_the_same_acquisition_asked_for_twice_is_one_grant(alice: Process, bob: Process, lock: LockName) -> None:
    claim = alice.claim(lock)
    assert alice.granted(claim).fencing_token == bob.granted(claim).fencing_token
    assert counts(alice, lock) == (1, 0, 0)


def test_a_grant_that_is_found_late_gets_a_full_lease_before_it_is_reported(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    claim = alice.claim(lock)
    alice.granted(claim)
    world.advance(LEASE_MS + 10_000)
    again = bob.granted(claim)
    assert again.deadline_ms - bob.read().local_ms >= LEASE_MS * 3 // 4
    assert counts(bob, lock) == (1, 0, 0)


def test_a_turn_whose_reply_was_lost_is_one_grant(alice: Process, bob: Process, lock: LockName) -> None:
    first, second = alice.claim(lock), bob.claim(lock)
    grant = alice.granted(first)
    position = bob.queued(second)
    alice.table.release(first, grant)
    bob.faults = [passes, reply_lost]
    assert isinstance(bob.poll(second, position), Grant)
    assert counts(bob, lock) == (1, 0, 0)


def test_a_release_whose_reply_was_lost_is_a_release(alice: Process, lock: LockName) -> None:
    claim = alice.claim(lock)
    grant = alice.granted(claim)
    alice.faults = [reply_lost]
    assert not alice.table.release(claim, grant).lease_was_over
    assert counts(alice, lock) == (0, 0, 0)


def test_a_renewal_whose_reply_was_lost_is_a_renewal(world: World, alice: Process, lock: LockName) -> None:
    claim = alice.claim(lock)
    grant = alice.granted(claim)
    world.advance(LEASE_MS // 2)
    alice.faults = [reply_lost]
    assert alice.table.renew(claim, grant.fencing_token).fencing_token == grant.fencing_token


def test_a_row_whose_reply_was_lost_is_one_row(alice: Process, bob: Process, lock: LockName) -> None:
    alice.granted(alice.claim(lock))
    bob.faults = [passes, passes, reply_lost]
    bob.queued(bob.claim(lock))
    assert counts(bob, lock) == (1, 1, 1)


def test_a_withdrawal_whose_reply_was_lost_is_a_withdrawal(alice: Process, bob: Process, lock: LockName) -> None:
    alice.granted(alice.claim(lock))
    claim = bob.claim(lock)
    position = bob.queued(claim)
    bob.faults = [reply_lost]
    assert bob.table.withdraw(claim, position.place.ticket) is None
    assert counts(bob, lock) == (1, 0, 0)


def test_a_transaction_is_repeated_under_the_token_that_it_was_sent_with(
    alice: Process, bob: Process, lock: LockName
) -> None:
    """Found by a random schedule: late copies of the first attempt and of the row counted off a second waiter."""
    alice.granted(alice.claim(lock))
    claim = bob.claim(lock)
    place = bob.queued(claim).place
    bob.faults = [reply_lost]
    before = len(bob.sent)
    assert bob.table.withdraw(claim, place.ticket) is None
    tokens = [
        sent.parameters["ClientRequestToken"] for sent in bob.sent[before:] if sent.operation == "TransactWriteItems"
    ]
    assert len(tokens) == 2
    assert len(set(tokens)) == 1


def test_throttling_and_conflicts_are_waited_out(alice: Process, lock: LockName) -> None:
    # The hook raises after the engine has applied the write, so the retry finds the grant: the test is about the end.
    alice.faults = [refused_with("ThrottlingException"), refused_with("TransactionConflictException")]
    assert isinstance(alice.take(alice.claim(lock)), Grant)


def test_a_service_that_stays_silent_is_an_unknown_outcome(alice: Process, lock: LockName) -> None:
    alice.faults = [reply_lost] * 1_000
    with pytest.raises(OutcomeUnknown):
        alice.take(alice.claim(lock))


@pytest.mark.parametrize("code", ["ProvisionedThroughputExceededException", "TransactionConflictException"])
def test_a_request_that_the_service_keeps_refusing_is_not_applied(alice: Process, lock: LockName, code: str) -> None:
    alice.faults = [refused_with(code)] * 1_000
    with pytest.raises(RequestNotApplied):
        alice.take(alice.claim(lock))


@pytest.mark.parametrize("rows_error", [OutcomeUnknown, RequestNotApplied])
def test_a_failed_join_is_unknown_if_its_first_row_may_have_been_written(
    alice: Process, bob: Process, lock: LockName, rows_error: type[TableError]
) -> None:
    alice.granted(alice.claim(lock))
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
    alice.granted(alice.claim(lock))
    claim = bob.claim(lock)
    joining = bob.steps(claim, lambda me: me.join())
    joining.step()
    joining.fail(RequestNotApplied("throttled"))
    joining.step()
    together = joining.next_request
    assert isinstance(together, TransactWrite)
    assert bob.table.perform(together).applied
    place, _ = joining.to_the_end()
    assert place is not None
    assert [row.ticket for row in bob.table.inspect(lock).rows] == [place.ticket]
    assert counts(bob, lock) == (1, 1, 1)


def test_a_ticket_that_was_minted_with_its_row_is_too_young_to_be_declared_void(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    alice.granted(alice.claim(lock))
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
    first, claims = alice.claim(lock), [bob.claim(lock) for _ in range(3)]
    grant = alice.granted(first)
    bob.faults = [lambda _: world.advance(takes_ms)] * 100
    line = [(claim, bob.queued(claim)) for claim in claims]
    assert counts(alice, lock) == (1, 3, 3)
    bob.faults.clear()
    alice.table.release(first, grant)
    for claim, position in line:
        turn = bob.poll(claim, position)
        assert isinstance(turn, Grant)
        bob.table.release(claim, turn)
    assert counts(alice, lock) == (0, 0, 0)


def test_two_waiters_that_join_in_one_transaction_get_tickets_in_order(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    alice.granted(alice.claim(lock))
    racing = [each.steps(each.claim(lock), lambda me: me.join()) for each in (bob, carol)]
    for each in racing:
        each.step()
        each.fail(RequestNotApplied("throttled"))
        each.step()
    (first, _), (second, _) = (each.to_the_end() for each in racing)
    assert first is not None
    assert second is not None
    assert first.ticket < second.ticket
    assert counts(alice, lock) == (1, 2, 2)


def test_a_join_in_one_transaction_succeeds_though_ten_others_come_first(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    """Found by a random schedule."""
    alice.granted(alice.claim(lock))
    joining = bob.steps(bob.claim(lock), lambda me: me.join())
    joining.step()
    joining.fail(RequestNotApplied("throttled"))
    joining.step()
    for _ in range(10):
        carol.queued(carol.claim(lock))
        joining.step()
    joining.to_the_end()
    assert counts(alice, lock) == (1, 11, 11)


def test_a_crash_between_ticket_and_row_costs_the_next_acquisition_one_poll(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    first, crashing = alice.claim(lock), bob.claim(lock)
    grant = alice.granted(first)
    bob.crash_after(2, crashing, lambda me: me.take_ticket(None))
    alice.table.release(first, grant)
    assert counts(alice, lock) == (0, 1, 0)
    world.advance(5_000)
    healer, next_one = world.process(), world.process()
    claim = healer.claim(lock)
    healed = healer.granted(claim)
    assert counts(alice, lock) == (1, 0, 0)
    healer.table.release(claim, healed)
    assert next_one.operations(lambda: next_one.granted(next_one.claim(lock))) == ["UpdateItem"]


def test_a_waiter_that_extends_its_expired_row_before_the_healing_keeps_its_place(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    """Found by a random schedule."""
    first, waiting = alice.claim(lock), bob.claim(lock)
    grant = alice.granted(first)
    place = bob.queued(waiting).place
    alice.table.release(first, grant)
    world.advance(LEASE_MS + 5_000)
    newcomer = carol.steps(carol.claim(lock), lambda me: me.take_ticket(None))
    newcomer.step()
    newcomer.step()
    assert isinstance(bob.table.contend(waiting, lambda me: me.extend(place)), Place)
    assert isinstance(newcomer.to_the_end(), Position)
    assert isinstance(bob.table.check_turn(waiting, place, None), Grant)


def test_a_young_ticket_without_a_row_is_not_declared_void(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    first, joining = alice.claim(lock), bob.claim(lock)
    grant = alice.granted(first)
    stalled = bob.steps(joining, lambda me: me.take_ticket(None))
    stalled.step()
    stalled.step()
    alice.table.release(first, grant)
    carol.granted(carol.claim(lock))
    position = stalled.to_the_end()
    assert isinstance(position, Position)
    found = bob.poll(joining, position)
    assert isinstance(found, Position)
    assert not found.place_lost


def test_a_row_is_not_written_later_than_a_second_after_its_ticket(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    alice.granted(alice.claim(lock))
    joining = bob.claim(lock)
    stalled = bob.steps(joining, lambda me: me.join())
    world.advance(1_500)
    stalled.step()
    first_number = bob.table.inspect(lock).item
    assert first_number is not None
    place, _ = stalled.to_the_end()
    assert place is not None
    assert place.ticket > first_number.issued


def test_a_row_that_arrives_after_its_ticket_was_declared_void_is_ignored(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    first, stalling, third = alice.claim(lock), bob.claim(lock), carol.claim(lock)
    grant = alice.granted(first)
    stalled = bob.steps(stalling, lambda me: me.take_ticket(None))
    stalled.step()
    stalled.step()
    alice.table.release(first, grant)
    world.advance(5_000)
    healed = carol.granted(third)
    row = stalled.next_request
    assert isinstance(row, Write)
    # Sent in time, but late on the way: the sender's own deadline did not stop it.
    stalled.next_request = replace(row, not_after_local_ms=None)
    position = stalled.to_the_end()
    assert isinstance(position, Position)
    carol.table.release(third, healed)
    late = bob.poll(stalling, position)
    assert isinstance(late, Position)
    assert late.place_lost
    assert isinstance(bob.poll(stalling, late), Grant)
    assert counts(bob, lock) == (1, 0, 0)


def test_a_late_copy_of_a_row_neither_blocks_the_line_for_long_nor_spoils_the_count(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    first, second, third = alice.claim(lock), bob.claim(lock), carol.claim(lock)
    grant = alice.granted(first)
    joining = bob.steps(second, lambda me: me.take_ticket(None))
    joining.step()
    joining.step()
    late_copy = joining.next_request
    position = joining.to_the_end()
    assert late_copy is not None
    assert isinstance(position, Position)
    alice.table.release(first, grant)
    turn = bob.poll(second, position)
    assert isinstance(turn, Grant)
    bob.table.release(second, turn)
    assert bob.table.perform(late_copy).applied
    holding, last = carol.granted(third), world.process()
    fourth = last.claim(lock)
    waiting = last.queued(fourth)
    carol.table.release(third, holding)
    world.advance(LEASE_MS // 2)
    kept = last.poll(fourth, waiting)
    assert isinstance(kept, Position)
    world.advance(LEASE_MS // 2 + 4_000)
    assert isinstance(last.poll(fourth, kept), Grant)
    assert counts(last, lock) == (1, 0, 0)


def test_a_late_copy_of_a_holders_row_is_ignored(alice: Process, bob: Process, carol: Process, lock: LockName) -> None:
    first, second, third = alice.claim(lock), bob.claim(lock), carol.claim(lock)
    grant = alice.granted(first)
    joining = bob.steps(second, lambda me: me.take_ticket(None))
    joining.step()
    joining.step()
    late_copy = joining.next_request
    position = joining.to_the_end()
    assert late_copy is not None
    assert isinstance(position, Position)
    alice.table.release(first, grant)
    turn = bob.poll(second, position)
    assert isinstance(turn, Grant)
    bob.table.perform(late_copy)
    waiting = carol.queued(third)
    polled = carol.poll(third, waiting)
    assert isinstance(polled, Position)
    bob.table.release(second, turn)
    assert isinstance(carol.poll(third, polled), Grant)


def test_a_retried_join_counts_once_and_keeps_the_older_row(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    first, twice, third = alice.claim(lock), bob.claim(lock), carol.claim(lock)
    grant = alice.granted(first)
    older = bob.queued(twice)
    carol.queued(third)
    newer = bob.queued(twice)
    assert newer.place.ticket > older.place.ticket
    alice.table.release(first, grant)
    found = bob.poll(twice, newer)
    assert isinstance(found, Grant)
    assert found.ticket == older.place.ticket
    assert [row.owner for row in bob.table.inspect(lock).rows] == [third.owner]


def test_a_late_copy_of_a_heartbeat_after_the_release_revives_nothing(
    world: World, alice: Process, lock: LockName
) -> None:
    claim = alice.claim(lock)
    grant = alice.granted(claim)
    world.advance(1_000)
    beat = write.renew(claim, grant.fencing_token, alice.table.now())
    alice.table.release(claim, grant)
    assert not alice.table.perform(beat).applied
    assert counts(alice, lock) == (0, 0, 0)


def test_a_release_that_began_within_the_lease_succeeds_even_if_its_retry_comes_after_it(
    world: World, alice: Process, lock: LockName
) -> None:
    claim = alice.claim(lock)
    grant = alice.granted(claim)
    world.advance(LEASE_MS - 1_000)

    def lost_for_three_seconds(operation: str) -> None:
        world.advance(3_000)
        reply_lost(operation)

    alice.faults = [lost_for_three_seconds]
    assert not alice.table.release(claim, grant).lease_was_over


def test_crashed_waiters_do_not_make_newcomers_after_the_next_grant_sleep_longer(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    first, second = alice.claim(lock), bob.claim(lock)
    held = alice.granted(first)
    for _ in range(3):
        # After the refused try and the ticket.
        world.process().crash_after(2, carol.claim(lock), lambda me: me.take_ticket(None))
    behind_the_crashed = bob.queued(second)
    alice.table.release(first, held)
    assert isinstance(bob.poll(second, behind_the_crashed), Grant)
    assert carol.queued(carol.claim(lock)).ahead == 0


@pytest.mark.parametrize("requests", range(1, 6))
def test_a_crash_after_any_request_of_an_acquisition_blocks_the_lock_for_one_lease_at_most(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName, requests: int
) -> None:
    """Refused try, ticket, row, poll, turn: bob crashes after each; carol gets the lock within a lease and the
    margin.
    """
    first, crashing, third = alice.claim(lock), bob.claim(lock), carol.claim(lock)
    grant = alice.granted(first)
    joining = bob.steps(crashing, lambda me: me.take_ticket(None))
    for _ in range(min(requests, 3)):
        joining.step()
    alice.table.release(first, grant)
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
