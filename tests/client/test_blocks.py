"""Who would wait for itself, and who holds a lock once more: a caller that is inside of a block of it, no other."""

import _thread
import asyncio
import contextvars
import gc
import logging
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import pytest
from kit.awaited import Awaited
from kit.places import meanwhile, outcome, until

from ticketlock import AlreadyHeld, Lease, LockClient, LockLost, LockName, RecordWaitExceeded, aio
from ticketlock.testing import MemoryDynamoDB

pytestmark = pytest.mark.shows("exclusion")

Run = Callable[[Callable[[], Any]], Any]


@pytest.fixture
def table() -> MemoryDynamoDB:
    """In real time."""
    return MemoryDynamoDB()


@pytest.fixture
def locks(table: MemoryDynamoDB) -> Iterator[LockClient]:
    with LockClient("locks", client=table.client, record_wait=0.2) as locks:
        yield locks


def entered(locks: LockClient, **options: Any) -> Lease:
    """What a framework runs for the first half of a block."""
    return locks.acquire("order-42", **options).__enter__()


@contextmanager
def dependency(locks: LockClient, **options: Any) -> Iterator[Lease]:
    with locks.acquire("order-42", **options) as lease:
        yield lease


# One thread runs one job after another.


def pool_thread() -> Run:
    pool = ThreadPoolExecutor(max_workers=1)
    return lambda job: pool.submit(job).result()


def pool_thread_in_copied_contexts() -> Run:
    """As anyio runs the `def` dependencies of FastAPI and Starlette."""
    pool = ThreadPoolExecutor(max_workers=1)
    return lambda job: pool.submit(contextvars.copy_context().run, job).result()


def loop_of_jobs() -> Run:
    jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()

    def work() -> None:
        while True:
            job, done = jobs.get()
            try:
                done.set_result(job())
            except Exception as error:
                done.set_exception(error)

    threading.Thread(target=work, daemon=True).start()

    def run(job: Callable[[], Any]) -> Any:
        done: Future[Any] = Future()
        jobs.put((job, done))
        return done.result()

    return run


def two_contexts_of_one_thread() -> Run:
    return lambda job: contextvars.copy_context().run(job)


THREADS = pytest.mark.parametrize(
    "thread", [pool_thread, pool_thread_in_copied_contexts, loop_of_jobs, two_contexts_of_one_thread]
)


@THREADS
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_job_waits_for_a_block_that_an_earlier_job_of_its_thread_has_left_open(
    locks: LockClient, thread: Callable[[], Run], reentrant: bool
) -> None:
    run = thread()
    first = run(lambda: entered(locks))
    with pytest.raises(RecordWaitExceeded, match="this very process holds it") as waited:
        run(lambda: entered(locks, reentrant=reentrant))
    assert waited.value.is_held_here
    first.__exit__(None, None, None)
    second = run(lambda: entered(locks, reentrant=reentrant))
    assert second is not first
    second.__exit__(None, None, None)


@THREADS
def test_a_job_waits_for_a_dependency_that_an_earlier_job_of_its_thread_has_begun(
    locks: LockClient, thread: Callable[[], Run]
) -> None:
    run = thread()
    first, second = dependency(locks), dependency(locks, reentrant=True)
    run(first.__enter__)
    with pytest.raises(RecordWaitExceeded):
        run(second.__enter__)
    # It is left wherever a thread is free.
    outcome(meanwhile(lambda: first.__exit__(None, None, None)))
    with dependency(locks, record_wait=0):
        pass


@THREADS
def test_a_reader_is_let_in_beside_a_reader_of_its_thread(locks: LockClient, thread: Callable[[], Run]) -> None:
    run = thread()
    first = run(lambda: entered(locks, shared=True))
    second = run(lambda: entered(locks, shared=True, record_wait=0))
    assert second is not first
    for each in (first, second):
        run(partial(each.__exit__, None, None, None))


def popped(locks: LockClient, reentrant: bool) -> ExitStack:
    with ExitStack() as stack:
        stack.enter_context(locks.acquire("order-42", reentrant=reentrant))
        return stack.pop_all()


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_dispatcher_is_not_inside_of_the_stacks_that_it_hands_on(locks: LockClient, reentrant: bool) -> None:
    handed = [popped(locks, reentrant)]
    for _ in range(2):
        stack = ExitStack()
        with pytest.raises(RecordWaitExceeded):
            stack.enter_context(locks.acquire("order-42", reentrant=reentrant))
        with pytest.raises(RecordWaitExceeded):
            popped(locks, reentrant)
        handed.pop().close()
        stack.enter_context(locks.acquire("order-42", reentrant=reentrant))
        handed.append(stack)
    handed.pop().close()
    locks.acquire("order-42", record_wait=0).release()


