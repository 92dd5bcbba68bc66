"""The recipes of docs/recipes.md for web services run in FastAPI, Flask, Django, Celery and pools, many at once on one
order.

The page's code runs as it is written; its work is replaced by one that stays until all others who can wait do so, and
its locks are in memory.
"""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from docs.conftest import PAGE, Recipe, holders
from fastapi import Depends, FastAPI
from kit.pages import first_block
from kit.places import PATIENCE_S, meanwhile, outcome, until
from ticketlock_local.cloud.deploy import client_environment

from ticketlock import Lease, LockClient, LockName, aio
from ticketlock.cli._local import serving
from ticketlock.testing import MemoryDynamoDB

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
def locks(shop: Any) -> LockClient:
    found: LockClient = shop.locks
    return found


Service = Callable[..., dict[str, Any]]


@pytest.fixture
def service(recipe: Recipe, boto3_in_memory: MemoryDynamoDB, monkeypatch: pytest.MonkeyPatch) -> Service:
    """What a recipe defines; it takes other wishes for a lock than those that it writes."""
    monkeypatch.setattr(aio, "LockClient", partial(aio.LockClient, client=boto3_in_memory.async_client))

    def run(heading: str, wishes: str = "record_wait=20") -> dict[str, Any]:
        return recipe(heading, {"record_wait=20": wishes})

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


# FastAPI.


@pytest.mark.parametrize("path", [BILL, BILL_IN_A_TASK, MIXED], ids=["def", "async def", "def, and async def"])
@pytest.mark.parametrize("wishes", ["record_wait=60", "record_wait=60, reentrant=True"], ids=["", "reentrant"])
def test_requests_on_one_order_are_served_one_at_a_time(
    service: Service, locks: LockClient, path: str, wishes: str
) -> None:
    program = service("FastAPI", wishes)
    program["bill"] = bills = Bills(locks)

    # The thread that has entered the block is free again while a coroutine works.
    app: FastAPI = program["app"]

    @app.post(MIXED)
    async def mixed(lease: Annotated[Lease, Depends(partial(program["order_lock"], "42"))]) -> int:
        return await asyncio.to_thread(bills, "42", lease.fencing_token)

    answered = answers(app, path, others=MANY - 1, has_begun=lambda: bills.tokens)
    assert [each.status_code for each in answered] == [200] * MANY
    assert bills.were_one_at_a_time(), bills.tokens
    assert sorted(each.json() for each in answered) == bills.tokens


@BOTH
def test_a_request_that_waits_in_vain_is_answered_with_409(service: Service, locks: LockClient, path: str) -> None:
    program = service("FastAPI", "record_wait=0")
    with locks.acquire("order-42"):
        (answered,) = answers(program["app"], path)
    assert answered.status_code == 409


def lose(locks: LockClient) -> Callable[[str, int], object]:
    """Work whose lock is taken away meanwhile."""
    return lambda order_id, token: locks.table.force_release(LockName(f"order-{order_id}"), token)


@BOTH
def test_a_request_that_has_lost_its_lock_is_not_answered_with_200(
    service: Service, locks: LockClient, path: str
) -> None:
    program = service("FastAPI")
    program["bill"] = lose(locks)
    (answered,) = answers(program["app"], path)
    assert answered.status_code == 500


# Flask and Django: a view of each, called from many threads.

Post = Callable[[], tuple[int, str]]
VIEWS = pytest.mark.parametrize("framework", ["Flask", "Django"])


