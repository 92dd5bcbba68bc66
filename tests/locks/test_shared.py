"""Holders that share a lock, writers that do not; and the number of permits, of users, operators and deployments."""

from typing import Any

import pytest
from botocore.exceptions import ClientError
from kit.world import LEASE_MS, Process, World
from locks.waiting_line import item_of

from ticketlock import (
    Claim,
    Grant,
    InvalidLockRequest,
    LockLost,
    LockName,
    PermitsMismatch,
    Position,
    RecordWaitExceeded,
)

pytestmark = pytest.mark.shows("exclusion", "order")


def sharing(process: Process, lock: LockName) -> Claim:
    return process.claim(lock, shared=True)


def test_readers_hold_a_lock_together(world: World, lock: LockName) -> None:
    readers = [world.process() for _ in range(4)]
    tokens = [reader.granted(sharing(reader, lock)).fencing_token for reader in readers]
    assert tokens == sorted(set(tokens))
    assert [holder.shared for holder in item_of(readers[0], lock).holders] == [True] * 4


def test_a_writer_waits_for_every_reader(alice: Process, bob: Process, carol: Process, lock: LockName) -> None:
    reads = [(reader, claim := sharing(reader, lock), reader.granted(claim)) for reader in (alice, bob)]
    writes = carol.claim(lock)
    place = carol.queued(writes)
    for reader, claim, grant in reads:
        assert isinstance(carol.poll(writes, place), Position)
        reader.table.release(claim, grant)
    assert isinstance(carol.poll(writes, place), Grant)


