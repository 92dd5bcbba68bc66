"""What is changed in units that are broken on purpose: each lacks one of its precautions."""

import math
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from property.on_purpose import asking_less
from property.units.tables import UNITS

from ticketlock.errors import (
    OutcomeUnknown,
    TableError,
    TableRefused,
    TicketLockError,
    UnitForgotten,
    UnitRolledBack,
)
from ticketlock.units import _commit, _finishing, _marked, _native, _owners, _reading, _saving, _sweeping
from ticketlock.units._guards import Guards
from ticketlock.units._heads import Head, Heads, head_key
from ticketlock.units._locking import Locking
from ticketlock.units._looks import take_in
from ticketlock.units._marked import MarkedCommit
from ticketlock.units._marks import Marks
from ticketlock.units._meeting import Marked, Meeting
from ticketlock.units._packing import Entry
from ticketlock.units._queries import Querying
from ticketlock.units._reading import SERIALIZABLE, Reading, Wanted
from ticketlock.units._verbs import Verbs
from ticketlock.units._work import Place
from ticketlock.wire._answers import Reply
from ticketlock.wire._item_requests import Get
from ticketlock.wire._requests import ForkingSteps, Pause, Request, TransactWrite, Write
from ticketlock.wire._table_time import Moment

ALWAYS = "attribute_not_exists(nothing)"
LONGEST_MS = 2**63 - 1

without = partial(asking_less, ALWAYS)


def native_without_checks(places: Sequence[Place], marks: Marks, commit: Any, meeting: Meeting) -> ForkingSteps[None]:
    return _COMMIT_NATIVELY([each for each in places if each.writes] or places, marks, commit, meeting)


_COMMIT_NATIVELY = _native.commit_natively


class MarkedWithoutChecks(MarkedCommit):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._checked = []


class MarkedThatValidatesFirst(MarkedCommit):
    """Looks at what was read, and commits in a request of its own."""

    def _decide(self) -> ForkingSteps[None]:
        for place in self._checked:
            reply: Reply = yield Get(place.table.name, place.key)
            if not _reading.is_as_seen(reply.item, place.seen, self._marks):
                raise _commit.conflict([place])
        self._checked = []
        yield from super()._decide()


def no_guards(*_: Any) -> list[Place]:
    """Who inserts leaves the guard as it is."""
    return []


def query_unguarded(*_: Any) -> ForkingSteps[None]:
    """Who queries does not look at the guard."""
    yield from ()


def steps_and_the_guard(self: Querying) -> ForkingSteps[Any]:
    """The guard is read after the items: an insert between the two is in it already, and was not among them."""
    found = yield from _STEPS(self)
    if self._asked.table.is_guarded and self._level is SERIALIZABLE:
        guard = Guards(UNITS).of(self._asked.table, self._asked.range.partition, self._work)
        yield from take_in([guard], self._work, self._reading, 1)
        guard.is_checked = True
    return found


_STEPS = Querying.steps


def never_by_marks(self: Verbs, _guards: Any) -> bool:
    """An item and its guard are written by one transaction.

    DynamoDB is done with the guard of it, and not with the item yet. A query finds the guard as it will be, and no
    item.
    """
    return self.terms.engine == "marked"


class MarkedWithoutTheHead(MarkedCommit):
    """Marks what is absent without a look at the head.

    A copy of the mark comes late: the unit is finished, and another one has deleted the item. It is marked once more,
    as absent as it was before, and whoever meets the mark writes the deleted value again.
    """

    def _batches(self, left: Sequence[Place]) -> Any:
        return [(self._mark(place), [place]) for place in left]


class MarkedPastTheLease(MarkedCommit):
    """Marks however late.

    A process sleeps before it sends a mark again. Its unit is rolled back meanwhile, and closed after ten minutes, when
    no copy comes any more. It wakes, marks, and dies: nobody looks at the record again, and the mark stays.
    """

    def _mark(self, place: Place) -> Write:
        return replace(super()._mark(place), not_after_local_ms=None)


class LockingPastTheLease(Locking):
    """The same of what is read."""

    def _mark(self, place: Place) -> Write:
        return replace(super()._mark(place), not_after_local_ms=None)


def write_no_keys(self: Locking, _places: Sequence[Place]) -> ForkingSteps[None]:
    """Its record does not say what it marks.

    A process dies with its marks; nobody meets them, and a sweep does not find them.
    """
    return (yield from _WRITE_KEYS(self, []))


