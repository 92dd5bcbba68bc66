"""What a unit has read and is about to write. No I/O, no clock."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from ticketlock._expressions import MAX_ITEM_BYTES, Attributes, KeyAttribute, Schema, Value, canonical_item, size_of
from ticketlock.errors import InvalidUnitRequest, UnitConflict, UnitTooLarge
from ticketlock.units._records import KEY, STAMP, Marks, check_row, row_key
from ticketlock.units._statements._statements import Statement
from ticketlock.units._words import PYTHON, UnitTable
from ticketlock.wire import Item

MOST_ACTIONS = 100
"""https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html"""

MOST_BYTES = 4 * 1_024 * 1_024
"""As above: the items' total size, each with its old or its new size, whichever is larger."""

OURS_BYTES = 128
"""Room in an item for both of our attributes."""
_ACTION_BYTES = 1_024
"""Room for names, a condition, our attributes: the documentation counts items, an emulator the whole request."""

Name = tuple[str, ...]
"""What identifies an item: its table's name, and its key's values with their types."""

T = TypeVar("T")

SURELY_TOGETHER = MOST_BYTES // (MAX_ITEM_BYTES + _ACTION_BYTES)
"""How many items of any sizes fit into one transaction."""

_BESIDE_BYTES = 32 * 1_024 + MAX_ITEM_BYTES
"""Room for the unit's head, a receipt and the head of a saved one, each of those two with a result; and for a lock,
which may be as large as any item."""

MOST_ITEMS = 100_000
"""A sweep reads all rows of a unit that has to be finished: they must take it minutes, not hours."""

_NO_LOCAL_INDEX = "a table without local secondary indexes, whose collections DynamoDB limits to 10 GB"
_WHEN = (
    "A unit marks its items at "
    'READ_LOCK, with engine="marked", if it inserts into a guarded table, and if it has more than '
    f"{MOST_ACTIONS} items or {MOST_BYTES:,} bytes"
)

GUARD = "guard"
"""The sort key of a guard, in place of the name of a unit's row."""

GUARDS_OF = f"{GUARD}#"
"""What precedes a table's name in place of a unit's id."""

SLOTS = 16_384
"""Guards of one table. Partitions that share a guard are guarded together, which costs only conflicts."""


@dataclass(slots=True)
class ItemState:
    """One item of a unit.

    Attributes:
        is_read: whether ``seen`` is known.
        glimpse: what a read below ``SERIALIZABLE`` returned last, in a tuple; None if there was no such read.
        seen: the item as it was read, with our attributes; None if there was none.
        before: the same without our attributes.
        image: the item as the unit has it now, without our attributes.
        is_checked: whether the unit may commit only while the item is unchanged.
        is_asserted: whether a ``check`` promises that of the instant of the commit, even if the unit writes nothing.
        read_number: which read returned it; items with one number were read at one instant.
        blind: an update that DynamoDB is to evaluate; the item was not read.
    """

    table: UnitTable
    key: Item
    is_read: bool = False
    glimpse: tuple[Attributes | None] | None = None
    seen: Item | None = None
    before: Attributes | None = None
    image: Attributes | None = None
    is_written: bool = False
    is_checked: bool = False
    is_asserted: bool = False
    read_number: int = 0
    blind: Statement | None = None

    @property
    def size_bytes(self) -> int:
        """Its size in a transaction: with the old or the new value, whichever is larger, and room for its action."""
        seen = size_of(cast("Attributes", self.seen)) if self.seen is not None else 0
        image = size_of(self.image) if self.image is not None else 0
        return max(seen, image) + _ACTION_BYTES

    @property
    def is_touched(self) -> bool:
        return self.is_written or self.is_checked or self.blind is not None

    @property
    def writes(self) -> bool:
        """Whether the commit changes it. To delete an item that does not exist changes nothing."""
        return self.blind is not None or (self.is_written and not (self.seen is None and self.image is None))


