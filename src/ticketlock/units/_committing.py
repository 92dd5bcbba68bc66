"""Which way a unit is committed: in one request, by marks, or by a check of what it has read. No I/O, no clock."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ticketlock._expressions._values import MAX_ITEM_BYTES
from ticketlock.errors import TableRefused, UnitTooLarge
from ticketlock.units._batches import SURELY_TOGETHER, cut, has_unknown_sizes
from ticketlock.units._commit import Commit, conflict
from ticketlock.units._guards import Guards
from ticketlock.units._heads import Heads
from ticketlock.units._item_reads import are_of_one_instant, take_in
from ticketlock.units._locking import Locking
from ticketlock.units._marked import MarkedCommit
from ticketlock.units._meeting import Meeting
from ticketlock.units._native import commit_natively
from ticketlock.units._reading import Reading, Wanted, is_as_seen
from ticketlock.units._tables import Tables
from ticketlock.units._terms import Terms
from ticketlock.units._ways import check_count, check_may_mark
from ticketlock.units._work import MOST_ACTIONS, MOST_BYTES, Place, Work
from ticketlock.wire._attributes import Item
from ticketlock.wire._item_requests import MOST_TOGETHER
from ticketlock.wire._requests import ForkingSteps

TakesIn = Callable[[Sequence[Place]], ForkingSteps[None]]


@dataclass(slots=True)
class Committing:
    """The commit of one unit.

    Attributes:
        locking: its read locks; None at another level.
        take_in: reads items for the unit.
        tables: those of its ``Units``.
        marked: the commit by marks, once it has begun.
    """

    terms: Terms
    commit: Commit
    work: Work
    guards: Guards
    heads: Heads
    meeting: Meeting
    reading: Reading
    locking: Locking | None
    take_in: TakesIn
    tables: Tables
    marked: MarkedCommit | None = None

    def steps(self) -> ForkingSteps[None]:
        """Write everything, or nothing."""
        touched = self._touched()
        guards = self.guards.of_inserts(touched, self.work)
        if guards:
            touched = yield from self._with(guards)
        if self.locking is not None and self.locking.is_begun:
            yield from self._check_may_mark(touched)
            yield from self.locking.commits(self.commit)
            return
        if not any(place.writes for place in touched) and not self.terms.beside:
            yield from self._validate(touched)
            return
        if not self._has_to_mark(guards) and self._fits_one_request(touched):
            try:
                yield from commit_natively(touched, self.work.marks, self.commit, self.meeting)
                return
            except TableRefused:
                # Nothing was written. The cause may be the sizes of items that were not read.
                if not has_unknown_sizes(touched):
                    raise
                yield from read_blind(touched, self.take_in)
                if self._fits_one_request(touched):
                    raise
        yield from read_blind(touched, self.take_in)
        yield from self._commit_by_marks(touched)

    def _touched(self) -> list[Place]:
        return [place for place in self.work.places.values() if place.is_touched]

    def _with(self, guards: Sequence[Place]) -> ForkingSteps[list[Place]]:
        """The items of the commit, with the guards of those that it inserts."""
        if self.locking is None:
            yield from take_in([guard for guard in guards if not guard.is_read], self.work, self.reading, MOST_TOGETHER)
        else:
            yield from self.locking.lock_all(guards)
        for guard in guards:
            self.guards.check(guard)
            guard.image, guard.is_written = self.guards.image(guard), True
        return self._touched()

    def _has_to_mark(self, guards: Sequence[Place]) -> bool:
        # A process that finds the guard of a committed unit must find its items too.
        return bool(guards) or self.terms.engine == "marked"

    def _fits_one_request(self, touched: Sequence[Place]) -> bool:
        return fits_one_request(touched, self.terms, MOST_ACTIONS)

    def _commit_by_marks(self, places: Sequence[Place]) -> ForkingSteps[None]:
        yield from self._check_may_mark(places)
        self.marked = MarkedCommit(self.commit, self.work.marks, self.heads, self.meeting, places)
        yield from self.marked.steps()

    def _check_may_mark(self, places: Sequence[Place]) -> ForkingSteps[None]:
        check_count(places)
        yield from self.tables.describe_again(place.table for place in places)
        check_may_mark(places)

    def _validate(self, places: Sequence[Place]) -> ForkingSteps[None]:
        """Check that all that was read is unchanged at one instant; what one request has read is of one instant."""
        is_asserted = any(place.is_asserted for place in places)
        if are_of_one_instant(places) and not is_asserted and not self.guards.are_among(places):
            return
        if not self._fits_one_request(places):
            # Marked commits check them at one instant as well.
            yield from self._commit_by_marks(places)
            return
        wanted = [Wanted(place.table, place.key) for place in places]
        try:
            found = yield from self.reading.serializable(wanted, exactly=True)
        except TableRefused:
            # They did fit into one request. If they do not any more, some have grown.
            self._check_unchanged(places, (yield from self.reading.each_as_stored(wanted)))
            raise
        self._check_unchanged(places, found)

    def _check_unchanged(self, places: Sequence[Place], found: Sequence[Item | None]) -> None:
        marks = self.work.marks
        changed = [place for place, item in zip(places, found, strict=True) if not is_as_seen(item, place.seen, marks)]
        if changed:
            raise conflict(changed)


def read_blind(places: Iterable[Place], take_in: TakesIn) -> ForkingSteps[None]:
    """Read the targets of blind updates, so few at once that one transaction can hold items of any sizes."""
    for batch in cut([place for place in places if place.blind is not None], SURELY_TOGETHER):
        yield from take_in(batch)


def fits_one_request(touched: Sequence[Place], terms: Terms, most: int) -> bool:
    """Whether one request of at most ``most`` actions can commit all, as far as the sizes of items are known.

    Raises:
        UnitTooLarge: it cannot, and the unit's terms allow nothing else.
    """
    count = len(touched) + terms.beside
    # The lock's item counts too, and ticketlock does not read it.
    size = sum(place.size_bytes for place in touched) + (terms.under is not None) * MAX_ITEM_BYTES
    fits = count <= most and size <= MOST_BYTES
    if terms.engine == "native" and not fits:
        raise UnitTooLarge(
            f"the commit has {count} actions, one for each item, the name, the lock and the saved record, of "
            f"{size:,} bytes; one request of DynamoDB takes {most} actions of {MOST_BYTES:,} bytes: leave out "
            "`engine`, so that the unit can be committed by marks"
        )
    return fits