def test_what_a_pool_calls_when_a_job_is_done_is_not_inside_of_its_block(locks: LockClient) -> None:
    """The callback runs in the frame that has called the job, at another place."""
    seen: list[Any] = []
    begun, may_end = threading.Event(), threading.Event()

    def job() -> Lease:
        begun.set()
        may_end.wait(30)
        return entered(locks)

    with ThreadPoolExecutor(max_workers=1) as pool:
        done = pool.submit(job)
        assert begun.wait(30)
        done.add_done_callback(lambda _: seen.append(locks.try_acquire("order-42", reentrant=True)))
        may_end.set()
    assert seen == [None]
    done.result().__exit__(None, None, None)


def test_threads_that_python_did_not_start_are_callers_of_their_own(locks: LockClient) -> None:
    """One object may stand for several of them, whose ids are reused."""
    found: queue.SimpleQueue[Any] = queue.SimpleQueue()
    _thread.start_new_thread(lambda: found.put(entered(locks)), ())
    first = found.get(timeout=30)
    _thread.start_new_thread(lambda: found.put(locks.try_acquire("order-42", reentrant=True)), ())
    assert found.get(timeout=30) is None
    first.__exit__(None, None, None)


# Objects.


def test_a_lease_that_is_entered_several_times_is_freed_by_the_last_end(locks: LockClient) -> None:
    lease = locks.acquire("order-42")
    with lease:
        with lease:
            pass
        assert lease.is_held()
        with lease:
            assert outcome(meanwhile(lambda: lease.__enter__().__exit__(None, None, None))) is None
        assert lease.is_held()
        assert locks.try_acquire("order-42", reentrant=True) is lease
        lease.release()
    assert not lease.is_held()
    group = locks.acquire_all(["a", "b"])
    with group:
        with group:
            pass
        assert group.is_held()
    assert not group.is_held()


def test_each_end_of_a_lost_lease_that_was_entered_several_times_says_so(table: MemoryDynamoDB) -> None:
    locks = LockClient("locks", client=table.client, heartbeat=False)
    lease, stacks = locks.acquire("order-42"), [ExitStack(), ExitStack()]
    for stack in stacks:
        stack.enter_context(lease)
    locks.table.force_release(LockName("order-42"), lease.fencing_token)
    with pytest.raises(LockLost):
        lease.renew()
    for stack in stacks:
        with pytest.raises(LockLost):
            stack.close()
    locks.close()


def test_a_generator_that_is_dropped_ends_its_block(locks: LockClient) -> None:
    lock = locks.lock("order-42")

    def rows(hold: Any) -> Iterator[int]:
        with hold:
            yield 1

    def first(hold: Any) -> int:
        each = rows(hold)
        return next(each)

    for hold in (locks.acquire("order-42"), lock):
        assert first(hold) == 1
        assert not lock.locked()


def test_who_holds_a_lease_as_an_object_waits_like_anybody_else_and_is_told(
    locks: LockClient, caplog: pytest.LogCaptureFixture
) -> None:
    lease = locks.acquire("order-42")
    for acquire in (locks.acquire, lambda entity: locks.acquire(entity, reentrant=True)):
        caplog.clear()
        with pytest.raises(RecordWaitExceeded, match="this very process holds it"):
            acquire("order-42")
        assert "has acquired itself and not released" in caplog.text
    assert locks.try_acquire("order-42") is None
    threading.Timer(0.05, lease.release).start()
    locks.acquire("order-42", record_wait=30).release()


def test_nothing_is_logged_while_a_worker_is_inside_of_a_block_that_a_dispatcher_has_acquired(
    locks: LockClient, caplog: pytest.LogCaptureFixture
) -> None:
    lease, is_in, may_end = locks.acquire("order-42"), threading.Event(), threading.Event()

    def work() -> None:
        with lease:
            is_in.set()
            may_end.wait(30)

    working = meanwhile(work)
    assert is_in.wait(30)
    with caplog.at_level(logging.WARNING), pytest.raises(RecordWaitExceeded):
        locks.acquire("order-42")
    assert not caplog.records
    may_end.set()
    outcome(working)
    locks.acquire("order-42", record_wait=0).release()


