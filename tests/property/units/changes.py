"""The changes that break units on purpose: each removes one precaution."""

import math
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from property.report import asking_less
from property.units.calls import UNITS

from ticketlock.errors import (
    CommittedUnfinished,
    OutcomeUnknown,
    TableError,
    TableRefused,
    TicketLockError,
    UnitForgotten,
    UnitRolledBack,
)
from ticketlock.units._commit import _commit, _marked, _state
from ticketlock.units._commit._commit import Commit
from ticketlock.units._commit._marked import MarkedCommit
from ticketlock.units._commit._read_locks import ReadLocks
from ticketlock.units._records import _meeting, _record
from ticketlock.units._records._marks import Marks
from ticketlock.units._records._meeting import Marked, Meeting
from ticketlock.units._records._packing import Entry
from ticketlock.units._records._record import UnitRecord, UnitRecords, head_key
from ticketlock.units._records._results import result_told
from ticketlock.units._records._rows import OPEN, Receipt, read_receipt
from ticketlock.units._recovery import _saved, _sweeping
from ticketlock.units._recovery._operators import UnitOutcome, outcome_of_name
from ticketlock.units._statements import _reading, _snapshots
from ticketlock.units._statements._queries import Querying
from ticketlock.units._statements._reading import COMMITTED, SERIALIZABLE, Reader, Wanted, read_unread
from ticketlock.units._statements._settings import Terms
from ticketlock.units._statements._work import Guards, ItemState, conflict, that_fit_together
from ticketlock.units._unit_of_work._unit_of_work import UnitOfWork
from ticketlock.wire._actions import Item, Reply
from ticketlock.wire._item_requests import Get
from ticketlock.wire._requests import ForkingSteps, Pause, Request, TransactWrite, Write
from ticketlock.wire._table_time import Moment

ALWAYS = "attribute_not_exists(nothing)"
LONGEST_MS = 2**63 - 1

without = partial(asking_less, ALWAYS)


def native_without_checks(
    places: Sequence[ItemState], marks: Marks, commit: Any, meeting: Meeting
) -> ForkingSteps[None]:
    return _COMMIT_NATIVELY([each for each in places if each.writes] or places, marks, commit, meeting)


_COMMIT_NATIVELY = _commit.commit_natively


class MarkedThatKeepsSilent(MarkedCommit):
    """Leaves to others what DynamoDB has refused, as if they could write it."""

    def _finish(self, entries: Sequence[Entry]) -> ForkingSteps[None]:
        try:
            yield from super()._finish(entries)
        except CommittedUnfinished:
            return


class MarkedWithoutChecks(MarkedCommit):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._checked = []


class MarkedThatValidatesFirst(MarkedCommit):
    """Reads again what was read, and then commits in another request."""

    def _decide(self) -> ForkingSteps[None]:
        for place in self._checked:
            reply: Reply = yield Get(place.table.name, place.key)
            if not _reading.is_as_seen(reply.item, place.seen, self._marks):
                raise conflict([place])
        self._checked = []
        yield from super()._decide()


def no_guards(*_: Any) -> list[ItemState]:
    """Inserts do not write the guard."""
    return []


def query_unguarded(*_: Any) -> ForkingSteps[None]:
    """Queries do not read the guard."""
    yield from ()


def steps_and_the_guard(self: Querying) -> ForkingSteps[Any]:
    """The guard is read after the items: an insert in between is in the guard already, and was not among the items."""
    found = yield from _STEPS(self)
    if self._asked.table.is_guarded and self._level is SERIALIZABLE:
        guard = Guards(UNITS).of(self._asked.table, self._asked.range.partition[0], self._work)
        yield from read_unread([guard], self._work, self._reading)
        guard.is_checked = True
    return found


_STEPS = Querying.steps


def always_as_read(*_: Any) -> bool:
    """Of an item that was read before, and not shown, a query neither shows nor checks what others have committed."""
    return True


def known_by_any_read(self: Querying, place: ItemState) -> bool:
    """An index is shown with what the unit has only read for later."""
    is_newest = self._level is not SERIALIZABLE and self._asked.index is None
    return place.is_written if is_newest else place.is_read


def own_without_what_it_follows(self: Querying) -> tuple[Any, None]:
    """Where a page of an index follows an item of the unit, the table's items at that position are shown again."""
    return _OWN(self)[0], None


_OWN = Querying._own


def query_at_committed(self: UnitOfWork, table: Any, given: Any, isolation: Any) -> ForkingSteps[Any]:
    """An index is silently read at COMMITTED, whatever its caller has asked for."""
    return _QUERY(self, table, given, isolation if given.index is None else COMMITTED)