_WRITE_KEYS = Locking._write_keys


def entry_of_what_was_read(place: Place) -> Entry:
    """What was read and marked is not written, though the unit has changed it since."""
    made = _marked.entry_of(place)
    return made if place.seen is None else replace(made, kind="unmark", assigned={}, removed=())


class MarkedThatTellsBefore(MarkedCommit):
    """Tells of its end before the record says so."""

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

    def _finish(self) -> ForkingSteps[None]:
        reply: Reply = yield Pause(0)
        yield from _finishing.close(self._heads, self._head, reply.now.latest_ms)
        yield from super()._finish()


def pass_by_without_order(self: Meeting, met: Marked) -> ForkingSteps[None]:
    """Everybody rolls back whom they meet.

    Two that meet may do so for ever: who is the oldest is no safer than others.
    """
    while (pending := (yield from self.resolve(met))) is not None:
        head, now = pending
        yield self._heads.roll_back(head.unit, now.latest_ms, by=self._age[1])


def tells_of_gone(head: Head | None) -> bool:
    """What is gone, or closed, did not commit: what was read stands."""
    return head is None or head.is_closed or head.state != "committed"


class MarkedThatIsToldOfGone(MarkedCommit):
    """A record that is gone was rolled back."""

    def _ended(self, row: Any) -> Any:
        error = super()._ended(row)
        return UnitRolledBack(str(error)) if isinstance(error, UnitForgotten) else error


class MarkedThatTellsTheRefusal(MarkedCommit):
    """Tells why it was refused, whatever may come late."""

    @property
    def _may_decide_late(self) -> bool:
        return False

    @_may_decide_late.setter
    def _may_decide_late(self, _: bool) -> None:
        pass


def of_one_instant_by_one_look(self: Reading, batch: Sequence[Wanted]) -> ForkingSteps[Any]:
    """The heads are read once, after the items.

    The items are read when a unit has marked one and not the other yet. It marks that too, and is committed; then its
    head is read. One item is read as the unit writes it, the other as it was before.
    """
    items = yield from self._together(batch)
    units = {met.mark.unit for each, item in zip(batch, items, strict=True) if (met := self._met(each, item))}
    after = {}
    for unit in sorted(units):
        reply: Reply = yield self._heads.read(unit)
        after[unit] = Head.of(reply.item) if reply.item is not None else None
    return items, after


def heads_read_plainly(self: Heads, units: Sequence[str]) -> Request:
    """The heads are read beside transactions.

    A marked unit has read an item, and is decided: the service is done with the check of that item, and not yet with
    the head. Another unit writes the item. A reader finds that, and beside it the mark of the first unit, whose head
    still says pending: it has seen the second unit and not the first, which must come before it.
    """
    return Get(self.table, head_key(units[0])) if len(units) == 1 else _READ_TOGETHER(self, units)


_READ_TOGETHER = Heads.read_together


def one_by_one(self: Reading, batch: Sequence[Wanted]) -> ForkingSteps[Any]:
    """A cut by plain reads."""
    items = []
    for each in batch:
        reply: Reply = yield Get(each.table.name, each.key)
        items.append(self._checked(reply.item))
    return items


def images_dirty(self: Reading, batch: Sequence[Wanted], items: Any, heads: Any) -> ForkingSteps[Any]:
    """What a pending unit is about to write is taken for committed."""
    told = {unit: None if head is None else replace(head, state="committed") for unit, head in heads.items()}
    return (yield from _IMAGES(self, batch, items, told))


def images_as_they_stand(self: Reading, _batch: Any, items: Any, _records: Any) -> ForkingSteps[Any]:
    """What stands in the item, whatever its unit has become."""
    yield from ()
    return [_reading.image_of(item, self._marks) for item in items]


_IMAGES = Reading._images


def new_token(original: Callable[..., Any]) -> Callable[..., Any]:
    def calls(self: TransactWrite, table: str, _identity: str) -> Any:
        return original(replace(self, token=uuid.uuid4().hex), table, "")

    return calls


def commits_natively_taking_refusals(
    places: Sequence[Place], marks: Marks, commit: Any, meeting: Meeting
) -> ForkingSteps[None]:
    """A refusal is of the last attempt, whatever became of those before."""
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
    if item is None or item.get("_tluVersion", {}).get("S") != commit.unit:
        return item
    return {**item, "_tluVersion": {"S": "0" * 26}}


