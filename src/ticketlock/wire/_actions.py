"""What a performer does: a call of an SDK's client, or a sleep."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an SDK's client.

    Attributes:
        service: which client.
        operation: the method, in snake case.
        parameters: its keyword arguments.
    """

    service: Literal["dynamodb", "stepfunctions"]
    operation: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sleep:
    """Do nothing for a while."""

    ms: float


Actions = Generator[Call | Sleep, Any, T]
"""Yields calls and sleeps; is sent what a call returned, or thrown what it raised; returns its result."""