_QUERY = UnitOfWork.query


def never_by_marks(self: UnitOfWork, _guards: Any) -> bool:
    """One transaction writes an item and its guard.

    DynamoDB has applied the guard, but not the item yet. A query finds the new guard, and no item.
    """
    return self.terms.engine == "marked"


class MarkedWithoutTheHead(MarkedCommit):
    """Marks absent items without a check of the head.

    A copy of the mark arrives late: the unit is finished, and another one has deleted the item. The item is marked
    again in the same state, absent, and a process that meets the mark writes the deleted value again.
    """

    def _batches(self, left: Sequence[ItemState]) -> Any:
        return [(self._mark(place), [place]) for place in left]


class MarkedPastTheLease(MarkedCommit):
    """Marks even after the end of its lease.

    A process pauses before it sends a mark again. Meanwhile its unit is rolled back, and closed after ten minutes, when
    no copy can arrive any more. The process continues, marks the item, and crashes: no process reads the record again,
    and the mark stays.
    """

    def _mark(self, place: ItemState) -> Write:
        return replace(super()._mark(place), not_after_local_ms=None)


class LockingPastTheLease(ReadLocks):
    """The same for read locks."""

    def _mark(self, place: ItemState) -> Write:
        return replace(super()._mark(place), not_after_local_ms=None)


def write_no_keys(self: ReadLocks, _places: Sequence[ItemState]) -> ForkingSteps[None]:
    """Its record does not say what it marks.

    A process crashes with its marks; no process meets them, and a sweep does not find them.
    """
    return (yield from _WRITE_KEYS(self, []))


_WRITE_KEYS = ReadLocks._write_keys


def entry_of_what_was_read(place: ItemState) -> Entry:
    """An item that was marked when it was read is not written, although the unit has changed it since."""
    made = _marked.entry_of(place)
    return made if place.seen is None else replace(made, kind="unmark", assigned={}, removed=())


def read_unread_by_marks(self: UnitOfWork, places: Sequence[ItemState]) -> ForkingSteps[None]:
    """A repeated unit marks what it reads, and its end frees nothing: it has nothing to commit."""
    repeated, self.repeated = self.repeated, False
    try:
        yield from _READ_UNREAD(self, places)
    finally:
        self.repeated = repeated


_READ_UNREAD = UnitOfWork._read_unread


class MarkedThatWritesAfterTheEnd(MarkedCommit):
    """All rows are written under one look at the lease, and stay if their record has ended meanwhile."""

    def _write_down(self, pieces: Sequence[bytes]) -> ForkingSteps[None]:
        yield from self._keep_lease()
        renew_at_ms, self._renew_at_ms = self._renew_at_ms, 10**15
        yield from super()._write_down(pieces)
        self._renew_at_ms = renew_at_ms

    def _undo(self, reply: Reply) -> ForkingSteps[None]:
        return super()._undo(replace(reply, applied=True))


class MarkedThatReportsBefore(MarkedCommit):
    """Reports its end before the record says so."""

    def _abort(self, error: Any) -> ForkingSteps[bool]:
        yield from self._unmark_all()
        if isinstance(error, OutcomeUnknown):
            raise UnitRolledBack(str(error))
        return False


class MarkedThatClosesAtOnce(MarkedCommit):
    def _note(self, reply: Reply) -> None:
        pass


class MarkedThatClosesBefore(MarkedCommit):
    """Closed before the new values are written."""

    def _finish(self, entries: Sequence[Entry]) -> ForkingSteps[None]:
        reply: Reply = yield Pause(0)
        yield from _meeting.close(self._records, self._head, reply.now.latest_ms)
        yield from super()._finish(entries)


def pass_by_without_order(self: Meeting, met: Marked) -> ForkingSteps[None]:
    """Every unit rolls back each unit that it meets.

    Two units may do so to each other for ever: the oldest unit is no safer than others.
    """
    while (pending := (yield from self.resolve(met))) is not None:
        head, now = pending
        yield self._records.roll_back(head.unit, now.latest_ms, by=self._age[1])


def undecided_or_gone(head: UnitRecord | None) -> bool:
    """A unit that is gone, or closed, counts as not committed: what was read is treated as committed."""
    return head is None or head.is_closed or head.state != "committed"


class MarkedThatTakesGoneAsRolledBack(MarkedCommit):
    """A record that is gone counts as rolled back."""

    def _ended(self, row: Any) -> Any:
        error = super()._ended(row)
        return UnitRolledBack(str(error)) if isinstance(error, UnitForgotten) else error


