"""Attribute values in DynamoDB's low-level format."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

Item = Mapping[str, Mapping[str, Any]]
"""An item in the low-level format: attribute name to {type: value}."""

TIME_TO_LIVE = "expiresAt"
"""The time to live attribute of all our tables: whole seconds since the epoch."""


def number(value: int) -> dict[str, str]:
    """An integer in the low-level format."""
    return {"N": str(value)}


def integer(value: Mapping[str, Any]) -> int:
    """Read an integer attribute; engines may write large ones with an exponent."""
    return int(Decimal(value["N"]))
