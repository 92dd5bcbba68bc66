"""Attributes as DynamoDB's low-level API has them."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

Item = Mapping[str, Mapping[str, Any]]
"""An item as DynamoDB's low-level API has it: attribute name to {type: value}."""

TIME_TO_LIVE = "expiresAt"
"""The attribute that DynamoDB deletes items by, in every table of ours: whole seconds since the epoch."""


def number(value: int) -> dict[str, str]:
    """An integer as the low-level API has it."""
    return {"N": str(value)}


def integer(value: Mapping[str, Any]) -> int:
    """The integer in an attribute; engines may write large ones with an exponent."""
    return int(Decimal(value["N"]))
