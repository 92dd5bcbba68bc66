"""A release that grants the lock to the next waiter in line, by the position from the waiter's last poll."""

from dataclasses import replace

import pytest
from kit.world import Process
from locks.waiting_line import item_of

from ticketlock import Claim, Grant, InvalidLockRequest, LockLost, LockName, Place, Position
from ticketlock.errors import OutcomeUnknown, RequestNotApplied, TableError
from ticketlock.locks._hand_over import Next, release_to, take_handed
from ticketlock.locks._items import LockItem, Session
from ticketlock.locks._outcomes import BY_THE_OWNER, Hold, Released, Releasing
from ticketlock.locks._protocol import Contender
from ticketlock.locks._writes import mint_ticket, put_row
from ticketlock.wire._requests import Steps, TransactWrite

pytestmark = pytest.mark.shows("order")

ALONE, IN_VAIN = ["TransactWriteItems"], ["TransactWriteItems", "UpdateItem"]


def next_in_line(waiter: Process, claim: Claim) -> Next:
    """Join the queue and poll: the first in line."""
    found = waiter.poll(claim, waiter.queued(claim))
    assert isinstance(found, Position)
    return Next(claim, found)


def followed(alice: Process, bob: Process, lock: LockName) -> tuple[Claim, Grant, Claim, Next]:
    """Alice's claim and grant, and bob's claim, who is the first in line."""
    held, waiting = alice.claim(lock), bob.claim(lock)
    return held, alice.granted(held), waiting, next_in_line(bob, waiting)


def releases(
    holder: Process,
    claim: Claim,
    held: Hold,
    following: Next,
    data_left: str | None = None,
    *,
    releasing: Releasing = BY_THE_OWNER,
) -> Released:
    return holder.table.contend(
        claim, lambda me: release_to(me, held, following, data_left=data_left, releasing=releasing)
    )


def hears(waiter: Process, following: Next, released: Released) -> Grant | None:
    handed = released.handed
    assert handed is not None
    return waiter.table.contend(following.claim, lambda me: take_handed(me, following.seen, handed))


def handed_over(holder: Process, claim: Claim, held: Hold, waiter: Process, following: Next) -> Grant:
    taken = hears(waiter, following, releases(holder, claim, held, following))
    assert taken is not None
    return taken


def test_one_request_releases_the_lock_and_grants_it(alice: Process, bob: Process, lock: LockName) -> None:
    held, grant, waiting, following = followed(alice, bob, lock)
    assert alice.operations(lambda: releases(alice, held, grant, following)) == ALONE
    state = bob.table.inspect(lock)
    assert state.item is not None
    assert ([each.owner for each in state.item.holders], state.item.waiting, state.rows) == ([waiting.owner], 0, ())


def test_the_grant_is_as_by_a_poll(alice: Process, bob: Process, lock: LockName) -> None:
    held, waiting = alice.claim(lock, data="alice"), bob.claim(lock, data="bob")
    grant = alice.granted(held)
    following = next_in_line(bob, waiting)
    alice.world.advance(7_000)
    released = releases(alice, held, grant, following, "from alice")
    taken = hears(bob, following, released)
    assert taken is not None
    found = bob.poll(waiting, following.seen)
    assert isinstance(found, Grant)
    assert replace(taken, deadline_ms=0, deadline_wall_ms=0) == replace(found, deadline_ms=0, deadline_wall_ms=0)
    assert (taken.fencing_token, taken.ticket) == (grant.fencing_token + 1, following.seen.place.ticket)
    assert (taken.data_left, taken.mean_hold_ms, released.held_ms) == ("from alice", 7_000, 7_000)


def test_the_next_holder_gets_no_data_if_none_was_left(alice: Process, bob: Process, lock: LockName) -> None:
    held, waiting = alice.claim(lock), bob.claim(lock)
    first = alice.granted(held)
    taken = hears(bob, following := next_in_line(bob, waiting), releases(alice, held, first, following, "from alice"))
    assert taken is not None
    behind = next_in_line(alice, again := alice.claim(lock))
    last = handed_over(bob, waiting, taken, alice, behind)
    assert last.data_left is None
    assert alice.table.release(again, last).fencing_token == taken.fencing_token + 1


def test_a_waiter_that_does_not_learn_of_its_grant_finds_it_by_a_poll(
    alice: Process, bob: Process, lock: LockName
) -> None:
    held, grant, waiting, following = followed(alice, bob, lock)
    releases(alice, held, grant, following)
    found = bob.poll(waiting, following.seen)
    assert isinstance(found, Grant)
    assert found.fencing_token == grant.fencing_token + 1


