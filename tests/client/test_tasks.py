"""The parts that only tasks have: cancellation, ``async with``, one event loop."""

import asyncio
import warnings
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from kit.awaited import Awaited
from kit.in_a_loop import Loop
from kit.places import Emulated, Kind, Moved, some_entity
from kit.places import until as until_told

from ticketlock import AlreadyHeld, ClientClosed, LockLost, aio
from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB
from ticketlock.wire._sdk import CLIENT_SETTINGS

pytestmark = pytest.mark.shows("left queue")

PATIENCE_S = 30
ROUNDS_A_REQUEST = 8
"""How many rounds of callbacks the loop runs for a request, or so."""


@pytest.fixture
def kind() -> Kind:
    return "tasks"


@pytest.fixture
def run(place: Emulated) -> Callable[[Callable[[aio.LockClient], Coroutine[Any, Any, Any]]], Any]:
    """Runs a coroutine function with a client, in a loop of its own that ends with it."""

    def run(what: Callable[[aio.LockClient], Coroutine[Any, Any, Any]]) -> Any:
        async def main() -> Any:
            async with client_of(place) as locks:
                return await asyncio.wait_for(what(locks), PATIENCE_S)

        return asyncio.run(main())

    return run


def client_of(place: Emulated, **options: Any) -> aio.LockClient:
    return aio.LockClient(place.table_name, client_options={"endpoint_url": place.endpoint}, **options)


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(is_so):
            await asyncio.sleep(0.005)


def test_an_acquisition_is_awaited_and_its_lease_entered(place: Emulated, run: Any, entity: str) -> None:
    async def work(locks: aio.LockClient) -> None:
        lease = await locks.acquire(entity)
        async with lease as same:
            assert same is lease

    run(work)
    assert place.is_free(entity)


def test_tasks_that_enter_one_acquisition_each_leave_their_own(place: Emulated, run: Any, entity: str) -> None:
    async def work(locks: aio.LockClient) -> None:
        once = locks.acquire(entity, permits=2)
        first_has_left = asyncio.Event()
        second_is_in = asyncio.Event()

        async def second() -> None:
            async with once as lease:
                second_is_in.set()
                await first_has_left.wait()
                assert lease.is_held()
                await lease.renew()

        async with once:
            beside = asyncio.create_task(second())
            await second_is_in.wait()
        first_has_left.set()
        await beside

    run(work)
    assert place.is_free(entity)


def test_an_acquisition_that_one_task_has_entered_is_left_by_another(place: Emulated, run: Any, entity: str) -> None:
    async def work(locks: aio.LockClient) -> None:
        stack = AsyncExitStack()
        await asyncio.create_task(stack.enter_async_context(locks.acquire(entity)))
        await stack.aclose()
        assert await asyncio.to_thread(place.is_free, entity)

    run(work)


def test_a_release_that_fails_after_its_caller_was_cancelled_is_logged(
    moved: Moved, loop: Loop, entity: str, caplog: pytest.LogCaptureFixture
) -> None:
    lease: Any = moved.client().acquire(entity)

    async def release() -> None:
        releasing = asyncio.create_task(lease._inner.release())
        # Until it waits for the table.
        await asyncio.sleep(0)
        releasing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await releasing

    with moved.memory.outage(Fault.REQUEST_LOST), moved.time_flies():
        loop.do(release)
        until_told(lambda: "failed to release" in caplog.text)
    assert entity in caplog.text


