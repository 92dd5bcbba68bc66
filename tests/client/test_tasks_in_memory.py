"""The client for tasks, on a table in memory: what happens within one turn of the loop, or outside of any."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from kit.awaited import Awaited

from ticketlock import aio
from ticketlock.testing import ManualClock, MemoryDynamoDB


@pytest.fixture
def locks(memory: MemoryDynamoDB, clock: ManualClock) -> aio.LockClient:
    return aio.LockClient("locks", client=Awaited(memory), clocks=clock)


def at_once(coroutine: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine that gives the loop no turn."""
    with pytest.raises(StopIteration):
        coroutine.send(None)


def test_a_group_is_entered_without_a_turn_of_the_loop_in_which_it_could_be_cancelled(locks: aio.LockClient) -> None:
    """Else nobody would be inside, and nobody would release what the group holds."""

    async def work() -> None:
        async with locks:
            group = await locks.acquire_all(["order-42", "order-43"])
            at_once(group.__aenter__())
            assert group.is_held()
            await group.release()

    asyncio.run(work())


def test_a_lease_may_be_detached_while_no_loop_runs_and_is_renewed_no_more(
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


def test_a_client_without_a_table_is_refused_when_it_is_opened(memory: MemoryDynamoDB) -> None:
    """Not when it is made, which may be while a module is imported."""
    locks = aio.LockClient("", client=Awaited(memory))
    with pytest.raises(ValueError, match="table_name"):
        at_once(locks.__aenter__())
