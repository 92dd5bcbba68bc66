"""What a unit has read and is about to write. No I/O, no clock."""

from dataclasses import dataclass, field
from typing import cast

from ticketlock._expressions._values import Item as Attributes
from ticketlock._expressions._values import size_of
from ticketlock.units._marks import Marks
from ticketlock.units._statements import Statement
from ticketlock.units._tables import UnitTable
from ticketlock.wire._attributes import Item

MOST_ACTIONS = 100
"""https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html"""


MOST_BYTES = 4 * 1_024 * 1_024
"""As above: the items' total size, each with its old or its new size, whichever is larger."""

OURS_BYTES = 128
"""Room in an item for both of our attributes."""
VERSION_BYTES = 64
"""Room for the attribute that stays: its name, and the id of the unit that wrote the item last."""
_ACTION_BYTES = 1_024
"""Room for names, a condition, our attributes: the documentation counts items, an emulator the whole request."""

Name = tuple[str, ...]
"""What identifies an item: its table's name, and its key's values with their types."""


@dataclass(slots=True)
class Place:
    """One item of a unit.

    Attributes:
        table, key: which item.
        is_read: whether ``seen`` is known.
        glimpse: what a read below ``SERIALIZABLE`` returned last, in a tuple; None if there was no such read.
        seen: the item as it was read, with our attributes; None if there was none.
        before: the same without our attributes.
        image: the item as the unit has it now, without our attributes.
        is_written: whether a statement of the unit has written it.
        is_checked: whether the unit may commit only while the item is unchanged.
        is_asserted: whether a ``check`` promises that of the instant of the commit, even if the unit writes nothing.
        cut: the number of the last read that returned it: items of one read are of one instant.
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
    cut: int = 0
    blind: Statement | None = None

    @property
    def size_bytes(self) -> int:
        """Its size in a transaction: with the old or the new value, whichever is larger, and room for its action."""
        seen = size_of(cast("Attributes", self.seen)) if self.seen is not None else 0
        image = size_of(self.image) if self.image is not None else 0
        return max(seen, image) + _ACTION_BYTES

    @property
    def is_touched(self) -> bool:
        """Whether the commit includes it."""
        return self.is_written or self.is_checked or self.blind is not None

    @property
    def writes(self) -> bool:
        """Whether the commit changes it. To delete an item that does not exist changes nothing."""
        return self.blind is not None or (self.is_written and not (self.seen is None and self.image is None))


@dataclass(slots=True)
class Work:
    """All items of a unit.

    Attributes:
        marks: the names of our attributes.
        places: each item once, in the order in which the unit used them.
        cuts: how many reads there were.
    """

    marks: Marks
    places: dict[Name, Place] = field(default_factory=dict)
    cuts: int = 0

    def place(self, table: UnitTable, key: Item) -> Place:
        """The unit's `Place` of an item, made at its first use.

        Args:
            key: in its canonical form.
        """
        name = (table.name, *(str(part) for value in key.values() for pair in value.items() for part in pair))
        found = self.places.get(name)
        if found is None:
            found = self.places[name] = Place(table, key)
        return found
