"""A release that grants the lock to the next waiter in line, by the position from the waiter's last poll."""

from dataclasses import replace
from typing import Any

import pytest
from kit.step_functions import Callback, TaskService
from kit.world import Process
from locks.waiting_line import Held, counts, holds, item_of, waits

from ticketlock import Claim, Grant, InvalidLockRequest, LockLost, LockName, Place, Position
from ticketlock.errors import OutcomeUnknown, RequestNotApplied, TableError
from ticketlock.locks._hand_over import Next, await_wake_up, release_to, take_handed
from ticketlock.locks._items import LockItem, Session
from ticketlock.locks._outcomes import Hold, Released, Releasing
from ticketlock.locks._protocol import Contender
from ticketlock.locks._writes import mint_ticket, put_row
from ticketlock.wire._requests import Steps, TransactWrite

pytestmark = pytest.mark.shows("order")

HANDED, IN_VAIN, NOT_TRIED = ["TransactWriteItems"], ["TransactWriteItems", "UpdateItem"], ["UpdateItem"]


def next_in_line(waiter: Process, claim: Claim) -> Next:
    """Join the queue and poll: the first in line."""
    found = waiter.poll(claim, waiter.queued(claim))
    assert isinstance(found, Position)
    return Next(claim, found)


def releases(held: Held, following: Next, data_left: str | None = None, **more: Any) -> Released:
    return held.process.table.contend(
        held.claim, lambda me: release_to(me, held.grant, following, data_left=data_left, **more)
    )


def hears(waiter: Process, following: Next, released: Released) -> Grant | None:
    handed = released.handed
    assert handed is not None
    return waiter.table.contend(following.claim, lambda me: take_handed(me, following.seen, handed))


def handed_over(held: Held, waiter: Process, following: Next) -> Held:
    taken = hears(waiter, following, releases(held, following))
    assert taken is not None
    return Held(waiter, following.claim, taken)


@pytest.fixture
def held(alice: Process, lock: LockName) -> Held:
    return holds(alice, lock)


@pytest.fixture
def following(held: Held, bob: Process) -> Next:
    """Bob, the first in line behind alice."""
    return next_in_line(bob, bob.claim(held.claim.lock))


def test_one_request_releases_the_lock_and_grants_it_as_by_a_poll(alice: Process, bob: Process, lock: LockName) -> None:
    held = holds(alice, lock, data="alice")
    following = next_in_line(bob, bob.claim(lock, data="bob", lease_ms=2 * held.claim.lease_ms))
    alice.world.advance(7_000)
    told: list[Released] = []
    assert alice.operations(lambda: told.append(releases(held, following, "from alice"))) == HANDED
    assert told[0].handed is not None
    assert item_of(bob, lock).holders == (told[0].handed.holder,)
    assert told[0].handed.holder.lease_ms == following.claim.lease_ms
    assert counts(bob, lock) == (1, 0, 0)
    taken, found = hears(bob, following, told[0]), bob.poll(following.claim, following.seen)
    assert taken is not None
    assert isinstance(found, Grant)
    assert replace(taken, deadline_ms=0, deadline_wall_ms=0) == replace(found, deadline_ms=0, deadline_wall_ms=0)
    assert (taken.fencing_token, taken.ticket) == (held.token + 1, following.seen.place.ticket)
    assert (taken.data_left, taken.mean_hold_ms, told[0].held_ms) == ("from alice", 7_000, 7_000)


def test_the_next_holder_gets_no_data_if_none_was_left(
    alice: Process, bob: Process, held: Held, following: Next, lock: LockName
) -> None:
    taken = hears(bob, following, releases(held, following, "from alice"))
    assert taken is not None
    last = handed_over(Held(bob, following.claim, taken), alice, next_in_line(alice, alice.claim(lock)))
    assert last.grant.data_left is None
    assert last.releases().fencing_token == taken.fencing_token + 1


