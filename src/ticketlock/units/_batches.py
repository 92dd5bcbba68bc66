"""Splits sequences: into parts of a fixed length, or into parts that fit into one transaction."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from ticketlock._expressions._values import MAX_ITEM_BYTES
from ticketlock.units._work import MOST_BYTES, Place

T = TypeVar("T")

SURELY_TOGETHER = MOST_BYTES // MAX_ITEM_BYTES
"""How many items of any sizes fit into one transaction."""

_BESIDE_BYTES = 16 * 1_024 + MAX_ITEM_BYTES
"""Room for the unit's head, a receipt and a lock, which may be as large as any item."""


def cut(whole: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Parts of ``most`` elements each; the last one may be shorter."""
    return (whole[begin : begin + most] for begin in range(0, len(whole), most))


def has_unknown_sizes(places: Sequence[Place]) -> bool:
    """Whether items that were not read might make these too large for one transaction."""
    unknown = sum(place.blind is not None for place in places)
    return unknown > 0 and sum(place.size_bytes for place in places) + unknown * MAX_ITEM_BYTES > MOST_BYTES


def that_fit_together(places: Sequence[Place], most: int) -> Iterator[list[Place]]:
    """Batches that each fit into one transaction with a head: DynamoDB counts the items' old sizes, too."""
    batch: list[Place] = []
    left_bytes = MOST_BYTES - _BESIDE_BYTES
    for place in places:
        if len(batch) == most or place.size_bytes > left_bytes:
            yield batch
            batch, left_bytes = [], MOST_BYTES - _BESIDE_BYTES
        batch.append(place)
        left_bytes -= place.size_bytes
    if batch:
        yield batch
