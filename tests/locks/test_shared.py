"""Holders that share a lock, writers that do not; and the number of permits, of users, operators and deployments."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from kit.world import LEASE_MS, Process, World
from locks.waiting_line import Held, as_its_owner, by_force, holds, item_of, waits

from ticketlock import (
    Claim,
    Grant,
    InvalidLockRequest,
    LockLost,
    LockName,
    PermitsMismatch,
    RecordWaitExceeded,
)

pytestmark = pytest.mark.shows("exclusion", "order")

IN_THE_YEAR_9000_S = 221_845_392_000


def test_readers_hold_a_lock_together(world: World, lock: LockName) -> None:
    readers = [holds(world.process(), lock, shared=True) for _ in range(4)]
    tokens = [reader.token for reader in readers]
    assert tokens == sorted(set(tokens))
    assert [holder.shared for holder in item_of(readers[0].process, lock).holders] == [True] * 4


def test_a_writer_waits_for_every_reader(alice: Process, bob: Process, carol: Process, lock: LockName) -> None:
    readers = [holds(process, lock, shared=True) for process in (alice, bob)]
    writer = waits(carol, lock)
    for reader in readers:
        writer.still_waits()
        reader.releases()
    writer.enters()


def test_a_reader_does_not_overtake_a_waiting_writer(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    first, writer, late = holds(alice, lock, shared=True), waits(bob, lock), waits(carol, lock, shared=True)
    late.still_waits()
    first.releases()
    late.still_waits()
    writer.enters().releases()
    late.enters()


@pytest.mark.parametrize("count", [5, 12], ids=["on one page", "on several pages"])
def test_readers_in_a_row_are_one_turn_and_hold_together_in_any_order_of_polls(
    world: World, alice: Process, lock: LockName, count: int
) -> None:
    held = holds(alice, lock)
    readers = [waits(world.process(), lock, shared=True) for _ in range(count)]
    writer = waits(world.process(), lock)
    seen = readers[-1].still_waits()
    assert (seen.ahead, seen.turns) == (count - 1, 0)
    held.releases()
    writer.still_waits()
    for reader in reversed(readers):
        reader.enters()
    writer.still_waits()


def test_an_expired_writer_is_removed_by_the_reader(world: World, alice: Process, bob: Process, lock: LockName) -> None:
    holds(alice, lock, lease_ms=10_000)
    world.advance(20_000)
    assert bob.granted(bob.claim(lock, shared=True)).took_over == 1
    assert alice.granted(alice.claim(lock, shared=True)).took_over == 0


def test_a_reader_that_comes_while_the_last_waiting_writer_is_granted_waits_for_it(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    held, writer = holds(alice, lock), waits(carol, lock)
    held.releases()
    reading = bob.steps(bob.claim(lock, shared=True), lambda me: me.take_ticket(0))
    reading.step()  # refused: one waits
    writer.enters()
    with pytest.raises(RecordWaitExceeded):
        reading.to_the_end()


def test_a_release_that_differs_from_its_claim_in_sharing_is_refused(alice: Process, lock: LockName) -> None:
    held = holds(alice, lock, shared=True)
    with pytest.raises(InvalidLockRequest, match="shared"):
        alice.table.release(alice.claim(lock, held.claim.owner), held.grant)
    held.releases()


def test_a_shared_claim_has_one_permit(alice: Process, lock: LockName) -> None:
    with pytest.raises(InvalidLockRequest, match=r"^permits is 2"):
        alice.claim(lock, permits=2, shared=True)


@pytest.mark.parametrize("shared", [1, "", None], ids=repr)
def test_a_claim_shares_the_lock_or_does_not(shared: Any) -> None:
    with pytest.raises(InvalidLockRequest, match=r"^shared is .*; allowed: true or false"):
        Claim(LockName("order-42"), "reader", 10_000, shared=shared)


def test_a_higher_limit_lets_more_in_at_once_without_their_asking(world: World, lock: LockName) -> None:
    holds(world.process(), lock)
    waiters = [waits(world.process(), lock) for _ in range(3)]
    world.process().table.set_limit(lock, 3)
    assert [isinstance(waiter.polls(), Grant) for waiter in waiters] == [True, True, False]


def test_a_lower_limit_keeps_the_holders_and_stops_further_grants(world: World, lock: LockName) -> None:
    held = [holds(world.process(), lock, permits=3) for _ in range(3)]
    world.process().table.set_limit(lock, 1)
    late = waits(world.process(), lock, permits=3)
    for holder in held:
        token = holder.token
        assert holder.renews().fencing_token == token
        late.still_waits()
        holder.releases()
    late.enters()


def test_a_limit_of_zero_closes_the_lock_to_all(alice: Process, bob: Process, lock: LockName) -> None:
    alice.table.set_limit(lock, 0)
    waits(bob, lock)
    waits(alice, lock, shared=True)


def test_time_to_live_does_not_delete_a_limit(world: World, alice: Process, lock: LockName) -> None:
    alice.table.set_limit(lock, 2)
    holds(alice, lock).releases()
    found = alice.client.scan(TableName=world.engine.table_name)["Items"]
    mine = [item for item in found if item["pk"]["S"] == lock.entity]
    assert [int(item["expiresAt"]["N"]) for item in mine] == [IN_THE_YEAR_9000_S]


def test_an_invalid_limit_is_refused(alice: Process, lock: LockName) -> None:
    with pytest.raises(InvalidLockRequest, match=r"^permits is 101"):
        alice.table.set_limit(lock, 101)


def test_data_can_be_changed_and_removed_while_the_lock_is_held(alice: Process, lock: LockName) -> None:
    held = holds(alice, lock, data="first")
    for data in ("second", None):
        alice.table.set_data(held.claim, held.token, data)
        assert item_of(alice, lock).holders[0].data == data


def as_the_holder(_: Process, held: Held) -> None:
    held.releases()


@pytest.mark.parametrize(
    ("released", "kept"), [(as_the_holder, None), (as_its_owner, None), (by_force, "checkpoint 7")]
)
def test_data_that_a_holder_leaves_reaches_the_next_holder_only_unless_that_one_was_released_by_force(
    alice: Process, bob: Process, lock: LockName, released: Callable[[Process, Held], None], kept: str | None
) -> None:
    holds(alice, lock).releases(data_left="checkpoint 7")
    claim = bob.claim(lock)
    grant = bob.granted(claim)
    assert grant.data_left == "checkpoint 7"
    released(alice, Held(bob, claim, grant))
    assert alice.granted(alice.claim(lock)).data_left == kept


def test_a_lock_is_taken_away_from_the_holder_with_that_token_only(
    alice: Process, bob: Process, lock: LockName
) -> None:
    held = holds(alice, lock)
    with pytest.raises(LockLost):
        bob.table.force_release(lock, held.token - 1)
    bob.table.force_release(lock, held.token)
    with pytest.raises(LockLost):
        held.renews()
    holds(bob, lock)


# A number of permits that carries when its execution started: the later one is in force, on every engine.


OLD, NEW = 1, 2


def asks(process: Process, lock: LockName, permits: int, since_ms: int | None, *, shared: bool = False) -> Claim:
    """The claim of an execution that started then; or of a caller with a number of its own."""
    claim = process.claim(lock, permits=permits, shared=shared)
    return claim if since_ms is None else replace(claim, permits_since_ms=since_ms)


def uses(process: Process, claim: Claim) -> None:
    """The process takes the lock and releases it."""
    process.table.release(claim, process.granted(claim))


def number(process: Process, lock: LockName) -> tuple[int, int | None]:
    """The number in force, and when its execution started."""
    return item_of(process, lock).permits, item_of(process, lock).permits_since_ms


def test_a_later_number_takes_a_free_lock_with_one_request(alice: Process, lock: LockName) -> None:
    uses(alice, asks(alice, lock, 1, OLD))
    later = asks(alice, lock, 3, NEW)
    assert alice.operations(lambda: alice.granted(later)) == ["UpdateItem"]
    assert number(alice, lock) == (3, NEW)


ENTERS, WAITS, MISMATCH = "enters", "waits", "is refused"


@pytest.mark.parametrize(
    ("held", "asked", "outcome", "then"),
    [
        pytest.param([(1, OLD)], (2, NEW), ENTERS, (2, NEW), id="a raised number lets the newcomer in"),
        pytest.param([(1, OLD), (2, NEW)], (2, NEW + 1), WAITS, (2, NEW + 1), id="the same number does not"),
        pytest.param([(1, OLD), (2, NEW)], (1, NEW + 1), WAITS, (1, NEW + 1), id="a lowered one does not"),
        pytest.param([(2, NEW)], (1, OLD), ENTERS, (2, NEW), id="an earlier one is judged by the later: raised"),
        pytest.param([(1, NEW)], (2, OLD), WAITS, (1, NEW), id="an earlier one is judged by the later: lowered"),
        pytest.param([(2, OLD)], (2, None), ENTERS, (2, OLD), id="the callers own is the lock's"),
        pytest.param([(2, OLD)], (1, None), MISMATCH, (2, OLD), id="the callers own is another"),
        pytest.param([(2, None)], (1, NEW), MISMATCH, (2, None), id="a deployment's is another than the users'"),
        pytest.param([(2, None)], (2, NEW), ENTERS, (2, NEW), id="a deployment's is that of the users"),
    ],
)
def test_the_later_number_is_in_force_unless_users_name_one_of_their_own(
    world: World, bob: Process, lock: LockName, held: Any, asked: Any, outcome: str, then: tuple[int, int | None]
) -> None:
    for each in held:
        holder = world.process()
        holder.granted(asks(holder, lock, *each))
    before, claim = number(bob, lock), asks(bob, lock, *asked)
    if outcome == ENTERS:
        bob.granted(claim)
    elif outcome == MISMATCH:
        with pytest.raises(PermitsMismatch):
            bob.take(claim)
    else:
        with pytest.raises(RecordWaitExceeded):
            bob.take(claim, record_wait_ms=0)
        assert number(bob, lock) == before
        bob.queued(claim)
    assert number(bob, lock) == then


def test_a_late_copy_of_a_request_with_an_earlier_number_changes_nothing(
    alice: Process, bob: Process, lock: LockName
) -> None:
    claim = asks(alice, lock, 1, OLD)
    grant = alice.granted(claim)
    late = alice.sent[-1].parameters
    alice.table.release(claim, grant)
    uses(bob, asks(bob, lock, 2, NEW))
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        bob.client.update_item(**late)
    assert number(bob, lock) == (2, NEW)


def test_an_expired_holder_is_removed_by_a_grant_with_a_later_number(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    alice.granted(asks(alice, lock, 2, OLD))
    world.advance(2 * LEASE_MS)
    assert bob.granted(asks(bob, lock, 1, NEW)).took_over == 1
    assert number(bob, lock) == (1, NEW)


def test_beneath_a_limit_the_latest_number_waits_for_its_end(alice: Process, bob: Process, lock: LockName) -> None:
    alice.granted(asks(alice, lock, 1, OLD))
    alice.table.set_limit(lock, 2)
    bob.granted(asks(bob, lock, 3, NEW))
    assert number(alice, lock) == (2, NEW)
    alice.table.unset_limit(lock, 5)
    assert number(alice, lock) == (3, NEW)


def test_a_lock_that_does_not_say_whose_number_it_has_follows_once_an_operator_has_set_the_new_one(
    alice: Process, bob: Process, lock: LockName
) -> None:
    # As an earlier version leaves the item.
    uses(alice, alice.claim(lock, permits=1))
    alice.table.set_limit(lock, 3)
    alice.table.unset_limit(lock, 3)
    bob.granted(asks(bob, lock, 3, OLD))
    alice.granted(asks(alice, lock, 2, NEW))
    assert number(bob, lock) == (2, NEW)


def test_a_reader_accepts_any_deployments_number_and_changes_none(alice: Process, bob: Process, lock: LockName) -> None:
    uses(alice, asks(alice, lock, 3, NEW))
    bob.granted(asks(bob, lock, 1, 0, shared=True))
    assert number(alice, lock) == (3, NEW)
