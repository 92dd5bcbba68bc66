"""Taking a lock that was just freed without another poll, by what the last poll and the release tell."""

from kit.world import Process

from ticketlock import Claim, Grant, LockName, Place, Position
from ticketlock.locks._items import LockItem
from ticketlock.locks._writes import mint_ticket, put_row


def freed(holder: Process, claim: Claim, grant: Grant, data_left: str | None = None) -> LockItem:
    """Release; return the lock item after it."""
    left = holder.table.release(claim, grant, data_left=data_left).left
    assert left is not None
    return left


def next_in_line(waiter: Process, claim: Claim) -> Position:
    """Join the queue and poll: the first in line."""
    found = waiter.look(claim, waiter.queued(claim))
    assert isinstance(found, Position)
    return found


def takes(waiter: Process, claim: Claim, seen: Position, left: LockItem) -> Grant | None:
    return waiter.table.contend(claim, lambda me: me.take_freed(seen, left))


def test_the_first_in_line_takes_it_with_one_request(alice: Process, bob: Process, lock: LockName) -> None:
    held, waiting = alice.claim(lock), bob.claim(lock)
    grant = alice.granted(held)
    seen = next_in_line(bob, waiting)
    left = freed(alice, held, grant, "from alice")
    assert bob.operations(lambda: takes(bob, waiting, seen, left)) == ["TransactWriteItems"]
    state = bob.table.inspect(lock)
    assert state.item is not None
    assert ([each.owner for each in state.item.holders], state.item.waiting, state.rows) == ([waiting.owner], 0, ())


def test_the_grant_is_as_by_a_poll(alice: Process, bob: Process, carol: Process, lock: LockName) -> None:
    held, waiting = alice.claim(lock), bob.claim(lock)
    grant = alice.granted(held)
    seen = next_in_line(bob, waiting)
    alice.world.advance(7_000)
    taken = takes(bob, waiting, seen, freed(alice, held, grant, "from alice"))
    assert taken is not None
    assert (taken.fencing_token, taken.ticket) == (grant.fencing_token + 1, seen.place.ticket)
    assert taken.data_left == "from alice"
    assert taken.mean_hold_ms is not None
    assert taken.mean_hold_ms >= 7_000
    left = freed(bob, waiting, taken)
    assert carol.table.inspect(lock).item == left


def test_a_lock_that_was_already_taken_is_found_by_a_poll(alice: Process, bob: Process, lock: LockName) -> None:
    """As if the reply was lost."""
    held, waiting = alice.claim(lock), bob.claim(lock)
    grant = alice.granted(held)
    seen = next_in_line(bob, waiting)
    left = freed(alice, held, grant)
    taken = takes(bob, waiting, seen, left)
    assert taken is not None
    assert takes(bob, waiting, seen, left) is None
    found = bob.look(waiting, seen)
    assert isinstance(found, Grant)
    assert found.fencing_token == taken.fencing_token


def test_a_waiter_behind_others_sends_nothing(alice: Process, bob: Process, carol: Process, lock: LockName) -> None:
    held, first, second = alice.claim(lock), bob.claim(lock), carol.claim(lock)
    grant = alice.granted(held)
    next_in_line(bob, first)
    seen = next_in_line(carol, second)
    left = freed(alice, held, grant)
    assert carol.operations(lambda: takes(carol, second, seen, left)) == []


def test_a_waiter_that_has_not_polled_since_it_joined_sends_nothing(
    alice: Process, bob: Process, lock: LockName
) -> None:
    """A join whose reply was lost may have written another row, which a poll finds."""
    held, waiting = alice.claim(lock), bob.claim(lock)
    grant = alice.granted(held)
    seen = bob.queued(waiting)
    left = freed(alice, held, grant)
    assert bob.operations(lambda: takes(bob, waiting, seen, left)) == []


def test_after_another_grant_it_sends_nothing(alice: Process, bob: Process, carol: Process, lock: LockName) -> None:
    """Otherwise two grants could overtake a row that was written since the poll."""
    held, waiting, other = alice.claim(lock), bob.claim(lock), carol.claim(lock)
    grant = alice.granted(held)
    seen = next_in_line(bob, waiting)
    bob.table.remove_waiter(lock, seen.place.ticket)
    freed(alice, held, grant)
    again = carol.granted(other)
    left = freed(carol, other, again)
    assert bob.operations(lambda: takes(bob, waiting, seen, left)) == []


def test_beside_another_holder_it_sends_nothing(alice: Process, bob: Process, carol: Process, lock: LockName) -> None:
    claims = [each.claim(lock, permits=2) for each in (alice, bob, carol)]
    grant = alice.granted(claims[0])
    bob.granted(claims[1])
    seen = next_in_line(carol, claims[2])
    left = freed(alice, claims[0], grant)
    assert carol.operations(lambda: takes(carol, claims[2], seen, left)) == []


def test_a_row_that_comes_after_the_poll_is_overtaken_by_that_grant_only(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    held, waiting, late = alice.claim(lock), bob.claim(lock), carol.claim(lock)
    grant = alice.granted(held)
    minted = carol.table.contend(late, lambda me: me.send(mint_ticket(late, me.now)))
    seen = next_in_line(bob, waiting)
    assert minted.item is not None
    ticket = LockItem.parse(minted.item).issued
    carol.table.contend(late, lambda me: me.send(put_row(late, ticket, me.now.local_ms, me.now)))
    taken = takes(bob, waiting, seen, freed(alice, held, grant))
    assert taken is not None
    again = alice.claim(lock)
    behind = next_in_line(alice, again)
    left = freed(bob, waiting, taken)
    assert takes(alice, again, behind, left) is None
    found = carol.look(late, Position(Place(ticket, 0), 0, None, None, (), carol.table.now()))
    assert isinstance(found, Grant)


def test_a_lock_that_an_operator_has_closed_is_not_taken(alice: Process, bob: Process, lock: LockName) -> None:
    held, waiting = alice.claim(lock), bob.claim(lock)
    grant = alice.granted(held)
    seen = next_in_line(bob, waiting)
    left = freed(alice, held, grant)
    alice.table.set_limit(lock, 0)
    assert takes(bob, waiting, seen, left) is None
    assert isinstance(bob.look(waiting, seen), Position)


def test_a_waiter_whose_row_was_removed_does_not_take_the_lock(alice: Process, bob: Process, lock: LockName) -> None:
    held, waiting = alice.claim(lock), bob.claim(lock)
    grant = alice.granted(held)
    seen = next_in_line(bob, waiting)
    left = freed(alice, held, grant)
    alice.table.remove_waiter(lock, seen.place.ticket)
    assert takes(bob, waiting, seen, left) is None


def test_a_lock_that_got_a_holder_since_is_not_taken(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    held, waiting, other = alice.claim(lock), bob.claim(lock), carol.claim(lock)
    grant = alice.granted(held)
    seen = next_in_line(bob, waiting)
    left = freed(alice, held, grant)
    # Like an owner whose late row is before bob's: the count says that there are no waiters.
    bob.table.remove_waiter(lock, seen.place.ticket)
    assert carol.granted(other).fencing_token == grant.fencing_token + 1
    assert takes(bob, waiting, seen, left) is None
    assert carol.table.renew(other, grant.fencing_token + 1).fencing_token == grant.fencing_token + 1