@pytest.fixture(scope="module")
def django_settings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Django has one configuration for a process."""
    import django
    from django.conf import settings

    file = tmp_path_factory.mktemp("django") / "shop.db"
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": file, "ATOMIC_REQUESTS": True}
    settings.configure(DATABASES={"default": database}, ALLOWED_HOSTS=["*"], USE_TZ=True)
    django.setup()


def post_of(framework: str, program: dict[str, Any], request: pytest.FixtureRequest) -> Post:
    """Sends a request to the view, and returns the status and the text of the answer."""
    if framework == "Flask":
        client = program["app"].test_client

        def of_flask() -> tuple[int, str]:
            answered = client().post(BILL)
            return answered.status_code, answered.get_data(as_text=True)

        return of_flask

    request.getfixturevalue("django_settings")
    from django.db import connections
    from django.test import Client, override_settings
    from django.urls import path

    overridden = override_settings(ROOT_URLCONF=(path("orders/<str:order_id>/bill", program["bill_order"]),))
    overridden.enable()
    request.addfinalizer(overridden.disable)

    def of_django() -> tuple[int, str]:
        try:
            answered = Client(raise_request_exception=False).post(BILL)
            return answered.status_code, answered.content.decode()
        finally:
            connections.close_all()

    return of_django


@VIEWS
def test_views_on_one_order_are_called_one_at_a_time(
    service: Service, locks: LockClient, framework: str, request: pytest.FixtureRequest
) -> None:
    program = service(framework, "record_wait=60")
    bills = Bills(locks)
    program["bill"] = lambda order_id, token: {"token": bills(order_id, token)}
    post = post_of(framework, program, request)
    with ThreadPoolExecutor(MANY) as pool:
        answered = [each.result() for each in [pool.submit(post) for _ in range(MANY)]]
    assert bills.were_one_at_a_time(), bills.tokens
    assert sorted(json.loads(said)["token"] for _, said in answered) == bills.tokens
    assert {status for status, _ in answered} == {200}


@VIEWS
def test_a_view_that_waits_in_vain_is_answered_with_409(
    service: Service, locks: LockClient, framework: str, request: pytest.FixtureRequest
) -> None:
    post = post_of(framework, service(framework, "record_wait=0"), request)
    with locks.acquire("order-42"):
        status, said = outcome(meanwhile(post))
    assert status == 409
    assert "another request works on this order" in said


@VIEWS
def test_a_view_that_has_lost_its_lock_is_answered_with_500(
    service: Service, locks: LockClient, framework: str, request: pytest.FixtureRequest
) -> None:
    program = service(framework)
    take_away = lose(locks)
    program["bill"] = lambda order_id, token: {"taken": str(take_away(order_id, token))}
    status, _ = post_of(framework, program, request)()
    assert status == 500


@pytest.mark.parametrize("atomic_requests", [False, True], ids=["as it is written", "in the transaction of Django"])
def test_a_view_of_django_commits_before_the_lock_is_released(
    recipe: Recipe, locks: LockClient, atomic_requests: bool, request: pytest.FixtureRequest
) -> None:
    program = recipe("Django", {"@transaction.non_atomic_requests\n": ""} if atomic_requests else {})
    held: list[list[int]] = []

    def bill(order_id: str, token: int) -> dict[str, object]:
        program["transaction"].on_commit(lambda: held.append(holders(locks, f"order-{order_id}")))
        return {"token": token}

    program["bill"] = bill
    _, said = post_of("Django", program, request)()
    assert held == [[] if atomic_requests else [json.loads(said)["token"]]]


# Celery.


@pytest.mark.parametrize("wishes", ["record_wait=60", "record_wait=60, reentrant=True"], ids=["", "reentrant"])
def test_tasks_of_celery_on_one_order_run_one_at_a_time(service: Service, locks: LockClient, wishes: str) -> None:
    program = service("Celery", wishes)
    program["bill"] = bills = Bills(locks)
    tasks = program["tasks"]
    tasks.conf.update(
        broker_url="memory://",
        result_backend="cache+memory://",
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
    )
    with start_worker(tasks, pool="threads", concurrency=MANY, perform_ping_check=False, shutdown_timeout=PATIENCE_S):
        sent = [program["bill_order"].delay("42") for _ in range(MANY)]
        assert sorted(each.get(timeout=PATIENCE_S) for each in sent) == bills.tokens
    assert bills.were_one_at_a_time(), bills.tokens


WORKER = """
import os
from pathlib import Path

import orders
from orders import tasks
from kit.places import until

from ticketlock import LockClient

DONE, INSIDE = Path("done.txt"), Path("inside")


def bill(order_id, fencing_token):
    INSIDE.touch(exist_ok=False)
    with LockClient("locks") as locks:
        until(lambda: locks.inspect("order-42").rows or len(DONE.read_text().split()) == {many} - 1, "another one")
    with DONE.open("a") as done:
        print(os.getpid(), file=done)
    INSIDE.unlink()
    return fencing_token


orders.bill = bill
tasks.conf.update({settings})
"""


@pytest.mark.verify("starts Celery, which forks")
def test_tasks_in_prefork_workers_run_one_at_a_time(tmp_path: Path) -> None:
    for file, heading in (("shop.py", "# Recipes"), ("orders.py", "## Celery")):
        (tmp_path / file).write_text(first_block(PAGE, heading)[1])
    folders = [tmp_path / name for name in ("broker", "results")]
    for folder in folders:
        folder.mkdir()
    queue = {f"data_folder_{way}": str(folders[0]) for way in ("in", "out")} | {"control_folder": str(folders[0])}
    settings = {
        "broker_url": "filesystem://",
        "broker_transport_options": queue,
        "result_backend": folders[1].as_uri(),
    }
    (tmp_path / "worker.py").write_text(WORKER.format(many=MANY, settings=settings))
    (tmp_path / "done.txt").touch()
    sender = Celery("sender", set_as_current=False)
    sender.conf.update(settings)
    command = [sys.executable, "-m", "celery", "-A", "worker:tasks", "worker", "-P", "prefork", "-c", "3"]
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    with serving(MemoryDynamoDB(), port=0) as endpoint:
        environment = {**os.environ, **client_environment(endpoint), "PYTHONPATH": path}
        worker = subprocess.Popen([*command, "--loglevel=warning"], cwd=tmp_path, env=environment)
        try:
            sent = [sender.send_task("orders.bill_order", ["42"]) for _ in range(MANY)]
            tokens = [each.get(timeout=2 * PATIENCE_S) for each in sent]
        finally:
            worker.terminate()
            worker.wait(PATIENCE_S)
    assert len(set(tokens)) == MANY
    assert len(set((tmp_path / "done.txt").read_text().split())) > 1, "one process did all"


# Workers that a dispatcher feeds.


def test_a_dispatcher_hands_one_order_to_one_worker_after_the_other(recipe: Recipe, locks: LockClient) -> None:
    program = recipe("Workers that a dispatcher feeds")
    # It waits for each worker before it makes the next.
    program["bill"] = bills = Bills(locks, at_once=2)
    assert program["dispatch"](["42"] * MANY) == bills.tokens
    assert bills.were_one_at_a_time(), bills.tokens


def test_jobs_of_a_thread_pool_that_lock_on_their_own_run_one_at_a_time(locks: LockClient) -> None:
    bills = Bills(locks)

    def job(order_id: str) -> int:
        with locks.acquire(f"order-{order_id}") as lease:
            return bills(order_id, lease.fencing_token)

    with ThreadPoolExecutor(MANY) as pool:
        assert sorted(pool.map(job, ["42"] * MANY)) == bills.tokens
    assert bills.were_one_at_a_time(), bills.tokens