NO_ATTEMPT_ARRIVES_LATE = {**_state.TRANSITIONS, "gets no answer": {"deciding": "deciding"}}
"""A refusal is reported as the end, even if an earlier attempt may still arrive."""


def with_heads_by_one_read(self: Reader, batch: Sequence[Wanted], *, together: bool) -> ForkingSteps[Any]:
    """The heads are read once, after the items.

    The items are read when a unit has marked one of them, but not the other yet. It marks that as well, and is
    committed; then its head is read. One item is read as the unit writes it, the other as it was before.
    """
    items = yield from self._together(batch) if together else self._each(batch)
    units = {met.mark.unit for each, item in zip(batch, items, strict=True) if (met := self._met(each, item))}
    after = {}
    for unit in sorted(units):
        reply: Reply = yield self._records.read(unit)
        after[unit] = UnitRecord.of(reply.item) if reply.item is not None else None
    return items, after


def heads_read_plainly(self: UnitRecords, units: Sequence[str]) -> Request:
    """The heads are read outside of transactions.

    A marked unit has read an item, and is decided: the service has released the check of that item, but has not changed
    the head yet. Another unit writes the item. A reader finds its value, and in another item the mark of the first
    unit, whose head is still pending: the reader has seen the second unit but not the first, which must come before it.
    """
    return Get(self.table, head_key(units[0])) if len(units) == 1 else _READ_TOGETHER(self, units)


_READ_TOGETHER = UnitRecords.read_together


def one_by_one(self: Reader, batch: Sequence[Wanted]) -> ForkingSteps[Any]:
    """Several items of one instant by plain reads."""
    items = []
    for each in batch:
        reply: Reply = yield Get(each.table.name, each.key)
        items.append(self._checked(reply.item))
    return items


def images_dirty(self: Reader, batch: Sequence[Wanted], items: Any, records: Any) -> ForkingSteps[Any]:
    """The value that a pending unit is about to write is treated as committed."""
    as_committed = {unit: None if head is None else replace(head, state="committed") for unit, head in records.items()}
    return (yield from _IMAGES(self, batch, items, as_committed))


def images_of_the_items(self: Reader, _batch: Any, items: Any, _records: Any) -> ForkingSteps[Any]:
    """The item's present value, without the outcome of the unit whose mark it has."""
    yield from ()
    return [_reading.image_of(item, self._marks) for item in items]


_IMAGES = Reader._images


def read_in_the_new_alone(self: UnitOfWork, places: Sequence[ItemState]) -> ForkingSteps[None]:
    """A cut has the items that the unit had read before as they were then: it mixes instants."""
    return (yield from _READ_IN(self, [place for place in places if not place.is_read]))


_READ_IN = UnitOfWork._read_in


def newest_of_the_new_alone(self: UnitOfWork, places: Sequence[ItemState], level: Any) -> ForkingSteps[Any]:
    """The same below SERIALIZABLE: a unit that polls what it has read never sees it change."""
    found = yield from _NEWEST(self, [place for place in places if not place.is_read], level)
    return {**{id(place): place.image for place in places}, **found}


_NEWEST = UnitOfWork._newest


def check_no_earlier_marks(_self: ReadLocks) -> ForkingSteps[None]:
    """While the unit waited for an item, an older one may have taken its read locks away, and written both items."""
    yield from ()


def nothing_has_changed(_places: Sequence[ItemState], _marks: Marks, _reading: Reader) -> ForkingSteps[list[ItemState]]:
    """What only reads is not checked: what several requests have read is not of one instant."""
    yield from ()
    return []


def changed_by_plain_reads(places: Sequence[ItemState], marks: Marks, reading: Reader) -> ForkingSteps[list[ItemState]]:
    """A transaction has changed one item, and not yet the other one: plain reads show that twice."""
    wanted = [Wanted(place.table, place.key) for place in places]
    found = yield from reading.serializable(wanted, together=False)
    return _snapshots._changed(places, found, marks)


def changed_apart_from_marks(
    places: Sequence[ItemState], marks: Marks, reading: Reader
) -> ForkingSteps[list[ItemState]]:
    """The second read takes items as they are: a unit is committed, and has not written this item yet."""
    found: list[Any] = []
    for batch in that_fit_together(places, 2):
        found += yield from reading._together([Wanted(place.table, place.key) for place in batch])
    return _snapshots._changed(places, found, marks)


def absent_last(places: Sequence[ItemState]) -> list[ItemState]:
    """Absence counts as a version: an item is inserted and deleted between two reads that find none."""
    return sorted(places, key=lambda place: place.seen is None)


def never_too_many(_places: Sequence[ItemState]) -> bool:
    """The same, of as many absent items as there are: the first transaction reads some of them."""
    return False


