"""Holders that share a lock, writers that do not, and an operator who sets the limit."""

from typing import Any

import pytest
from botocore.exceptions import ClientError
from kit.world import Process, World

from ticketlock import Claim, Grant, InvalidLockRequest, LockLost, LockName, Position, RecordWaitExceeded

pytestmark = pytest.mark.shows("exclusion", "order")


def sharing(process: Process, lock: LockName) -> Claim:
    return process.claim(lock, shared=True)


def test_readers_hold_a_lock_together(world: World, lock: LockName) -> None:
    readers = [world.process() for _ in range(4)]
    tokens = [reader.granted(sharing(reader, lock)).fencing_token for reader in readers]
    assert tokens == sorted(set(tokens))
    item = readers[0].table.inspect(lock).item
    assert item is not None
    assert [holder.shared for holder in item.holders] == [True] * 4


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
    item = writer.table.inspect(lock).item
    assert item is not None
    assert [holder.owner for holder in item.holders] == [grant.owner]


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


class TestAnOperatorsLimit:
    def test_a_higher_one_lets_more_in_at_once_without_their_asking(self, world: World, lock: LockName) -> None:
        processes = [world.process() for _ in range(4)]
        claims = [process.claim(lock) for process in processes]
        processes[0].granted(claims[0])
        places = [process.queued(claim) for process, claim in zip(processes[1:], claims[1:], strict=True)]
        world.process().table.set_limit(lock, 3)
        found = [
            process.poll(claim, place) for process, claim, place in zip(processes[1:], claims[1:], places, strict=True)
        ]
        assert [isinstance(each, Grant) for each in found] == [True, True, False]

    def test_a_lower_one_keeps_the_holders_and_stops_further_grants(self, world: World, lock: LockName) -> None:
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

    def test_zero_closes_the_lock_to_all(self, alice: Process, bob: Process, lock: LockName) -> None:
        alice.table.set_limit(lock, 0)
        assert isinstance(bob.take(bob.claim(lock)), Position)
        assert isinstance(alice.take(sharing(alice, lock)), Position)

    def test_a_late_copy_of_one_changes_nothing_once_another_was_set(
        self, alice: Process, bob: Process, lock: LockName
    ) -> None:
        alice.table.set_limit(lock, 2)
        bob.operations(lambda: bob.table.set_limit(lock, 0))
        late = bob.sent[-1].parameters
        alice.table.set_limit(lock, 3)
        with pytest.raises(ClientError, match="ConditionalCheckFailed"):
            bob.client.update_item(**late)
        item = alice.table.inspect(lock).item
        assert item is not None
        assert item.permits == 3

    def test_time_to_live_does_not_delete_it(self, world: World, alice: Process, lock: LockName) -> None:
        alice.table.set_limit(lock, 2)
        claim = alice.claim(lock)
        alice.table.release(claim, alice.granted(claim))
        found = alice.client.scan(TableName=world.engine.table_name)["Items"]
        mine = [item for item in found if item["pk"]["S"] == lock.entity]
        assert [int(item["expiresAt"]["N"]) for item in mine] == [221_845_392_000]

    def test_an_invalid_one_is_refused(self, alice: Process, lock: LockName) -> None:
        with pytest.raises(InvalidLockRequest, match=r"^permits is 101"):
            alice.table.set_limit(lock, 101)


class TestData:
    def test_it_can_be_changed_and_removed_while_the_lock_is_held(self, alice: Process, lock: LockName) -> None:
        claim = alice.claim(lock, data="first")
        grant = alice.granted(claim)
        shown = []
        for data in ("second", None):
            alice.table.set_data(claim, grant.fencing_token, data)
            item = alice.table.inspect(lock).item
            assert item is not None
            shown.append(item.holders[0].data)
        assert shown == ["second", None]

    def test_data_that_a_holder_leaves_reaches_the_next_holder_only(
        self, alice: Process, bob: Process, carol: Process, lock: LockName
    ) -> None:
        claim = alice.claim(lock)
        alice.table.release(claim, alice.granted(claim), data_left="checkpoint 7")
        second = bob.claim(lock)
        grant = bob.granted(second)
        assert grant.data_left == "checkpoint 7"
        bob.table.release(second, grant)
        assert carol.granted(carol.claim(lock)).data_left is None

    def test_it_is_removed_even_if_the_next_holder_is_released_by_its_owner_alone(
        self, alice: Process, bob: Process, carol: Process, lock: LockName
    ) -> None:
        claim = alice.claim(lock)
        alice.table.release(claim, alice.granted(claim), data_left="checkpoint 7")
        second = bob.claim(lock)
        assert bob.granted(second).data_left == "checkpoint 7"
        alice.table.release_as(lock, second.owner)
        assert carol.granted(carol.claim(lock)).data_left is None


class TestForce:
    def test_a_lock_is_taken_away_from_the_holder_with_that_token_only(
        self, alice: Process, bob: Process, lock: LockName
    ) -> None:
        claim = alice.claim(lock)
        grant = alice.granted(claim)
        with pytest.raises(LockLost):
            bob.table.force_release(lock, grant.fencing_token - 1)
        bob.table.force_release(lock, grant.fencing_token)
        with pytest.raises(LockLost):
            alice.table.renew(claim, grant.fencing_token)
        assert isinstance(bob.take(bob.claim(lock)), Grant)

    def test_data_of_the_holder_before_reaches_the_next_holder(
        self, alice: Process, bob: Process, carol: Process, lock: LockName
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
