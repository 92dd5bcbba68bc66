"""How units read: items of one instant, at the levels of isolation, also if other units have marked them.

An item keeps its committed value until the unit that has marked it is committed. So a reader returns the item's value,
or the value that a committed unit is about to write. It never waits, and needs no permission to write.

A unit reads an item when it first uses it; later statements see it as it was then. Items that the caller asks for
together are of one instant. If the unit has read some of them before, or at different moments, all of them are read
again in one request: those that it has read must be as they were.

One request reads up to 100 items, of 4 MB together. Sizes are not known before, so what is refused is read by halves,
each of one instant, down to so few items that they fit, however large they are.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial

from ticketlock._expressions import Attributes, canonical_item
from ticketlock._value import value
from ticketlock.errors import TableError, TableRefused
from ticketlock.units._records import Marked, Marks, Meeting, UnitRecord, UnitRecords, met_at, read_committed
from ticketlock.units._statements._work import SURELY_TOGETHER, ItemState, T, Work, chunks, conflict
from ticketlock.units._words import VERSION_BYTES, UnitTable
from ticketlock.wire import MOST_TOGETHER, ForkingSteps, Get, GetMany, GetTogether, Item, Reply, Together

LEVELS = "one of the levels of ticketlock.units: UNCOMMITTED, COMMITTED, SERIALIZABLE or READ_LOCK"
"""What an error about a level says is allowed."""

HeadsByUnit = dict[str, UnitRecord | None]
"""Heads by unit; None if there is none."""


class Isolation(Enum):
    """What a read may see.

    Attributes:
        UNCOMMITTED: an eventually consistent read, at half the price: it may miss a recent commit.
        COMMITTED: the newest committed value.
        SERIALIZABLE: the same, and the unit commits only if the item still has it.
        READ_LOCK: the same, and no other unit writes the item until this unit ends.
    """

    UNCOMMITTED = "uncommitted"
    COMMITTED = "committed"
    SERIALIZABLE = "serializable"
    READ_LOCK = "read lock"

    def __repr__(self) -> str:
        return self.name


UNCOMMITTED, COMMITTED, SERIALIZABLE, READ_LOCK = Isolation


@value(frozen=True, slots=True)
class Wanted:
    table: UnitTable
    key: Item


class Reader:
    """The reads of one unit, or of a caller outside units."""

    def __init__(self, marks: Marks, records: UnitRecords, meeting: Meeting) -> None:
        self._marks, self._records, self._meeting = marks, records, meeting

    def eventually(self, wanted: Sequence[Wanted]) -> ForkingSteps[list[Attributes | None]]:
        """Images, each read by itself, eventually consistently."""
        found: list[Attributes | None] = []
        for batch in chunks(wanted, MOST_TOGETHER):
            items = yield from self._each(batch, is_consistent=False)
            found += [image_of(item, self._marks) for item in items]
        return found

    def committed(self, wanted: Sequence[Wanted], *, together: bool = True) -> ForkingSteps[list[Attributes | None]]:
        """Images; up to 100 of 4 MB are of one instant, and beyond that each group.

        Args:
            together: whether that is so. Otherwise each is read by itself.
        """
        images: list[Attributes | None] = []

        def read(batch: Sequence[Wanted]) -> ForkingSteps[None]:
            found = None
            while found is None:
                items, heads = yield from self._with_heads(batch, together=together and len(batch) > 1)
                found = yield from self._images(batch, items, heads)
            images.extend(found)

        for batch in chunks(wanted, MOST_TOGETHER):
            yield from (in_groups(batch, read) if together else read(batch))
        return images

    def serializable(
        self, wanted: Sequence[Wanted], *, together: bool = True, exactly: bool = False
    ) -> ForkingSteps[list[Item | None]]:
        """Items with our attributes, as a unit may write them; items of units that have ended are finished first.

        Args:
            together: as in ``committed``.
            exactly: read even a single item in a transaction: a plain read may still find it as it was before a
                transaction that is decided and not applied yet.
        """
        found: list[Item | None] = []
        for batch in chunks(wanted, MOST_TOGETHER):
            while True:
                is_cut = exactly or (together and len(batch) > 1)
                items, heads = yield from self._with_heads(batch, together=is_cut)
                ended: dict[str, list[Marked]] = {}
                for each, item in zip(batch, items, strict=True):
                    met = self._met(each, item)
                    if met is not None and _state(heads[met.mark.unit]) != "pending":
                        ended.setdefault(met.mark.unit, []).append(met)
                if not ended:
                    break
                for marked in ended.values():
                    yield from self._meeting.resolve_all(marked)
            found += items
        return found

    def serializable_batches(
        self, batches: Sequence[Sequence[Wanted]], *, together: bool = False
    ) -> ForkingSteps[list[Item | None]]:
        """The same in batches of up to 100, which are read at once.

        Args:
            together: whether each batch is read in a transaction.
        """
        steps = tuple(self.serializable(batch, together=together, exactly=together) for batch in batches)
        found: list[Item | None] = []
        for items in (yield Together(steps)):
            if isinstance(items, TableError):
                raise items
            found += items
        return found

    def each_as_stored(self, wanted: Sequence[Wanted]) -> ForkingSteps[list[Item | None]]:
        """Items with our attributes, each read by itself; nothing is finished."""
        found: list[Item | None] = []
        for batch in chunks(wanted, MOST_TOGETHER):
            found += yield from self._each(batch)
        return found

    def _with_heads(
        self, batch: Sequence[Wanted], *, together: bool
    ) -> ForkingSteps[tuple[list[Item | None], HeadsByUnit]]:
        """Items, and the heads of the units that had marked them, as they were when the items were read.

        The heads are read in a transaction as well. The service may have released what a deciding transaction has
        checked, and let others write it, before it has changed the head, so that a plain read would still find the unit
        pending. A unit that is pending afterwards was pending before, and a unit that was committed before the items
        were read was committed then. If a unit was committed in between, its state at that time is unknown, and the
        items are read again.
        """
        before: HeadsByUnit = {}
        while True:
            items = yield from self._together(batch) if together else self._each(batch)
            units = {met.mark.unit for each, item in zip(batch, items, strict=True) if (met := self._met(each, item))}
            after: HeadsByUnit = {}
            if units:
                reply: Reply = yield self._records.read_together(sorted(units))
                heads = (UnitRecord.of(row) if row is not None else None for row in reply.items)
                after = dict(zip(sorted(units), heads, strict=True))
            known = {unit: unit in before and _state(before[unit]) == _state(after[unit]) for unit in units}
            if all(known[unit] or _undecided(after[unit]) for unit in units):
                return items, after
            before = after

    def _together(self, batch: Sequence[Wanted]) -> ForkingSteps[list[Item | None]]:
        reply: Reply = yield GetTogether([(each.table.name, each.key) for each in batch])
        return [self._checked(item) for item in reply.items]

    def _each(self, batch: Sequence[Wanted], *, is_consistent: bool = True) -> ForkingSteps[list[Item | None]]:
        if len(batch) == 1:
            reply: Reply = yield Get(batch[0].table.name, batch[0].key, is_consistent)
        else:
            reply = yield GetMany([(each.table.name, each.key) for each in batch], is_consistent)
        return [self._checked(item) for item in reply.items]

    def _images(
        self, batch: Sequence[Wanted], items: Sequence[Item | None], heads: HeadsByUnit
    ) -> ForkingSteps[list[Attributes | None] | None]:
        """The committed image of each item; None if a unit was closed meanwhile."""
        images = [image_of(item, self._marks) for item in items]
        met = [self._met(each, item) for each, item in zip(batch, items, strict=True)]
        for unit, head in heads.items():
            if head is not None and head.is_being_finished:
                marked = {at: each for at, each in enumerate(met) if each is not None and each.mark.unit == unit}
                entries = yield from read_committed(self._records, head, list(marked.values()))
                if entries is None:
                    return None
                for at, entry in zip(marked, entries, strict=True):
                    if entry is not None:
                        images[at] = entry.applied_to(images[at])
        return images

    def _met(self, wanted: Wanted, item: Item | None) -> Marked | None:
        return met_at(wanted.table, wanted.key, item, self._marks)

    def _checked(self, item: Item | None) -> Item | None:
        if item is not None:
            self._marks.check_item(item)
        return item


def image_of(item: Item | None, marks: Marks) -> Attributes | None:
    """An item without our attributes; None for the placeholder of a pending insert."""
    if item is None or marks.is_placeholder(item):
        return None
    return marks.without(canonical_item(dict(item)))


def is_as_seen(item: Item | None, seen: Item | None, marks: Marks) -> bool:
    """Whether an item is as it was read: the same version or, for an item without one, the same contents."""
    return marks.version_in(item) == marks.version_in(seen) and image_of(item, marks) == image_of(seen, marks)


def _undecided(head: UnitRecord | None) -> bool:
    """Whether a unit had not been decided before this read either: its items had their committed values then."""
    return head is not None and not head.is_closed and head.state != "committed"


def _state(head: UnitRecord | None) -> str | None:
    return None if head is None or head.is_closed else head.state


def read_unread(places: Sequence[ItemState], work: Work, reading: Reader) -> ForkingSteps[None]:
    """Read the items that were not read yet, and evaluate blind updates of them; 100 of 4 MB are of one instant."""
    for together in chunks(each_once(places), MOST_TOGETHER):
        yield from in_groups(together, partial(_read_at_once, work=work, reading=reading))


def _read_at_once(places: Sequence[ItemState], work: Work, reading: Reader) -> ForkingSteps[None]:
    if not are_of_one_instant(places):
        items = yield from reading.serializable([Wanted(place.table, place.key) for place in places])
        work.reads += 1
        _take(places, items, work)


def in_groups(some: Sequence[T], read: Callable[[Sequence[T]], ForkingSteps[None]]) -> ForkingSteps[None]:
    """Read items in one transaction; or, if it is refused and they may be too large for it, each half by itself."""
    try:
        yield from read(some)
    except TableRefused:
        if len(some) <= SURELY_TOGETHER:
            raise
        for half in chunks(some, -(-len(some) // 2)):
            yield from in_groups(half, read)


def read_each(places: Sequence[ItemState], work: Work, reading: Reader) -> ForkingSteps[None]:
    """Read items that were not read yet, each by itself, and evaluate blind updates of them."""
    once = each_once(places)
    batches = list(chunks([Wanted(place.table, place.key) for place in once], MOST_TOGETHER))
    items = yield from reading.serializable_batches(batches)
    for place, item in zip(once, items, strict=True):
        work.reads += 1
        place.read_number = work.reads
        _take_first(place, item, work)


def each_once(places: Sequence[ItemState]) -> list[ItemState]:
    """The same without repetitions: DynamoDB accepts each key once."""
    return list({id(place): place for place in places}.values())


def are_of_one_instant(places: Sequence[ItemState]) -> bool:
    return all(place.is_read for place in places) and len({place.read_number for place in places}) < 2


def _take(places: Sequence[ItemState], items: Sequence[Item | None], work: Work) -> None:
    found = list(zip(places, items, strict=True))
    changed = [place for place, item in found if place.is_read and not is_as_seen(item, place.seen, work.marks)]
    if changed:
        raise conflict(changed)
    for place, item in found:
        place.read_number = work.reads
        if not place.is_read:
            _take_first(place, item, work)


def _take_first(place: ItemState, item: Item | None, work: Work) -> None:
    before = image = image_of(item, work.marks)
    if place.blind is not None:
        # If it is refused, it stays blind: the unit cannot be committed without it.
        image = place.blind.applied_to(before)
        if image is not None:
            place.table.check_item(image, "statement", VERSION_BYTES)
    if place.blind is not None:
        place.blind, place.is_written = None, True
    place.seen = None if item is None or work.marks.is_placeholder(item) else item
    place.is_read, place.before, place.image = True, before, image