def _next(go: Callable[[], Any]) -> Any:
    try:
        return go()
    except StopIteration:
        return None


def roll_back_of_any(self: Heads, unit: str, now_ms: int, **more: Any) -> Write:
    made = _ROLL_BACK(self, unit, now_ms, **more)
    return replace(made, condition="attribute_exists(#state)")


_ROLL_BACK = Heads.roll_back


def commit_with_time_to_live(self: Heads, head: Head, now_ms: int) -> Write:
    made = _COMMIT(self, head, now_ms)
    return replace(
        made,
        update=f"{made.update}, #ttl = :until",
        values={**made.values, ":until": {"N": str(now_ms // 1_000)}},
    )


_COMMIT = Heads.commit


def unmark_of_pending(self: Meeting, met: Marked) -> ForkingSteps[Any]:
    """Whoever meets a mark of a pending unit takes it off."""
    found = yield from _RESOLVE(self, met)
    if found is not None:
        yield self._unmark(met)
    return None


_RESOLVE = Meeting.resolve


def unmark_unconditionally(entry_table: str, key: Any, key_name: str, mark: Any, marks: Marks) -> Write:
    """A placeholder is deleted, whatever stands there by now."""
    made = _finishing.unmark(entry_table, key, key_name, mark, marks)
    return replace(made, condition=ALWAYS) if mark.kind == "insert" else made


def finish_without_mark(entry: Any, unit: str, marks: Marks) -> Write:
    made = _FINISH(entry, unit, marks)
    return replace(made, condition=ALWAYS)


_FINISH = _finishing.finish


def work_without_checks(told: Any, work: Any, tables: Any) -> None:
    """What was only read before the unit was saved is not checked."""
    _WORK_OF(told, work, tables)
    for place in work.places.values():
        place.is_checked = False


_WORK_OF = _saving.work_of


def saved_under_an_ended_one(table: str, head: Head) -> tuple[Write, Write]:
    put, asks = _SAVED_UNDER(table, head)
    return put, replace(asks, condition=ALWAYS)


def end_owner_too_late(heads: Heads, owner: str) -> ForkingSteps[list[str]]:
    """Its units are read before anything refuses those that come."""
    page = yield _owners._saved(heads.table, owner, None)
    now = (yield Pause(0)).now
    yield _owners._end(heads.table, owner, now)
    units = [row["row"]["S"] for row in page.items if row["row"]["S"] != "ended"]
    return (yield from _owners._roll_back(units, heads, owner, now))


_SAVED_UNDER = _owners.saved_under

# What comes late, or again.


def commit_that_creates(self: Heads, head: Head, now_ms: int) -> Write:
    """Where there is no head it makes one.

    A process sends the commit again after it slept for days: its unit was rolled back, closed and forgotten meanwhile.
    It is told that it is committed, and so is everybody who asks; no item is written.
    """
    made = _COMMIT(self, head, now_ms)
    return replace(made, condition=f"attribute_not_exists(#unit) OR ({made.condition})")


def open_again(self: Heads, head: Head) -> Write:
    """Whatever stands there.

    A late copy of the head's first write comes after the commit: the unit is pending once more, and whoever meets one
    of its marks rolls the rest of it back.
    """
    return replace(_OPEN(self, head), condition=ALWAYS)


_OPEN = Heads.open


class MarkedThatStaysWhenRefused(MarkedCommit):
    """What DynamoDB refuses for its contents is told, and nothing is rolled back.

    Upstream's bug: the marks stand until the lease is over, and everybody waits for them.
    """

    def _abort(self, error: TicketLockError) -> ForkingSteps[bool]:
        if isinstance(error, TableRefused):
            return False
        return (yield from super()._abort(error))


def sweep_of_any_age(
    seen: Head, now: Moment, heads: Heads, marks: Marks, swept: Any, last_ms: float
) -> ForkingSteps[Any]:
    """Every unit is old enough, as by an age that is beyond the range: upstream's bug.

    A unit whose lease runs is rolled back; a record is closed before the last copy of a mark has come.
    """
    return (yield from _SWEEP_ONE(seen, replace(now, earliest_ms=LONGEST_MS), heads, marks, swept, last_ms))


_SWEEP_ONE = _sweeping.sweep_one

FOR_EVER_MS = math.inf
"""A transaction is sent again under its token however long ago the first attempt was.

The service has forgotten it after ten minutes. What only the token knows of, a blind append, is applied once more.
"""