def test_a_reader_does_not_overtake_a_waiting_writer(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    first = sharing(alice, lock)
    grant = alice.granted(first)
    writes = bob.claim(lock)
    writer = bob.queued(writes)
    late = sharing(carol, lock)
    reader = carol.queued(late)
    assert isinstance(carol.poll(late, reader), Position)
    alice.table.release(first, grant)
    assert isinstance(carol.poll(late, reader), Position)
    written = bob.poll(writes, writer)
    assert isinstance(written, Grant)
    bob.table.release(writes, written)
    assert isinstance(carol.poll(late, reader), Grant)


def test_readers_in_a_row_hold_together_in_any_order_of_polls(world: World, alice: Process, lock: LockName) -> None:
    writes = alice.claim(lock)
    grant = alice.granted(writes)
    readers = [(reader := world.process(), claim := sharing(reader, lock), reader.queued(claim)) for _ in range(5)]
    last = world.process()
    writes_again = last.claim(lock)
    place = last.queued(writes_again)
    alice.table.release(writes, grant)
    assert isinstance(last.poll(writes_again, place), Position)
    granted = [reader.poll(claim, where) for reader, claim, where in reversed(readers)]
    assert all(isinstance(each, Grant) for each in granted)
    assert isinstance(last.poll(writes_again, place), Position)


def test_a_run_of_readers_longer_than_a_page_is_read_to_its_end(world: World, alice: Process, lock: LockName) -> None:
    writes = alice.claim(lock)
    grant = alice.granted(writes)
    bob = world.process()
    claims = [sharing(bob, lock) for _ in range(12)]
    places = [bob.queued(claim) for claim in claims]
    alice.table.release(writes, grant)
    assert isinstance(bob.poll(claims[-1], places[-1]), Grant)


def test_how_many_turns_are_ahead_counts_readers_in_a_row_once(world: World, alice: Process, lock: LockName) -> None:
    writes = alice.claim(lock)
    alice.granted(writes)
    line = [(reader := world.process(), claim := sharing(reader, lock), reader.queued(claim)) for _ in range(3)]
    reader, claim, place = line[-1]
    seen = reader.poll(claim, place)
    assert isinstance(seen, Position)
    assert (seen.ahead, seen.turns) == (2, 0)


def test_the_expired_readers_are_removed_by_the_writer(world: World, lock: LockName) -> None:
    for _ in range(3):
        world.process().granted(Claim(lock, f"reader-{_}", 10_000, shared=True))
    world.advance(20_000)
    writer = world.process()
    grant = writer.granted(writer.claim(lock))
    assert grant.took_over == 3
    assert [holder.owner for holder in item_of(writer, lock).holders] == [grant.owner]


def test_an_expired_writer_is_removed_by_the_reader(world: World, alice: Process, bob: Process, lock: LockName) -> None:
    alice.granted(alice.claim(lock, lease_ms=10_000))
    world.advance(20_000)
    assert bob.granted(sharing(bob, lock)).took_over == 1
    assert world.process().granted(sharing(alice, lock)).took_over == 0


def test_a_reader_that_comes_while_the_last_waiting_writer_is_granted_waits_for_it(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    held = alice.claim(lock)
    grant = alice.granted(held)
    writes = carol.claim(lock)
    place = carol.queued(writes)
    alice.table.release(held, grant)
    reading = bob.steps(sharing(bob, lock), lambda me: me.take_ticket(0))
    reading.step()  # refused: one waits
    assert isinstance(carol.poll(writes, place), Grant)
    with pytest.raises(RecordWaitExceeded):
        reading.to_the_end()


def test_a_release_that_differs_from_its_claim_in_sharing_is_refused(alice: Process, lock: LockName) -> None:
    claim = sharing(alice, lock)
    grant = alice.granted(claim)
    with pytest.raises(InvalidLockRequest, match="shared"):
        alice.table.release(alice.claim(lock, claim.owner), grant)
    alice.table.release(claim, grant)


def test_a_shared_claim_has_one_permit(alice: Process, lock: LockName) -> None:
    with pytest.raises(InvalidLockRequest, match=r"^permits is 2"):
        alice.claim(lock, permits=2, shared=True)


def test_a_higher_limit_lets_more_in_at_once_without_their_asking(world: World, lock: LockName) -> None:
    processes = [world.process() for _ in range(4)]
    claims = [process.claim(lock) for process in processes]
    processes[0].granted(claims[0])
    places = [process.queued(claim) for process, claim in zip(processes[1:], claims[1:], strict=True)]
    world.process().table.set_limit(lock, 3)
    found = [
        process.poll(claim, place) for process, claim, place in zip(processes[1:], claims[1:], places, strict=True)
    ]
    assert [isinstance(each, Grant) for each in found] == [True, True, False]


def test_a_lower_limit_keeps_the_holders_and_stops_further_grants(world: World, lock: LockName) -> None:
    processes = [world.process() for _ in range(3)]
    claims = [process.claim(lock, permits=3) for process in processes]
    grants = [process.granted(claim) for process, claim in zip(processes, claims, strict=True)]
    world.process().table.set_limit(lock, 1)
    late = world.process()
    waits = late.claim(lock, permits=3)
    place = late.queued(waits)
    for process, claim, grant in zip(processes, claims, grants, strict=True):
        assert process.table.renew(claim, grant.fencing_token).fencing_token == grant.fencing_token
        assert isinstance(late.poll(waits, place), Position)
        process.table.release(claim, grant)
    assert isinstance(late.poll(waits, place), Grant)


def test_a_limit_of_zero_closes_the_lock_to_all(alice: Process, bob: Process, lock: LockName) -> None:
    alice.table.set_limit(lock, 0)
    assert isinstance(bob.take(bob.claim(lock)), Position)
    assert isinstance(alice.take(sharing(alice, lock)), Position)


def test_a_late_copy_of_a_limit_changes_nothing_once_another_was_set(
    alice: Process, bob: Process, lock: LockName
) -> None:
    alice.table.set_limit(lock, 2)
    bob.operations(lambda: bob.table.set_limit(lock, 0))
    late = bob.sent[-1].parameters
    alice.table.set_limit(lock, 3)
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        bob.client.update_item(**late)
    assert item_of(alice, lock).permits == 3


def test_time_to_live_does_not_delete_a_limit(world: World, alice: Process, lock: LockName) -> None:
    alice.table.set_limit(lock, 2)
    claim = alice.claim(lock)
    alice.table.release(claim, alice.granted(claim))
    found = alice.client.scan(TableName=world.engine.table_name)["Items"]
    mine = [item for item in found if item["pk"]["S"] == lock.entity]
    assert [int(item["expiresAt"]["N"]) for item in mine] == [221_845_392_000]


def test_an_invalid_limit_is_refused(alice: Process, lock: LockName) -> None:
    with pytest.raises(InvalidLockRequest, match=r"^permits is 101"):
        alice.table.set_limit(lock, 101)


def test_data_can_be_changed_and_removed_while_the_lock_is_held(alice: Process, lock: LockName) -> None:
    claim = alice.claim(lock, data="first")
    grant = alice.granted(claim)
    shown = []
    for data in ("second", None):
        alice.table.set_data(claim, grant.fencing_token, data)
        item = item_of(alice, lock)
        shown.append(item.holders[0].data)
    assert shown == ["second", None]


def test_data_that_a_holder_leaves_reaches_the_next_holder_only(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    claim = alice.claim(lock)
    alice.table.release(claim, alice.granted(claim), data_left="checkpoint 7")
    second = bob.claim(lock)
    grant = bob.granted(second)
    assert grant.data_left == "checkpoint 7"
    bob.table.release(second, grant)
    assert carol.granted(carol.claim(lock)).data_left is None


def test_data_is_removed_even_if_the_next_holder_is_released_by_its_owner_alone(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    claim = alice.claim(lock)
    alice.table.release(claim, alice.granted(claim), data_left="checkpoint 7")
    second = bob.claim(lock)
    assert bob.granted(second).data_left == "checkpoint 7"
    alice.table.release_as(lock, second.owner)
    assert carol.granted(carol.claim(lock)).data_left is None


def test_a_lock_is_taken_away_from_the_holder_with_that_token_only(
    alice: Process, bob: Process, lock: LockName
) -> None:
    claim = alice.claim(lock)
    grant = alice.granted(claim)
    with pytest.raises(LockLost):
        bob.table.force_release(lock, grant.fencing_token - 1)
    bob.table.force_release(lock, grant.fencing_token)
    with pytest.raises(LockLost):
        alice.table.renew(claim, grant.fencing_token)
    assert isinstance(bob.take(bob.claim(lock)), Grant)


def test_after_a_forced_release_data_of_the_holder_before_reaches_the_next_holder(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    claim = alice.claim(lock)
    alice.table.release(claim, alice.granted(claim), data_left="checkpoint 7")
    taken = bob.granted(bob.claim(lock))
    alice.table.force_release(lock, taken.fencing_token)
    assert carol.granted(carol.claim(lock)).data_left == "checkpoint 7"


@pytest.mark.parametrize("shared", [2, 1, 0, "no", "", None, []], ids=repr)
def test_a_claim_shares_the_lock_or_does_not(shared: Any) -> None:
    with pytest.raises(InvalidLockRequest, match=r"^shared is .*; allowed: true or false"):
        Claim(LockName("order-42"), "reader", 10_000, shared=shared)


# A number of permits that carries when its execution started: the later one is in force, on every engine.


OLD, NEW = 1, 2


def asks(process: Process, lock: LockName, permits: int, since_ms: int, *, shared: bool = False) -> Claim:
    """The claim of an execution that started then."""
    claim = process.claim(lock, permits=permits, shared=shared)
    return Claim(lock, claim.owner, LEASE_MS, permits=permits, shared=shared, permits_since_ms=since_ms)


def number(process: Process, lock: LockName) -> tuple[int, int | None]:
    """The number in force, and when its execution started."""
    return item_of(process, lock).permits, item_of(process, lock).permits_since_ms


def test_a_later_number_takes_a_free_lock_with_one_request(alice: Process, lock: LockName) -> None:
    alice.table.release(first := asks(alice, lock, 1, OLD), alice.granted(first))
    later = asks(alice, lock, 3, NEW)
    assert alice.operations(lambda: alice.granted(later)) == ["UpdateItem"]
    assert number(alice, lock) == (3, NEW)


def test_a_raised_number_lets_the_newcomer_in_beside_the_holder_and_a_lowered_one_does_not(
    alice: Process, bob: Process, carol: Process, lock: LockName
) -> None:
    alice.granted(asks(alice, lock, 1, OLD))
    bob.granted(asks(bob, lock, 2, NEW))
    with pytest.raises(RecordWaitExceeded):
        carol.take(asks(carol, lock, 2, NEW + 1), record_wait_ms=0)
    with pytest.raises(RecordWaitExceeded):
        carol.take(asks(carol, lock, 1, NEW + 1), record_wait_ms=0)
    assert number(alice, lock) == (2, NEW)


@pytest.mark.parametrize(("then", "now"), [(1, 2), (2, 1)], ids=["raised", "lowered"])
def test_an_earlier_number_is_judged_by_the_later_one(
    alice: Process, bob: Process, carol: Process, lock: LockName, then: int, now: int
) -> None:
    alice.granted(asks(alice, lock, now, NEW))
    late = asks(bob, lock, then, OLD)
    if now == 2:
        bob.granted(late)
    else:
        bob.queued(late)
    carol.queued(asks(carol, lock, then, OLD))
    assert number(alice, lock) == (now, NEW)


def test_a_late_copy_of_a_request_with_an_earlier_number_changes_nothing(
    alice: Process, bob: Process, lock: LockName
) -> None:
    claim = asks(alice, lock, 1, OLD)
    grant = None

    def takes() -> None:
        nonlocal grant
        grant = alice.granted(claim)

    alice.operations(takes)
    late = alice.sent[-1].parameters
    assert isinstance(grant, Grant)
    alice.table.release(claim, grant)
    bob.table.release(later := asks(bob, lock, 2, NEW), bob.granted(later))
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


def test_a_number_of_the_callers_own_must_be_the_locks(alice: Process, bob: Process, lock: LockName) -> None:
    alice.granted(asks(alice, lock, 2, OLD))
    bob.granted(bob.claim(lock, permits=2))
    with pytest.raises(PermitsMismatch):
        bob.take(bob.claim(lock, permits=1))


def test_a_lock_whose_users_name_another_number_does_not_follow_a_deployment(
    alice: Process, bob: Process, lock: LockName
) -> None:
    alice.granted(alice.claim(lock, permits=2))
    with pytest.raises(PermitsMismatch):
        bob.take(asks(bob, lock, 1, NEW))
    bob.granted(asks(bob, lock, 2, NEW))
    assert number(bob, lock) == (2, NEW)


def test_a_lock_that_does_not_say_whose_number_it_has_follows_once_an_operator_has_set_the_new_one(
    alice: Process, bob: Process, lock: LockName
) -> None:
    # As an earlier version leaves the item.
    alice.table.release(first := alice.claim(lock, permits=1), alice.granted(first))
    alice.table.set_limit(lock, 3)
    alice.table.unset_limit(lock, 3)
    bob.granted(asks(bob, lock, 3, OLD))
    alice.granted(asks(alice, lock, 2, NEW))
    assert number(bob, lock) == (2, NEW)


def test_a_reader_accepts_any_deployments_number_and_changes_none(alice: Process, bob: Process, lock: LockName) -> None:
    alice.table.release(writer := asks(alice, lock, 3, NEW), alice.granted(writer))
    bob.granted(asks(bob, lock, 1, 0, shared=True))
    assert number(alice, lock) == (3, NEW)
