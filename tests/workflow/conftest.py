"""The state machine's steps, on every engine."""

import pytest
from kit.stopped import Execution
from kit.world import Process

from ticketlock import LockName


@pytest.fixture
def dead(processes: list[Process], lock: LockName) -> Execution:
    """The execution that was stopped; its work is a nested one."""
    return Execution(processes, lock)


@pytest.fixture
def successor(processes: list[Process], lock: LockName, dead: Execution) -> Execution:
    return Execution(processes, lock, service=dead.service, name="successor")
