"""The ends of processes: forked, interrupted, terminated, frozen between two invocations."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.places import Emulated, Kind, until

from ticketlock import InvalidLockRequest, LockClient

pytestmark = [
    pytest.mark.shows("left queue", "end of a client"),
    pytest.mark.verify("each end is that of a process"),
]

PROGRAM = Path(__file__).with_name("ends.py")
EXAMPLES = Path(__file__).parents[2] / "examples"
WORKER = EXAMPLES / "worker" / "worker.py"
HANDLER = EXAMPLES / "lambda_handler" / "handler.py"
TIMEOUT_S = 60


@pytest.fixture
def kind() -> Kind:
    """A process has one of the clients for threads."""
    return "threads"


@pytest.fixture
def start(place: Emulated) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts programs; none outlives the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str | Path, **env: str) -> subprocess.Popen[str]:
        program = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            env={**os.environ, "AWS_ENDPOINT_URL": place.endpoint, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(program)
        return program

    yield start
    for program in started:
        program.kill()
        program.communicate()


def said(program: subprocess.Popen[str]) -> str:
    """The next line."""
    assert program.stdout is not None
    line = program.stdout.readline()
    assert line, program.communicate()[1]
    return line.strip()


@pytest.fixture(params=[False, True], ids=["holds", "waits"])
def waits(locks: LockClient, entity: str, request: pytest.FixtureRequest) -> bool:
    """Whether the program waits for the lock, which another owner holds then, or holds it."""
    if request.param:
        locks.acquire(entity)
    return bool(request.param)


@pytest.mark.parametrize(
    ("how", "code"), [("end", 0), ("exit", 3), ("exception", 1), ("in a thread", 0), ("releases", 0)]
)
def test_a_program_that_ends_with_a_lock_held_frees_it(
    place: Emulated, start: Any, entity: str, how: str, code: int
) -> None:
    program = start(PROGRAM, how, place.table_name, entity)
    assert program.wait(TIMEOUT_S) == code
    assert place.is_free(entity)
    assert place.is_free(entity + "x")


def test_a_program_that_ends_while_it_waits_in_the_background_leaves_the_queue(
    place: Emulated, locks: LockClient, start: Any, entity: str
) -> None:
    locks.acquire(entity)
    program = start(PROGRAM, "waits", place.table_name, entity)
    assert program.wait(TIMEOUT_S) == 0
    assert place.queue_of(entity) == 0


def test_an_interrupt_frees_a_lock_that_is_held_and_ends_a_wait(
    place: Emulated, start: Any, entity: str, waits: bool
) -> None:
    program = start(PROGRAM, "interrupted", place.table_name, entity)
    assert said(program) == ('"waiting"' if waits else '"held"')
    program.send_signal(signal.SIGINT)
    assert program.wait(TIMEOUT_S) in (-signal.SIGINT, 128 + signal.SIGINT)
    assert (place.holders_of(entity), place.queue_of(entity)) == (waits, 0)


FORK = pytest.mark.always("a fork is what users meet")


@pytest.fixture
def told(place: Emulated, start: Any, entity: str) -> dict[str, dict[str, Any]]:
    """What the child found, and the parent after the child's end; and whether another owner holds the lock then."""
    program = start(PROGRAM, "fork", place.table_name, entity)
    assert said(program) == '"held"'
    child, parent = json.loads(said(program)), json.loads(said(program))
    holders = {"parent": place.holders_of(entity), "child": place.holders_of(entity + "x")}
    program.communicate("\n", TIMEOUT_S)
    return {"child": child, "parent": parent, "holders": holders, "after": {"is free": place.is_free(entity)}}


@FORK
def test_a_forked_child_does_not_hold_its_parents_lock_and_can_use_neither_it_nor_the_client(
    told: dict[str, Any],
) -> None:
    """Parent and child share one connection: each could get the reply to the other's request."""
    child = told["child"]
    assert (child["is_held"], child["remaining_s"]) == (False, 0)
    assert child["repr"].endswith(", of another process, not held here>")
    for kind, why in [
        ("lease", "ClientClosed: the lease belongs to the process that this one was forked from"),
        ("client", "create a new client here"),
        ("tables", "ClientClosed: the client was made in"),
    ]:
        assert child[kind] != {}
        assert {what: error for what, error in child[kind].items() if why not in str(error)} == {}


@FORK
def test_the_end_of_a_forked_child_leaves_its_parents_lock_alone(told: dict[str, Any]) -> None:
    assert told["child"]["ends"] == {"close": None, "close of a task": None}
    assert told["parent"] == {"status": 0, "is_held": True}
    assert told["holders"] == {"parent": 1, "child": 0}
    assert told["after"] == {"is free": True}


def test_a_worker_frees_its_lock_or_leaves_the_queue_on_sigterm(
    place: Emulated, start: Any, entity: str, waits: bool
) -> None:
    worker = start(WORKER, LOCK_TABLE=place.table_name, JOB=entity)
    until(lambda: place.queue_of(entity) == 1 if waits else said(worker) == "page 0", "a wait, or the work")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(TIMEOUT_S) == 128 + signal.SIGTERM
    assert (place.holders_of(entity), place.queue_of(entity)) == (waits, 0)


def test_a_worker_that_has_done_its_job_exits_with_0(place: Emulated, start: Any, entity: str) -> None:
    worker = start(WORKER, LOCK_TABLE=place.table_name, JOB=entity, PAGES="1")
    assert worker.wait(TIMEOUT_S) == 0
    assert place.is_free(entity)


@pytest.fixture
def function(place: Emulated, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The example's module as Lambda loads it: once, for all invocations of a sandbox."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", place.endpoint)
    monkeypatch.setenv("LOCK_TABLE", place.table_name)
    spec = importlib.util.spec_from_file_location("example_handler", HANDLER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    module.locks.close()


def test_nothing_of_a_lambda_function_runs_between_two_invocations_and_each_has_a_later_token(
    place: Emulated, function: Any, entity: str
) -> None:
    before, tokens = set(threading.enumerate()), []
    for _ in range(2):
        tokens.append(function.handler({"orderId": entity}, None)["fencingToken"])
        assert set(threading.enumerate()) <= before
        assert place.is_free(f"order-{entity}")
    assert tokens[0] < tokens[1]


def test_an_invocation_whose_event_lacks_the_key_takes_no_lock(place: Emulated, function: Any, entity: str) -> None:
    with pytest.raises(InvalidLockRequest, match="orderId"):
        function.handler({"order": entity}, None)
    assert place.is_free(f"order-{entity}")
