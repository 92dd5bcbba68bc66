"""Whether a unit that writes nothing has read one instant: found out by reads alone, of any number of items.

All items are read again, after the unit's own reads, each in a transaction. If they fit into one transaction, its
instant is the unit's. Otherwise it is the instant of the first transaction, to which every other item is tied by two
reads, one before it and one after it, that have found the same version: a double collect (Afek, Attiya, Dolev, Gafni,
Merritt, Shavit, "Atomic Snapshots of Shared Memory", Journal of the ACM 40(4), 1993). It is sound here because

- a version never returns: it is the id of the unit that has written the item, and a plain writer that keeps the rules
  writes a new one. So between two reads of one version nothing was written.
- an absent item has no version, and may have been inserted and deleted again between two reads. So the first
  transaction reads all of those: more than fit into it cannot be read at one instant without marks.
- the second read is a transaction, which DynamoDB refuses while another one is being applied to the item. Two plain
  reads may both show an item as it was before a transaction, and another one as it is after it. The unit's own reads
  may be plain: what they show of a transaction is decided.
- an item with a mark has its old value only if the heads, read afterwards, say that its unit was still pending; an item
  of a unit that has ended is finished and read again (``Reader.serializable``).
"""

from collections.abc import Sequence

from ticketlock.errors import TableRefused
from ticketlock.units._records import Marks
from ticketlock.units._statements._reading import Reader, Wanted, is_as_seen
from ticketlock.units._statements._work import ItemState, that_fit_together
from ticketlock.wire import MOST_TOGETHER, ForkingSteps, Item

MOST_TRIES = 10
"""How often a read outside of units is begun anew because items have changed."""


def are_too_many_absent(places: Sequence[ItemState]) -> bool:
    """Whether more items do not exist than one transaction reads."""
    return sum(place.seen is None for place in places) > MOST_TOGETHER


def changed_since(places: Sequence[ItemState], marks: Marks, reading: Reader) -> ForkingSteps[list[ItemState]]:
    """The items that are not, at one instant of these steps, as the unit has read them.

    Args:
        places: items that were read, of which not too many are absent.
    """
    ordered = absent_first(places)
    batches = [[_wanted(place) for place in batch] for batch in that_fit_together(ordered, MOST_TOGETHER)]
    try:
        found = yield from reading.serializable(batches[0], exactly=True)
        if len(batches) > 1:
            found += yield from reading.serializable_batches(batches[1:], together=True)
    except TableRefused:
        # They did fit. If they do not any more, some have grown.
        found = yield from reading.each_as_stored([_wanted(place) for place in ordered])
        if not (changed := _changed(ordered, found, marks)):
            raise
        return changed
    return _changed(ordered, found, marks)


def absent_first(places: Sequence[ItemState]) -> list[ItemState]:
    return sorted(places, key=lambda place: place.seen is not None)


def _wanted(place: ItemState) -> Wanted:
    return Wanted(place.table, place.key)


def _changed(places: Sequence[ItemState], found: Sequence[Item | None], marks: Marks) -> list[ItemState]:
    return [place for place, item in zip(places, found, strict=True) if not is_as_seen(item, place.seen, marks)]
