"""The state machine's steps, on every engine."""

import pytest
from kit.step_functions import TaskService
from kit.stopped import Execution
from kit.world import Process

from ticketlock import LockName
from ticketlock.workflow import Workflow


@pytest.fixture
def service() -> TaskService:
    return TaskService()


@pytest.fixture
def workflow(alice: Process, service: TaskService) -> Workflow:
    """In a process, its requests to Step Functions answered by the service."""
    return service.workflow(alice)


@pytest.fixture
def dead(processes: list[Process], lock: LockName) -> Execution:
    """The execution that was stopped; its work is a nested one."""
    return Execution(processes, lock)


@pytest.fixture
def successor(processes: list[Process], lock: LockName, dead: Execution) -> Execution:
    return Execution(processes, lock, service=dead.service, name="successor")
