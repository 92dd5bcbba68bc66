"""Where items are stored: partitions, each in the order of its sort keys."""

import bisect
import hashlib
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from ticketlock._expressions import Attributes, Value, canonical
from ticketlock.testing._refusals import invalid, mismatched

_MAX_KEY_BYTES = (2_048, 1_024)

KeyPart = str | bytes | Decimal
"""The value of a key attribute, ordered as in DynamoDB: text by its UTF-8 bytes, bytes, numbers."""
Key = tuple[KeyPart, KeyPart]
"""The parts of a key; the second is an empty text if the table has no sort key."""


class Partitions:
    """Items under their keys."""

    def __init__(self) -> None:
        self._partitions: dict[KeyPart, _Partition] = {}

    def get(self, key: Key) -> Attributes | None:
        partition = self._partitions.get(key[0])
        return partition.items.get(key[1]) if partition is not None else None

    def put(self, key: Key, item: Attributes | None) -> None:
        pk, sk = key
        if item is not None:
            self._partitions.setdefault(pk, _Partition()).put(sk, item)
        elif pk in self._partitions:
            self._partitions[pk].remove(sk)
            if not self._partitions[pk].items:
                del self._partitions[pk]

    def partition(
        self, pk: KeyPart, at_least: Any = None, after: Any = None, *, is_forward: bool = True
    ) -> Iterator[Attributes]:
        if pk not in self._partitions:
            return iter(())
        found = self._partitions[pk]
        return found.from_(at_least, after) if is_forward else found.down_from(after)

    def items(self, after: Key | None = None, part: int = 0, parts: int = 1) -> Iterator[Attributes]:
        for pk in sorted(self._partitions, key=_scattered):
            if not is_in_segment(pk, part, parts):
                continue
            if after is None or _scattered(pk) > _scattered(after[0]):
                yield from self.partition(pk)
            elif pk == after[0]:
                yield from self.partition(pk, after=after[1])


def key_part(position: int, name: str, kind: str, value: Value, *, is_alone: bool = False) -> KeyPart:
    """The value of a key attribute, which stands in an item unless its key is alone in the request."""
    content = canonical(value)[kind]
    if kind == "N":
        return Decimal(content)
    part: str | bytes = content
    size, most = len(part.encode() if isinstance(part, str) else part), _MAX_KEY_BYTES[position]
    if size == 0:
        # No table needs to be known: also a transaction is refused, not cancelled.
        raise (invalid if is_alone else mismatched)(
            "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an "
            f"empty {'string' if kind == 'S' else 'binary'} value. Key: {name}"
        )
    if size > most:
        raise mismatched(
            f"One or more parameter values were invalid: Size of {('hashkey', 'rangekey')[position]} has exceeded the "
            f"maximum size limit of {most} bytes: the key {name} has {size}"
        )
    return part


def is_in_segment(pk: Any, part: int, parts: int) -> bool:
    """Whether a partition is in this segment of a scan in so many segments."""
    return int.from_bytes(_scattered(pk)[0]) % parts == part


class _Partition:
    def __init__(self) -> None:
        self.items: dict[KeyPart, Attributes] = {}
        # All have one type; Python orders text by code points, which is the order of its UTF-8 bytes.
        self._order: list[Any] = []

    def put(self, sk: KeyPart, item: Attributes) -> None:
        if sk not in self.items:
            bisect.insort(self._order, sk)
        self.items[sk] = item

    def remove(self, sk: KeyPart) -> None:
        if self.items.pop(sk, None) is not None:
            del self._order[bisect.bisect_left(self._order, sk)]

    def from_(self, at_least: KeyPart | None, after: KeyPart | None) -> Iterator[Attributes]:
        begin = bisect.bisect_left(self._order, at_least) if at_least is not None else 0
        if after is not None:
            begin = max(begin, bisect.bisect_right(self._order, after))
        for position in range(begin, len(self._order)):
            yield self.items[self._order[position]]

    def down_from(self, after: KeyPart | None) -> Iterator[Attributes]:
        end = bisect.bisect_left(self._order, after) if after is not None else len(self._order)
        for position in reversed(range(end)):
            yield self.items[self._order[position]]


def _scattered(pk: Any) -> tuple[bytes, Any]:
    """The sort key of a partition within its table, where all keys have one type."""
    return hashlib.sha256(pk if isinstance(pk, bytes) else str(pk).encode()).digest(), pk
