"""What a unit has read and is about to write. No I/O, no clock: its verbs are steps, and evaluated at once."""

from dataclasses import dataclass, field
from typing import cast

from ticketlock._expressions._values import Item as Attributes
from ticketlock._expressions._values import size_of
from ticketlock.units._marks import Marks
from ticketlock.units._statements import Statement
from ticketlock.units._tables import UnitTable
from ticketlock.wire._attributes import Item

OURS_BYTES = 128
"""Room in an item for both of our attributes."""
VERSION_BYTES = 64
"""Room for the one that stays: the id of the unit that wrote the item last, and the attribute's name."""
_ACTION_BYTES = 1_024
"""Names, a condition, our attributes: the documentation speaks of items, an emulator counts the whole request."""

Name = tuple[str, ...]
"""An item, as one of many: its table's name, and its key's values with their types."""


@dataclass(slots=True)
class Place:
    """One item of a unit's.

    Attributes:
        table, key: which.
        is_read: whether ``seen`` is known.
        glimpse: what a read below ``SERIALIZABLE`` saw last, alone in a tuple; None where there was no such read.
        seen: the item as it was read, with our attributes; None where there was none.
        before: the same without them.
        image: the item as the unit has it now, without them.
        is_written: whether it differs by the unit's own statements.
        is_checked: whether the unit may only commit while the item is as it was seen.
        cut: which read brought it: what one request brought together is of one instant.
        blind: of an item that was not read, an update that DynamoDB is to evaluate.
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
    cut: int = 0
    blind: Statement | None = None

    @property
    def size_bytes(self) -> int:
        """How it counts in a transaction: as it stands, or as it will be, with room for what its action says beside."""
        seen = size_of(cast("Attributes", self.seen)) if self.seen is not None else 0
        image = size_of(self.image) if self.image is not None else 0
        return max(seen, image) + _ACTION_BYTES

    @property
    def is_touched(self) -> bool:
        """Whether the commit is about it."""
        return self.is_written or self.is_checked or self.blind is not None

    @property
    def writes(self) -> bool:
        """Whether the commit changes it: to delete what is not there changes nothing."""
        return self.blind is not None or (self.is_written and not (self.seen is None and self.image is None))


@dataclass(slots=True)
class Work:
    """All of a unit's items.

    Attributes:
        marks: the names of our attributes.
        places: each item once, in the order in which the unit came to them.
        cuts: how many reads there were.
    """

    marks: Marks
    places: dict[Name, Place] = field(default_factory=dict)
    cuts: int = 0

    def place(self, table: UnitTable, key: Item) -> Place:
        """What the unit knows of an item; a place of its own, if it is new.

        Args:
            key: in its canonical form.
        """
        name = (table.name, *(str(part) for value in key.values() for pair in value.items() for part in pair))
        found = self.places.get(name)
        if found is None:
            found = self.places[name] = Place(table, key)
        return found
