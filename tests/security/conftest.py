"""Clients and the command, as their own tests have them."""

from cli.conftest import command, dynamodb, entity, environment, locks, table_name
from client.conftest import kind, loop, moved

__all__ = ["command", "dynamodb", "entity", "environment", "kind", "locks", "loop", "moved", "table_name"]