def validate_no_checks(self: UnitOfWork, places: Sequence[ItemState], commit: Any) -> ForkingSteps[None]:
    """A `check` counts as any read: of one item it is true as of the read, not as of the commit."""
    for place in places:
        place.is_asserted = False
    yield from _VALIDATE(self, places, commit)


_VALIDATE = UnitOfWork._validate


def serializable_by_plain_reads(
    self: Reader, wanted: Sequence[Wanted], *, together: bool = True, exactly: bool = False
) -> ForkingSteps[Any]:
    """The commit checks a single item by a plain read.

    A transaction that changes the item is decided, and its machine knows it; the service has not applied it yet.
    """
    del exactly
    return (yield from _SERIALIZABLE(self, wanted, together=together))


_SERIALIZABLE = Reader.serializable


def new_token(original: Callable[..., Any]) -> Callable[..., Any]:
    def calls(self: TransactWrite, table: str, _identity: str) -> Any:
        return original(replace(self, token=uuid.uuid4().hex), table, "")

    return calls


def commits_natively_taking_refusals(
    places: Sequence[ItemState], marks: Marks, commit: Any, meeting: Meeting
) -> ForkingSteps[None]:
    """A refusal is treated as one of the last attempt, even if an earlier one had no answer."""
    steps = _COMMIT_NATIVELY(places, marks, commit, meeting)
    request = next(steps)
    while True:
        try:
            reply = yield request
            if isinstance(reply, Reply) and not reply.applied:
                reply = replace(reply, repeated=False, items=tuple(_unversioned(item, commit) for item in reply.items))
        except TableError as error:
            request = _next(partial(steps.throw, error))
        else:
            request = _next(partial(steps.send, reply))
        if request is None:
            return


def _unversioned(item: Any, commit: Any) -> Any:
    if item is None or item.get("_tluVersion", {}).get("S") != commit.terms.unit:
        return item
    return {**item, "_tluVersion": {"S": "0" * 26}}


def _next(go: Callable[[], Any]) -> Any:
    try:
        return go()
    except StopIteration:
        return None


def roll_back_of_any(self: UnitRecords, unit: str, now_ms: int, **more: Any) -> Write:
    made = _ROLL_BACK(self, unit, now_ms, **more)
    return replace(made, condition="attribute_exists(#state)")


_ROLL_BACK = UnitRecords.roll_back


