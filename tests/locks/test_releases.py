"""A release whose reply was lost is distinguished from a release by another client."""

from collections.abc import Callable

import pytest
from kit.world import LEASE_MS, Process, World, reply_lost
from locks.waiting_line import Held, as_its_owner, by_force, holds, item_of, passes

from ticketlock import Grant, LockLost, LockName
from ticketlock.locks._items import lock_key
from ticketlock.locks._outcomes import Releasing, hold_of

pytestmark = pytest.mark.shows("lost requests")


def with_the_item(operator: Process, held: Held) -> None:
    operator.client.delete_item(TableName=operator.world.engine.table_name, Key=lock_key(held.claim.lock))


Freed = Callable[[Process, Held], None]
BY_AN_OPERATOR = pytest.mark.parametrize("freed", [by_force, as_its_owner])


@pytest.mark.parametrize("freed", [by_force, as_its_owner, with_the_item])
@pytest.mark.parametrize("faults", [[], [reply_lost]], ids=["at once", "after its first reply was lost"])
def test_the_release_of_a_lock_that_another_client_has_freed_says_so(
    alice: Process, bob: Process, lock: LockName, freed: Freed, faults: list[Callable[[str], None]]
) -> None:
    held = holds(alice, lock)
    freed(bob, held)
    alice.faults = [*faults]
    with pytest.raises(LockLost, match="another client has freed it"):
        alice.table.contend(held.claim, lambda me: me.release(held.grant, releasing=Releasing(by="alice")))


def test_the_release_of_a_freed_lock_says_so_even_if_its_first_reply_was_lost_and_others_have_held_the_lock_since(
    alice: Process, bob: Process, lock: LockName
) -> None:
    held = holds(alice, lock)
    by_force(bob, held)
    holds(bob, lock).releases()
    alice.faults = [reply_lost]
    with pytest.raises(LockLost):
        held.releases()


@pytest.mark.parametrize("is_retried", ["in one call", "by the next call"])
def test_the_release_of_a_deleted_lock_says_so_though_others_have_held_and_released_the_lock_since(
    world: World, alice: Process, bob: Process, lock: LockName, is_retried: str
) -> None:
    held = holds(alice, lock)
    world.advance(1_000)
    with_the_item(bob, held)
    holds(bob, lock).releases()
    alice.faults = [reply_lost] if is_retried == "in one call" else []
    releasing = Releasing(tried_before=is_retried == "by the next call")
    with pytest.raises(LockLost):
        alice.table.contend(held.claim, lambda me: me.release(held.grant, releasing=releasing))


def test_a_retried_release_succeeds_though_others_have_held_the_lock_since(
    alice: Process, bob: Process, lock: LockName
) -> None:
    held = holds(alice, lock)

    def others_come_while_the_reply_is_lost(operation: str) -> None:
        holds(bob, lock).releases()
        reply_lost(operation)

    alice.faults = [others_come_while_the_reply_is_lost]
    assert not held.releases().lease_was_over


def test_a_release_that_is_sent_again_after_its_lease_says_that_it_was_forced_though_the_record_of_that_is_gone(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    """Found by a random schedule."""
    held = holds(alice, lock)
    by_force(bob, held)
    first_tried_at_ms = world.now_ms
    world.advance(LEASE_MS + 5_000)
    by_force(bob, holds(bob, lock))
    again = Releasing(tried_before=True)
    with pytest.raises(LockLost, match="another client has freed it"):
        alice.table.contend(held.claim, lambda me: me.release(held.grant, first_tried_at_ms, releasing=again))


def test_a_clean_up_has_freed_a_suspended_lock_though_others_have_held_it_while_its_reply_was_lost(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    held = holds(alice, lock)
    alice.table.contend(held.claim, lambda me: me.suspend(held.token, world.now_ms + 10 * LEASE_MS))
    item = item_of(alice, lock)
    (holder,) = item.holders

    def others_come_while_the_reply_is_lost(operation: str) -> None:
        holds(bob, lock).releases()
        reply_lost(operation)

    alice.faults = [others_come_while_the_reply_is_lost]
    assert alice.table.contend(held.claim, lambda me: me.free_suspended(hold_of(lock, holder, item)))


def test_a_retried_release_succeeds_on_an_item_that_an_earlier_version_has_created(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    holds(alice, lock).releases()
    alice.client.update_item(
        TableName=world.engine.table_name, Key=lock_key(lock), UpdateExpression="REMOVE tokensAfter"
    )
    world.advance(1_000)
    held = holds(alice, lock)
    held.releases()
    holds(bob, lock).releases()
    again = Releasing(tried_before=True)
    assert not alice.table.contend(held.claim, lambda me: me.release(held.grant, releasing=again)).lease_was_over


@pytest.mark.parametrize("others_have_held_it", [False, True])
def test_a_release_that_is_repeated_succeeds_though_others_have_held_the_lock_since(
    alice: Process, bob: Process, lock: LockName, others_have_held_it: bool
) -> None:
    held = holds(alice, lock)
    held.releases()
    if others_have_held_it:
        holds(bob, lock).releases()
    assert not held.releases().lease_was_over


@BY_AN_OPERATOR
def test_an_operator_whose_reply_was_lost_has_freed_the_lock(
    alice: Process, bob: Process, lock: LockName, freed: Freed
) -> None:
    held = holds(alice, lock)
    bob.faults = [passes, reply_lost]
    freed(bob, held)
    assert isinstance(alice.take(alice.claim(lock), record_wait_ms=0), Grant)


@BY_AN_OPERATOR
def test_an_operator_has_freed_the_lock_though_others_have_held_it_since_and_the_lease_has_ended(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName, freed: Freed
) -> None:
    """Found by a random schedule."""
    held = holds(alice, lock)
    world.advance(LEASE_MS - 3_000)

    def others_come_while_the_reply_is_lost(operation: str) -> None:
        world.advance(5_000)
        holds(carol, lock).releases()
        reply_lost(operation)

    bob.faults = [passes, others_come_while_the_reply_is_lost]
    freed(bob, held)
    assert item_of(carol, lock).holders == ()


@BY_AN_OPERATOR
def test_the_second_of_two_operators_learns_that_the_lock_has_no_such_holder(
    alice: Process, bob: Process, lock: LockName, freed: Freed
) -> None:
    held = holds(alice, lock)
    freed(bob, held)
    with pytest.raises(LockLost, match="no holder of the lock"):
        freed(bob, held)


def test_records_of_forced_releases_are_removed_after_their_leases(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    for _ in range(3):
        by_force(bob, holds(alice, lock))
    assert len(item_of(bob, lock).forced) == 3
    world.advance(LEASE_MS + 5_000)
    by_force(bob, holds(alice, lock))
    assert len(item_of(bob, lock).forced) == 1
