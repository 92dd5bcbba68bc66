"""The engines that the contract runs on. A further one needs an entry here and nothing else."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import boto3
import pytest
from moto import mock_aws
from ticketlock_local.emulator import Emulator

from ticketlock._sdk import make_client
from ticketlock.testing import MemoryDynamoDB

ENDPOINT = "TICKETLOCK_TEST_ENDPOINT"
IN_ONE_PROCESS = ("moto", "memory")
"""The engines that live inside one process, where no other reaches them."""


@dataclass(frozen=True)
class Engine:
    """A DynamoDB that answers.

    Attributes:
        name: for messages.
        endpoint_url: None inside moto, and in memory.
        table_name: a table of its own, with the keys of a lock table.
        memory: what answers when it is in memory.
    """

    name: str
    endpoint_url: str | None
    table_name: str
    memory: MemoryDynamoDB | None = None

    def client(self) -> Any:
        """A client as the protocol wants it."""
        client = make_client(**({"endpoint_url": self.endpoint_url} if self.endpoint_url else {}))
        if self.memory is not None:
            self.memory.serve(client)
        return client


def engine_names() -> list[str]:
    return ["moto", "memory", "ministack", *(["endpoint"] if ENDPOINT in os.environ else [])]


def exact_engine_names() -> list[str]:
    """The engines that count exactly over all 38 digits; ministack loses increments from 10^28 up."""
    return [name for name in engine_names() if name != "ministack"]


ON_ONE_ENGINE = pytest.mark.parametrize("engine", ["ministack"], indirect=True)
"""For tests that enumerate many orders: an order of requests is the same on every engine, and this one is quick."""


@contextmanager
def moto_engine() -> Iterator[Engine]:
    with mock_aws():
        yield Engine("moto", None, create_table(boto3.client("dynamodb")))


@contextmanager
def memory_engine() -> Iterator[Engine]:
    engine = Engine("memory", None, "", MemoryDynamoDB(lock_table=None))
    yield replace(engine, table_name=create_table(engine.client()))


@contextmanager
def ministack_engine(emulator: Emulator) -> Iterator[Engine]:
    client = boto3.client("dynamodb", endpoint_url=emulator.endpoint)
    yield Engine("ministack", emulator.endpoint, create_table(client))


@contextmanager
def endpoint_engine() -> Iterator[Engine]:
    endpoint_url = os.environ[ENDPOINT]
    client: Any = boto3.client("dynamodb", endpoint_url=endpoint_url)
    table_name = create_table(client)
    try:
        yield Engine("endpoint", endpoint_url, table_name)
    finally:
        client.delete_table(TableName=table_name)


@contextmanager
def table_of_its_own(engine: Engine) -> Iterator[Engine]:
    """The same engine with another table, which is gone afterwards: moto copies a whole table at each transaction."""
    client = engine.client()
    table_name = create_table(client)
    try:
        yield replace(engine, table_name=table_name)
    finally:
        client.delete_table(TableName=table_name)


def create_table(client: Any) -> str:
    name = f"locks-{uuid.uuid4().hex[:8]}"
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("pk", "sk")],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    )
    client.get_waiter("table_exists").wait(TableName=name)
    return name