def test_the_error_says_nothing_of_this_process_if_another_holds_the_lock(table: MemoryDynamoDB) -> None:
    # A client that is gone stands for another process.
    table_of_another = LockClient("locks", client=table.client, heartbeat=False)
    table_of_another.acquire("order-42").detach()
    with LockClient("locks", client=table.client) as locks, pytest.raises(RecordWaitExceeded) as waited:
        locks.acquire("order-42", record_wait=0)
    assert not waited.value.is_held_here
    assert "this very process" not in str(waited.value)


# Blocks that the caller is inside of, however it has entered them.


class Work:
    def __init__(self, locks: LockClient) -> None:
        self.lease = locks.acquire("order-42")

    def __enter__(self) -> Lease:
        return self.lease.__enter__()

    def __exit__(self, *raised: Any) -> None:
        self.lease.__exit__(*raised)


@contextmanager
def in_a_helper(locks: LockClient) -> Iterator[Lease]:
    with ExitStack() as stack:

        def enter() -> Lease:
            return stack.enter_context(dependency(locks))

        yield enter()


BLOCKS: dict[str, Callable[[LockClient], Any]] = {
    "with": lambda locks: locks.acquire("order-42"),
    "a generator": dependency,
    "a class": Work,
    "a stack in a helper": in_a_helper,
    "a resumed lease": lambda locks: locks.resume("order-42", locks.acquire("order-42", owner="o").owner),
}


@pytest.mark.parametrize("how", BLOCKS)
def test_who_is_inside_of_a_block_is_refused_at_once_or_holds_the_lock_once_more(locks: LockClient, how: str) -> None:
    with BLOCKS[how](locks) as outer:

        def deeper(depth: int) -> None:
            if depth:
                deeper(depth - 1)
                return
            with pytest.raises(AlreadyHeld):
                locks.acquire("order-42")
            with locks.acquire("order-42", reentrant=True) as inner:
                assert inner is outer
                deeper_still(2)

        def deeper_still(depth: int) -> None:
            with locks.acquire("order-42", reentrant=True) as inner:
                assert inner is outer
                if depth:
                    deeper_still(depth - 1)

        deeper(3)
        assert outer.is_held()
    assert not outer.is_held()


def test_a_loop_that_enters_one_stack_is_inside_of_all_that_it_has_entered(locks: LockClient) -> None:
    with ExitStack() as stack:
        leases = [stack.enter_context(locks.acquire("order-42", reentrant=True)) for _ in range(3)]
        assert len({id(lease) for lease in leases}) == 1
        with ExitStack() as another:
            for entity in ("a", "a"):
                lease = another.enter_context(dependency_of(locks, entity))
                assert lease.is_held()
    assert not leases[0].is_held()


@contextmanager
def dependency_of(locks: LockClient, entity: str) -> Iterator[Lease]:
    with locks.acquire(entity, reentrant=True) as lease:
        yield lease


def test_a_function_that_is_decorated_holds_the_lock_once_more_within_itself(locks: LockClient) -> None:
    @locks.serialized("order-{number}", reentrant=True)
    def ship(number: int, depth: int) -> int:
        return ship(number, depth - 1) if depth else number

    assert ship(42, 3) == 42
    pool = ThreadPoolExecutor(max_workers=1)
    assert [pool.submit(ship, 42, 2).result() for _ in range(3)] == [42] * 3


def test_several_locks_that_are_entered_together_are_each_a_block(locks: LockClient) -> None:
    with locks.acquire_all(["a", "b"]):
        for entity in ("a", "b"):
            with pytest.raises(AlreadyHeld):
                locks.acquire(entity)
        with locks.acquire_all(["a", "b"], reentrant=True) as again:
            assert again.is_held()
        with locks.acquire_all(["a", "c"], reentrant=True) as more:
            assert more.is_held()
    group = locks.acquire_all(["a", "b"])
    assert locks.try_acquire("a") is None
    group.release()


