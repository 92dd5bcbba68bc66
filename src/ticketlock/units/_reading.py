"""How units read: items of one instant, at the levels of isolation."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from ticketlock._expressions._values import Item as Attributes
from ticketlock._expressions._values import canonical_item
from ticketlock.units._marks import Marks
from ticketlock.wire._attributes import Item
from ticketlock.wire._item_requests import MOST_TOGETHER, Get, GetTogether
from ticketlock.wire._requests import Attributes as Key
from ticketlock.wire._requests import Steps


class Isolation(Enum):
    """What a read may see.

    Attributes:
        UNCOMMITTED: what stands in the item, at half the price: perhaps not yet what was committed last.
        COMMITTED: what was committed last.
        SERIALIZABLE: the same, and the unit commits only while it still stands there.
    """

    UNCOMMITTED = "uncommitted"
    COMMITTED = "committed"
    SERIALIZABLE = "serializable"


UNCOMMITTED, COMMITTED, SERIALIZABLE = Isolation


@dataclass(frozen=True, slots=True)
class Wanted:
    """An item to read."""

    table: str
    key: Key


def read_eventually(wanted: Sequence[Wanted], marks: Marks) -> Steps[list[Item | None]]:
    """Items with our attributes, one by one: what stands in one of the copies."""
    found = []
    for each in wanted:
        reply = yield Get(each.table, each.key, is_consistent=False)
        found.append(_checked(reply.item, marks))
    return found


def read_together(wanted: Sequence[Wanted], marks: Marks) -> Steps[list[Item | None]]:
    """Items with our attributes; up to 100 of one instant, of more each 100."""
    if len(wanted) == 1:
        reply = yield Get(wanted[0].table, wanted[0].key)
        return [_checked(reply.item, marks)]
    found: list[Item | None] = []
    for begin in range(0, len(wanted), MOST_TOGETHER):
        batch = [(each.table, each.key) for each in wanted[begin : begin + MOST_TOGETHER]]
        reply = yield GetTogether(batch)
        found += [_checked(item, marks) for item in reply.items]
    return found


def image_of(item: Item | None, marks: Marks) -> Attributes | None:
    """An item as its users know it."""
    return None if item is None else marks.without(canonical_item(dict(item)))


def is_as_seen(item: Item | None, seen: Item | None) -> bool:
    """Whether an item is the one that was read: its version and, for writers that know none, all of it."""
    return (item is None) == (seen is None) and (item is None or seen is None or canonical(item) == canonical(seen))


def canonical(item: Item) -> Attributes:
    """An item in which equal values look the same."""
    return canonical_item(dict(item))


def _checked(item: Item | None, marks: Marks) -> Item | None:
    if item is not None:
        marks.check_item(item)
    return item