def commit_with_time_to_live(self: UnitRecords, head: UnitRecord, now_ms: int) -> Write:
    made = _COMMIT(self, head, now_ms)
    return replace(
        made,
        update=f"{made.update}, #ttl = :until",
        values={**made.values, ":until": {"N": str(now_ms // 1_000)}},
    )


_COMMIT = UnitRecords.commit


def unmark_of_pending(self: Meeting, met: Marked) -> ForkingSteps[Any]:
    """A process that meets a mark of a pending unit removes it."""
    found = yield from _RESOLVE(self, met)
    if found is not None:
        yield _meeting.unmark(met, self._marks)
    return None


_RESOLVE = Meeting.resolve


def unmark_unconditionally(met: Marked, marks: Marks) -> Write:
    """A placeholder is deleted, even if the item has changed since."""
    made = _UNMARK(met, marks)
    return replace(made, condition=ALWAYS) if met.mark.kind == "insert" else made


_UNMARK = _meeting.unmark


def finish_without_mark(entry: Any, unit: str, marks: Marks) -> Write:
    made = _FINISH(entry, unit, marks)
    return replace(made, condition=ALWAYS)


_FINISH = _meeting.finish


def work_without_checks(saved: Any, work: Any, tables: Any) -> None:
    """What was only read before the save is not checked."""
    _WORK_OF(saved, work, tables)
    for place in work.places.values():
        place.is_checked = False


_WORK_OF = _saved.work_of


def terms_with_no_setting(told: Any, own: Terms, head: UnitRecord) -> Terms:
    """A resumed unit does not know how its client marks items."""
    return replace(_TERMS_OF(told, own, head), marks_together=False)


_TERMS_OF = _saved.terms_of


def with_no_step(saved: frozenset[bytes], _step: Any) -> frozenset[bytes]:
    return saved


def saved_under_an_ended_one(table: str, owner: str) -> Write:
    return replace(_OWNER_GOES_ON(table, owner), condition=ALWAYS)


def end_owner_too_late(records: UnitRecords, owner: str) -> ForkingSteps[list[str]]:
    """Its units are read before anything refuses later saves."""
    page = yield _saved._saved(records.table, owner, None)
    now = (yield Pause(0)).now
    yield _saved._end(records.table, owner, now)
    units = [row["row"]["S"] for row in page.items if row["row"]["S"] != "ended"]
    return (yield from _saved._roll_back(units, records, owner, now, []))


_OWNER_GOES_ON = _saved.owner_goes_on


def given_up_by_a_counter(table: str, name: str, _own: str, kept_s: int) -> ForkingSteps[UnitOutcome]:
    """The identity is a number, which begins again once time to live has deleted the receipt."""
    found = Receipt.of((yield read_receipt(table, name)).item)
    before = 0 if found.is_committed else int(found.unit or 0)
    return (yield from outcome_of_name(table, name, f"{before + 1:026}", kept_s))


# Results.


def beside_without_the_result(commit: Commit, now_ms: int) -> tuple[Write, ...]:
    return _WRITES_BESIDE(replace(commit, kept={}), now_ms)


def committed_and_then_kept(self: UnitOfWork) -> ForkingSteps[None]:
    """The result is written by a request of its own."""
    yield from _NOTE_COMMITTED(self)
    if self.terms.name is not None and self._kept and not self.repeated:
        names, values = {f"#{name}": name for name in self._kept}, {f":{name}": self._kept[name] for name in self._kept}
        update = "SET " + ", ".join(f"#{name} = :{name}" for name in self._kept)
        own, values = {**names, "#by": "by"}, {**values, ":unit": {"S": self.terms.unit}}
        key = read_receipt(UNITS, self.terms.name).key
        yield Write("Update", key, "#by = :unit", update=update, names=own, values=values, table=UNITS)


def keep_its_own(self: UnitOfWork, result: Any) -> None:
    """Also if it is repeated."""
    self._kept = result_told(result)


_WRITES_BESIDE, _NOTE_COMMITTED = _commit.writes_beside, UnitOfWork._note_committed


# Late and duplicate requests.


def commit_that_creates(self: UnitRecords, head: UnitRecord, now_ms: int) -> Write:
    """Creates a head if there is none.

    A process sends the commit again after it has slept for days: meanwhile its unit was rolled back, closed and
    deleted. The process, and every one that asks for the outcome, learns that the unit is committed; no item is
    written.
    """
    made = _COMMIT(self, head, now_ms)
    return replace(made, condition=f"attribute_not_exists(#unit) OR ({made.condition})")


def open_again(self: UnitRecords, head: UnitRecord) -> Write:
    """Writes the head unconditionally.

    A late copy of the head's first write arrives after the commit: the unit is pending again, and a process that meets
    one of its marks rolls back the rest.
    """
    return replace(_OPEN(self, head), condition=ALWAYS)


_OPEN = UnitRecords.open


class MarkedThatStaysWhenRefused(MarkedCommit):
    """If DynamoDB refuses contents, the error is raised, and nothing is rolled back.

    Upstream's bug: the marks stay until the lease ends, and other units wait for them.
    """

    def _abort(self, error: TicketLockError) -> ForkingSteps[bool]:
        if isinstance(error, TableRefused):
            return False
        return (yield from super()._abort(error))


def head_out_of_the_index(head: UnitRecord) -> Item:
    """No sweep finds the unit."""
    return {name: value for name, value in _ROW(head).items() if name != OPEN}


_ROW = _record._row


def close_that_stays_in_the_index(records: UnitRecords, head: UnitRecord, now_ms: int) -> Write:
    made = _CLOSE(records, head, now_ms)
    assert made.update is not None
    return replace(made, update=made.update.replace(" REMOVE #open", "").replace(", #open", ""))


def close_that_leaves_the_index(records: UnitRecords, head: UnitRecord, now_ms: int) -> Write:
    """Also if rows of the unit are left: if the process dies now, no sweep finds them."""
    made = _CLOSE(records, head, now_ms)
    if made.update is None or "#open" in made.update:
        return made
    return replace(made, update=f"{made.update}{', ' if 'REMOVE' in made.update else ' REMOVE '}#open")


_CLOSE = UnitRecords.close


def sweep_of_any_age(seen: UnitRecord, now: Moment, records: UnitRecords, swept: Any, limits: Any) -> ForkingSteps[Any]:
    """Every unit is old enough, as with an age that overflows: upstream's bug.

    A unit whose lease is running is rolled back; a record is closed before the last copy of a mark has arrived.
    """
    return (yield from _SWEEP_ONE(seen, replace(now, earliest_ms=LONGEST_MS), records, swept, limits))


_SWEEP_ONE = _sweeping.sweep_one

FOR_EVER_MS = math.inf
"""A transaction is sent again under its token at any time after its first attempt.

The service forgets a token after ten minutes. A blind append, which only the token protects, is applied again.
"""
