"""The SDK for tasks."""

from collections.abc import Mapping
from typing import Any

from ticketlock.wire._sdk import client_config


def make_client(options: Mapping[str, Any]) -> Any:
    """Return a context manager that opens a DynamoDB client: short time-outs, no retries of its own."""
    # Imported here: not needed if the caller passes a client.
    from aiobotocore.session import get_session

    return get_session().create_client("dynamodb", **{"config": client_config(), **options})
