"""A client that is closed while a block works under its lock: the block is told, or the client waits for it."""

import asyncio
import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from kit.awaited import Awaited
from kit.opcodes import AtOpcode
from kit.places import meanwhile, outcome, until

from ticketlock import ClientClosed, InvalidLockRequest, LockClient, LockLost, aio
from ticketlock.testing import ManualClock, MemoryDynamoDB

pytestmark = pytest.mark.shows("end of a client")


@pytest.fixture
def table() -> MemoryDynamoDB:
    """In real time."""
    return MemoryDynamoDB()


@pytest.fixture
def locks(table: MemoryDynamoDB) -> Iterator[LockClient]:
    with LockClient("locks", client=table.client, lease=20) as locks:
        yield locks


class Working:
    """A thread that works under a lock until it may end."""

    def __init__(self, locks: LockClient, **options: Any) -> None:
        self.told: list[object] = []
        self._is_in, self.may_end = threading.Event(), threading.Event()
        self.done = meanwhile(lambda: self._work(locks, options))
        assert self._is_in.wait(30)

    def _work(self, locks: LockClient, options: dict[str, Any]) -> bool:
        with locks.acquire("order-42", on_lost=self.told.append, **options) as lease:
            self._is_in.set()
            assert self.may_end.wait(30)
            return lease.is_held()


def test_a_block_whose_client_another_thread_closes_is_told_and_its_end_says_so(
    table: MemoryDynamoDB, locks: LockClient
) -> None:
    working = Working(locks)
    locks.close()
    until(lambda: working.told)
    with LockClient("locks", client=table.client) as others:
        others.acquire("order-42", record_wait=0)
    working.may_end.set()
    with pytest.raises(LockLost, match="client was closed"):
        outcome(working.done)


def test_an_exception_of_a_block_whose_client_was_closed_passes_through(locks: LockClient) -> None:
    def work() -> None:
        with locks.acquire("order-42"):
            outcome(meanwhile(locks.close))
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        work()


def test_a_group_whose_client_is_closed_says_so_at_its_end(locks: LockClient) -> None:
    with pytest.raises(LockLost, match="client was closed"), locks.acquire_all(["a", "b"]):
        locks.close()


@pytest.mark.parametrize("as_a_group", [False, True])
def test_a_client_that_a_signal_handler_closes_while_a_block_begins_keeps_the_block_from_it_or_is_told_at_its_end(
    table: MemoryDynamoDB, as_a_group: bool
) -> None:
    ends = []
    for number in count(1):
        locks = LockClient("locks", client=table.client, heartbeat=False)
        held = locks.acquire_all(["a", "b"]) if as_a_group else locks.acquire("a")
        with AtOpcode(number, locks.close, ("client/_lease.py", "client/_base_lease.py")) as at:
            try:
                held.__enter__()
            except LockLost:
                ends.append("at its beginning")
                continue
        if at.passed < number:
            break
        with pytest.raises(LockLost, match="client was closed"):
            held.__exit__(None, None, None)
        ends.append("at its end")
    held.release()
    assert set(ends) == {"at its beginning", "at its end"}


def test_who_enters_a_lease_of_a_client_that_was_closed_is_told_of_that(locks: LockClient) -> None:
    lease = locks.acquire("order-42")
    locks.close()
    with pytest.raises(LockLost, match="its client was closed"), lease:
        pytest.fail("entered")


def test_a_lease_without_a_block_is_freed_without_a_word(locks: LockClient) -> None:
    told: list[object] = []
    lease = locks.acquire("order-42", on_lost=told.append)
    locks.close()
    lease.release()
    assert not told


def test_closing_with_a_wait_lets_blocks_end_and_acquires_nothing_more(locks: LockClient) -> None:
    working = Working(locks)
    closing = meanwhile(lambda: locks.close(wait=30))
    until(lambda: locks._holdings.is_closed)
    with pytest.raises(ClientClosed):
        locks.acquire("order-43")
    working.may_end.set()
    assert outcome(working.done)
    outcome(closing)
    assert not working.told


def test_a_wait_that_is_over_frees_the_lock_all_the_same(locks: LockClient) -> None:
    working = Working(locks)
    locks.close(wait=0.05)
    until(lambda: working.told)
    working.may_end.set()
    with pytest.raises(LockLost):
        outcome(working.done)


def test_who_closes_a_client_inside_of_a_block_does_not_wait_for_itself(locks: LockClient) -> None:
    with pytest.raises(LockLost), locks.acquire("order-42"):
        locks.close(wait=float("inf"))


