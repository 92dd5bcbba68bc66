"""Creates the aiobotocore client that the protocols need."""

from collections.abc import Mapping
from typing import Any

from ticketlock.wire._sdk import CLIENT_SETTINGS


def make_client(options: Mapping[str, Any]) -> Any:
    """Return a context manager that opens a DynamoDB client: short time-outs, no retries of its own.

    Args:
        options: further arguments of ``create_client``.
    """
    # Imported here: not needed if the caller passes a client.
    from aiobotocore.config import AioConfig
    from aiobotocore.session import get_session

    return get_session().create_client("dynamodb", **{"config": AioConfig(**CLIENT_SETTINGS), **options})
