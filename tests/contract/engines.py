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

ENDPOINT = "TICKETLOCK_TEST_ENDPOINT"


@dataclass(frozen=True)
class Engine:
    """A DynamoDB that answers.

    Attributes:
        name: for messages.
        endpoint_url: None inside moto.
        table_name: a table of its own, with the keys of a lock table.
    """

    name: str
    endpoint_url: str | None
    table_name: str


def engine_names() -> list[str]:
    return ["moto", "ministack", *(["endpoint"] if ENDPOINT in os.environ else [])]


def exact_engine_names() -> list[str]:
    """The engines that count exactly over all 38 digits; ministack loses increments from 10^28 up."""
    return [name for name in engine_names() if name != "ministack"]


ON_ONE_ENGINE = pytest.mark.parametrize("engine", ["ministack"], indirect=True)
"""For tests that enumerate many orders: an order of requests is the same on every engine, and this one is quick."""


@contextmanager
def moto_engine() -> Iterator[Engine]:
    with mock_aws():
        yield Engine("moto", None, create_table(None))


@contextmanager
def ministack_engine(emulator: Emulator) -> Iterator[Engine]:
    yield Engine("ministack", emulator.endpoint, create_table(emulator.endpoint))


@contextmanager
def endpoint_engine() -> Iterator[Engine]:
    endpoint_url = os.environ[ENDPOINT]
    table_name = create_table(endpoint_url)
    try:
        yield Engine("endpoint", endpoint_url, table_name)
    finally:
        boto3.client("dynamodb", endpoint_url=endpoint_url).delete_table(TableName=table_name)


@contextmanager
def table_of_its_own(engine: Engine) -> Iterator[Engine]:
    """The same engine with another table, which is gone afterwards: moto copies a whole table at each transaction."""
    table_name = create_table(engine.endpoint_url)
    try:
        yield replace(engine, table_name=table_name)
    finally:
        client: Any = boto3.client("dynamodb", endpoint_url=engine.endpoint_url)
        client.delete_table(TableName=table_name)


def create_table(endpoint_url: str | None) -> str:
    client: Any = boto3.client("dynamodb", endpoint_url=endpoint_url)
    name = f"locks-{uuid.uuid4().hex[:8]}"
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("pk", "sk")],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    )
    client.get_waiter("table_exists").wait(TableName=name)
    return name
