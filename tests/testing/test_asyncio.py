"""What ticketlock.testing gives to tests of code for asyncio: a client in memory, and a loop that goes by a clock."""

import asyncio
import threading
from itertools import pairwise

import boto3
import pytest
from aiobotocore.session import get_session
from kit.units import make_table

from ticketlock import RecordWaitExceeded, aio
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.units import create_units_table

KEY = {"id": {"S": "42"}}


@pytest.fixture
def locks(memory: MemoryDynamoDB, clock: ManualClock) -> aio.LockClient:
    return aio.LockClient("locks", client=memory.async_client, clocks=clock)


def test_tasks_get_a_lock_in_the_order_in_which_they_came_and_no_time_passes(
    locks: aio.LockClient, clock: ManualClock
) -> None:
    held: list[tuple[str, float]] = []

    async def work(name: str) -> None:
        async with locks.acquire("order-42"):
            held.append((name, clock.local_s))
            await asyncio.sleep(20)

    async def main() -> None:
        async with locks:
            await asyncio.gather(work("first"), work("second"), work("third"))

    clock.run(main())
    names, since_s = zip(*held, strict=True)
    assert names == ("first", "second", "third")
    assert [after - before for before, after in pairwise(since_s)] == pytest.approx([20, 20], abs=1)


def test_a_record_wait_ends_by_the_clock(locks: aio.LockClient, memory: MemoryDynamoDB, clock: ManualClock) -> None:
    async def main() -> None:
        other = aio.LockClient("locks", client=memory.async_client, clocks=clock)
        async with locks, other, other.acquire("order-42"):
            with pytest.raises(RecordWaitExceeded):
                await locks.acquire("order-42", record_wait=50)

    clock.run(main())
    assert clock.local_s == pytest.approx(50, abs=1)


def test_a_lease_is_renewed_while_time_passes_and_lost_if_it_passes_at_once(
    locks: aio.LockClient, clock: ManualClock
) -> None:
    lost: list[aio.Lease] = []

    async def main() -> None:
        async with locks:
            lease = await locks.acquire("order-42", lease=30, on_lost=lost.append)
            await asyncio.sleep(300)
            assert lease.is_held()
            clock.advance(31)
            assert not lease.is_held()
            await asyncio.sleep(0.001)
            assert lost == [lease]

    clock.run(main())


def test_a_unit_of_work_is_committed_in_memory(memory: MemoryDynamoDB, clock: ManualClock) -> None:
    create_units_table("units", client=memory.client)
    make_table(memory, "accounts", {"id": "S"})

    async def main() -> object:
        async with aio.Units("units", client=memory.async_client, clocks=clock) as units:
            accounts = await units.table("accounts")
            for engine in ("native", "marked"):
                async with units.begin(engine=engine) as unit:
                    await unit.update(accounts, {"id": "ann"}, "ADD balance :n", {":n": 10})
            return await units.get(accounts, {"id": "ann"})

    assert clock.run(main()) == {"id": "ann", "balance": 20}


# The client.


def test_the_client_awaits_the_same_replies_and_errors(memory: MemoryDynamoDB) -> None:
    make_table(memory, "orders", {"id": "S"})

    async def main() -> None:
        async with memory.async_client as client:
            await client.get_waiter("table_exists").wait(TableName="orders")
            await client.put_item(TableName="orders", Item=KEY)
            with pytest.raises(client.exceptions.ConditionalCheckFailedException):
                await client.put_item(TableName="orders", Item=KEY, ConditionExpression="attribute_not_exists(id)")

    asyncio.run(main())
    assert memory.items("orders") == [KEY]


def test_other_tasks_run_before_and_after_a_request(memory: MemoryDynamoDB) -> None:
    seen: list[int] = []

    async def watch() -> None:
        for _ in range(3):
            seen.append(len(memory.sent))
            await asyncio.sleep(0)

    async def main() -> None:
        watching = asyncio.create_task(watch())
        await memory.async_client.get_item(TableName="locks", Key={"pk": {"S": "a"}, "sk": {"S": "b"}})
        seen.append(-1)
        await watching

    asyncio.run(main())
    assert seen == [0, 1, -1, 1]


@pytest.mark.parametrize("is_awaited", [False, True], ids=["boto3", "aiobotocore"])
def test_a_client_of_an_sdk_is_served_by_the_memory_that_came_last(memory: MemoryDynamoDB, is_awaited: bool) -> None:
    later = MemoryDynamoDB(lock_table="locks")
    item = {"pk": {"S": "a"}, "sk": {"S": "b"}}

    async def main() -> None:
        async with get_session().create_client("dynamodb") as client:
            memory.serve(client)
            later.serve(client)
            await client.put_item(TableName="locks", Item=item)

    if is_awaited:
        asyncio.run(main())
    else:
        client = boto3.client("dynamodb")
        memory.serve(client)
        later.serve(client)
        client.put_item(TableName="locks", Item=item)
    assert (memory.items(), later.items()) == ([], [item])


# The loop.


@pytest.mark.parametrize(("sleeps_s", "passed_ms"), [(0.0001, 1), (0.001, 1), (0.3, 300), (100_000, 100_000_000)])
def test_the_clock_moves_to_the_end_of_the_first_sleep_and_by_a_millisecond_at_least(
    clock: ManualClock, sleeps_s: float, passed_ms: int
) -> None:
    async def main() -> None:
        later = asyncio.create_task(asyncio.sleep(200_000))
        await asyncio.sleep(sleeps_s)
        later.cancel()

    clock.run(main())
    assert clock.read().local_ms == passed_ms


def test_a_time_out_ends_what_does_not_end(clock: ManualClock) -> None:
    async def main() -> None:
        async with asyncio.timeout(3_600):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        clock.run(main())
    assert clock.local_s == 3_600


def test_the_clock_stands_still_while_a_thread_of_the_loop_works_and_moves_if_it_is_moved(clock: ManualClock) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def work() -> float:
        begun.set()
        may_end.wait()
        return clock.local_s

    async def main() -> float:
        sleeping = asyncio.create_task(asyncio.sleep(10))
        working = asyncio.create_task(asyncio.to_thread(work))
        while not begun.is_set():
            await asyncio.sleep(0)
        threading.Timer(0.05, clock.advance, [10]).start()
        await sleeping
        may_end.set()
        return await working

    assert clock.run(main()) == 10