def test_the_end_of_with_waits_as_the_setting_says(table: MemoryDynamoDB) -> None:
    with LockClient("locks", client=table.client, close_wait=30) as locks:
        working = Working(locks)
        threading.Timer(0.05, working.may_end.set).start()
    assert outcome(working.done)
    with pytest.raises(InvalidLockRequest, match="close_wait"):
        LockClient("locks", client=table.client, close_wait=-1)


def test_a_wait_for_blocks_goes_by_the_clocks_of_a_test(memory: MemoryDynamoDB, clock: ManualClock) -> None:
    locks = LockClient("locks", client=memory.client, clocks=clock, sleep=clock.sleep)
    working = Working(locks)
    began_s = clock.local_s
    locks.close(wait=20)
    assert clock.local_s - began_s == pytest.approx(20, abs=1)
    working.may_end.set()
    with pytest.raises(LockLost):
        outcome(working.done)


def test_a_wait_for_blocks_by_a_clock_that_stands_still_ends(memory: MemoryDynamoDB, clock: ManualClock) -> None:
    locks = LockClient("locks", client=memory.client, clocks=clock)
    working = Working(locks)
    outcome(meanwhile(lambda: locks.close(wait=0.05)))
    working.may_end.set()
    with pytest.raises(LockLost):
        outcome(working.done)


def test_tasks_wait_for_blocks_by_the_clocks_of_a_test(memory: MemoryDynamoDB, clock: ManualClock) -> None:
    async def main() -> float:
        async def work(locks: aio.LockClient) -> None:
            async with locks.acquire("order-42"):
                await asyncio.sleep(300)

        async with aio.LockClient("locks", client=memory.async_client, clocks=clock, close_wait=20) as locks:
            working = asyncio.create_task(work(locks))
            await asyncio.sleep(1)
            began_s = clock.local_s
        took_s = clock.local_s - began_s
        with pytest.raises(LockLost):
            await working
        return took_s

    assert clock.run(main()) == pytest.approx(20, abs=1)


def test_a_block_holds_its_lock_once_more_until_the_client_frees_it(locks: LockClient) -> None:
    with locks.acquire("order-42") as lease:
        closing = meanwhile(lambda: locks.close(wait=30))
        until(lambda: locks._holdings.is_closed)
        with locks.acquire("order-42", reentrant=True) as once_more, locks.acquire_all(["order-42"], reentrant=True):
            assert once_more is lease
            with pytest.raises(ClientClosed):
                locks.acquire_all(["order-42", "order-43"], reentrant=True)
        assert lease.is_held()
    outcome(closing)


def test_a_block_whose_lock_was_freed_does_not_hold_it_once_more(locks: LockClient) -> None:
    def work() -> None:
        with locks.acquire("order-42"):
            locks.close()
            with pytest.raises(ClientClosed):
                locks.acquire("order-42", reentrant=True)

    with pytest.raises(LockLost):
        work()


def test_a_task_holds_the_lock_of_its_block_once_more_until_the_client_frees_it(table: MemoryDynamoDB) -> None:
    async def main() -> None:
        async with aio.LockClient("locks", client=Awaited(table)) as locks:
            async with locks.acquire("order-42") as lease:
                closing = asyncio.create_task(locks.close(wait=30))
                while not locks._holdings.is_closed:
                    await asyncio.sleep(0)
                async with locks.acquire("order-42", reentrant=True) as once_more:
                    assert once_more is lease
                    with pytest.raises(ClientClosed):
                        await locks.acquire("order-43", reentrant=True)
                assert lease.is_held()
            await closing

    asyncio.run(main())


def test_tasks_that_still_work_at_the_end_of_async_with_are_told_or_waited_for(table: MemoryDynamoDB) -> None:
    async def main(close_wait: float) -> tuple[bool, list[object]]:
        told: list[object] = []
        is_in, may_end = asyncio.Event(), asyncio.Event()

        async def work(locks: aio.LockClient) -> bool:
            async with locks.acquire("order-42", on_lost=told.append) as lease:
                is_in.set()
                await may_end.wait()
                return lease.is_held()

        async with aio.LockClient("locks", client=Awaited(table), close_wait=close_wait) as locks:
            working = asyncio.create_task(work(locks))
            await is_in.wait()
            if close_wait:
                asyncio.get_running_loop().call_later(0.05, may_end.set)
        may_end.set()
        return await working, told

    assert asyncio.run(main(30)) == (True, [])
    with pytest.raises(LockLost, match="client was closed"):
        asyncio.run(main(0))


def test_a_task_that_closes_its_client_inside_of_a_block_does_not_wait_for_itself(table: MemoryDynamoDB) -> None:
    async def main() -> None:
        locks = aio.LockClient("locks", client=Awaited(table))
        async with asyncio.timeout(30), locks, locks.acquire("order-42"):
            await locks.close(wait=60)

    with pytest.raises(LockLost):
        asyncio.run(main())
