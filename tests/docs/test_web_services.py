"""The examples of docs/python.md for web services run in FastAPI, Celery and pools, many at once on one order.

The page's code runs as it is written; its work is replaced by one that stays until all others who can wait do so, and
its locks are in memory.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any

import httpx
import pytest
from celery.contrib.testing.worker import start_worker
from fastapi import Depends
from kit.awaited import Awaited
from kit.pages import python_blocks, text
from kit.places import PATIENCE_S, until

from ticketlock import Lease, LockClient, LockName, aio
from ticketlock.testing import MemoryDynamoDB

PAGE = "docs/python.md"
MANY = 8
BILL, BILL_IN_A_TASK, MIXED = "/orders/42/bill", "/orders/42/bill-in-a-task", "/mixed"
BOTH = pytest.mark.parametrize("path", [BILL, BILL_IN_A_TASK], ids=["def", "async def"])


class Bills:
    """The work of many callers on order 42: how many did it at once, and under which fencing tokens.

    Args:
        locks: where the callers wait.
        at_once: how many of them arrive before the first is through.
    """

    def __init__(self, locks: LockClient, at_once: int = MANY) -> None:
        self.tokens: list[int] = []
        self.most = 0
        self._locks = locks
        self._at_once = at_once
        self._inside = 0
        self._mutex = threading.Lock()

    def __call__(self, order_id: Any, fencing_token: int) -> int:
        with self._mutex:
            self._inside += 1
            self.most = max(self.most, self._inside)
            self.tokens.append(fencing_token)
            still_to_come = min(MANY - len(self.tokens), self._at_once - 1)
        try:
            until(
                lambda: len(self._locks.inspect(f"order-{order_id}").rows) == still_to_come, "the queue of the others"
            )
        finally:
            with self._mutex:
                self._inside -= 1
        return fencing_token

    def were_one_at_a_time(self) -> bool:
        return self.most == 1 and len(self.tokens) == MANY and self.tokens == sorted(set(self.tokens))


@pytest.fixture
def memory() -> MemoryDynamoDB:
    """In real time."""
    return MemoryDynamoDB()


@pytest.fixture
def locks(memory: MemoryDynamoDB) -> Iterator[LockClient]:
    with LockClient("locks", client=memory.client) as locks:
        yield locks


Page = Callable[..., dict[str, Any]]


@pytest.fixture
def page(memory: MemoryDynamoDB, locks: LockClient) -> Page:
    """What the section has defined; it takes other wishes for a lock than those that it writes."""
    begin, end = (text(PAGE)[: text(PAGE).index(heading)].count("\n") for heading in ("## In a web", "## Lambda"))

    def run(wishes: str = "record_wait=20") -> dict[str, Any]:
        of_tasks = SimpleNamespace(Lease=aio.Lease, LockClient=partial(aio.LockClient, client=Awaited(memory)))
        names: dict[str, Any] = {"locks": locks, "aio": of_tasks, "asyncio": asyncio}
        # Celery gives a task to every application that knows none of its full name.
        names["__name__"] = f"page_{id(names)}"
        for line, block in python_blocks(PAGE):
            if begin < line < end:
                exec(compile("\n" * line + block.replace("record_wait=20", wishes), PAGE, "exec"), names)
        return names

    return run


def answers(app: Any, path: str, *, others: int = 0, has_begun: Callable[[], object] = bool) -> list[httpx.Response]:
    """What FastAPI answers to a request, and to others that come while its work goes on."""

    async def main() -> list[httpx.Response]:
        server = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=server, base_url="http://test") as http,
        ):
            first = asyncio.create_task(http.post(path))
            while others and not has_begun() and not first.done():
                await asyncio.sleep(0.005)
            return await asyncio.gather(first, *(http.post(path) for _ in range(others)))

    return asyncio.run(main())


@pytest.mark.parametrize("path", [BILL, BILL_IN_A_TASK, MIXED], ids=["def", "async def", "def, and async def"])
@pytest.mark.parametrize("wishes", ["record_wait=60", "record_wait=60, reentrant=True"], ids=["", "reentrant"])
def test_requests_on_one_order_are_served_one_at_a_time(page: Page, locks: LockClient, path: str, wishes: str) -> None:
    service = page(wishes)
    service["bill"] = bills = Bills(locks)

    # The thread that has entered the block is free again while a coroutine works.
    @service["app"].post(MIXED)  # type: ignore[untyped-decorator]
    async def mixed(lease: Annotated[Lease, Depends(partial(service["order_lock"], "42"))]) -> int:
        return await asyncio.to_thread(bills, 42, lease.fencing_token)

    answered = answers(service["app"], path, others=MANY - 1, has_begun=lambda: bills.tokens)
    assert [each.status_code for each in answered] == [200] * MANY
    assert bills.were_one_at_a_time(), bills.tokens
    assert sorted(each.json() for each in answered) == bills.tokens


@BOTH
def test_a_request_that_waits_in_vain_is_answered_with_409(page: Page, locks: LockClient, path: str) -> None:
    service = page("record_wait=0")
    with locks.acquire("order-42"):
        (answered,) = answers(service["app"], path)
    assert answered.status_code == 409


@BOTH
def test_a_request_that_has_lost_its_lock_is_not_answered_with_200(page: Page, locks: LockClient, path: str) -> None:
    service = page()
    service["bill"] = lambda order_id, token: locks.table.force_release(LockName(f"order-{order_id}"), token)
    (answered,) = answers(service["app"], path)
    assert answered.status_code == 500


def test_jobs_of_a_thread_pool_on_one_order_run_one_at_a_time(page: Page, locks: LockClient) -> None:
    service = page()
    service["bill"] = bills = Bills(locks)
    with ThreadPoolExecutor(MANY) as pool:
        assert sorted(pool.map(service["bill_in_a_thread"], [42] * MANY)) == bills.tokens
    assert bills.were_one_at_a_time(), bills.tokens


@pytest.mark.parametrize("wishes", ["record_wait=60", "record_wait=60, reentrant=True"], ids=["", "reentrant"])
def test_tasks_of_celery_on_one_order_run_one_at_a_time(page: Page, locks: LockClient, wishes: str) -> None:
    service = page(wishes)
    service["bill"] = bills = Bills(locks)
    tasks = service["tasks"]
    tasks.conf.update(
        broker_url="memory://",
        result_backend="cache+memory://",
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
    )
    with start_worker(tasks, pool="threads", concurrency=MANY, perform_ping_check=False, shutdown_timeout=PATIENCE_S):
        sent = [service["bill_in_a_worker"].delay(42) for _ in range(MANY)]
        assert sorted(each.get(timeout=PATIENCE_S) for each in sent) == bills.tokens
    assert bills.were_one_at_a_time(), bills.tokens


@pytest.mark.parametrize("name", ["dispatch", "dispatch_tasks"])
def test_a_dispatcher_hands_one_order_to_one_worker_after_the_other(page: Page, locks: LockClient, name: str) -> None:
    service = page()
    # It waits for each worker before it makes the next.
    service["bill"] = bills = Bills(locks, at_once=2)
    handed = service[name]([42] * MANY)
    assert (asyncio.run(handed) if asyncio.iscoroutine(handed) else handed) == bills.tokens
    assert bills.were_one_at_a_time(), bills.tokens
