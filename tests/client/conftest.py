"""Both clients, on the emulator and in a time that a test moves."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from client.in_a_loop import Loop
from client.places import Emulated, Kind, Moved, some_entity
from client.programs import Programs, Shared
from contract.engines import create_table
from contract.promises import counts_are_kept, kept_by, stored
from history.kept import Kept
from ticketlock_local.engines.emulator import Emulator

from ticketlock import LockClient
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.wire._sdk import make_client


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    with Loop() as loop:
        yield loop


@pytest.fixture(scope="session")
def lock_table(emulator: Emulator) -> str:
    return create_table(make_client(endpoint_url=emulator.endpoint))


@pytest.fixture(scope="session")
def sdk_clients() -> dict[Any, Any]:
    """Of boto3 and aiobotocore, by what they are like."""
    return {}


@pytest.fixture(params=["threads", "tasks"])
def kind(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    return kind


@pytest.fixture
def place(
    kind: Kind,
    loop: Loop,
    emulator: Emulator,
    lock_table: str,
    sdk_clients: dict[Any, Any],
    request: pytest.FixtureRequest,
) -> Iterator[Emulated]:
    place = Emulated(kind, loop, emulator.endpoint, lock_table, sdk_clients)
    yield place
    place.close()
    with kept_by(request):
        place.keeps_its_promises()


@pytest.fixture
def moved(kind: Kind, loop: Loop, request: pytest.FixtureRequest) -> Iterator[Moved]:
    place = Moved(kind, loop)
    yield place
    place.close()
    with kept_by(request):
        place.keeps_its_promises()


@pytest.fixture
def locks(place: Emulated) -> LockClient:
    return place.client()


@pytest.fixture
def others(place: Emulated) -> LockClient:
    """The client of another process."""
    return place.client()


@pytest.fixture
def entity() -> str:
    return some_entity()


@pytest.fixture
def shared(emulator: Emulator, lock_table: str, entity: str, request: pytest.FixtureRequest) -> Shared:
    where = Shared(emulator.endpoint, lock_table, entity)
    if "kept" not in request.fixturenames:
        return where
    kept: Kept = request.getfixturevalue("kept")
    return replace(where, history=str(kept.path))


@pytest.fixture
def programs(shared: Shared, emulator: Emulator) -> Iterator[Programs]:
    running = Programs(shared)
    try:
        yield running
    finally:
        running.end()
    # Beside whatever stands between the programs and the table.
    beside = replace(shared, endpoint=emulator.endpoint)
    counts_are_kept(stored(beside.client(), shared.table, shared.entity), int(time.time() * 1_000))


@pytest.fixture
def memory(memory: MemoryDynamoDB, clock: ManualClock) -> Iterator[MemoryDynamoDB]:
    yield memory
    counts_are_kept(memory.items(), clock.read().wall_ms)
