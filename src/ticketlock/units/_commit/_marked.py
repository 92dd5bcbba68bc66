"""The marked commit, for units that do not fit into one transaction: marks, one deciding write, new values.

An item keeps its committed value until the unit is committed; its new value waits in the rows of the unit's record. So
a unit that is rolled back has written no data, and any process that meets a mark of a committed unit can finish the
item.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from ticketlock._expressions import MAX_ITEM_BYTES, size_of_update
from ticketlock.errors import (
    OutcomeUnknown,
    RequestNotApplied,
    TableError,
    TableRefused,
    TicketLockError,
    UnitRolledBack,
)
from ticketlock.units._commit._commit import (
    Commit,
    changed,
    check,
    if_as_seen,
    refused_beside,
    refused_name,
    writes_beside,
)
from ticketlock.units._commit._state import OwnRecord
from ticketlock.units._records import (
    INSERT,
    LEASE_MS,
    Entry,
    Mark,
    Marked,
    MarkKind,
    Marks,
    Meeting,
    UnitRecord,
    UnitRecords,
    close,
    ended,
    finish,
    is_for_contents,
    is_renewed,
    met_at,
    not_finished,
    packed,
    unmark,
    with_pieces,
)
from ticketlock.units._statements import MOST_ACTIONS, ItemState, chunks, conflict, that_fit_together
from ticketlock.wire import (
    ForkingSteps,
    Item,
    Moment,
    Pause,
    Reply,
    Request,
    Together,
    TransactWrite,
    Write,
    raise_if_foreign,
)

_log = logging.getLogger("ticketlock")

_ATTEMPT = "1"
_UPDATE_OVERHEAD_BYTES = 256
"""Room for what an Update writes beside the change: the version and the mark, their names and the expression."""
_AT_ONCE = 200
"""Requests between two checks of the lease."""
_MARKS_TOGETHER = MOST_ACTIONS - 1
CLOCKS_DRIFT_MS = 1_000


def entry_of(place: ItemState) -> Entry:
    """What a marked item will become."""
    table, key, key_name = place.table.name, place.key, place.table.key_names[0]
    if place.image is None:
        # Also the placeholder of an item that was only read, and did not exist.
        return Entry(table, key, key_name, "delete", {})
    if not place.is_written:
        return Entry(table, key, key_name, "unmark", {})
    differs = None if place.seen is None else changed(place.before or {}, place.image)
    # DynamoDB also limits the size of what an Update writes. A larger change is written as a whole item.
    if differs is None or size_of_update(differs[0], len(differs[1])) > MAX_ITEM_BYTES - _UPDATE_OVERHEAD_BYTES:
        return Entry(table, key, key_name, "put", place.image)
    return Entry(table, key, key_name, "change", *differs)


class MarkedCommit:
    """One unit's commit by marks: marks, decision, new values. Each of its places was read."""

    def __init__(
        self, commit: Commit, marks: Marks, records: UnitRecords, meeting: Meeting, places: Sequence[ItemState]
    ) -> None:
        self._commit, self._marks, self._records, self._meeting = commit, marks, records, meeting
        room = MOST_ACTIONS - 1 - commit.terms.beside
        only_read = [place for place in places if not place.writes]
        # The deciding write checks the items that are only read, as far as there is room; the others are marked.
        self._checked = next(that_fit_together(only_read, room), [])
        marked = only_read[len(self._checked) :]
        self._marked = [place for place in places if place.writes] + marked
        self._has_read_marks = bool(marked)
        self._entries = [entry_of(place) for place in self._marked]
        # By a place's identity, the first piece that tells what becomes of it.
        self._pieces: dict[int, int] = {}
        # Items that may have a mark of this unit.
        self._standing: dict[int, ItemState] = {}
        self._is_answered = True
        self.record = OwnRecord()
        self._head: UnitRecord
        self._ends_local_ms = 0
        self._renew_at_ms = 0

    def steps(self) -> ForkingSteps[None]:
        """From the record to the last new value."""
        pieces = yield from self._begin()
        self.record.note("is written")
        try:
            # If it is refused, an earlier attempt of this request has written it: no other process has this id.
            self._note((yield self._records.open(self._head)))
            yield from self._write_down(pieces)
            yield from self._mark_all()
            yield from self._decide()
        except TicketLockError as error:
            raise_if_foreign(error)
            if not (yield from self._abort(error)):
                raise
        yield from self._finish_somewhere()

    def end_after_interrupt(self) -> ForkingSteps[None]:
        """After an interrupt: roll back, or finish if the unit is committed. What fails is left to other processes."""
        if self.record.may_exist:
            yield from self._end_as_recorded()

    def _end_as_recorded(self) -> ForkingSteps[None]:
        state = self._commit.state
        if not state.is_committed:
            reply = yield from self._roll_back()
            if reply.applied or not _is_committed(reply.item):
                yield from self._undo(reply)
                return
            state.note("decision is applied")
        yield from self._finish(self._entries)

    # The record.

    def _begin(self) -> ForkingSteps[list[bytes]]:
        """Build the record; nothing is sent yet."""
        head = yield from self._new_head()
        entries = packed(self._entries)
        self._head, pieces = with_pieces(head, entries.pieces)
        if pieces:
            self._pieces = dict(zip(map(id, self._marked), entries.first_pieces, strict=True))
        return pieces

    def _new_head(self) -> ForkingSteps[UnitRecord]:
        now: Moment = (yield Pause(0)).now
        terms, leased_until_ms = self._commit.terms, self._leased(now)
        return UnitRecord(
            unit=terms.unit,
            state="pending",
            born_ms=terms.born_ms,
            lease_until_ms=leased_until_ms,
            attempt=_ATTEMPT,
            prefix=self._marks.stored,
        )

    def _write_down(self, pieces: Sequence[bytes]) -> ForkingSteps[None]:
        for batch in chunks(list(enumerate(pieces)), _AT_ONCE):
            yield from self._keep_lease()
            failed, put, until_ms = None, self._records.put_piece, self._ends_local_ms
            for reply in (yield Together(tuple(put(self._head, at, piece, until_ms) for at, piece in batch))):
                if isinstance(reply, TableError):
                    failed = reply
                else:
                    self._note(reply)
            if failed is not None:
                self._is_answered = False
                raise failed

    def _leased(self, now: Moment) -> int:
        self._ends_local_ms = now.local_ms + LEASE_MS - CLOCKS_DRIFT_MS
        self._renew_at_ms = now.latest_ms + LEASE_MS // 2
        return now.latest_ms + LEASE_MS

    def _keep_lease(self) -> ForkingSteps[None]:
        """Renew the lease if half of it is over, by table time: the local clock may have stopped."""
        now: Moment = (yield Pause(0)).now
        if now.latest_ms < self._renew_at_ms:
            return
        until_ms = self._leased(now)
        reply = yield self._records.renew(self._head, until_ms)
        self._note(reply)
        if not is_renewed(reply, until_ms):
            raise self._ended(reply.item)

    # Marks.

    def _mark_all(self) -> ForkingSteps[None]:
        left = list(self._marked)
        while left:
            left, met, conflicts = yield from self._mark_some(left)
            if conflicts:
                raise conflict(conflicts)
            yield from self._wait_for(met)

    def _wait_for(self, met: Sequence[Marked]) -> ForkingSteps[None]:
        for each in met:
            yield from self._meeting.wait_or_wound(each, self._keep_lease)

    def _mark_some(
        self, left: Sequence[ItemState]
    ) -> ForkingSteps[tuple[list[ItemState], list[Marked], list[ItemState]]]:
        """Mark as many items as possible in one round. Returns those left, marks of others, and conflicting items."""
        yield from self._keep_lease()
        batches = self._batches(left)
        self._standing |= {id(place): place for _, places in batches for place in places}
        replies = yield Together(tuple(request for request, _ in batches))
        placed: list[ItemState] = []
        met: list[Marked] = []
        conflicts: list[ItemState] = []
        for (_, places), reply in zip(batches, replies, strict=True):
            if isinstance(reply, TableError):
                self._is_answered = False
                raise reply
            self._note(reply)
            if reply.applied:
                placed += places
            elif len(reply.refused) > len(places) and reply.refused[-1]:
                raise self._ended(reply.items[-1])
            else:
                own = self._sort(places, reply, met, conflicts)
                placed += own
                for gone in set(map(id, places)) - set(map(id, own)):
                    del self._standing[gone]
        done = set(map(id, placed))
        return [place for place in left if id(place) not in done], met, conflicts

    def _batches(self, left: Sequence[ItemState]) -> list[tuple[Request, list[ItemState]]]:
        alone = [place for place in left if self._has_version(place)]
        together = [place for place in left if not self._has_version(place)]
        batches: list[tuple[Request, list[ItemState]]]
        if self._commit.terms.marks_together:
            some = islice(that_fit_together(alone, MOST_ACTIONS), _AT_ONCE)
            batches = [(_together(list(map(self._mark, batch))), batch) for batch in some]
        else:
            batches = [(self._mark(place), [place]) for place in alone[:_AT_ONCE]]
        # One transaction at a time: each includes the head, so two would conflict with each other.
        for batch in islice(that_fit_together(together, _MARKS_TOGETHER), 1):
            # Checked with the head: after the unit's end a late copy would mark an item that was deleted meanwhile.
            writes = (*(self._mark(place) for place in batch), self._records.is_pending(self._head))
            batches.append((TransactWrite(writes), batch))
        return batches

    def _has_version(self, place: ItemState) -> bool:
        return place.seen is not None and self._marks.version_of(place.seen) is not None

    def _mark(self, place: ItemState) -> Write:
        kind: MarkKind = "insert" if place.seen is None else "write" if place.writes else "read"
        mark, until_ms = Mark(self._head.unit, kind, self._pieces.get(id(place))).attribute(), self._ends_local_ms
        if place.seen is None:
            item = {**place.key, self._marks.mark: mark}
            return if_as_seen("Put", place, self._marks, item=item, not_after_local_ms=until_ms)
        update, values = "SET #mark = :mark", {":mark": mark}
        return if_as_seen("Update", place, self._marks, values=values, update=update, not_after_local_ms=until_ms)

    def _sort(
        self, places: Sequence[ItemState], reply: Reply, met: list[Marked], conflicts: list[ItemState]
    ) -> list[ItemState]:
        """Find out what refused each mark: another unit, or another version. Returns items with this unit's mark."""
        own = []
        refused = reply.refused or (True,)
        for place, is_refused, item in zip(places, refused, reply.items, strict=False):
            if not is_refused:
                continue
            found = met_at(place.table, place.key, item, self._marks)
            if found is None:
                conflicts.append(place)
            elif found.mark.unit == self._head.unit:
                own.append(place)
            else:
                met.append(found)
        return own

    # The decision.

    def _decide(self) -> ForkingSteps[None]:
        while True:
            yield from self._keep_lease()
            now: Moment = (yield Pause(0)).now
            # If the decision is found applied, it is by an attempt of this request: an earlier one was refused.
            self._head = replace(self._head, final_ms=now.latest_ms)
            deciding = self._deciding(now)
            checks = tuple(check(place, self._marks) for place in self._checked)
            beside = writes_beside(self._commit, now.latest_ms)
            lock = (self._commit.lock_check,) if self._commit.lock_check is not None else ()
            is_alone = not (checks or beside or lock)
            request = deciding if is_alone else TransactWrite((deciding, *checks, *beside), lock)
            # From now on the outcome of an interrupted commit is unknown.
            self._commit.state.note("sends the decision")
            try:
                reply: Reply = yield request
            except TableError as failed:
                raise_if_foreign(failed)
                is_unknown = isinstance(failed, OutcomeUnknown)
                self._commit.state.note("gets no answer" if is_unknown else "decision is refused")
                raise
            self._note(reply)
            if reply.applied:
                self._commit.state.note("decision is applied")
                return
            if reply.unanswered:
                # It stays "may decide late": the attempt without an answer may still arrive.
                self._commit.state.note("gets no answer")
            self._commit.state.note("decision is refused")
            refused = (True,) if is_alone else reply.refused
            if refused[0]:
                if _is_committed(reply.items[0]):
                    self._commit.state.note("decision is applied")
                    return
                raise self._ended(reply.items[0])
            beside_at = 1 + len(checks)
            error = refused_beside(self._commit, reply, beside_at) or refused_name(self._commit, reply, beside_at)
            if error is not None:
                raise error
            yield from self._pass_checks(reply)

    def _deciding(self, now: Moment) -> Write:
        return self._records.commit(self._head, now.latest_ms)

    def _pass_checks(self, reply: Reply) -> ForkingSteps[None]:
        conflicts: list[ItemState] = []
        met: list[Marked] = []
        self._sort(self._checked, replace(reply, refused=reply.refused[1:], items=reply.items[1:]), met, conflicts)
        if conflicts:
            raise conflict(conflicts)
        yield from self._wait_for(met)

    def _ended(self, row: Item | None) -> TicketLockError:
        return ended(row, self._head.unit)

    def _abort(self, error: TicketLockError) -> ForkingSteps[bool]:
        """Roll back. Returns whether the unit turned out to be committed."""
        try:
            reply = yield from self._roll_back()
        except TableError as failed:
            raise_if_foreign(failed)
            if self._commit.state.may_decide_late:
                raise OutcomeUnknown(f"the unit {self._head.unit} may or may not be committed ({failed})") from error
            if isinstance(error, OutcomeUnknown):
                raise RequestNotApplied(f"the unit was not committed, and will be rolled back ({error})") from error
            return False
        if not reply.applied and _is_committed(reply.item):
            self._commit.state.note("decision is applied")
            return True
        yield from self._undo(reply)
        if self._commit.state.may_decide_late:
            raise self._ended(None) from error
        if isinstance(error, OutcomeUnknown):
            # The unanswered request was a mark, or the commit, which is refused from now on.
            raise UnitRolledBack(f"no answer came in time, and it was rolled back ({error})") from error
        return False

    def _roll_back(self) -> ForkingSteps[Reply]:
        """Decide that the unit is rolled back; refused if it is already decided."""
        now: Moment = (yield Pause(0)).now
        reply: Reply = yield self._records.roll_back(self._head.unit, now.latest_ms)
        return reply

    # Afterwards.

    def _undo(self, reply: Reply) -> ForkingSteps[None]:
        """Remove what a unit that is rolled back, or forgotten, may have left; the reply is that of the rollback."""
        if reply.applied or reply.item is not None:
            self._commit.state.note("is ruled out")
        yield from self._unmark_all()
        if not reply.applied and (reply.item is None or UnitRecord.of(reply.item).is_closed):
            # A process whose clock had stopped may have written rows since: no sweep finds them.
            yield from self._try_all(self._records.delete_pieces(self._head), "a row")

    def _unmark_all(self) -> ForkingSteps[None]:
        """Remove the marks that may exist. What fails is left to the processes that meet them."""
        unmarked = []
        for place in self._standing.values():
            mark = Mark(self._head.unit, INSERT if place.seen is None else "write")
            unmarked.append(unmark(Marked.of(place.table, place.key, mark), self._marks))
        yield from self._try_all(unmarked, "a mark")

    def _try_all(self, requests: Sequence[Request], what: str) -> ForkingSteps[None]:
        for batch in chunks(requests, _AT_ONCE):
            for reply in (yield Together(tuple(batch))):
                if isinstance(reply, TableError):
                    _log.warning("%s of the unit %s is not removed yet: %s", what, self._head.unit, reply)

    def _finish_somewhere(self) -> ForkingSteps[None]:
        """Finish the items, behind the caller or before it goes on."""
        if not self._commit.behind(self._finish(self._entries)):
            left = (yield from self._finish_together()) if self._commit.terms.marks_together else self._entries
            yield from self._finish(left)

    def _finish_together(self) -> ForkingSteps[list[Entry]]:
        """Write new values in transactions. Returns those that are written by themselves: of a transaction that has
        failed, and one that would be alone in its own.
        """
        entries = iter(self._entries)
        batches = [list(islice(entries, len(batch))) for batch in that_fit_together(self._marked, MOST_ACTIONS)]
        left = [entry for batch in batches if len(batch) == 1 for entry in batch]
        for some in chunks([batch for batch in batches if len(batch) > 1], _AT_ONCE):
            replies = yield Together(tuple(TransactWrite(tuple(map(self._finishing, batch))) for batch in some))
            for batch, reply in zip(some, replies, strict=True):
                if isinstance(reply, TableError) or not reply.applied:
                    left += batch
                else:
                    self._note(reply)
        return left

    def _finishing(self, entry: Entry) -> Write:
        return finish(entry, self._head.unit, self._marks)

    def _finish(self, entries: Sequence[Entry]) -> ForkingSteps[None]:
        """Write each new value, and close the record. What DynamoDB refuses is raised; what fails is left."""
        unit = self._head.unit
        try:
            refused = yield from self._finish_items(entries)
        except TableError as error:
            raise_if_foreign(error)
            _log.warning("the unit %s is committed, and not finished yet: %s", unit, error)
            return
        if refused:
            raise not_finished(unit, refused)
        try:
            if not self._is_answered or self._has_read_marks:
                # A copy of a mark may arrive late: a sweep checks the items again before the record is deleted.
                return
            now: Moment = (yield Pause(0)).now
            yield from close(self._records, self._head, now.latest_ms)
        except TableError as error:
            raise_if_foreign(error)
            _log.warning("the unit %s is committed, and not finished yet: %s", unit, error)

    def _finish_items(self, entries: Sequence[Entry]) -> ForkingSteps[list[tuple[Entry, TableRefused]]]:
        """Write new values; return those that DynamoDB refuses."""
        refused, failed = list[tuple[Entry, TableRefused]](), None
        for batch in chunks(entries, _AT_ONCE):
            replies = yield Together(tuple(map(self._finishing, batch)))
            for entry, reply in zip(batch, replies, strict=True):
                if is_for_contents(reply):
                    refused.append((entry, reply))
                elif isinstance(reply, TableError):
                    failed = reply
                else:
                    self._note(reply)
        if failed is not None:
            self._is_answered = False
            if not refused:
                raise failed
        return refused

    def _note(self, reply: Reply) -> None:
        self._is_answered = self._is_answered and not reply.unanswered


def _together(writes: Sequence[Write]) -> Request:
    return writes[0] if len(writes) == 1 else TransactWrite(tuple(writes))


def _is_committed(row: Item | None) -> bool:
    return row is not None and UnitRecord.of(row).state == "committed"
