"""What is not promised: a client that may write the table may do this to every lock in it (docs/threat-model.md)."""

from typing import Any

import pytest
from security.workflows import Table

from ticketlock import Claim, Grant, LockLost, LockName, LockTable, Position, TableError
from ticketlock.locks._items import holder_attribute, lock_key, row_key, token_attribute
from ticketlock.locks._outcomes import MAX_LEASE_MS

LEASE_MS = 60_000
LOCK = LockName("order-42")
VICTIM, INTRUDER = Claim(LOCK, "victim", LEASE_MS), Claim(LOCK, "intruder", LEASE_MS)


@pytest.fixture
def locks(table: Table) -> LockTable:
    """The lock table of a client that may write the table."""
    return table.over(table.memory.client)


def granted(locks: LockTable, claim: Claim) -> Grant:
    grant = locks.take_ticket(claim, None)
    assert isinstance(grant, Grant)
    return grant


def test_it_can_take_any_lock_and_keep_it_for_days_without_a_renewal(table: Table, locks: LockTable) -> None:
    granted(locks, Claim(LOCK, "intruder", MAX_LEASE_MS))
    table.clock.advance(MAX_LEASE_MS / 1_000 - 60)
    assert isinstance(locks.take_ticket(VICTIM, None), Position)


def test_it_can_keep_a_lock_for_ever_by_renewing_it(table: Table, locks: LockTable) -> None:
    grant = granted(locks, INTRUDER)
    place = locks.take_ticket(VICTIM, None)
    for _ in range(100):
        table.clock.advance(LEASE_MS / 2_000)
        locks.renew(INTRUDER, grant.fencing_token)
        assert isinstance(place, Position)
        place = locks.check_turn(VICTIM, place.place, None)
    assert isinstance(place, Position)


def test_it_can_free_the_lock_of_another_owner_which_learns_of_it_at_its_next_heartbeat(locks: LockTable) -> None:
    held = granted(locks, VICTIM)
    locks.force_release(LOCK, held.fencing_token)
    assert granted(locks, INTRUDER).fencing_token > held.fencing_token
    with pytest.raises(LockLost):
        locks.renew(VICTIM, held.fencing_token)


def test_it_can_free_a_lock_in_the_name_of_its_owner(locks: LockTable) -> None:
    granted(locks, VICTIM)
    state = locks.inspect(LOCK)
    assert state.item is not None
    locks.release_as(LOCK, state.item.holders[0].owner)
    granted(locks, INTRUDER)


def change(table: Table, expression: str, values: dict[str, Any], **more: Any) -> None:
    table.memory.update_item(
        TableName="locks",
        Key=lock_key(LOCK),
        UpdateExpression=expression,
        ExpressionAttributeValues=values,
        **more,
    )


def test_it_can_add_a_holder_that_never_had_a_grant(table: Table, locks: LockTable) -> None:
    locks.release(INTRUDER, granted(locks, INTRUDER))
    times = {"leaseUntilMs": "9999999999999", "leaseMs": "60000", "sinceMs": "0"}
    holder = {"owner": {"S": "victim"}, **{name: {"N": value} for name, value in times.items()}}
    change(
        table,
        "SET #holder = :holder, #token = fencingToken, held = :one",
        {":one": {"N": "1"}, ":holder": {"M": holder}},
        ExpressionAttributeNames={"#holder": holder_attribute("victim"), "#token": token_attribute("victim")},
    )
    state = locks.inspect(LOCK)
    assert state.item is not None
    assert [holder.owner for holder in state.item.holders] == ["victim"]
    assert isinstance(locks.take_ticket(Claim(LOCK, "third", LEASE_MS), None), Position)


def set_token(table: Table, token: int) -> None:
    change(table, "SET fencingToken = :token", {":token": {"N": str(token)}})


def test_it_can_move_the_fencing_token_back_or_to_its_maximum_so_that_nothing_is_granted(
    table: Table, locks: LockTable
) -> None:
    first = granted(locks, VICTIM)
    locks.release(VICTIM, first)
    set_token(table, 1)
    second = granted(locks, INTRUDER)
    assert second.fencing_token < first.fencing_token
    locks.release(INTRUDER, second)
    set_token(table, 10**38)
    with pytest.raises(TableError):
        locks.take_ticket(VICTIM, None)


def test_it_can_delete_a_queue_row_whose_owner_then_joins_at_the_end(table: Table, locks: LockTable) -> None:
    granted(locks, INTRUDER)
    place, behind = (locks.take_ticket(Claim(LOCK, owner, LEASE_MS), None) for owner in ("victim", "behind"))
    assert isinstance(place, Position)
    assert isinstance(behind, Position)
    table.memory.delete_item(TableName="locks", Key=row_key(LOCK, place.place.ticket))
    again = locks.check_turn(VICTIM, place.place, None)
    assert isinstance(again, Position)
    assert again.place_lost
    assert again.place.ticket > behind.place.ticket


def test_it_can_delete_a_lock_that_is_held_and_the_tokens_rise_all_the_same(table: Table, locks: LockTable) -> None:
    held = granted(locks, VICTIM)
    table.memory.delete_item(TableName="locks", Key=lock_key(LOCK))
    table.clock.advance(1)
    assert granted(locks, INTRUDER).fencing_token > held.fencing_token


def test_it_can_join_the_queue_any_number_of_times(locks: LockTable) -> None:
    granted(locks, INTRUDER)
    for n in range(200):
        locks.take_ticket(Claim(LOCK, f"intruder-{n}", LEASE_MS), None)
    place = locks.take_ticket(VICTIM, None)
    assert isinstance(place, Position)
    assert place.ahead == 200


def test_it_can_read_the_owners_and_their_data(locks: LockTable) -> None:
    granted(locks, Claim(LOCK, "victim", LEASE_MS, data="build 4711"))
    state = locks.inspect(LOCK)
    assert state.item is not None
    assert [(holder.owner, holder.data) for holder in state.item.holders] == [("victim", "build 4711")]
