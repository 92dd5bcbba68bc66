"""The engines that the contract runs on. To add one, add an entry here.

docs/proof.md says how they differ.
"""

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import boto3
import pytest
from moto import mock_aws

from ticketlock.locks._lock_table import LOCK_TABLE
from ticketlock.testing import MemoryDynamoDB
from ticketlock.wire._sdk import make_client

ENDPOINT = "TICKETLOCK_TEST_ENDPOINT"
"""An environment variable: the URL of a DynamoDB of the user's, as another engine."""
DYNOXIDE = "TICKETLOCK_TEST_DYNOXIDE"
"""An environment variable, with any value: also use dynoxide, which is built first if necessary."""
IN_ONE_PROCESS = ("moto", "memory")
"""The engines inside one process, which no other process reaches."""
_ALWAYS_THERE = (*IN_ONE_PROCESS, "ministack")


@dataclass(frozen=True)
class Engine:
    """A DynamoDB.

    Attributes:
        name: for messages.
        endpoint_url: None inside moto, and in memory.
        table_name: a table of its own, with the keys of a lock table.
        memory: the engine, if it is in memory.
    """

    name: str
    endpoint_url: str | None
    table_name: str
    memory: MemoryDynamoDB | None = None

    def client(self) -> Any:
        """A client with the settings that the protocol needs."""
        client = make_client(**({"endpoint_url": self.endpoint_url} if self.endpoint_url else {}))
        if self.memory is not None:
            self.memory.serve(client)
        return client


def engine_names() -> list[str]:
    asked = {"dynoxide": DYNOXIDE, "endpoint": ENDPOINT}
    return [*_ALWAYS_THERE, *(name for name, variable in asked.items() if variable in os.environ)]


def exact_engine_names() -> list[str]:
    """The engines that count exactly over all 38 digits; ministack loses increments from 10^28 up."""
    return [name for name in engine_names() if name != "ministack"]


def engine_names_but_moto() -> list[str]:
    """Moto has not DynamoDB's limits: it evaluates no hundred conditions, reads only 25 items together, accepts items
    of 405,000 bytes, and recognises no token of a transaction. It is slow where many orders are enumerated: it copies a
    whole table at each transaction.
    """
    return [name for name in engine_names() if name != "moto"]


def engine_names_but_dynoxide() -> list[str]:
    """Dynoxide parses no conditions in parentheses within those on a key."""
    return [name for name in engine_names() if name != "dynoxide"]


def counting_engine_names() -> list[str]:
    """The engines that bill by the rules: moto bills all requests alike, ministack all reads; ours reports nothing."""
    return [name for name in engine_names() if name == "dynoxide"]


def first_on(name: str, names: Sequence[str]) -> list[Any]:
    """Engines as parameters: `make test` uses this one, and the user's own; `make verify` the others."""
    later = pytest.mark.verify(f"the same was tested on {name}")
    return [pytest.param(each, marks=later if each in _ALWAYS_THERE and each != name else ()) for each in names]


IN_MEMORY = pytest.mark.parametrize("engine", ["memory"], indirect=True)
"""For tests of many orders of requests, which are the same on every engine; single requests are asked of all."""


def engine_named(name: str, url_of: Callable[[str], str]) -> AbstractContextManager[Engine]:
    """One of the engines, with a table of its own; ``url_of`` starts those that run as servers, by their names."""
    if name == "moto":
        return _moto()
    if name == "memory":
        return _memory()
    return table_of_its_own(Engine(name, os.environ[ENDPOINT] if name == "endpoint" else url_of(name), ""))


@contextmanager
def _moto() -> Iterator[Engine]:
    with mock_aws():
        yield Engine("moto", None, create_table(boto3.client("dynamodb")))


@contextmanager
def _memory() -> Iterator[Engine]:
    engine = Engine("memory", None, "", MemoryDynamoDB(lock_table=None))
    yield replace(engine, table_name=create_table(engine.client()))


@contextmanager
def table_of_its_own(engine: Engine) -> Iterator[Engine]:
    """The same engine with another table, deleted afterwards: moto copies a whole table at each transaction."""
    client = engine.client()
    table_name = create_table(client)
    try:
        yield replace(engine, table_name=table_name)
    finally:
        client.delete_table(TableName=table_name)


def create_table(client: Any) -> str:
    """Create a lock table without TTL: the time of a world is not the engine's."""
    name = f"locks-{uuid.uuid4().hex[:8]}"
    client.create_table(**LOCK_TABLE.definition(name))
    client.get_waiter("table_exists").wait(TableName=name)
    return name
