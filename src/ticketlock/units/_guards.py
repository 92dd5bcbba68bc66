"""Guards of ranges: an insert into a partition of a guarded table also writes a row that queries of it have read.

A guard is an item of the units table, with a version and a mark like any other item. So what a query has read of it
holds until the commit, and an insert that is committed in between is a conflict. Deletes need no guard: an item that a
query has returned has a version, which is checked, and an item that it has not returned was gone before.

The guard is read before the items, and inserts are committed by marks. The mark is in the new item before the unit is
committed, so a process that finds the guard of a committed unit finds its items too. If one transaction wrote both,
a reader could see the guard before the item while DynamoDB applies it.
"""

import hashlib
from collections.abc import Sequence

from ticketlock._expressions._schemas import KeyAttribute, Schema
from ticketlock._expressions._values import Attributes, Value, canonical_item
from ticketlock.units._rows import KEY, STAMP, check_row, row_key
from ticketlock.units._tables import UnitTable
from ticketlock.units._work import ItemState, Work

GUARD = "guard"
"""The sort key of a guard, in place of the name of a unit's row."""

GUARDS_OF = f"{GUARD}#"
"""What precedes a table's name in place of a unit's id."""

SLOTS = 16_384
"""Guards of one table. Partitions that share a guard are guarded together, which costs only conflicts."""


class Guards:
    """The guards in the units table.

    Args:
        units_table: its name.
    """

    def __init__(self, units_table: str) -> None:
        keys = tuple(KeyAttribute(name, "S", role) for name, role in zip(KEY, ("HASH", "RANGE"), strict=True))
        self.table = UnitTable(units_table, Schema(units_table, keys))

    def of(self, table: UnitTable, partition: Value, work: Work) -> ItemState:
        """The guard of a partition, as one of a unit's items."""
        return work.place(self.table, guard_key(table.name, partition))

    def of_inserts(self, places: Sequence[ItemState], work: Work) -> list[ItemState]:
        """The guards that a unit must write if it writes these items."""
        found = {
            id(guard): guard
            for place in places
            if is_guarded_insert(place)
            for guard in (self.of(place.table, dict(place.key[place.table.key_names[0]]), work),)
        }
        return list(found.values())

    @staticmethod
    def image(guard: ItemState) -> Attributes:
        """What an insert writes there."""
        return canonical_item({**guard.key, **STAMP})

    @staticmethod
    def check(guard: ItemState) -> None:
        """Refuse a guard that a newer version wrote: its inserts may be noticed in another way.

        Raises:
            UnsupportedFormat: its format is greater.
            InvalidUnitRequest: no unit has written it.
        """
        if guard.before is not None:
            check_row(guard.before)

    def are_among(self, places: Sequence[ItemState]) -> bool:
        """Whether one of these is a guard."""
        return any(place.table.name == self.table.name for place in places)


def is_guarded_insert(place: ItemState) -> bool:
    """Whether a unit creates an item that queries of a guarded table may have missed."""
    return place.table.is_guarded and place.is_written and place.before is None and place.image is not None


def guarded_by(place: ItemState) -> str | None:
    """The table in one of whose partitions a guard notices inserts; None of any other item."""
    if place.table.key_names != KEY or place.key["row"] != {"S": GUARD}:
        return None
    # A table of a user's may have keys of these names.
    name = str(place.key["unit"].get("S", ""))
    return name.removeprefix(GUARDS_OF).rpartition("#")[0] or None


def guard_key(table: str, partition: Value) -> Attributes:
    """The key of a partition's guard."""
    ((kind, content),) = partition.items()
    encoded = content if isinstance(content, bytes) else str(content).encode()
    slot = int.from_bytes(hashlib.sha256(kind.encode() + encoded).digest()) % SLOTS
    return canonical_item(dict(row_key(f"{GUARDS_OF}{table}#{slot:05}", GUARD)))
