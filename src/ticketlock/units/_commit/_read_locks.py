"""Units that mark what they read, when they read it: no other unit writes it until they end.

A unit writes the key of an item into its record before it marks the item, so that a process that finds the unit crashed
knows which items may have its marks. The item is read first, and marked on the condition that it still has the version
that was read: a late or duplicate copy of that request marks no version that the unit has not read.
"""

import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ticketlock.errors import TicketLockError
from ticketlock.units._commit._commit import Commit
from ticketlock.units._commit._marked import CLOCKS_DRIFT_MS, MarkedCommit, entry_of
from ticketlock.units._records import (
    LEASE_MS,
    Entry,
    Marked,
    Marks,
    Meeting,
    UnitRecord,
    UnitRecords,
    is_renewed,
    packed,
    with_pieces,
)
from ticketlock.units._statements import ItemState, check_may_mark, chunks
from ticketlock.wire import Due, ForkingSteps, Moment, Pause, Reading, Reply, TransactWrite, Write, raise_if_foreign

_log = logging.getLogger("ticketlock")

KEYS_TOGETHER = 99
"""Keys in a row at most: so many marks fit into a transaction, beside a check of the head."""

RENEWED_EVERY_MS = 20_000


class ReadLocks(MarkedCommit):
    """One unit that marks what it reads, from its first statement to its end."""

    def __init__(
        self,
        commit: Commit,
        marks: Marks,
        records: UnitRecords,
        meeting: Meeting,
        read: Callable[[Sequence[ItemState]], ForkingSteps[None]],
    ) -> None:
        super().__init__(commit, marks, records, meeting, [])
        self._read = read
        # Copies of marks may arrive after the coordinator has finished: it leaves the closing to the sweeper.
        self._has_read_marks = True

    def lock_all(self, places: Sequence[ItemState]) -> ForkingSteps[None]:
        """Read items and mark them, those that were not; all of them are as they were read at one instant."""
        once = list({id(place): place for place in places}.values())
        batches = list(_of_one_row([place for place in once if not place.is_read]))
        for batch in batches:
            check_may_mark(batch)
            yield from self._lock(batch)
        if len(once) > max(1, *(len(batch) for batch in batches), 0):
            yield from self._or_abort(self._check_pending())

    def _lock(self, places: Sequence[ItemState]) -> ForkingSteps[None]:
        yield from self._or_abort(self._read_and_mark(places))
        self._marked += places

    def _or_abort(self, steps: ForkingSteps[None]) -> ForkingSteps[None]:
        try:
            yield from steps
        except TicketLockError as error:
            raise_if_foreign(error)
            self.record.note("begins to end")
            if self.record.may_exist:
                yield from self._abort(error)
            self.record.note("is settled")
            raise

    def _read_and_mark(self, places: Sequence[ItemState]) -> ForkingSteps[None]:
        yield from self._write_keys(places)
        left, rounds = list(places), 0
        while left:
            for place in left:
                place.is_read = False
            yield from self._read(left)
            check_may_mark(left)
            left, met, _ = yield from self._mark_some(left)
            yield from self._wait_for(met)
            rounds += 1
        if rounds > 1:
            yield from self._check_pending()

    def _check_pending(self) -> ForkingSteps[None]:
        """Check that its earlier marks are in place: while it waited for the last one, others may have rolled it back.

        Then the items were read at different moments, and others may have written the first ones in between.
        """
        reply: Reply = yield self._records.read(self._head.unit)
        if reply.item is None or UnitRecord.of(reply.item).state != "pending":
            raise self._ended(reply.item)

    def renew(self) -> ForkingSteps[None]:
        """A whole new lease, between two statements or beside one."""
        now: Moment = (yield Pause(0)).now
        head, until_ms, ends_local_ms = self._head, now.latest_ms + LEASE_MS, now.local_ms + LEASE_MS - CLOCKS_DRIFT_MS
        reply: Reply = yield self._records.renew(head, until_ms)
        if not is_renewed(reply, until_ms):
            self.record.note("is lost")
            raise self._ended(reply.item)
        self._ends_local_ms = max(self._ends_local_ms, ends_local_ms)
        self._renew_at_ms = max(self._renew_at_ms, now.latest_ms + LEASE_MS // 2)

    def _keep_lease(self) -> ForkingSteps[None]:
        now: Moment = (yield Pause(0)).now
        if now.latest_ms >= self._renew_at_ms:
            yield from self.renew()

    def release_marks(self) -> ForkingSteps[None]:
        """Roll it back, if it has not ended. If that fails, other processes may roll it back after its lease."""
        if not self.record.is_standing:
            return
        self.record.note("begins to end")
        try:
            yield from self._roll_back()
            yield from self._unmark_all()
        except TicketLockError as error:
            raise_if_foreign(error)
            _log.warning("the unit %s is left to its lease: %s", self._head.unit, error)
        self.record.note("is settled")

    def end_after_interrupt(self) -> ForkingSteps[None]:
        """As of a marked commit; once."""
        may_exist = self.record.may_exist
        self.record.note("is settled")
        if may_exist:
            yield from self._end_as_recorded()

    def _write_keys(self, places: Sequence[ItemState]) -> ForkingSteps[None]:
        is_first = not self.record.may_exist
        if is_first:
            self._head = yield from self._new_head()
            self.record.note("is written")
        else:
            yield from self._keep_lease()
        self._head = head = replace(self._head, keys=self._head.keys + 1)
        (row,) = _packed_keys(places)
        write = self._records.open(head) if is_first else self._records.add_keys(head)
        reply: Reply = yield TransactWrite((write, self._records.put_keys(head, row)))
        self._note(reply)
        # Only an earlier attempt of this request has written the row; if the unit has ended since, a mark finds out.
        if not reply.applied and not reply.refused[-1]:
            raise self._ended(reply.items[0])

    def _sort(
        self, places: Sequence[ItemState], reply: Reply, met: list[Marked], conflicts: list[ItemState]
    ) -> list[ItemState]:
        """Treat an item that has a mark of this unit already as a conflict if its version is not the one read."""
        own: list[ItemState] = []
        found = {id(place): item for place, item in zip(places, reply.items, strict=False)}
        for place in super()._sort(places, reply, met, conflicts):
            item = found[id(place)]
            is_absent = item is not None and self._marks.is_placeholder(item)
            as_seen = self._marks.version_in(item) == self._marks.version_in(place.seen)
            (own if as_seen and is_absent == (place.seen is None) else conflicts).append(place)
        return own

    def commits(self, commit: Commit) -> ForkingSteps[None]:
        """Commit it, with what it commits beside its items as it is known now."""
        self._commit = commit
        self.record.note("begins to end")
        yield from self.steps()

    def steps(self) -> ForkingSteps[None]:
        """From the statements to the last new value; everything is marked by now."""
        self._entries = [entry_of(place) for place in self._marked]
        try:
            yield from self._keep_lease()
            self._head, pieces = with_pieces(self._head, packed(self._entries).pieces)
            if pieces:
                reply: Reply = yield self._records.announce(self._head)
                if not reply.applied:
                    raise self._ended(reply.item)
                yield from self._write_down(pieces)
            yield from self._decide()
        except TicketLockError as error:
            raise_if_foreign(error)
            if not (yield from self._abort(error)):
                self.record.note("is settled")
                raise
        yield from self._finish_somewhere()
        self.record.note("is settled")

    def _deciding(self, now: Moment) -> Write:
        return self._records.commit_with_writes(self._head, now.latest_ms)


def _of_one_row(places: Sequence[ItemState]) -> Iterator[Sequence[ItemState]]:
    """Batches whose keys fit into one row of the record each: long keys may not."""
    for batch in chunks(places, KEYS_TOGETHER):
        if len(batch) == 1 or len(_packed_keys(batch)) == 1:
            yield batch
        else:
            for half in chunks(batch, -(-len(batch) // 2)):
                yield from _of_one_row(half)


def _packed_keys(places: Sequence[ItemState]) -> list[bytes]:
    keys = [Entry(each.table.name, each.key, each.table.key_names[0], "unmark", {}) for each in places]
    return packed(keys).pieces


class ReadLockLease:
    """One unit's read locks. They are renewed while the unit is referenced: one without references ends by its lease.

    Attributes:
        is_watched: whether a heartbeat watches it.
    """

    def __init__(self, read_locks: ReadLocks) -> None:
        self._read_locks = weakref.ref(read_locks)
        self._due_at_ms: int | None = None
        self.is_watched = False

    def renew(self) -> ForkingSteps[None]:
        read_locks = self._read_locks()
        if read_locks is not None and read_locks.record.has_to_be_kept:
            yield from read_locks.renew()

    # What the heartbeat calls.

    def _due_ms(self, reading: Reading) -> int:
        if self._due_at_ms is None:
            self._due_at_ms = reading.local_ms + RENEWED_EVERY_MS
        return self._due_at_ms

    def _take_due(self, reading: Reading) -> Due | None:
        self._due_at_ms = reading.local_ms + RENEWED_EVERY_MS
        return "renew" if self._is_watched_on() else None

    def _is_watched_on(self) -> bool:
        read_locks = self._read_locks()
        return read_locks is not None and read_locks.record.has_to_be_kept

    def _callback(self, what: Due) -> None:
        """None: the unit's next request finds out."""
