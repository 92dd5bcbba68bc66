"""Operators' commands on locks that others hold: remove waiters, unset limits; late copies do no harm."""

from typing import Any

import pytest
from botocore.exceptions import ClientError
from kit.newer import NEWER, raise_the_format
from kit.world import LEASE_MS, Process, Stepper, World, reply_lost
from locks.waiting_line import MARGIN_MS, Held, holds, item_of, passes, waits

from ticketlock import InvalidLockRequest, LockLost, LockName, PermitsMismatch, Released
from ticketlock.locks import LockSummary, reads
from ticketlock.locks._items import Decided, ForcedRelease, LimitSet
from ticketlock.locks._operators import release_of
from ticketlock.locks._outcomes import Decision
from ticketlock.locks._protocol import Contender

SETTLED_MS = 10_000
"""After this no late copy of a row is expected."""


def tickets(process: Process, lock: LockName) -> list[int]:
    return [row.ticket for row in process.table.inspect(lock).rows]


@NEWER
def test_a_list_of_busy_locks_has_those_with_holders_or_waiters_and_what_a_newer_version_counts_otherwise(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    free, held, waited, newer = (LockName(f"{lock.entity}/{name}") for name in ("free", "held", "waited", "newer"))
    holds(alice, free).releases()
    holds(alice, held)
    alice.table.set_limit(waited, 0)
    waits(bob, waited)
    holds(alice, newer).releases()
    raise_the_format(alice.client, world.engine.table_name, newer, "waiting")
    found, after = [], None
    while True:
        page = alice.table.perform(reads.list_page(after, busy=True, limit=2))
        found += [LockSummary.parse(item).lock for item in page.items if item is not None]
        if (after := page.last_key) is None:
            break
    ours = {each for each in found if each.entity.startswith(f"{lock.entity}/")}
    assert ours == {held, waited, newer}


@pytest.mark.parametrize("is_lost", [False, True], ids=["the reply comes", "the reply is lost"])
def test_a_waiter_is_removed_from_queue_and_count_in_one_request_which_counts_it_off_once(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName, is_lost: bool
) -> None:
    holds(alice, lock)
    waiter, behind = waits(bob, lock), waits(carol, lock)
    world.advance(SETTLED_MS)
    operator = world.process()
    operator.faults = [passes, reply_lost] if is_lost else []
    sent = len(operator.sent)
    removed = operator.table.remove_waiter(lock, waiter.ticket)
    assert removed is not None
    assert removed.owner == waiter.claim.owner
    if not is_lost:
        assert [each.operation for each in operator.sent[sent:]] == ["Query", "TransactWriteItems"]
    assert (tickets(alice, lock), item_of(alice, lock).waiting) == ([behind.ticket], 1)


def test_a_waiter_that_is_removed_and_still_runs_joins_again_at_the_end(
    world: World, alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    held, removed, behind = holds(alice, lock), waits(bob, lock), waits(carol, lock)
    world.advance(SETTLED_MS)
    alice.table.remove_waiter(lock, removed.ticket)
    found = removed.still_waits()
    assert (found.place_lost, found.place.ticket > behind.ticket) == (True, True)
    held.releases()
    removed.still_waits()
    behind.enters()


def test_a_crashed_waiter_that_is_removed_stays_counted_as_after_a_sweep(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    """The row may be a late copy of one not counted any more: too high a count costs a poll, too low a turn."""
    holds(alice, lock, lease_ms=10 * LEASE_MS)
    crashed = waits(bob, lock)
    world.advance(3 * LEASE_MS)
    assert alice.table.remove_waiter(lock, crashed.ticket).owner == crashed.claim.owner
    assert (tickets(alice, lock), item_of(alice, lock).waiting) == ([], 1)


def test_a_waiter_that_is_removed_just_after_it_joined_stays_counted_since_a_copy_of_its_row_may_still_arrive(
    alice: Process, bob: Process, lock: LockName
) -> None:
    holds(alice, lock)
    waiter = waits(bob, lock)
    late = bob.sent[-1].parameters
    alice.table.remove_waiter(lock, waiter.ticket)
    bob.client.put_item(**late)
    assert (tickets(alice, lock), item_of(alice, lock).waiting) == ([waiter.ticket], 1)


def test_removing_an_unknown_ticket_changes_nothing(alice: Process, bob: Process, lock: LockName) -> None:
    holds(alice, lock)
    waiter = waits(bob, lock)
    with pytest.raises(LockLost, match=rf"^no one waits for the lock on .* with ticket {waiter.ticket + 1}$"):
        alice.table.remove_waiter(lock, waiter.ticket + 1)
    assert (tickets(alice, lock), item_of(alice, lock).waiting) == ([waiter.ticket], 1)


def test_a_waiter_that_was_granted_the_lock_before_its_removal_keeps_it(
    alice: Process, bob: Process, lock: LockName
) -> None:
    held, waiter = holds(alice, lock), waits(bob, lock)
    held.releases()
    waiter.enters()
    with pytest.raises(LockLost, match="no one waits"):
        alice.table.remove_waiter(lock, waiter.ticket)
    assert [holder.owner for holder in item_of(alice, lock).holders] == [waiter.claim.owner]


def test_when_a_limit_is_unset_the_number_that_the_users_asked_for_before_counts_again(
    alice: Process, bob: Process, lock: LockName
) -> None:
    holds(alice, lock, permits=2).releases()
    bob.table.set_limit(lock, 0)
    bob.table.set_limit(lock, 7)
    bob.table.unset_limit(lock)
    assert (item_of(alice, lock).permits, item_of(alice, lock).permits_are_set) == (2, False)
    with pytest.raises(PermitsMismatch):
        bob.take(bob.claim(lock, permits=3))
    bob.granted(bob.claim(lock, permits=2))


def test_a_limit_is_unset_to_a_given_number(alice: Process, bob: Process, lock: LockName) -> None:
    holds(alice, lock, permits=2).releases()
    bob.table.set_limit(lock, 1)
    bob.table.unset_limit(lock, 3)
    alice.granted(alice.claim(lock, permits=3))


def test_unsetting_the_limit_of_a_lock_without_earlier_users_needs_a_given_number(
    alice: Process, lock: LockName
) -> None:
    alice.table.set_limit(lock, 4)
    with pytest.raises(InvalidLockRequest, match=r"^permits is None; allowed: the number that its users ask for"):
        alice.table.unset_limit(lock)
    assert item_of(alice, lock).permits_are_set
    alice.table.unset_limit(lock, 1)
    holds(alice, lock)


def test_unsetting_a_limit_that_is_not_set_writes_nothing(alice: Process, lock: LockName) -> None:
    assert alice.operations(lambda: alice.table.unset_limit(lock)) == ["Query"]
    holds(alice, lock)
    assert alice.operations(lambda: alice.table.unset_limit(lock)) == ["Query"]


def test_when_a_limit_is_unset_time_to_live_counts_again(world: World, alice: Process, lock: LockName) -> None:
    alice.table.set_limit(lock, 2)
    alice.table.unset_limit(lock, 1)
    found = alice.client.scan(TableName=world.engine.table_name)["Items"]
    (expires_at_s,) = [int(item["expiresAt"]["N"]) for item in found if item["pk"]["S"] == lock.entity]
    assert 28 * 86_400 <= expires_at_s - world.now_ms // 1_000 < 29 * 86_400


@pytest.mark.parametrize("before", [None, 2], ids=["the first limit", "a limit after another was unset"])
@pytest.mark.parametrize("after", [None, 3], ids=["unset since", "another set since"])
def test_a_late_copy_of_a_limit_does_not_set_it_again(
    alice: Process, bob: Process, lock: LockName, before: int | None, after: int | None
) -> None:
    holds(alice, lock)
    if before is not None:
        alice.table.set_limit(lock, before)
        alice.table.unset_limit(lock)
    bob.table.set_limit(lock, 0)
    late = bob.sent[-1].parameters
    if after is None:
        alice.table.unset_limit(lock)
    else:
        alice.table.set_limit(lock, after)
    item = item_of(alice, lock)
    assert (item.permits, item.permits_are_set) == (after or 1, after is not None)
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        bob.client.update_item(**late)
    assert item_of(alice, lock) == item


def test_a_late_copy_of_an_unset_removes_no_later_limit(alice: Process, bob: Process, lock: LockName) -> None:
    holds(alice, lock)
    alice.table.set_limit(lock, 2)
    bob.operations(lambda: bob.table.unset_limit(lock))
    late = bob.sent[-1].parameters
    for permits in (3, 4):
        alice.table.set_limit(lock, permits)
        with pytest.raises(ClientError, match="ConditionalCheckFailed"):
            bob.client.update_item(**late)
        alice.table.unset_limit(lock)
    assert item_of(alice, lock).permits == 1


def test_a_limit_whose_unsetting_gets_no_reply_is_unset(alice: Process, bob: Process, lock: LockName) -> None:
    holds(alice, lock)
    alice.table.set_limit(lock, 0)
    bob.faults = [passes, reply_lost]
    item = bob.table.unset_limit(lock).item
    assert item is not None
    assert (item.permits, item.permits_are_set) == (1, False)


# Who decided, when and why, is kept.


def forced(operator: Process, held: Held, decision: Decision) -> Stepper[Released]:
    return Stepper(
        operator,
        lambda now: release_of(
            held.claim.lock,
            lambda each: each.fencing_token == held.token,
            now,
            Contender,
            by="this call",
            by_force=decision,
        ),
    )


REASON = {"by": "ann@laptop", "why": "INC-7: two builds deploy at once"}


def test_a_lock_says_who_set_its_limit_when_and_why_and_after_it_was_unset_who_did_that(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    holds(alice, lock).releases()
    alice.table.set_limit(lock, 0, **REASON)
    set_at_ms = world.now_ms
    world.advance(3_600_000)
    bob.table.unset_limit(lock, by="bob", why="mended")
    item = item_of(alice, lock)
    assert item.limit_set is not None
    assert item.limit_unset is not None
    assert item.limit_set == LimitSet(**REASON, at_ms=item.limit_set.at_ms, permits=0)
    assert item.limit_unset == Decided("bob", "mended", item.limit_unset.at_ms)
    assert abs(item.limit_set.at_ms - set_at_ms) <= MARGIN_MS
    assert abs(item.limit_unset.at_ms - world.now_ms) <= MARGIN_MS
    bob.table.set_limit(lock, 3, by="bob")
    item = item_of(alice, lock)
    assert item.limit_set is not None
    assert (item.limit_set.by, item.limit_set.why, item.limit_set.permits, item.limit_unset) == ("bob", "", 3, None)


def test_a_lock_says_who_last_took_it_by_force_from_whom_when_and_why(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    first, second = holds(alice, lock, permits=2), holds(bob, lock, permits=2)
    alice.table.force_release(lock, first.token, by="bob")
    alice.table.force_release(lock, second.token, **REASON)
    holds(bob, lock, permits=2).releases()
    taken = item_of(alice, lock).last_forced
    assert taken is not None
    assert taken == ForcedRelease(**REASON, at_ms=taken.at_ms, owner=second.claim.owner, fencing_token=second.token)
    assert abs(taken.at_ms - world.now_ms) <= MARGIN_MS


@pytest.mark.parametrize("is_lost", [False, True], ids=["the reply comes", "the reply is lost"])
def test_of_two_operators_that_take_the_lock_from_one_holder_the_first_ones_reason_is_kept(
    alice: Process, bob: Process, carol: Process, lock: LockName, is_lost: bool
) -> None:
    held = holds(alice, lock)
    late = forced(bob, held, Decision("bob", "too late"))
    late.step()
    carol.faults = [passes, reply_lost] if is_lost else []
    carol.table.force_release(lock, held.token, **REASON)
    after = item_of(alice, lock)
    with pytest.raises(LockLost):
        late.to_the_end()
    assert item_of(alice, lock) == after
    assert after.last_forced is not None
    assert after.last_forced.by == REASON["by"]


@pytest.mark.parametrize("field", ["by", "why"])
@pytest.mark.parametrize("value", ["x" * 257, 7, "\ud800"])
def test_a_reason_out_of_its_bounds_sends_nothing(alice: Process, lock: LockName, field: str, value: Any) -> None:
    held = holds(alice, lock)
    table, said = alice.table, {field: value}
    for decide in (
        lambda: table.set_limit(lock, 0, **said),
        lambda: table.unset_limit(lock, **said),
        lambda: table.force_release(lock, held.token, **said),
    ):
        sent = len(alice.sent)
        with pytest.raises(InvalidLockRequest, match=f"^{field} is .*; allowed: text of 1 to 256 bytes"):
            decide()
        assert len(alice.sent) == sent
