"""A client of aiobotocore, as the protocols want it."""

from collections.abc import Mapping
from typing import Any

from ticketlock.wire._sdk import CLIENT_SETTINGS


def make_client(options: Mapping[str, Any]) -> Any:
    """What opens a DynamoDB client: short time-outs, no retries of its own.

    Args:
        options: further arguments of ``create_client``.
    """
    # Imported here: whoever brings a client of their own has chosen the SDK already.
    from aiobotocore.config import AioConfig
    from aiobotocore.session import get_session

    return get_session().create_client("dynamodb", **{"config": AioConfig(**CLIENT_SETTINGS), **options})