def test_a_waiter_that_withdraws_too_late_gets_its_grant(alice: Process, bob: Process, lock: LockName) -> None:
    held, grant, waiting, following = followed(alice, bob, lock)
    releases(alice, held, grant, following)
    won = bob.table.withdraw(waiting, following.seen.place.ticket)
    assert won is not None
    assert won.fencing_token == grant.fencing_token + 1


def test_a_waiter_whose_row_has_gone_meanwhile_gets_its_grant_and_no_other_row(
    alice: Process, bob: Process, lock: LockName
) -> None:
    held, grant, waiting, following = followed(alice, bob, lock)
    bob.world.advance(waiting.lease_ms // 2)
    polling = bob.steps(waiting, lambda me: me.check_turn(following.seen.place, None))
    polling.step()
    releases(alice, held, grant, following)
    # Its row is to be extended, and has gone; it joins again.
    found = polling.to_the_end()
    assert isinstance(found, Grant)
    assert found.fencing_token == grant.fencing_token + 1
    assert bob.table.inspect(lock).rows == ()


def rows_of(process: Process, claim: Claim) -> list[int]:
    return [row.ticket for row in process.table.inspect(claim.lock).rows if row.owner == claim.owner]


def another_row(process: Process, claim: Claim) -> int:
    """A row that an earlier try of the same owner has left."""
    joined = process.table.contend(claim, lambda me: me.join())
    assert joined[0] is not None
    return joined[0].ticket


def test_a_grant_for_another_ticket_than_its_own_is_found_by_a_poll_which_deletes_its_row(
    alice: Process, bob: Process, lock: LockName
) -> None:
    held, grant, waiting, following = followed(alice, bob, lock)
    ticket = another_row(bob, waiting)
    released = releases(alice, held, grant, following)
    assert released.handed is not None
    again = replace(following.seen, place=Place(ticket, following.seen.place.lease_until_ms))
    assert hears(bob, Next(waiting, again), released) is None
    assert isinstance(bob.poll(waiting, again), Grant)
    assert rows_of(bob, waiting) == []


def test_a_poll_that_finds_the_grant_deletes_a_row_that_it_did_not_reach(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    held, grant, waiting, following = followed(alice, bob, lock)
    for _ in range(3):
        carol.queued(carol.claim(lock))
    ticket = another_row(bob, waiting)
    releases(alice, held, grant, following)
    again = replace(following.seen, place=Place(ticket, following.seen.place.lease_until_ms))
    assert isinstance(bob.poll(waiting, again), Grant)
    assert rows_of(bob, waiting) == []


def test_a_waiter_that_has_not_seen_the_holder_does_not_follow(alice: Process, bob: Process, lock: LockName) -> None:
    """It waits for a lock of the same name, in a table of the same name in another account."""
    held, grant, _, following = followed(alice, bob, lock)
    others = tuple(replace(each, owner="of another account") for each in following.seen.holders)
    elsewhere = Next(following.claim, replace(following.seen, holders=others))
    assert alice.operations(lambda: releases(alice, held, grant, elsewhere)) == ["UpdateItem"]


def test_a_reader_that_is_granted_the_lock_wakes_the_readers_behind_it(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    held, waiting = alice.claim(lock), bob.claim(lock, shared=True)
    grant = alice.granted(held)
    following = next_in_line(bob, waiting)
    parked = carol.claim(lock, shared=True, session=Session("execution", "parked"))
    carol.queued(parked)
    handed = releases(alice, held, grant, following).handed
    assert handed is not None
    woken = []

    class Waking(Contender):
        def wake_next(self) -> Steps[int]:
            woken.append(self.claim)
            return (yield from super().wake_next())

    taken = bob.table.run(lambda now: take_handed(Waking(waiting, now, wakes=True), following.seen, handed))
    assert taken is not None
    assert woken == [waiting]


def test_a_release_that_grants_the_lock_is_not_repeated_until_the_lease_that_it_writes_is_over(
    alice: Process, bob: Process, lock: LockName
) -> None:
    held = alice.claim(lock)
    grant = alice.granted(held)
    seen = next_in_line(bob, bob.claim(lock)).seen
    # Its client has shorter time-outs than this one.
    waiting = bob.claim(lock, lease_ms=1_000)
    following = Next(waiting, seen)
    handing = alice.steps(held, lambda me: release_to(me, grant, following)).next_request
    assert isinstance(handing, TransactWrite)
    assert handing.gives_up_after_ms(8_000) == waiting.lease_ms // 4


@pytest.mark.parametrize("given_up", [RequestNotApplied, OutcomeUnknown])
def test_a_release_that_grants_the_lock_and_is_given_up_is_followed_by_the_release_alone(
    alice: Process, bob: Process, lock: LockName, given_up: type[TableError]
) -> None:
    held, grant, waiting, following = followed(alice, bob, lock)
    releasing = alice.steps(held, lambda me: release_to(me, grant, following))
    releasing.fail(given_up("the table is slow"))
    assert releasing.to_the_end().handed is None
    found = bob.poll(waiting, following.seen)
    assert isinstance(found, Grant)


def test_a_release_that_may_have_granted_the_lock_is_unknown_if_the_release_alone_fails_too(
    alice: Process, bob: Process, lock: LockName
) -> None:
    held, grant, _, following = followed(alice, bob, lock)
    releasing = alice.steps(held, lambda me: release_to(me, grant, following))
    releasing.fail(OutcomeUnknown("no answer"))
    releasing.fail(RequestNotApplied("no connection"))
    assert isinstance(releasing.error, OutcomeUnknown)


def test_a_waiter_that_learns_of_it_late_has_a_full_lease(alice: Process, bob: Process, lock: LockName) -> None:
    held, grant, waiting, following = followed(alice, bob, lock)
    released = releases(alice, held, grant, following)
    bob.world.advance(waiting.lease_ms // 2)
    taken = hears(bob, following, released)
    assert taken is not None
    assert taken.deadline_ms - bob.read().local_ms >= waiting.lease_ms * 3 // 4


def test_a_waiter_that_learns_of_it_after_another_owner_replaced_it_polls(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    held, waiting, other = alice.claim(lock), bob.claim(lock), carol.claim(lock)
    grant = alice.granted(held)
    following = next_in_line(bob, waiting)
    released = releases(alice, held, grant, following)
    bob.world.advance(2 * waiting.lease_ms)
    carol.granted(other)
    assert hears(bob, following, released) is None


def test_a_retried_release_grants_nothing_twice(alice: Process, bob: Process, lock: LockName) -> None:
    held, grant, waiting, following = followed(alice, bob, lock)
    taken = handed_over(alice, held, grant, bob, following)
    again = releases(alice, held, grant, following, releasing=Releasing(tried_before=True))
    assert (again.handed, again.lease_was_over) == (None, False)
    bob.table.release(waiting, taken)
    assert releases(alice, held, grant, following, releasing=Releasing(tried_before=True)).handed is None
    assert item_of(bob, lock).holders == ()


@pytest.mark.parametrize(("holds", "waits"), [(False, True), (True, False)], ids=["reader next", "writer next"])
def test_readers_and_writers_follow_each_other(
    alice: Process, bob: Process, lock: LockName, holds: bool, waits: bool
) -> None:
    held, waiting = alice.claim(lock, shared=holds), bob.claim(lock, shared=waits)
    grant = alice.granted(held)
    taken = handed_over(alice, held, grant, bob, next_in_line(bob, waiting))
    item = item_of(bob, lock)
    assert ([each.shared for each in item.holders], item.held) == ([waits], 1)
    assert taken.next_may_enter is waits
    bob.table.release(waiting, taken)
    item = item_of(bob, lock)
    assert (item.holders, item.held) == ((), 0)


def test_a_writer_does_not_follow_one_of_several_readers(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    claims = [alice.claim(lock, shared=True), bob.claim(lock, shared=True)]
    grant = alice.granted(claims[0])
    bob.granted(claims[1])
    following = next_in_line(carol, carol.claim(lock))
    assert alice.operations(lambda: releases(alice, claims[0], grant, following)) == IN_VAIN
    assert [each.owner for each in item_of(carol, lock).holders] == [claims[1].owner]


def test_one_of_several_holders_is_followed(alice: Process, bob: Process, carol: Process, lock: LockName) -> None:
    claims = [each.claim(lock, permits=2) for each in (alice, bob, carol)]
    grant = alice.granted(claims[0])
    bob.granted(claims[1])
    handed_over(alice, claims[0], grant, carol, next_in_line(carol, claims[2]))
    item = item_of(carol, lock)
    assert ({each.owner for each in item.holders}, item.held) == ({claims[1].owner, claims[2].owner}, 2)


@pytest.mark.parametrize("limit", [0, 1])
def test_no_waiter_follows_if_an_operator_has_lowered_the_limit(
    alice: Process, bob: Process, carol: Process, lock: LockName, limit: int
) -> None:
    claims = [each.claim(lock, permits=2) for each in (alice, bob, carol)]
    grant = alice.granted(claims[0])
    bob.granted(claims[1])
    following = next_in_line(carol, claims[2])
    alice.table.set_limit(lock, limit)
    assert alice.operations(lambda: releases(alice, claims[0], grant, following)) == IN_VAIN
    assert [each.owner for each in item_of(carol, lock).holders] == [claims[1].owner]


def test_a_waiter_that_asks_for_another_number_of_permits_does_not_follow(
    alice: Process, bob: Process, lock: LockName
) -> None:
    held, grant, _, following = followed(alice, bob, lock)
    other = Next(replace(following.claim, permits=2), following.seen)
    assert alice.operations(lambda: releases(alice, held, grant, other)) == IN_VAIN


def test_a_waiter_that_has_left_is_not_granted_the_lock(alice: Process, bob: Process, lock: LockName) -> None:
    held, grant, waiting, following = followed(alice, bob, lock)
    bob.table.withdraw(waiting, following.seen.place.ticket)
    assert alice.operations(lambda: releases(alice, held, grant, following)) == IN_VAIN
    item = item_of(bob, lock)
    assert (item.holders, item.waiting) == ((), 0)


def test_a_holder_that_has_lost_the_lock_grants_nothing(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    held, other = alice.claim(lock), carol.claim(lock)
    grant = alice.granted(held)
    alice.world.advance(2 * held.lease_ms)
    carol.granted(other)
    following = next_in_line(bob, bob.claim(lock))
    with pytest.raises(LockLost):
        releases(alice, held, grant, following)
    assert [each.owner for each in item_of(bob, lock).holders] == [other.owner]


@pytest.mark.parametrize("shared", [False, True])
def test_a_claim_that_differs_from_the_grant_is_refused(
    alice: Process, bob: Process, lock: LockName, shared: bool
) -> None:
    held = alice.claim(lock, shared=shared)
    grant = alice.granted(held)
    following = next_in_line(bob, bob.claim(lock))
    with pytest.raises(InvalidLockRequest):
        releases(alice, replace(held, shared=not shared), grant, following)
    item = item_of(bob, lock)
    assert ([each.shared for each in item.holders], item.waiting) == ([shared], 1)


def test_a_waiter_behind_others_does_not_follow(alice: Process, bob: Process, carol: Process, lock: LockName) -> None:
    held = alice.claim(lock)
    grant = alice.granted(held)
    next_in_line(bob, bob.claim(lock))
    behind = next_in_line(carol, carol.claim(lock))
    assert alice.operations(lambda: releases(alice, held, grant, behind)) == ["UpdateItem"]


def test_a_waiter_that_has_not_polled_since_it_joined_does_not_follow(
    alice: Process, bob: Process, lock: LockName
) -> None:
    """A join whose reply was lost may have written another row, which a poll finds."""
    held, waiting = alice.claim(lock), bob.claim(lock)
    grant = alice.granted(held)
    joined = bob.take(waiting)
    assert isinstance(joined, Position)
    assert alice.operations(lambda: releases(alice, held, grant, Next(waiting, joined))) == ["UpdateItem"]


def test_another_acquisition_of_the_same_owner_does_not_follow(alice: Process, lock: LockName) -> None:
    held = alice.claim(lock)
    grant = alice.granted(held)
    following = next_in_line(alice, alice.claim(lock))
    same = Next(replace(following.claim, owner=held.owner), following.seen)
    assert alice.operations(lambda: releases(alice, held, grant, same)) == ["UpdateItem"]


def test_a_row_that_comes_after_the_poll_is_overtaken_by_that_grant_only(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    held, waiting, late = alice.claim(lock), bob.claim(lock), carol.claim(lock)
    grant = alice.granted(held)
    minted = carol.table.contend(late, lambda me: me.send(mint_ticket(late, me.now)))
    following = next_in_line(bob, waiting)
    again = alice.claim(lock)
    alice_behind = Next(again, replace(next_in_line(alice, again).seen, is_next=True))
    assert minted.item is not None
    ticket = LockItem.parse(minted.item).issued
    carol.table.contend(late, lambda me: me.send(put_row(late, ticket, me.now.local_ms, me.now)))
    taken = handed_over(alice, held, grant, bob, following)
    # Alice's poll belongs to the grant before.
    assert bob.operations(lambda: releases(bob, waiting, taken, alice_behind)) == ["UpdateItem"]
    found = carol.poll(late, Position(Place(ticket, 0), 0, None, None, (), carol.table.now()))
    assert isinstance(found, Grant)
