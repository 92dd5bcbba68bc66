"""Real processes of the installed command, beside a lock table on the emulator."""

import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import boto3
import pytest
from cli.processes import Command
from ticketlock_local.cloud import client_arguments, client_environment
from ticketlock_local.emulator import Emulator

from ticketlock import LockClient, create_table
from ticketlock._sdk import make_client


@pytest.fixture(scope="session")
def table_name(emulator: Emulator) -> str:
    name = f"locks-{uuid.uuid4().hex[:8]}"
    create_table(name, client=boto3.client("dynamodb", **client_arguments(emulator.endpoint)))
    return name


@pytest.fixture(scope="session")
def environment(emulator: Emulator, table_name: str) -> dict[str, str]:
    """That of a shell whose AWS tools and locks are on the emulator."""
    scripts = str(Path(sys.executable).parent)
    return {
        **os.environ,
        **client_environment(emulator.endpoint),
        "PATH": os.pathsep.join([scripts, os.environ["PATH"]]),
        "TICKETLOCK_TABLE": table_name,
        "TERM": "xterm",
    }


@pytest.fixture
def entity() -> str:
    return f"order-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def locks(emulator: Emulator, table_name: str) -> Iterator[LockClient]:
    """Locks of the same table, for the test itself."""
    client = make_client(endpoint_url=emulator.endpoint, region_name="us-east-1")
    with LockClient(table_name, client=client) as made:
        yield made


@pytest.fixture
def command(environment: dict[str, str]) -> Iterator[Command]:
    with ExitStack() as stack:
        yield Command(environment, stack)
