"""The recipes of docs/recipes.md do what the page says, also if their process dies, pauses or loses its lock."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import boto3
import pytest
from docs.conftest import PAGE, Recipe, holders, make_table
from kit.command import shell
from kit.pages import blocks
from kit.places import meanwhile, outcome, until
from moto import mock_aws

from ticketlock import ClientClosed, LockClient, LockLost, LockName
from ticketlock.cli._local import serving
from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB
from ticketlock.units import create_units_table

LEASE_S = 60


def machine(memory: MemoryDynamoDB, clock: ManualClock, **settings: Any) -> LockClient:
    """A client whose waits move the clock."""
    return LockClient("locks", client=memory.client, clocks=clock, sleep=clock.sleep, heartbeat=False, **settings)


class Once:
    """Acts when it is called for the first time."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act: Callable[[], object] | None = act

    def __call__(self, *_: object, **__: object) -> None:
        act, self._act = self._act, None
        if act:
            act()


# A cron job on three machines.


def test_a_job_runs_on_one_of_three_machines_once_a_period(recipe: Recipe, boto3_in_memory: MemoryDynamoDB) -> None:
    machines = [recipe("A cron job on three machines") for _ in range(3)]
    for each in machines:
        each["locks"] = LockClient("locks", client=boto3_in_memory.client)
    ran: list[str] = []

    def on_every_machine(period: str) -> list[bool]:
        with ThreadPoolExecutor(3) as pool:
            return list(pool.map(lambda each: each["once"]("report", period, lambda: ran.append(period)), machines))

    assert sorted(on_every_machine("2026-11-29")) == [False, False, True]
    # They come late, or again: the job took no time.
    assert on_every_machine("2026-11-29") == [False, False, False]
    assert sorted(on_every_machine("2026-11-30")) == [False, False, True]
    assert on_every_machine("2026-11-29") == [False, False, False]
    assert ran == ["2026-11-29", "2026-11-30"]
    for each in machines:
        each["locks"].close()


def test_a_job_that_raised_is_run_by_the_next_machine(recipe: Recipe) -> None:
    once = recipe("A cron job on three machines")["once"]
    assert once("report", "2026-11-28", lambda: None)
    with pytest.raises(ZeroDivisionError):
        once("report", "2026-11-29", lambda: 1 / 0)
    assert not once("report", "2026-11-28", lambda: None)
    assert once("report", "2026-11-29", lambda: None)