def test_blocks_of_one_lock_end_in_any_order(locks: LockClient) -> None:
    outer, inner = ExitStack(), ExitStack()
    lease = outer.enter_context(locks.acquire("order-42"))
    inner.enter_context(locks.acquire("order-42", reentrant=True))
    outer.close()
    assert lease.is_held()
    inner.close()
    assert not lease.is_held()
    with locks.acquire("order-42", record_wait=0):
        pass


def test_a_block_that_was_released_by_hand_or_detached_or_left_counts_no_more(locks: LockClient) -> None:
    with locks.acquire("order-42") as lease:
        lease.release()
        with locks.acquire("order-42", record_wait=0) as again:
            again.detach()
            assert locks.try_acquire("order-42") is None


def test_a_thread_that_is_given_a_copy_of_the_context_is_another_caller(locks: LockClient) -> None:
    with locks.acquire("order-42"):
        context = contextvars.copy_context()
        assert outcome(meanwhile(lambda: context.run(locks.try_acquire, "order-42", reentrant=True))) is None


def test_who_waits_in_a_loop_for_a_block_around_it_is_told(locks: LockClient, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        with pytest.raises(RecordWaitExceeded):
            locks.acquire("order-42", reentrant=True)

    with locks.acquire("order-42"):
        asyncio.run(main())
    assert "or the caller of its event loop" in caplog.text


# Readers.


def test_a_reader_inside_of_a_reader_is_let_in(locks: LockClient) -> None:
    with locks.acquire("order-42", shared=True) as outer:
        with locks.acquire("order-42", shared=True, record_wait=0) as inner:
            assert inner is not outer
        with locks.acquire("order-42", shared=True, reentrant=True) as inner:
            assert inner is outer
        with pytest.raises(AlreadyHeld):
            locks.acquire("order-42")


def test_a_reader_inside_of_a_reader_is_refused_behind_a_writer_that_waits_for_it(
    table: MemoryDynamoDB, locks: LockClient
) -> None:
    others = LockClient("locks", client=table.client)
    with locks.acquire("order-42", shared=True) as outer:
        writing = meanwhile(lambda: others.acquire("order-42", record_wait=30))
        until(lambda: len(locks.inspect("order-42").rows) == 1)
        with pytest.raises(AlreadyHeld, match="another caller waits"):
            locks.acquire("order-42", shared=True, record_wait=30)
        with locks.acquire("order-42", shared=True, reentrant=True) as inner:
            assert inner is outer
        assert locks.try_acquire("order-42", shared=True) is None
    outcome(writing).release()
    others.close()


def test_who_is_inside_of_blocks_with_all_permits_is_refused(locks: LockClient) -> None:
    with locks.acquire("farm", permits=2), locks.acquire("farm", permits=2), pytest.raises(AlreadyHeld):
        locks.acquire("farm", permits=2, record_wait=30)
    assert locks.inspect("farm").rows == ()


# Tasks.


def in_a_loop(table: MemoryDynamoDB, work: Callable[[aio.LockClient], Any]) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), aio.LockClient("locks", client=Awaited(table), record_wait=0.2) as locks:
            await work(locks)

    asyncio.run(main())


@asynccontextmanager
async def async_dependency(locks: aio.LockClient) -> Any:
    async with locks.acquire("order-42") as lease:
        yield lease


def test_a_child_of_a_task_that_is_inside_of_a_block_is_another_caller(table: MemoryDynamoDB) -> None:
    async def work(locks: aio.LockClient) -> None:
        async def child() -> Any:
            return await locks.try_acquire("order-42", reentrant=True)

        async with async_dependency(locks) as outer:
            assert await asyncio.create_task(child()) is None
            assert set(await asyncio.gather(child(), child())) == {None}
            async with locks.acquire("order-42", reentrant=True) as inner:
                assert inner is outer
            async with AsyncExitStack() as stack:
                assert await stack.enter_async_context(locks.acquire("order-42", reentrant=True)) is outer
            with pytest.raises(AlreadyHeld):
                await locks.acquire("order-42")

    in_a_loop(table, work)


def test_a_lease_that_a_task_hands_to_another_leaves_it_waiting(table: MemoryDynamoDB) -> None:
    async def work(locks: aio.LockClient) -> None:
        async def worker(lease: aio.Lease) -> int:
            async with lease:
                await asyncio.sleep(0)
                return lease.fencing_token

        workers = [asyncio.create_task(worker(await locks.acquire("order-42", record_wait=30))) for _ in range(4)]
        tokens = await asyncio.gather(*workers)
        assert tokens == sorted(set(tokens))

    in_a_loop(table, work)


