"""The state machine's steps, on every engine."""

from collections.abc import Callable, Iterator

import pytest
from kit.engines import Engine, engine_named, engine_names, first_on
from kit.step_functions import TaskService
from kit.stopped import Execution
from kit.world import Process

from ticketlock import LockName
from ticketlock.workflow import Workflow


@pytest.fixture(scope="module", params=first_on("memory", engine_names()))
def engine(request: pytest.FixtureRequest, url_of: Callable[[str], str]) -> Iterator[Engine]:
    """In `make test` only the one in memory: executions under interpreted and e2e use the tables of other engines."""
    with engine_named(request.param, url_of) as named:
        yield named


@pytest.fixture
def service() -> TaskService:
    return TaskService()


@pytest.fixture
def workflow(alice: Process, service: TaskService) -> Workflow:
    """In a process whose requests to Step Functions are answered by the service."""
    return service.workflow(alice)


@pytest.fixture
def dead(processes: list[Process], lock: LockName) -> Execution:
    """The execution that was stopped; its work is a nested one."""
    return Execution(processes, lock)


@pytest.fixture
def successor(processes: list[Process], lock: LockName, dead: Execution) -> Execution:
    return Execution(processes, lock, service=dead.service, name="successor")
