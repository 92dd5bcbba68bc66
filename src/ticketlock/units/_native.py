"""The native commit: all that a unit writes, and the check of all that it has read, in one TransactWriteItems.

It is strictly serialisable: everything that the unit has read is as it was read, at the instant at which it writes.
"""

from collections.abc import Sequence

from ticketlock.errors import ConditionFailed, OutcomeUnknown, TableError, TicketLockError
from ticketlock.units._commit import (
    Commit,
    conflict,
    has_written_beside,
    is_committed_by,
    refused_beside,
    refused_name,
    writes_beside,
)
from ticketlock.units._heads import Heads
from ticketlock.units._marks import Marks
from ticketlock.units._meeting import Marked, Meeting
from ticketlock.units._rows import is_receipt_of, read_receipt
from ticketlock.units._values import PYTHON
from ticketlock.units._work import Place
from ticketlock.units._writes import check, write
from ticketlock.wire._answers import Reply
from ticketlock.wire._item_requests import Get
from ticketlock.wire._requests import ForkingSteps, Pause, TransactWrite, Write
from ticketlock.wire._table_time import Moment


def commit_natively(places: Sequence[Place], marks: Marks, commit: Commit, meeting: Meeting) -> ForkingSteps[None]:
    """Write it all, or nothing.

    Raises:
        UnitConflict: others have changed what was read; nothing was written.
        ConditionFailed: the condition of a blind update does not hold; nothing was written.
        LockLost: the lock is not held any more; nothing was written.
        UnitContended: another unit was in the way until the time-out; nothing was written.
        UnitRolledBack: the name was given up meanwhile, or the saved unit was rolled back; nothing was written.
        UnitChanged: another coordinator goes on with the saved unit, or has committed it; nothing was written.
        UnitForgotten: the record of the saved unit is gone.
        OutcomeUnknown: it is not known whether it was written.
        TableError: another one; nothing was written.
    """
    lock = (commit.lock_check,) if commit.lock_check is not None else ()
    writes = tuple(_action(place, commit.unit, marks) for place in places)
    if commit.name is not None or commit.saved is not None:
        now: Moment = (yield Pause(0)).now
        writes += writes_beside(commit, now.latest_ms)
    while True:
        # The same each time, to the receipt's time: DynamoDB refuses another request with the token of one before.
        # From now on an interrupt leaves it unknown.
        commit.fate.became = "unknown"
        try:
            reply: Reply = yield TransactWrite(writes, lock, commit.unit)
        except OutcomeUnknown as unknown:
            if not (yield from _was_applied(places, marks, commit)):
                raise _told(commit, unknown) from unknown
            break
        except TableError:
            commit.fate.became = "rolled back"
            raise
        if reply.applied or _has_mine(reply, places, marks, commit):
            break
        if reply.repeated:
            # An earlier attempt may be on its way still, or others have written after it.
            if not (yield from _was_applied(places, marks, commit)):
                raise _told(commit, OutcomeUnknown("an earlier attempt may have been applied, and a later one was not"))
            break
        commit.fate.became = "rolled back"
        met = _met(reply, places, marks)
        error = _refusal(reply, places, met, commit)
        if error is not None:
            raise error
        for each in met.values():
            yield from meeting.pass_by(each)
    commit.fate.became = "committed"


def _action(place: Place, unit: str, marks: Marks) -> Write:
    return write(place, unit, marks) if place.writes else check(place, marks)


def _met(reply: Reply, places: Sequence[Place], marks: Marks) -> dict[int, Marked]:
    """The marks of others that have refused it, by the position of their items."""
    met = {}
    for at, (place, item) in enumerate(zip(places, reply.items, strict=False)):
        mark = marks.mark_of(item) if item is not None and reply.refused[at] else None
        if mark is not None:
            met[at] = Marked(place.table.name, place.key, place.table.key_names[0], mark)
    return met


def _refusal(reply: Reply, places: Sequence[Place], met: dict[int, Marked], commit: Commit) -> TicketLockError | None:
    """What it is refused for, for good; None where only marks were in the way."""
    beside = refused_beside(commit, reply, len(places))
    if beside is not None:
        return beside
    refused = [place for at, place in enumerate(places) if reply.refused[at] and at not in met]
    changed = [place for place in refused if place.blind is None]
    if changed:
        return conflict(changed)
    for place in refused:
        condition = place.blind.parameters.get("ConditionExpression", "") if place.blind is not None else ""
        return ConditionFailed(place.table.name, PYTHON.back(place.key) or {}, condition)
    return refused_name(commit, reply, len(places))


def _has_mine(reply: Reply, places: Sequence[Place], marks: Marks, commit: Commit) -> bool:
    """Whether what has refused it is of the unit itself: then an earlier attempt was committed.

    The items of users come first, each with the unit's own version; then what it writes beside them.
    """
    if any(marks.is_by(item, commit.unit) for item in reply.items[: len(places)]):
        return True
    return has_written_beside(commit, reply.items[len(places) :])


def _was_applied(places: Sequence[Place], marks: Marks, commit: Commit) -> ForkingSteps[bool]:
    """Ask for one thing that it has written; what is not found says nothing."""
    written = [place for place in places if place.writes and (place.blind or place.image is not None)]
    try:
        if commit.name is not None:
            receipt: Reply = yield read_receipt(commit.units_table, commit.name)
            return is_receipt_of(receipt.item, commit.unit)
        if commit.saved is not None:
            head: Reply = yield Heads(commit.units_table).read(commit.saved.unit)
            return is_committed_by(head.item, commit.unit)
        if written:
            reply: Reply = yield Get(written[0].table.name, written[0].key)
            return marks.is_by(reply.item, commit.unit)
    except TableError:
        pass
    return False


def _told(commit: Commit, unknown: OutcomeUnknown) -> OutcomeUnknown:
    ask = "a unit with a name can be asked for"
    if commit.name is not None:
        ask = f"ask `outcome(name={commit.name!r})`"
    elif commit.saved is not None:
        ask = f"`resume({commit.saved.unit!r})` finds out"
    return OutcomeUnknown(f"the unit {commit.unit} may or may not be committed; {ask} ({unknown})")