def test_a_worker_task_is_not_inside_of_blocks_that_its_jobs_have_handed_on(table: MemoryDynamoDB) -> None:
    async def work(locks: aio.LockClient) -> None:
        handed: list[Any] = []

        async def by_hand() -> None:
            handed.append(await locks.acquire("order-42", reentrant=True).__aenter__())

        async def by_a_stack() -> None:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(locks.acquire("order-42", reentrant=True))
                handed.append(stack.pop_all())

        for job in (by_hand, by_a_stack):
            await job()
            for another in (by_hand, by_a_stack):
                with pytest.raises(RecordWaitExceeded):
                    await another()
            await handed.pop().__aexit__(None, None, None)

    in_a_loop(table, work)


def test_an_async_generator_that_is_dropped_ends_its_block(table: MemoryDynamoDB) -> None:
    async def work(locks: aio.LockClient) -> None:
        async def rows(hold: Any) -> Any:
            async with hold:
                yield 1

        async def first(hold: Any) -> Any:
            each = rows(hold)
            return await anext(each)

        for hold in (locks.acquire("order-42"), locks.lock("order-42")):
            assert await first(hold) == 1
            async with locks.acquire("order-42", record_wait=30):
                pass

    in_a_loop(table, work)


@pytest.mark.parametrize("of_a_stack", [False, True], ids=["generators", "stacks"])
def test_each_block_of_a_shared_lock_for_tasks_releases_its_own_lease(table: MemoryDynamoDB, of_a_stack: bool) -> None:
    async def work(locks: aio.LockClient) -> None:
        lock = locks.lock("order-42", shared=True)

        async def reading() -> Any:
            async with lock as lease:
                yield lease

        if of_a_stack:
            stacks = AsyncExitStack(), AsyncExitStack()
            leases = [await stack.enter_async_context(lock) for stack in stacks]
            await stacks[0].aclose()
        else:
            readings = reading(), reading()
            leases = [await anext(each) for each in readings]
            await readings[0].aclose()
        assert [lease.is_held() for lease in leases] == [False, True]
        await (stacks[1] if of_a_stack else readings[1]).aclose()
        assert not leases[1].is_held()

    in_a_loop(table, work)


def test_a_client_for_threads_tells_the_tasks_of_a_loop_apart(locks: LockClient) -> None:
    async def main() -> None:
        with locks.acquire("order-42") as outer:

            async def child() -> Any:
                return locks.try_acquire("order-42", reentrant=True)

            assert await asyncio.create_task(child()) is None
            assert await asyncio.to_thread(locks.try_acquire, "order-42", reentrant=True) is None
            assert locks.acquire("order-42", reentrant=True) is outer
            outer.release()

    asyncio.run(main())


def test_eight_requests_on_one_entity_are_served_one_at_a_time_by_two_threads(locks: LockClient) -> None:
    """Each half of a dependency runs on any thread of the pool, in a copy of its request's context."""
    pool = ThreadPoolExecutor(max_workers=2)
    inside: list[int] = []
    tokens: list[int] = []

    async def request() -> None:
        context = contextvars.copy_context()
        block = dependency(locks, record_wait=30)
        loop = asyncio.get_running_loop()
        lease = await loop.run_in_executor(pool, context.copy().run, block.__enter__)
        inside.append(lease.fencing_token)
        assert len(inside) == 1
        await asyncio.sleep(0.01)
        tokens.append(inside.pop())
        await loop.run_in_executor(None, context.copy().run, block.__exit__, None, None, None)

    async def main() -> None:
        async with asyncio.TaskGroup() as requests:
            for _ in range(8):
                requests.create_task(request())

    asyncio.run(main())
    assert len(set(tokens)) == 8


def test_what_a_thread_had_at_hand_when_it_entered_and_left_a_block_is_not_kept(locks: LockClient) -> None:
    class AtHand:
        pass

    gc.collect()
    gc.disable()
    try:
        seen: list[weakref.ref[AtHand]] = []

        def work() -> None:
            at_hand = AtHand()
            seen.append(weakref.ref(at_hand))
            with locks.acquire("a"), locks.acquire("b"):
                assert locks.try_acquire("c") is not None

        work()
        assert seen[0]() is None
    finally:
        gc.enable()
