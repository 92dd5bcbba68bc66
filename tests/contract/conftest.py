"""The same contract on every engine."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from contract.engines import Engine, endpoint_engine, engine_names, memory_engine, ministack_engine, moto_engine
from contract.stopped import Execution
from contract.waiting_line import Line
from contract.world import Process, World

from ticketlock import LockName


@pytest.fixture(scope="module", params=engine_names())
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with ExitStack() as stack:
        if request.param == "moto":
            yield stack.enter_context(moto_engine())
        elif request.param == "memory":
            yield stack.enter_context(memory_engine())
        elif request.param == "ministack":
            yield stack.enter_context(ministack_engine(request.getfixturevalue("emulator")))
        else:
            yield stack.enter_context(endpoint_engine())


@pytest.fixture
def world(engine: Engine) -> World:
    return World(engine)


@pytest.fixture
def lock(world: World) -> LockName:
    return world.lock()


@pytest.fixture
def alice(world: World) -> Process:
    return world.process()


@pytest.fixture
def bob(world: World) -> Process:
    return world.process()


@pytest.fixture
def carol(world: World) -> Process:
    return world.process()


@pytest.fixture
def processes(world: World) -> list[Process]:
    """Processes that a test uses again and again: each costs a client."""
    return [world.process() for _ in range(4)]


@pytest.fixture
def line(world: World) -> Line:
    return Line(world)


@pytest.fixture
def dead(processes: list[Process], lock: LockName) -> Execution:
    """The execution that was stopped; its work is a nested one."""
    return Execution(processes, lock)


@pytest.fixture
def successor(processes: list[Process], lock: LockName, dead: Execution) -> Execution:
    return Execution(processes, lock, service=dead.service, name="successor")
