"""Both clients, processes and the command, behind a proxy before the emulator."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from kit.certificates import Certificate, self_signed
from kit.command import Command, shell
from kit.far import Far
from kit.faults import DEFAULT_ODDS, SURELY_INJECTED, RandomFaults
from kit.in_a_loop import Loop
from kit.injected import INJECTED
from kit.kept import Kept
from kit.places import Emulated, Kind
from kit.programs import Shared
from kit.promises import counts_are_kept, kept_by, stored
from kit.proxy import Proxy
from ticketlock_local.engines.emulator import Emulator

from ticketlock import LockClient
from ticketlock.wire._sdk import make_client

_FAULT_SEEDS = int(os.environ.get("TICKETLOCK_TEST_FAULT_SEEDS", "1"))


@pytest.fixture(scope="session")
def the_proxy(emulator: Emulator, pytestconfig: pytest.Config) -> Iterator[Proxy]:
    with Proxy(emulator.endpoint) as proxy:
        yield proxy.listen()
    pytestconfig.stash[INJECTED].update({fault.__name__: count for fault, count in proxy.injected.items()})
    # If only a few tests run, some faults may not occur.
    if proxy.injected.total() >= SURELY_INJECTED:
        assert set(proxy.injected) == set(DEFAULT_ODDS), "faults that were never injected"


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return self_signed(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="session")
def ways(emulator: Emulator, certificate: Certificate, pytestconfig: pytest.Config) -> Iterator[dict[str, Proxy]]:
    """Proxies for the requests that are weighed."""
    with Proxy(emulator.endpoint) as plain, Proxy(emulator.endpoint, certificate) as certified:
        yield {"HTTP": plain.listen(), "HTTPS by CONNECT": certified.listen()}
    for proxy in (plain, certified):
        pytestconfig.stash[INJECTED].update({fault.__name__: count for fault, count in proxy.injected.items()})


@pytest.fixture
def proxy(the_proxy: Proxy) -> Iterator[Proxy]:
    yield the_proxy
    the_proxy.clear_up()


@pytest.fixture(params=range(_FAULT_SEEDS))
def seed(request: pytest.FixtureRequest) -> str:
    """That of random faults, the same at each run of a test: its name."""
    return str(request.node.name)


@pytest.fixture
def random_faults(proxy: Proxy, seed: str) -> None:
    proxy.random_faults = RandomFaults(seed)


@pytest.fixture(scope="session")
def far_sdk_clients() -> dict[Any, Any]:
    return {}


@pytest.fixture
def place(
    kind: Kind,
    loop: Loop,
    proxy: Proxy,
    emulator: Emulator,
    lock_table: str,
    sdk_clients: dict[Any, Any],
    far_sdk_clients: dict[Any, Any],
    request: pytest.FixtureRequest,
) -> Iterator[Far]:
    near = Emulated(kind, loop, emulator.endpoint, lock_table, sdk_clients)
    far = Far(kind, loop, proxy, near, far_sdk_clients)
    yield far
    # Locks that a test has left are released without faults.
    proxy.clear_up()
    far.close()
    near.close()
    with kept_by(request):
        far.keeps_its_promises()


@pytest.fixture
def locks(place: Far) -> LockClient:
    return place.client()


@pytest.fixture
def others(place: Far) -> LockClient:
    """The client of another process, behind the proxy too."""
    return place.client()


@pytest.fixture
def near(place: Far) -> LockClient:
    """The client of another process, beside the table."""
    return place.near.client()


@pytest.fixture
def shared(proxy: Proxy, lock_table: str, entity: str, kept: Kept) -> Shared:
    return Shared(proxy.url, lock_table, entity, str(kept.path))


@pytest.fixture
def beside_the_table(shared: Shared, emulator: Emulator) -> Shared:
    return replace(shared, endpoint=emulator.endpoint)


@pytest.fixture
def command(
    proxy: Proxy,
    emulator: Emulator,
    lock_table: str,
    entity: str,
    request: pytest.FixtureRequest,
) -> Iterator[Command]:
    with ExitStack() as stack:
        yield Command(shell(proxy.url, lock_table), stack)
    beside_the_table = make_client(endpoint_url=emulator.endpoint)
    with kept_by(request):
        counts_are_kept(stored(beside_the_table, lock_table, entity), int(time.time() * 1_000))