@pytest.mark.parametrize("how", ["by a poll", "by a withdrawal that comes too late"])
def test_a_waiter_that_does_not_learn_of_its_grant_finds_it(
    bob: Process, held: Held, following: Next, how: str
) -> None:
    releases(held, following)
    if how == "by a poll":
        found: object = bob.poll(following.claim, following.seen)
    else:
        found = bob.table.withdraw(following.claim, following.seen.place.ticket)
    assert isinstance(found, Hold)
    assert found.fencing_token == held.token + 1


def test_a_waiter_whose_row_has_gone_meanwhile_gets_its_grant_and_no_other_row(
    bob: Process, held: Held, following: Next, lock: LockName
) -> None:
    bob.world.advance(following.claim.lease_ms // 2)
    polling = bob.steps(following.claim, lambda me: me.check_turn(following.seen.place, None))
    polling.step()
    releases(held, following)
    # Its row is to be extended, and has gone; it joins again.
    found = polling.to_the_end()
    assert isinstance(found, Grant)
    assert found.fencing_token == held.token + 1
    assert bob.table.inspect(lock).rows == ()


@pytest.mark.parametrize("between", [0, 3], ids=["a row that it reads", "a row that it does not reach"])
def test_a_grant_for_another_ticket_than_its_own_is_found_by_a_poll_which_deletes_its_row(
    bob: Process, carol: Process, held: Held, following: Next, lock: LockName, between: int
) -> None:
    for _ in range(between):
        waits(carol, lock)
    # A row that an earlier try of the same owner has left.
    place, _ = bob.table.contend(following.claim, lambda me: me.join())
    assert place is not None
    released, again = releases(held, following), replace(following.seen, place=place)
    assert hears(bob, Next(following.claim, again), released) is None
    assert isinstance(bob.poll(following.claim, again), Grant)
    assert following.claim.owner not in {row.owner for row in bob.table.inspect(lock).rows}


def test_a_waiter_that_has_not_seen_the_holder_is_not_granted_the_lock(
    alice: Process, held: Held, following: Next
) -> None:
    """It waits for a lock of the same name, in a table of the same name in another account."""
    others = tuple(replace(each, owner="of another account") for each in following.seen.holders)
    elsewhere = Next(following.claim, replace(following.seen, holders=others))
    assert alice.operations(lambda: releases(held, elsewhere)) == NOT_TRIED


def test_a_reader_that_is_granted_the_lock_wakes_the_readers_behind_it(
    bob: Process, carol: Process, held: Held, lock: LockName
) -> None:
    waiting = bob.claim(lock, shared=True)
    following = next_in_line(bob, waiting)
    parked = carol.claim(lock, shared=True, session=Session("execution", "parked"))
    carol.queued(parked)
    handed = releases(held, following).handed
    assert handed is not None
    woken = []

    class Waking(Contender):
        def wake_next(self) -> Steps[int]:
            woken.append(self.claim)
            return (yield from super().wake_next())

    taken = bob.table.run(lambda now: take_handed(Waking(waiting, now, wakes=True), following.seen, handed))
    assert taken is not None
    assert woken == [waiting]


@pytest.mark.parametrize("wakes", [False, True], ids=["nobody", "itself"])
def test_a_reader_whose_client_wakes_nobody_leaves_that_to_the_release_that_grants_it_the_lock(
    alice: Process, bob: Process, carol: Process, held: Held, lock: LockName, wakes: bool
) -> None:
    following = next_in_line(bob, bob.claim(lock, shared=True))
    parked = carol.claim(lock, shared=True, session=Session("execution", "parked"))
    service = TaskService()
    place = carol.queued(parked).place

    def park(me: Contender) -> Steps[Position | None]:
        return await_wake_up(me, place, Session("execution", "parked"), "token", 0, lambda _: True)

    Callback(carol, parked, park, service).run()
    following = replace(following, wakes=wakes)
    Callback(alice, held.claim, lambda me: release_to(me, held.grant, following), service).run()
    assert service.answered == ([] if wakes else ["token"])
    assert isinstance(carol.table.check_turn(parked, place, None), Grant)


def test_a_release_that_grants_the_lock_is_not_repeated_until_the_lease_that_it_writes_is_over(
    alice: Process, bob: Process, held: Held, following: Next, lock: LockName
) -> None:
    # Its client has shorter time-outs than this one.
    waiting = bob.claim(lock, lease_ms=1_000)
    handing = alice.steps(held.claim, lambda me: release_to(me, held.grant, Next(waiting, following.seen))).next_request
    assert isinstance(handing, TransactWrite)
    assert handing.gives_up_after_ms(8_000) == waiting.lease_ms // 4


@pytest.mark.parametrize("given_up", [RequestNotApplied, OutcomeUnknown])
def test_a_release_that_grants_the_lock_and_is_given_up_is_followed_by_the_release_alone(
    alice: Process, bob: Process, held: Held, following: Next, given_up: type[TableError]
) -> None:
    releasing = alice.steps(held.claim, lambda me: release_to(me, held.grant, following))
    releasing.fail(given_up("the table is slow"))
    assert releasing.to_the_end().handed is None
    assert isinstance(bob.poll(following.claim, following.seen), Grant)


def test_a_release_that_may_have_granted_the_lock_is_unknown_if_the_release_alone_fails_too(
    alice: Process, held: Held, following: Next
) -> None:
    releasing = alice.steps(held.claim, lambda me: release_to(me, held.grant, following))
    releasing.fail(OutcomeUnknown("no answer"))
    releasing.fail(RequestNotApplied("no connection"))
    assert isinstance(releasing.error, OutcomeUnknown)


def test_a_waiter_that_learns_of_it_late_has_a_full_lease_and_polls_if_it_was_replaced_meanwhile(
    bob: Process, carol: Process, held: Held, following: Next, lock: LockName
) -> None:
    released, lease_ms = releases(held, following), following.claim.lease_ms
    bob.world.advance(lease_ms // 2)
    taken = hears(bob, following, released)
    assert taken is not None
    assert taken.deadline_ms - bob.read().local_ms >= lease_ms * 3 // 4
    bob.world.advance(2 * lease_ms)
    holds(carol, lock)
    assert hears(bob, following, released) is None


def test_a_retried_release_grants_nothing_twice(bob: Process, held: Held, following: Next, lock: LockName) -> None:
    taken, tried = handed_over(held, bob, following), Releasing(tried_before=True)
    again = releases(held, following, releasing=tried)
    assert (again.handed, again.lease_was_over) == (None, False)
    taken.releases()
    assert releases(held, following, releasing=tried).handed is None
    assert item_of(bob, lock).holders == ()


@pytest.mark.parametrize("reads_next", [True, False], ids=["reader next", "writer next"])
def test_readers_and_writers_grant_the_lock_to_each_other(
    alice: Process, bob: Process, lock: LockName, reads_next: bool
) -> None:
    held = holds(alice, lock, shared=not reads_next)
    taken = handed_over(held, bob, next_in_line(bob, bob.claim(lock, shared=reads_next)))
    item = item_of(bob, lock)
    assert ([each.shared for each in item.holders], item.held) == ([reads_next], 1)
    assert taken.grant.next_may_enter is reads_next
    taken.releases()
    assert counts(bob, lock) == (0, 0, 0)


def test_one_of_several_holders_grants_the_lock_to_the_next_waiter(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    held, other = holds(alice, lock, permits=2), holds(bob, lock, permits=2)
    taken = handed_over(held, carol, next_in_line(carol, carol.claim(lock, permits=2)))
    item = item_of(carol, lock)
    assert ({each.owner for each in item.holders}, item.held) == ({other.claim.owner, taken.claim.owner}, 2)


@pytest.mark.parametrize(
    ("each_holds", "waits_for", "limit"),
    [({"shared": True}, {}, None), ({"permits": 2}, {"permits": 2}, 0), ({"permits": 2}, {"permits": 2}, 1)],
    ids=["a writer behind readers", "behind a closed lock", "behind a lowered limit"],
)
def test_a_waiter_for_which_no_permit_is_free_is_not_granted_the_lock_by_one_of_several_holders(
    alice: Process, bob: Process, carol: Process, lock: LockName, each_holds: Any, waits_for: Any, limit: int | None
) -> None:
    held, other = holds(alice, lock, **each_holds), holds(bob, lock, **each_holds)
    following = next_in_line(carol, carol.claim(lock, **waits_for))
    if limit is not None:
        alice.table.set_limit(lock, limit)
    assert alice.operations(lambda: releases(held, following)) == IN_VAIN
    assert [each.owner for each in item_of(carol, lock).holders] == [other.claim.owner]


def test_a_waiter_that_asks_for_another_number_of_permits_is_not_granted_the_lock(
    alice: Process, held: Held, following: Next
) -> None:
    other = replace(following, claim=replace(following.claim, permits=2))
    assert alice.operations(lambda: releases(held, other)) == IN_VAIN


def test_a_waiter_that_has_left_is_not_granted_the_lock(
    alice: Process, bob: Process, held: Held, following: Next, lock: LockName
) -> None:
    bob.table.withdraw(following.claim, following.seen.place.ticket)
    assert alice.operations(lambda: releases(held, following)) == IN_VAIN
    assert counts(bob, lock) == (0, 0, 0)


def test_a_holder_that_has_lost_the_lock_grants_nothing(
    alice: Process, bob: Process, carol: Process, held: Held, lock: LockName
) -> None:
    alice.world.advance(2 * held.claim.lease_ms)
    other = holds(carol, lock)
    following = next_in_line(bob, bob.claim(lock))
    with pytest.raises(LockLost):
        releases(held, following)
    assert [each.owner for each in item_of(bob, lock).holders] == [other.claim.owner]


@pytest.mark.parametrize("shared", [False, True])
def test_a_claim_that_differs_from_the_grant_is_refused(
    alice: Process, bob: Process, lock: LockName, shared: bool
) -> None:
    held = holds(alice, lock, shared=shared)
    following = next_in_line(bob, bob.claim(lock))
    with pytest.raises(InvalidLockRequest):
        releases(replace(held, claim=replace(held.claim, shared=not shared)), following)
    item = item_of(bob, lock)
    assert ([each.shared for each in item.holders], item.waiting) == ([shared], 1)


def test_a_waiter_behind_others_is_not_granted_the_lock(
    alice: Process, carol: Process, held: Held, following: Next, lock: LockName
) -> None:
    behind = next_in_line(carol, carol.claim(lock))
    assert following.seen.place.ticket < behind.seen.place.ticket
    assert alice.operations(lambda: releases(held, behind)) == NOT_TRIED


def test_a_waiter_that_has_not_polled_since_it_joined_is_not_granted_the_lock(
    alice: Process, bob: Process, held: Held, lock: LockName
) -> None:
    """A join whose reply was lost may have written another row, which a poll finds."""
    waiter = waits(bob, lock)
    assert alice.operations(lambda: releases(held, Next(waiter.claim, waiter.seen))) == NOT_TRIED


def test_another_acquisition_of_the_same_owner_is_not_granted_the_lock(
    alice: Process, held: Held, following: Next
) -> None:
    same = replace(following, claim=replace(following.claim, owner=held.claim.owner))
    assert alice.operations(lambda: releases(held, same)) == NOT_TRIED


def test_a_row_that_comes_after_the_poll_is_overtaken_by_that_grant_only(
    alice: Process, bob: Process, carol: Process, held: Held, lock: LockName
) -> None:
    late = carol.claim(lock)
    minted = carol.table.contend(late, lambda me: me.send(mint_ticket(late, me.now)))
    following = next_in_line(bob, bob.claim(lock))
    again = alice.claim(lock)
    alice_behind = Next(again, replace(next_in_line(alice, again).seen, is_next=True))
    assert minted.item is not None
    ticket = LockItem.parse(minted.item).issued
    carol.table.contend(late, lambda me: me.send(put_row(late, ticket, me.now.local_ms, me.now)))
    taken = handed_over(held, bob, following)
    # Alice's poll belongs to the grant before.
    assert bob.operations(lambda: releases(taken, alice_behind)) == NOT_TRIED
    found = carol.poll(late, Position(Place(ticket, 0), 0, None, None, (), carol.table.now()))
    assert isinstance(found, Grant)
