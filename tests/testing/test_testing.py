"""What ticketlock.testing gives to tests of other people's code."""

import subprocess
import sys
from contextlib import nullcontext

import boto3
import pytest
from botocore.exceptions import ClientError
from kit.units import make_table
from moto import mock_aws

from ticketlock import Lease, LockClient, LockLost, create_table
from ticketlock.errors import UnitConflict
from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB, lose
from ticketlock.units import Unit, Units, UnitTable


@pytest.fixture
def locks(memory: MemoryDynamoDB, clock: ManualClock) -> LockClient:
    return LockClient("locks", client=memory.client, clocks=clock, sleep=clock.sleep)


@pytest.fixture
def other(memory: MemoryDynamoDB, clock: ManualClock) -> LockClient:
    return LockClient("locks", client=memory.client, clocks=clock)


def test_a_lock_that_is_lost_on_demand_is_not_held(locks: LockClient) -> None:
    lease = locks.acquire("order-42")
    lose(lease)
    assert not lease.is_held()


@pytest.mark.parametrize("heartbeat", [True, False])
def test_when_a_lock_is_lost_on_demand_its_on_lost_was_called_once(locks: LockClient, heartbeat: bool) -> None:
    told: list[Lease] = []
    lease = locks.acquire("order-42", on_lost=told.append, heartbeat=heartbeat)
    lose(lease)
    assert told == [lease]


def test_another_owner_can_take_a_lost_lock_at_once(locks: LockClient, other: LockClient) -> None:
    lease = locks.acquire("order-42")
    lose(lease)
    assert other.acquire("order-42", record_wait=0).fencing_token > lease.fencing_token


def test_a_block_under_a_lost_lock_ends_in_lock_lost(locks: LockClient) -> None:
    with pytest.raises(LockLost), locks.acquire("order-42") as lease:
        lose(lease)


def test_the_release_of_a_lost_lock_does_not_affect_its_next_holder(locks: LockClient, other: LockClient) -> None:
    lease = locks.acquire("order-42")
    lose(lease)
    current = other.acquire("order-42")
    with pytest.raises(LockLost):
        lease.release()
    current.renew()
    assert current.is_held()


def test_a_lock_that_was_released_cannot_be_lost(locks: LockClient) -> None:
    lease = locks.acquire("order-42")
    lease.release()
    with pytest.raises(LockLost):
        lose(lease)


def test_a_wait_in_moved_time_takes_no_time(locks: LockClient, other: LockClient, clock: ManualClock) -> None:
    other.acquire("order-42")
    before = clock.wall_ms
    with pytest.raises(TimeoutError):
        locks.acquire("order-42", record_wait=50)
    assert clock.wall_ms - before >= 50_000


@pytest.mark.parametrize(("count", "is_read"), [(25, True), (26, False)])
@mock_aws
def test_moto_reads_25_items_in_a_transaction_and_no_more(count: int, is_read: bool) -> None:
    client = boto3.client("dynamodb")
    create_table("locks", client=client)
    keys = [{"pk": {"S": str(number)}, "sk": {"S": "x"}} for number in range(count)]
    client.transact_write_items(TransactItems=[{"Put": {"TableName": "locks", "Item": key}} for key in keys])
    with nullcontext() if is_read else pytest.raises(ClientError, match="ValidationException"):
        client.transact_get_items(TransactItems=[{"Get": {"TableName": "locks", "Key": key}} for key in keys])


def test_tests_of_threads_load_neither_pytest_nor_asyncio() -> None:
    program = (
        "import sys, ticketlock.testing as t; t.MemoryDynamoDB(clock=t.ManualClock()).async_client; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert {"pytest", "asyncio", "aiobotocore"}.isdisjoint(done.stdout.split())


# Clocks.


def test_time_passes_on_every_machine_and_walls_differ(clock: ManualClock) -> None:
    other = clock.another_machine(wall_is_off_s=-300)
    before, there = clock.read(), other.read()
    assert there.wall_ms == before.wall_ms - 300_000
    clock.sleep(1.5)
    assert (clock.read().local_ms - before.local_ms, other.read().local_ms - there.local_ms) == (1_500, 1_500)
    other.set_wall(7)
    assert (other.read().wall_ms, other.read().local_ms - there.local_ms) == (7, 1_500)
    assert clock.read().wall_ms == before.wall_ms + 1_500


def test_both_clocks_of_a_suspended_machine_continue_and_only_the_wall_clock_of_a_frozen_one(
    clock: ManualClock,
) -> None:
    began = clock.read()
    clock.suspend(60)
    assert (clock.read().local_ms - began.local_ms, clock.read().wall_ms - began.wall_ms) == (60_000, 60_000)
    clock.freeze(60)
    assert (clock.read().local_ms - began.local_ms, clock.read().wall_ms - began.wall_ms) == (60_000, 120_000)


def test_time_does_not_go_back(clock: ManualClock) -> None:
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


# Units of work over the DynamoDB in memory, as docs/python.md has it.


@pytest.fixture
def accounts(ticketlock_memory: MemoryDynamoDB, ticketlock_units: Units) -> UnitTable:
    """A table with one account."""
    make_table(ticketlock_memory, "accounts", {"id": "S"})
    ticketlock_memory.put_item(TableName="accounts", Item={"id": {"S": "ann"}, "balance": {"N": "100"}})
    return ticketlock_units.table("accounts")


def take_ten(unit: Unit, accounts: UnitTable) -> None:
    unit.update(accounts, {"id": "ann"}, "SET balance = balance - :n", {":n": 10})


def test_units_are_committed_in_memory(ticketlock_units: Units, accounts: UnitTable) -> None:
    for engine in ("native", "marked"):
        with ticketlock_units.begin(engine=engine) as unit:
            take_ten(unit, accounts)
    assert ticketlock_units.get(accounts, {"id": "ann"}) == {"id": "ann", "balance": 80}


def test_a_unit_of_the_tests_own_makes_a_conflict(ticketlock_units: Units, accounts: UnitTable) -> None:
    unit = ticketlock_units.begin()
    take_ten(unit, accounts)
    with ticketlock_units.begin() as other:
        take_ten(other, accounts)
    with pytest.raises(UnitConflict):
        unit.commit()


def test_a_lost_reply_costs_a_repeat_and_no_time(
    ticketlock_memory: MemoryDynamoDB, ticketlock_units: Units, accounts: UnitTable
) -> None:
    with ticketlock_units.begin() as unit:
        take_ten(unit, accounts)
        ticketlock_memory.faults.append(Fault.REPLY_LOST)
    assert [sent.operation for sent in ticketlock_memory.sent].count("TransactWriteItems") == 2
    assert ticketlock_units.get(accounts, {"id": "ann"}) == {"id": "ann", "balance": 90}
