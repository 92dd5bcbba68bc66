"""Many things in parts: of so many, or that fit into one transaction."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from ticketlock.units._commit import MOST_BYTES
from ticketlock.units._work import Place

T = TypeVar("T")

_HEAD_BYTES = 16 * 1_024
"""Room for the unit's head, a receipt and a lock."""


def cut(whole: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Parts of so many each, the last one of what is left."""
    return (whole[begin : begin + most] for begin in range(0, len(whole), most))


def that_fit_together(places: Sequence[Place], most: int) -> Iterator[list[Place]]:
    """Those that fit into one transaction, beside a head: DynamoDB counts the items as they stand, too."""
    batch: list[Place] = []
    left_bytes = MOST_BYTES - _HEAD_BYTES
    for place in places:
        if len(batch) == most or place.size_bytes > left_bytes:
            yield batch
            batch, left_bytes = [], MOST_BYTES - _HEAD_BYTES
        batch.append(place)
        left_bytes -= place.size_bytes
    if batch:
        yield batch
