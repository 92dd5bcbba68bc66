"""What boto3 sends is answered from memory, and the recipes of docs/recipes.md are run."""

import sys
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

import boto3
import botocore.session
import pytest
from kit.pages import ROOT, first_block

from ticketlock import LockClient, create_table
from ticketlock.testing import MemoryDynamoDB

PAGE = "docs/recipes.md"

Recipe = Callable[..., dict[str, Any]]
"""Runs a program, and returns what it defines. Takes the heading, texts to replace, and the line that comes before."""


def run(heading: str, after: str, names: dict[str, Any], instead: Mapping[str, str]) -> dict[str, Any]:
    line, source = first_block(PAGE, heading, after)
    for old, new in instead.items():
        assert old in source
        source = source.replace(old, new)
    exec(compile("\n" * line + source, str(ROOT / PAGE), "exec"), names)
    return names


def make_table(dynamodb: Any, name: str, **keys: str) -> None:
    """Create a table with these keys, each with its type."""
    roles = zip(keys, ("HASH", "RANGE"), strict=False)
    dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": kind} for key, kind in keys.items()],
        KeySchema=[{"AttributeName": key, "KeyType": role} for key, role in roles],
    )


def holders(locks: LockClient, entity: str) -> list[int]:
    """The fencing tokens of those who hold a lock."""
    item = locks.inspect(entity).item
    return [each.fencing_token for each in item.holders] if item else []


@pytest.fixture(scope="session")
def session_in_memory() -> Any:
    """Made once: a session reads the models of the services."""
    return botocore.session.get_session()


@pytest.fixture
def boto3_in_memory(session_in_memory: Any, monkeypatch: pytest.MonkeyPatch) -> MemoryDynamoDB:
    """Answers every client of boto3, in real time; it has no table yet."""
    memory = MemoryDynamoDB(lock_table=None)
    # A client inherits the handlers of its session.
    memory.serve(SimpleNamespace(meta=SimpleNamespace(events=session_in_memory)))
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", boto3.Session(botocore_session=session_in_memory))
    return memory


@pytest.fixture
def shop(boto3_in_memory: MemoryDynamoDB, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module that all recipes import; its locks are in memory."""
    create_table("locks", client=boto3_in_memory.client)
    module = ModuleType("shop")
    run("# Recipes", "", module.__dict__, {})
    monkeypatch.setitem(sys.modules, "shop", module)
    yield module
    module.locks.close()


@pytest.fixture
def recipe(shop: Any) -> Iterator[Recipe]:
    """The clients of the programs are closed after the test."""
    clients: list[LockClient] = []

    def of(heading: str, instead: Mapping[str, str] = MappingProxyType({}), after: str = "") -> dict[str, Any]:
        # A name of its own: Celery gives a task to every application that knows none of its full name.
        names = run(f"## {heading}", after, {"__name__": f"recipe_{len(clients)}_{id(shop)}"}, instead)
        clients.append(names.get("locks", shop.locks))
        return names

    yield of
    for client in clients:
        client.close()
