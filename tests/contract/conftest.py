"""The same contract on every engine."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from contract.engines import Engine, counting_engine_names, engine_named, engine_names
from contract.promises import kept_by
from contract.stopped import Execution
from contract.waiting_line import Line
from contract.world import Process, World
from ticketlock_local.engines.dynoxide import dynoxide
from ticketlock_local.engines.emulator import Emulator

from ticketlock import LockName

collect_ignore = [] if counting_engine_names() else ["test_units.py"]


@pytest.fixture(scope="session")
def dynoxide_url() -> Iterator[str]:
    with dynoxide() as url:
        yield url


@pytest.fixture(scope="session")
def ministack_url(emulator: Emulator) -> str:
    return emulator.endpoint


@pytest.fixture(scope="session")
def url_of(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """The URL of an engine, which is started when it is first asked for."""
    return lambda name: request.getfixturevalue(f"{name}_url")


@pytest.fixture(scope="module", params=engine_names())
def engine(request: pytest.FixtureRequest, url_of: Callable[[str], str]) -> Iterator[Engine]:
    with engine_named(request.param, url_of) as named:
        yield named


@pytest.fixture(scope="module")
def onlooker(engine: Engine) -> Any:
    """A client that no test disturbs."""
    return engine.client()


@pytest.fixture
def world(engine: Engine, onlooker: Any, request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(engine)
    yield world
    with kept_by(request):
        world.keeps_its_promises(onlooker)


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