@pytest.mark.parametrize(
    ("patience_s", "cancellations"),
    [(0.5, 0), (PATIENCE_S, 1), (PATIENCE_S, 2)],
    ids=["has waited for too long", "is cancelled", "is cancelled twice"],
)
@pytest.mark.parametrize("several", [False, True], ids=["one lock", "the last of several"])
def test_a_waiter_whose_task_ends_leaves_the_queue_and_frees_what_it_has(
    place: Emulated, run: Any, entity: str, patience_s: float, cancellations: int, several: bool
) -> None:
    async def acquire(locks: aio.LockClient) -> None:
        await (locks.acquire_all([f"a{entity}", entity]) if several else locks.acquire(entity))

    async def work(locks: aio.LockClient) -> None:
        lease = await locks.acquire(entity)
        waiting = asyncio.create_task(asyncio.wait_for(acquire(locks), patience_s))
        await until(lambda: place.queue_of(entity) == 1 or waiting.done())
        for _ in range(cancellations):
            waiting.cancel()
            await asyncio.sleep(0)
        with pytest.raises((asyncio.CancelledError, TimeoutError)):
            await waiting
        await until(lambda: place.queue_of(entity) == 0 and place.is_free(f"a{entity}"))
        await lease.release()

    run(work)
    assert place.is_free(entity)


@pytest.mark.parametrize("requests", range(1, 6))
def test_a_waiter_that_is_cancelled_at_any_moment_leaves_no_row_and_no_grant(
    place: Emulated, run: Any, requests: int
) -> None:
    """Cancelled after each number of rounds of the loop in which it sends so many requests."""

    async def acquire(locks: aio.LockClient, entity: str) -> aio.Lease:
        return await locks.acquire(entity)

    async def work(locks: aio.LockClient) -> None:
        for rounds in range(requests * ROUNDS_A_REQUEST, (requests + 1) * ROUNDS_A_REQUEST):
            entity = some_entity()
            acquiring = asyncio.create_task(acquire(locks, entity))
            for _ in range(rounds):
                await asyncio.sleep(0)
            acquiring.cancel()
            await asyncio.wait({acquiring})
            if not acquiring.cancelled():
                await acquiring.result().release()
            assert await asyncio.to_thread(place.is_free, entity)

    run(work)


@pytest.mark.parametrize("first", ["the cancellation", "the end of the client"])
def test_a_task_that_is_cancelled_while_its_client_closes_is_cancelled(
    memory: MemoryDynamoDB, clock: ManualClock, first: str
) -> None:
    async def main() -> None:
        made = [aio.LockClient("locks", client=Awaited(memory), clocks=clock) for _ in range(2)]
        async with made[0] as others, made[1] as locks, others.acquire("order-42"):
            waits = asyncio.Event()
            waiting = asyncio.create_task(work(locks, waits))
            await waits.wait()
            if first == "the cancellation":
                waiting.cancel()
                await asyncio.sleep(0)
            closing = asyncio.create_task(locks.close())
            if first == "the end of the client":
                await asyncio.sleep(0)
                waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await closing

    async def work(locks: aio.LockClient, waits: asyncio.Event) -> None:
        async with locks.acquire("order-42", on_wait=lambda _: waits.set()):
            pytest.fail("acquired")

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_a_group_whose_task_is_cancelled_at_its_end_frees_every_lock(place: Emulated, run: Any, entity: str) -> None:
    entities = [f"{entity}{letter}" for letter in "abc"]

    async def work(locks: aio.LockClient) -> None:
        async def hold() -> None:
            async with locks.acquire_all(entities):
                asyncio.get_running_loop().call_soon(task.cancel)

        task = asyncio.create_task(hold())
        with pytest.raises(asyncio.CancelledError):
            await task
        # To its end, although no one waits for it any more.
        await locks.close()

    run(work)
    assert all(place.is_free(each) for each in entities)


def test_no_task_is_left_between_two_leases_and_when_the_client_is_closed(place: Emulated, entity: str) -> None:
    async def main() -> None:
        before = asyncio.all_tasks()
        async with client_of(place) as locks:
            async with locks.acquire(entity):
                assert asyncio.all_tasks() > before
            await asyncio.sleep(0)
            assert asyncio.all_tasks() <= before
            for number in range(3):
                await locks.acquire(f"{entity}{number}")
        assert asyncio.all_tasks() <= before

    asyncio.run(main())


