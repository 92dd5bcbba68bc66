"""A table with its workflow; clients and the command, as their own tests have them."""

import pytest
from cli.conftest import command, dynamodb, entity, environment, locks, table_name
from client.conftest import kind, loop, moved
from security.workflows import Table

__all__ = ["command", "dynamodb", "entity", "environment", "kind", "locks", "loop", "moved", "table_name"]


@pytest.fixture
def table() -> Table:
    return Table()
