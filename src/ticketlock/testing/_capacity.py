"""The capacity units of requests, by the published rules, and how replies tell them.

Reads and writes: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html
Indexes: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/GSI.html#GSI.ThroughputConsiderations
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from ticketlock._expressions import Attributes, size_of
from ticketlock.testing._indexes import SecondaryIndex

_READ_UNIT_BYTES = 4_096
_WRITE_UNIT_BYTES = 1_024

IN_A_TRANSACTION = 2
"""How many times the units of a table are taken; those of its indexes are taken once."""

ConsumedUnits = dict[str, Any]


def read_units(size: int, *, is_consistent: bool) -> float:
    """The units of a read that is not part of a transaction."""
    return max(1, -(-size // _READ_UNIT_BYTES)) / (1 if is_consistent else 2)


def write_units(before: Attributes | None, after: Attributes | None) -> int:
    """The units of a write to a table or an index: the larger of the two items is billed."""
    return max(1, -(-max(size_of(before or {}), size_of(after or {})) // _WRITE_UNIT_BYTES))


def index_units(index: SecondaryIndex, before: Attributes | None, after: Attributes | None) -> int:
    """The units that the change of an item costs in an index."""
    entries = index.entry_of(before), index.entry_of(after)
    if entries[0] == entries[1]:
        return 0
    if None not in entries and index.place_of(before) == index.place_of(after):
        return write_units(*entries)
    # A changed key: one entry is deleted, and another one is added.
    return sum(write_units(entry, None) for entry in entries if entry is not None)


class Meter:
    """The units that one request takes, table by table, if it asks for them.

    Tables have the names that the request has for them.

    Args:
        parameters: those of the request.
        kind: of a transaction, whether it reads or writes: its reply tells that too.
    """

    def __init__(self, parameters: Mapping[str, Any], kind: Literal["Read", "Write"] | None = None) -> None:
        self._asked = parameters.get("ReturnConsumedCapacity", "NONE")
        self._kind = kind
        self._taken: dict[str, dict[SecondaryIndex | None, float]] = {}

    @property
    def counts(self) -> bool:
        """Whether the request asks for its units."""
        return bool(self._asked != "NONE")

    def take(self, table: str, units: float, index: SecondaryIndex | None = None) -> None:
        """Count units of a table or of one of its indexes."""
        taken = self._taken.setdefault(table, {None: 0.0})
        taken[index] = taken.get(index, 0.0) + units

    def take_write(
        self,
        table: str,
        indexes: Iterable[SecondaryIndex],
        before: Attributes | None,
        after: Attributes | None,
        times: int = 1,
    ) -> None:
        """Count the units of a write."""
        if not self.counts:
            return
        self.take(table, times * write_units(before, after))
        for index in indexes:
            units = index_units(index, before, after)
            if units:
                self.take(table, units, index)

    def of_one(self) -> ConsumedUnits:
        """The member of a reply, of a request to one table."""
        return {"ConsumedCapacity": shown} if (shown := next(iter(self._told()), None)) is not None else {}

    def of_all(self) -> ConsumedUnits:
        """The same of a request to several tables."""
        return {"ConsumedCapacity": self._told()} if self.counts else {}

    def _told(self) -> list[ConsumedUnits]:
        if not self.counts:
            return []
        return [
            {"TableName": name, **self._units(sum(taken.values())), **self._in_detail(taken)}
            for name, taken in self._taken.items()
        ]

    def _in_detail(self, taken: Mapping[SecondaryIndex | None, float]) -> ConsumedUnits:
        if self._asked != "INDEXES":
            return {}
        detail: ConsumedUnits = {"Table": self._units(taken[None])}
        for index, units in taken.items():
            if index is not None:
                kind = "LocalSecondaryIndexes" if index.is_local else "GlobalSecondaryIndexes"
                detail.setdefault(kind, {})[index.name] = self._units(units)
        return detail

    def _units(self, units: float) -> ConsumedUnits:
        shown = {"CapacityUnits": float(units)}
        return shown if self._kind is None else {**shown, f"{self._kind}CapacityUnits": float(units)}