def test_a_callback_may_be_a_coroutine_function_and_release_its_lease(moved: Moved, entity: str) -> None:
    told: list[Any] = []

    async def on_lost(lease: Any) -> None:
        with pytest.raises(LockLost):
            await lease.release()
        told.append(lease)

    lease = moved.client(lease=1, heartbeat=False).acquire(entity, on_lost=on_lost)
    moved.clock.advance(1)
    until_told(lambda: told == [lease])


def test_a_client_that_was_not_entered_raises_an_error(place: Emulated, entity: str) -> None:
    async def main() -> None:
        await client_of(place).acquire(entity)

    with pytest.raises(ClientClosed, match="async with"):
        asyncio.run(main())


def test_a_client_that_the_caller_passes_stays_open(place: Emulated, entity: str) -> None:
    async def main() -> None:
        config = AioConfig(**CLIENT_SETTINGS)
        session = get_session()
        async with session.create_client("dynamodb", endpoint_url=place.endpoint, config=config) as dynamodb:
            async with aio.LockClient(place.table_name, client=dynamodb) as locks, locks.acquire(entity):
                pass
            await dynamodb.describe_table(TableName=place.table_name)

    asyncio.run(main())


@pytest.mark.parametrize("what_ends", ["the block of the lock", "the client"])
def test_a_holder_that_is_cancelled_frees_the_lock_and_closes_its_client(
    place: Emulated, entity: str, what_ends: str
) -> None:
    async def main() -> None:
        held = asyncio.Event()

        async def work() -> None:
            async with client_of(place) as locks:
                lease = await locks.acquire(entity)
                held.set()
                if what_ends == "the client":
                    await asyncio.Event().wait()
                async with lease:
                    await asyncio.Event().wait()

        working = asyncio.create_task(work())
        await held.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    asyncio.run(main())
    assert place.is_free(entity)


# The client for tasks, on a table in memory: operations without yielding to the loop, or outside of any loop.


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


@pytest.mark.parametrize(
    "task_of",
    # The last one creates a task before Python 3.12.
    [asyncio.ensure_future, asyncio.create_task, lambda asked: asyncio.wait_for(asked, PATIENCE_S)],
    ids=["ensure_future", "create_task", "wait_for"],
)
def test_a_task_that_only_acquires_does_so_for_the_task_that_made_the_call(locks: aio.LockClient, task_of: Any) -> None:
    """Otherwise the holder would wait for a task that waits for the holder."""

    async def work() -> None:
        async with locks, await task_of(locks.acquire("order-42")) as outer:
            inner = await task_of(locks.acquire("order-42", reentrant=True))
            assert inner is outer
            assert await locks.acquire("order-42", reentrant=True) is outer
            for _ in range(2):
                await inner.release()
            assert outer.is_held()
            for asked in (locks.acquire("order-42"), locks.try_acquire("order-42"), locks.acquire_all(["order-42"])):
                with pytest.raises(AlreadyHeld):
                    await task_of(asked)

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

    async def enter() -> None:
        await aio.LockClient("", client=Awaited(memory)).__aenter__()

    with pytest.raises(ValueError, match="table_name"):
        asyncio.run(enter())


def test_the_task_of_an_acquisition_has_a_repr(locks: aio.LockClient) -> None:
    async def shown() -> str:
        async with locks:
            task = asyncio.create_task(locks.acquire("order-42"))
            text = repr(task)
            await (await task).release()
            return text

    assert asyncio.run(shown()).startswith("<Task pending")


@pytest.mark.parametrize("verb", ["acquire", "try_acquire"])
def test_an_acquisition_is_neither_true_nor_false_and_warns_as_a_coroutine_does_if_it_is_neither_awaited_nor_closed(
    locks: aio.LockClient, memory: MemoryDynamoDB, verb: str
) -> None:
    # Nothing refers to it any more at the end of each statement.
    with pytest.warns(RuntimeWarning, match="never awaited"), pytest.raises(TypeError, match="await it"):
        bool(getattr(locks, verb)("order-42"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        getattr(locks, verb)("order-42").close()
    assert memory.sent == []