def test_the_job_of_a_machine_that_died_is_run_by_the_next_one_after_the_lease(
    recipe: Recipe, memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    program = recipe("A cron job on three machines")
    machine(memory, clock).acquire("report")
    program["locks"] = machine(memory, clock)
    assert program["once"]("report", "2026-11-29", lambda: None)
    assert LEASE_S <= clock.local_s <= LEASE_S + 10


@pytest.mark.verify("starts two processes")
def test_the_line_of_a_crontab_runs_its_job_on_the_first_machine_alone(tmp_path: Path) -> None:
    (crontab,) = (each for each in blocks(PAGE, "sh") if "acquire report" in each)
    line = crontab.split(maxsplit=5)[5]
    job = tmp_path / "report.sh"
    job.write_text("#!/bin/sh\necho ran >> ran.txt\n")
    job.chmod(0o755)
    with serving(MemoryDynamoDB(), port=0) as endpoint:
        environment = {name: value for name, value in shell(endpoint, "locks").items() if name != "TICKETLOCK_TABLE"}
        codes = [
            subprocess.run(["/bin/sh", "-c", line], cwd=tmp_path, env=environment, timeout=60, check=False).returncode
            for _ in range(2)
        ]
    assert codes == [0, 75]
    assert (tmp_path / "ran.txt").read_text() == "ran\n"


# Leader election.


def test_another_process_leads_within_the_lease_and_some_seconds_after_the_leader_was_killed(
    recipe: Recipe, memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    program, stop = recipe("Leader election"), threading.Event()
    killed = machine(memory, clock).acquire("leader", lease=15)
    program["locks"] = machine(memory, clock)
    tokens: list[int] = []

    def step(token: int) -> None:
        tokens.append(token)
        stop.set()

    program["lead"](step, stop)
    assert 15 <= clock.local_s <= 25
    assert len(tokens) == 1
    assert tokens[0] > killed.fencing_token


class Stop(threading.Event):
    """Acts in place of a wait."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act

    def wait(self, timeout: float | None = None) -> bool:
        self._act()
        return timeout is None


@pytest.mark.parametrize("is_cut_off", [True, False], ids=["cannot reach the table", "has lost the lock"])
def test_a_leader_that_cannot_renew_takes_no_step_and_stands_again(
    recipe: Recipe, memory: MemoryDynamoDB, clock: ManualClock, is_cut_off: bool
) -> None:
    program, outage = recipe("Leader election"), ExitStack()
    program["locks"] = locks = machine(memory, clock)
    stop = Stop(outage.close)
    tokens: list[int] = []

    def step(token: int) -> None:
        tokens.append(token)
        if len(tokens) == 2:
            stop.set()
            return
        if is_cut_off:
            outage.enter_context(memory.outage(Fault.REQUEST_LOST))
        else:
            locks.table.force_release(LockName("leader"), token)
        clock.advance(11)

    program["lead"](step, stop)
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 2


def test_closing_the_client_ends_the_wait_of_a_process_that_does_not_lead(recipe: Recipe, shop: Any) -> None:
    program = recipe("Leader election")
    with LockClient("locks", client=shop.locks.table.client) as leader, leader.acquire("leader"):
        waiting = meanwhile(lambda: program["lead"](print, threading.Event()))
        until(lambda: leader.inspect("leader").rows, "a waiter")
        shop.locks.close()
        with pytest.raises(ClientClosed):
            outcome(waiting)


# A Lambda function with little time left.


def test_messages_for_which_no_time_is_left_go_back_to_the_queue(
    recipe: Recipe, memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    program = recipe("A Lambda function with little time left")
    machine(memory, clock).acquire("order-busy", lease=300)
    program["locks"] = machine(memory, clock, lease=20)
    billed: list[str] = []

    def bill(order_id: str, _: int) -> None:
        billed.append(order_id)
        clock.advance(6)

    program["bill"] = bill
    end_s = clock.local_s + 30
    context = SimpleNamespace(get_remaining_time_in_millis=lambda: (end_s - clock.local_s) * 1_000)
    orders = ("ann", "ben", "busy", "cleo")
    event = {"Records": [{"messageId": f"m-{each}", "body": each} for each in orders]}
    assert program["handler"](event, context) == {
        "batchItemFailures": [{"itemIdentifier": "m-busy"}, {"itemIdentifier": "m-cleo"}]
    }
    assert billed == ["ann", "ben"]
    assert clock.local_s <= end_s - program["WORK_S"] + 2


# A rate.


def test_as_many_calls_as_the_rate_allows_begin_in_each_second(recipe: Recipe, boto3_in_memory: MemoryDynamoDB) -> None:
    make_table(boto3_in_memory, "rates", id="S")
    program, now = recipe("A rate"), [1_800_000_000.0]
    program["time"] = SimpleNamespace(time=lambda: now[0])
    assert [program["may_call"]("mail", 3) for _ in range(5)] == [True, True, True, False, False]
    assert program["may_call"]("other", 3)
    now[0] += 1
    assert program["may_call"]("mail", 3)


# A file on S3.


@pytest.fixture
def bucket() -> Iterator[str]:
    with mock_aws():
        boto3.client("s3").create_bucket(Bucket="files")
        yield "files"


def contents(bucket: str) -> Any:
    return json.load(boto3.client("s3").get_object(Bucket=bucket, Key="prices.json")["Body"])


def holder(fencing_token: int) -> Any:
    return SimpleNamespace(fencing_token=fencing_token)


def test_a_file_is_changed_by_holders_until_a_later_one_has_changed_it(recipe: Recipe, bucket: str) -> None:
    change = recipe("A file on S3")["change"]
    for token in (5, 5, 7):
        change(bucket, "prices.json", lambda before, token=token: [*(before or ()), token], holder(token))
    with pytest.raises(LockLost, match="a later holder"):
        change(bucket, "prices.json", lambda _: "old", holder(6))
    assert contents(bucket) == {"lockToken": 7, "content": [5, 5, 7]}


@pytest.fixture(params=[True, False], ids=["a file that is there", "a new file"])
def changed(request: pytest.FixtureRequest, recipe: Recipe, bucket: str) -> Callable[..., None]:
    """Changes a file by a holder that pauses after its read, while another one changes it, too."""
    program = recipe("A file on S3")
    if request.param:
        program["change"](bucket, "prices.json", lambda _: "the same", holder(4))

    def change(first: int, other: int, new: Callable[[Any], Any]) -> None:
        meanwhile = Once(lambda: program["change"](bucket, "prices.json", new, holder(other)))
        program["s3"].meta.events.register("before-parameter-build.s3.PutObject", meanwhile)
        program["change"](bucket, "prices.json", new, holder(first))

    return change


def test_a_holder_that_pauses_after_its_read_does_not_change_a_file_that_a_later_one_has_changed(
    changed: Callable[..., None], bucket: str
) -> None:
    # With the token elsewhere than in the body both files would have one ETag.
    with pytest.raises(LockLost, match="a later holder"):
        changed(6, 7, lambda _: "the same")
    assert contents(bucket) == {"lockToken": 7, "content": "the same"}


def test_a_holder_changes_what_an_earlier_one_has_written_since_its_read(
    changed: Callable[..., None], bucket: str
) -> None:
    changed(7, 6, lambda before: f"{before} changed")
    assert contents(bucket)["content"].endswith(" changed changed")


# A queue of jobs in a table.


@pytest.fixture
def jobs(boto3_in_memory: MemoryDynamoDB) -> dict[str, Any]:
    """Five jobs; the results by job are in `done`."""
    make_table(boto3_in_memory, "jobs", queue="S", id="S")
    make_table(boto3_in_memory, "done", id="S")
    create_units_table("units")
    made = {f"j-{number}": f"o-{number}" for number in range(5)}
    for job, order in made.items():
        boto3.resource("dynamodb").Table("jobs").put_item(Item={"queue": "bills", "id": job, "order": order})
    return cast(dict[str, Any], made)


def results() -> dict[str, Any]:
    found: Any = boto3.resource("dynamodb").Table("done").scan()["Items"]
    return {each["id"]: each["result"]["order"] for each in found}


def left() -> list[str]:
    found: Any = boto3.resource("dynamodb").Table("jobs").scan()["Items"]
    return [each["id"] for each in found]


def test_every_job_is_done_once_by_many_workers(recipe: Recipe, jobs: dict[str, Any]) -> None:
    program = recipe("A queue of jobs in a table")
    billed: list[str] = []
    whole = program["bill"]

    def bill(order_id: str, fencing_token: int) -> Any:
        billed.append(order_id)
        return whole(order_id, fencing_token)

    program["bill"] = bill

    def worker(_: int) -> None:
        # What is left may be under the lock of another worker.
        while left():
            program["work_once"]()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(worker, range(3)))
    assert results() == jobs
    assert sorted(billed) == sorted(jobs.values())


def test_a_job_whose_worker_raised_stays_in_the_queue(recipe: Recipe, jobs: dict[str, Any]) -> None:
    program = recipe("A queue of jobs in a table")
    program["bill"], whole = (lambda *_: 1 / 0), program["bill"]
    with pytest.raises(ZeroDivisionError):
        program["work_once"]()
    assert (left(), results()) == (list(jobs), {})
    program["bill"] = whole
    assert program["work_once"]()
    assert results() == {"j-0": "o-0"}


def test_a_worker_that_has_lost_its_job_to_another_one_commits_nothing(recipe: Recipe, jobs: dict[str, Any]) -> None:
    program = recipe("A queue of jobs in a table")
    whole = program["bill"]

    def paused(_: str, fencing_token: int) -> Any:
        program["bill"] = whole
        program["locks"].table.force_release(LockName("job-j-0"), fencing_token)
        outcome(meanwhile(program["work_once"]))
        return "late"

    program["bill"] = paused
    with pytest.raises(LockLost):
        program["work_once"]()
    assert results() == {"j-0": "o-0"}
    assert left() == list(jobs)[1:]


# Beside PynamoDB and SQLAlchemy.

BESIDE = "Beside PynamoDB and SQLAlchemy"


def take_over(program: dict[str, Any], *database: Any) -> None:
    """What another process does meanwhile: it takes the lock away from its holder, and adds 100."""
    locks: LockClient = program["locks"]
    (token,) = holders(locks, "order-42")
    locks.table.force_release(LockName("order-42"), token)
    outcome(meanwhile(lambda: program["add"](*database, "42", 100)))


@pytest.fixture
def orders(recipe: Recipe, boto3_in_memory: MemoryDynamoDB) -> dict[str, Any]:
    """The program for PynamoDB, and an order."""
    make_table(boto3_in_memory, "orders", id="S")
    program = recipe(BESIDE)
    model = program["Order"]
    boto3_in_memory.serve(model._get_connection().connection.client)
    model("42").save()
    return program


def test_orders_of_pynamodb_are_changed_one_at_a_time(orders: dict[str, Any]) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: orders["add"]("42", 5), range(4)))
    assert orders["Order"].get("42").total == 20


def test_a_holder_that_pauses_after_its_read_overwrites_no_order_of_pynamodb(orders: dict[str, Any]) -> None:
    from pynamodb.exceptions import PutError

    client = orders["Order"]._get_connection().connection.client
    client.meta.events.register("provide-client-params.dynamodb.PutItem", Once(lambda: take_over(orders)))
    with pytest.raises(PutError, match="ConditionalCheckFailed"):
        orders["add"]("42", 5)
    assert orders["Order"].get("42").total == 100


class Database:
    """The program for SQLAlchemy, and an order in SQLite."""

    def __init__(self, program: dict[str, Any], file: Path) -> None:
        from sqlalchemy import create_engine

        self.program = program
        self.engine = create_engine(f"sqlite:///{file}")
        program["Base"].metadata.create_all(self.engine)
        with program["Session"](self.engine) as session, session.begin():
            session.add(program["Order"](id="42", total=0))

    def add(self, amount: int) -> None:
        self.program["add"](self.engine, "42", amount)

    def total(self) -> int:
        with self.program["Session"](self.engine) as session:
            return cast(int, session.get(self.program["Order"], "42").total)


@pytest.fixture
def database(recipe: Recipe, tmp_path: Path) -> Iterator[Database]:
    made = Database(recipe(BESIDE, after="In SQLAlchemy"), tmp_path / "orders.db")
    yield made
    made.engine.dispose()


def test_rows_of_sqlalchemy_are_committed_before_the_lock_is_released(database: Database, shop: Any) -> None:
    from sqlalchemy import event

    held: list[int] = []
    event.listen(database.engine, "commit", lambda _: held.extend(holders(shop.locks, "order-42")))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: database.add(5), range(4)))
    assert len(set(held)) == 4
    assert database.total() == 20


def test_a_holder_that_pauses_after_its_read_overwrites_no_row_of_sqlalchemy(database: Database) -> None:
    from sqlalchemy import event
    from sqlalchemy.orm.exc import StaleDataError

    pause = Once(lambda: take_over(database.program, database.engine))
    event.listen(database.program["Session"], "before_flush", pause)
    try:
        with pytest.raises(StaleDataError):
            database.add(5)
    finally:
        event.remove(database.program["Session"], "before_flush", pause)
    assert database.total() == 100
