"""The native commit: one TransactWriteItems with all that a unit writes, and checks of all that it has read.

It is strictly serialisable: at the instant of the commit, everything is as the unit has read it.
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
    """Write everything, or nothing.

    Raises:
        UnitConflict: other writers have changed what was read; nothing was written.
        ConditionFailed: the condition of a blind update does not hold; nothing was written.
        LockLost: the lock is no longer held; nothing was written.
        UnitContended: another unit blocked it until the time-out; nothing was written.
        UnitRolledBack: the name was given up meanwhile, or the saved unit was rolled back; nothing was written.
        UnitChanged: another coordinator has resumed the saved unit, or has committed it; nothing was written.
        UnitForgotten: the record of the saved unit is gone.
        OutcomeUnknown: it is not known whether anything was written.
        TableError: nothing was written.
    """
    lock = (commit.lock_check,) if commit.lock_check is not None else ()
    writes = tuple(_action(place, commit.unit, marks) for place in places)
    if commit.name is not None or commit.saved is not None:
        now: Moment = (yield Pause(0)).now
        writes += writes_beside(commit, now.latest_ms)
    while True:
        # Every attempt is the same request, with the same receipt time: DynamoDB refuses a token with another request.
        # From now on the outcome of an interrupted commit is unknown.
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
            # An earlier attempt may still arrive, or another unit may have written after it was applied.
            if not (yield from _was_applied(places, marks, commit)):
                raise _told(commit, OutcomeUnknown("an earlier attempt may have been applied, and a later one was not"))
            break
        commit.fate.became = "rolled back"
        met = _met(reply, places, marks)
        error = _refusal(reply, places, met, commit, marks)
        if error is not None:
            raise error
        for each in met.values():
            yield from meeting.pass_by(each)
    commit.fate.became = "committed"


def _action(place: Place, unit: str, marks: Marks) -> Write:
    return write(place, unit, marks) if place.writes else check(place, marks)


def _met(reply: Reply, places: Sequence[Place], marks: Marks) -> dict[int, Marked]:
    """The marks of other units that refused the commit, by the positions of their items."""
    met = {}
    for at, (place, item) in enumerate(zip(places, reply.items, strict=False)):
        mark = marks.mark_of(item) if item is not None and reply.refused[at] else None
        if mark is not None:
            met[at] = Marked(place.table.name, place.key, place.table.key_names[0], mark)
    return met


def _refusal(
    reply: Reply, places: Sequence[Place], met: dict[int, Marked], commit: Commit, marks: Marks
) -> TicketLockError | None:
    """The error if the commit was refused for good; None if only marks blocked it.

    Raises:
        InvalidUnitRequest: the target of a blind update has attributes with our prefix that no unit has written.
    """
    beside = refused_beside(commit, reply, len(places))
    if beside is not None:
        return beside
    refused = [place for at, place in enumerate(places) if reply.refused[at] and at not in met]
    changed = [place for place in refused if place.blind is None]
    if changed:
        return conflict(changed)
    for at, place in enumerate(places):
        item = reply.items[at] if place.blind is not None and reply.refused[at] else None
        if item is not None:
            # The unit has not read it: it may have a version that no unit has written.
            marks.check_item(item)
    for place in refused:
        condition = place.blind.parameters.get("ConditionExpression", "") if place.blind is not None else ""
        return ConditionFailed(place.table.name, PYTHON.back(place.key) or {}, condition)
    return refused_name(commit, reply, len(places))


def _has_mine(reply: Reply, places: Sequence[Place], marks: Marks, commit: Commit) -> bool:
    """Whether the unit's own writes refused the request: then an earlier attempt was committed.

    The items of users come first, each with the unit's version; then the unit's other writes.
    """
    if any(marks.is_by(item, commit.unit) for item in reply.items[: len(places)]):
        return True
    return has_written_beside(commit, reply.items[len(places) :])


def _was_applied(places: Sequence[Place], marks: Marks, commit: Commit) -> ForkingSteps[bool]:
    """Read one of the unit's writes. Finding it shows the commit; not finding it shows nothing."""
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