@dataclass(slots=True)
class Work:
    """All items of a unit.

    Attributes:
        places: each item once, in the order in which the unit used them.
    """

    marks: Marks
    places: dict[Name, ItemState] = field(default_factory=dict)
    reads: int = 0

    def place(self, table: UnitTable, key: Item) -> ItemState:
        """The unit's state of an item, made at its first use; the key is in its canonical form."""
        name = (table.name, *map(repr, key.values()))
        found = self.places.get(name)
        if found is None:
            found = self.places[name] = ItemState(table, key)
        return found


def chunks(whole: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    return (whole[begin : begin + most] for begin in range(0, len(whole), most))


def has_unknown_sizes(places: Sequence[ItemState]) -> bool:
    """Whether items that were not read might make these too large for one transaction."""
    unknown = sum(place.blind is not None for place in places)
    return unknown > 0 and sum(place.size_bytes for place in places) + unknown * MAX_ITEM_BYTES > MOST_BYTES


def that_fit_together(places: Sequence[ItemState], most: int) -> Iterator[list[ItemState]]:
    """Batches that each fit into one transaction with a head: DynamoDB counts the items' old sizes, too."""
    batch: list[ItemState] = []
    left_bytes = MOST_BYTES - _BESIDE_BYTES
    for place in places:
        if len(batch) == most or place.size_bytes > left_bytes:
            yield batch
            batch, left_bytes = [], MOST_BYTES - _BESIDE_BYTES
        batch.append(place)
        left_bytes -= place.size_bytes
    if batch:
        yield batch


def check_count(places: Sequence[ItemState]) -> None:
    """Refuse a unit of more items than can be finished, or resumed, in reasonable time."""
    if len(places) > MOST_ITEMS:
        raise UnitTooLarge(
            f"the unit writes or checks {len(places):,} items, and may have up to {MOST_ITEMS:,}: split it into "
            "several units"
        )


def check_may_mark(touched: Sequence[ItemState]) -> None:
    """Refuse what DynamoDB might refuse after the unit is committed."""
    for place in touched:
        schema = place.table.schema
        if schema.local_indexes:
            raise InvalidUnitRequest("table", place.table.name, f"{_NO_LOCAL_INDEX}. {_WHEN}")
        if schema.unknown is not None:
            allowed = f"a table that this version of ticketlock knows: it has {schema.unknown}; upgrade ticketlock"
            raise InvalidUnitRequest("table", place.table.name, f"{allowed}. {_WHEN}")
        for image in (place.image, place.before):
            if image is not None:
                place.table.check_item(image, "mark", OURS_BYTES)


class Guards:
    def __init__(self, units_table: str) -> None:
        keys = tuple(KeyAttribute(name, "S", role) for name, role in zip(KEY, ("HASH", "RANGE"), strict=True))
        self.table = UnitTable(units_table, Schema(units_table, keys))

    def of(self, table: UnitTable, partition: Value, work: Work) -> ItemState:
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
        return canonical_item({**guard.key, **STAMP})

    @staticmethod
    def check(guard: ItemState) -> None:
        """Refuse a guard that a newer version wrote: its inserts may be noticed in another way."""
        if guard.before is not None:
            check_row(guard.before)

    def are_among(self, places: Sequence[ItemState]) -> bool:
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


def conflict(places: Sequence[ItemState]) -> UnitConflict:
    items, guards = list[tuple[str, Mapping[str, Any]]](), list[tuple[str, Mapping[str, Any]]]()
    inserted_into = set[str]()
    for place in places:
        named, guarded = (place.table.name, PYTHON.to_caller(place.key) or {}), guarded_by(place)
        (items if guarded is None else guards).append(named)
        inserted_into |= {guarded} if guarded is not None else set()
    return UnitConflict(items, guards=guards, inserted_into=inserted_into)


def guard_key(table: str, partition: Value) -> Attributes:
    ((kind, content),) = partition.items()
    encoded = content if isinstance(content, bytes) else str(content).encode()
    slot = int.from_bytes(hashlib.sha256(kind.encode() + encoded).digest()) % SLOTS
    return canonical_item(dict(row_key(f"{GUARDS_OF}{table}#{slot:05}", GUARD)))
