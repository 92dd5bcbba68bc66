"""The client for tasks, on a table in memory: operations without yielding to the loop, or outside of any loop."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from kit.awaited import Awaited

from ticketlock import AlreadyHeld, aio
from ticketlock.testing import ManualClock, MemoryDynamoDB

PATIENCE_S = 20


@pytest.fixture
def locks(memory: MemoryDynamoDB, clock: ManualClock) -> aio.LockClient:
    return aio.LockClient("locks", client=Awaited(memory), clocks=clock)


def at_once(coroutine: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine that does not yield to the loop."""
    with pytest.raises(StopIteration):
        coroutine.send(None)


def test_a_group_is_entered_without_yielding_to_the_loop_so_that_it_cannot_be_cancelled_there(
    locks: aio.LockClient,
) -> None:
    """Otherwise a cancellation could leave no one to release the group's locks."""

    async def work() -> None:
        async with locks:
            group = await locks.acquire_all(["order-42", "order-43"])
            at_once(group.__aenter__())
            assert group.is_held()
            await group.release()

    asyncio.run(work())


def test_a_lease_may_be_detached_while_no_loop_runs_and_is_not_renewed_after_that(
    locks: aio.LockClient, memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(locks.__aenter__())
    lease = loop.run_until_complete(locks.acquire("order-42").__aenter__())
    lease.detach()
    clock.advance(40)
    before = memory.items()
    loop.run_until_complete(asyncio.sleep(0))
    assert memory.items() == before
    loop.run_until_complete(locks.close())
    loop.close()
    assert lease.is_held()


def in_time(work: Coroutine[Any, Any, None]) -> None:
    """Run it; a task that waits for itself ends, although the client's clock stands still."""

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work

    asyncio.run(main())


TASKS = [asyncio.ensure_future, asyncio.create_task, lambda asked: asyncio.wait_for(asked, 5)]
"""Each creates a task for its argument; ``wait_for`` does so before Python 3.12."""
IDS = ["ensure_future", "create_task", "wait_for"]


@pytest.mark.parametrize("task_of", TASKS, ids=IDS)
def test_a_task_that_only_acquires_does_so_for_the_task_that_made_the_call(locks: aio.LockClient, task_of: Any) -> None:
    """Otherwise the holder would wait for a task that waits for the holder."""

    async def work() -> None:
        async with locks, locks.acquire("order-42") as outer:
            inner = await task_of(locks.acquire("order-42", reentrant=True))
            assert inner is outer
            await inner.release()
            assert outer.is_held()
            for asked in (locks.acquire("order-42"), locks.try_acquire("order-42"), locks.acquire_all(["order-42"])):
                with pytest.raises(AlreadyHeld):
                    await task_of(asked)

    in_time(work())


@pytest.mark.parametrize("task_of", TASKS, ids=IDS)
def test_a_lock_that_a_task_acquired_for_its_caller_is_the_callers(locks: aio.LockClient, task_of: Any) -> None:
    async def work() -> None:
        async with locks:
            outer = await task_of(locks.acquire("order-42"))
            assert await locks.acquire("order-42", reentrant=True) is outer

    in_time(work())


def test_a_task_that_does_more_than_acquire_is_another_holder(locks: aio.LockClient) -> None:
    """The holder need not wait for it, and may run beside it."""

    async def work() -> None:
        async with locks, locks.acquire("order-42", reentrant=True):

            async def beside() -> aio.Lease | None:
                return await locks.try_acquire("order-42", reentrant=True)

            assert await asyncio.create_task(beside()) is None

    in_time(work())


def test_several_tasks_of_one_acquisition_each_acquire_for_themselves(locks: aio.LockClient) -> None:
    async def work() -> None:
        async with locks:
            once = locks.acquire("order-42", permits=2)
            leases = await asyncio.gather(asyncio.create_task(once), asyncio.create_task(once))
            assert len({lease.fencing_token for lease in leases}) == 2

    in_time(work())


def test_a_task_that_is_cancelled_before_it_has_begun_to_acquire_leaves_nothing(
    locks: aio.LockClient, memory: MemoryDynamoDB
) -> None:
    async def work() -> None:
        async with locks:
            task = asyncio.create_task(locks.acquire("order-42"))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    in_time(work())
    assert memory.items() == []


def test_a_client_without_a_table_is_refused_when_it_is_opened(memory: MemoryDynamoDB) -> None:
    """Not when it is created, which may be while a module is imported."""
    locks = aio.LockClient("", client=Awaited(memory))
    with pytest.raises(ValueError, match="table_name"):
        at_once(locks.__aenter__())
