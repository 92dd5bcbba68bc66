"""The native commit: all that a unit writes, and the check of all that it has read, in one TransactWriteItems.

It is strictly serialisable: everything that the unit has read is as it was read, at the instant at which it writes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ticketlock.errors import ConditionFailed, LockLost, OutcomeUnknown, TableError, UnitConflict, UnitRolledBack
from ticketlock.units._marks import Marks
from ticketlock.units._rows import NEVER_USED, Receipt, put_receipt, read_receipt, receipt_key
from ticketlock.units._values import PYTHON
from ticketlock.units._work import Place, Work
from ticketlock.units._writes import check, write
from ticketlock.wire._attributes import Item
from ticketlock.wire._item_requests import Get
from ticketlock.wire._requests import Reply, Steps, TransactWrite, Write

MOST_ACTIONS = 100
"""https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html"""


@dataclass(frozen=True, slots=True)
class Commit:
    """What a unit commits beside its items.

    Attributes:
        unit: its id, under which the service knows the attempts too.
        units_table: the name of the units' own table.
        name: for exactly once; None for none.
        receipt: of the name, as it was seen.
        lock_check: the check that a lock is held, as the low-level API has it; None for none.
        now_ms: table time.
    """

    unit: str
    units_table: str
    name: str | None = None
    receipt: Receipt = NEVER_USED
    lock_check: Mapping[str, Any] | None = None
    now_ms: int = 0


def actions(work: Work) -> list[Place]:
    """The items that a commit is about."""
    return [place for place in work.places.values() if place.is_touched]


def commit_natively(work: Work, commit: Commit) -> Steps[None]:
    """Write it all, or nothing.

    Raises:
        UnitConflict: others have changed what was read; nothing was written.
        ConditionFailed: the condition of a blind update does not hold; nothing was written.
        LockLost: the lock is not held any more; nothing was written.
        UnitRolledBack: the name was given up meanwhile; nothing was written.
        OutcomeUnknown: it is not known whether it was written.
        TableError: another one; nothing was written.
    """
    places = actions(work)
    writes = [_action(place, commit.unit, work.marks) for place in places]
    if commit.name is not None:
        after = Receipt(True, commit.unit, commit.receipt.tries)
        writes.append(put_receipt(commit.units_table, commit.name, commit.receipt, after, commit.now_ms))
    given = (commit.lock_check,) if commit.lock_check is not None else ()
    try:
        reply = yield TransactWrite(tuple(writes), given, commit.unit)
    except OutcomeUnknown as unknown:
        if not (yield from _was_applied(work, commit, places)):
            raise _told(commit, unknown) from unknown
        return
    if reply.applied or _shows_that_it_was_applied(reply, work.marks, commit):
        return
    if reply.repeated:
        # An earlier attempt may be on its way still, or others have written after it.
        if not (yield from _was_applied(work, commit, places)):
            raise _told(
                commit, OutcomeUnknown("an earlier attempt to commit may have been applied; a later one was not")
            )
        return
    raise _refusal(reply, places, commit)


def _action(place: Place, unit: str, marks: Marks) -> Write:
    return write(place, unit, marks) if place.writes else check(place, marks)


def _shows_that_it_was_applied(reply: Reply, marks: Marks, commit: Commit) -> bool:
    """Whether an item that refused it has the unit's own version, or a receipt its id."""
    return any(_is_mine(item, marks, commit) for item in reply.items)


def _is_mine(item: Item | None, marks: Marks, commit: Commit) -> bool:
    if item is None:
        return False
    # A receipt's key is that of no item of a user's: they are in other tables.
    is_receipt = commit.name is not None and receipt_key(commit.name).items() <= item.items()
    return Receipt.of(item).unit == commit.unit if is_receipt else marks.version_of(item) == commit.unit


def _was_applied(work: Work, commit: Commit, places: Sequence[Place]) -> Steps[bool]:
    """Ask for one thing that it has written; what is not found says nothing."""
    if commit.name is not None:
        asked = read_receipt(commit.units_table, commit.name)
    else:
        written = [
            place for place in places if place.blind is not None or (place.is_written and place.image is not None)
        ]
        if not written:
            return False
        asked = Get(written[0].table.name, written[0].key)
    try:
        reply = yield asked
    except TableError:
        return False
    return _is_mine(reply.item, work.marks, commit)


def _told(commit: Commit, unknown: OutcomeUnknown) -> OutcomeUnknown:
    ask = f"ask `outcome({commit.name!r})`" if commit.name is not None else "a unit with a name can be asked for"
    return OutcomeUnknown(f"the unit {commit.unit} may or may not be committed; {ask} ({unknown})")


def _refusal(reply: Reply, places: Sequence[Place], commit: Commit) -> Exception:
    refused = [place for place, is_refused in zip(places, reply.refused, strict=False) if is_refused]
    if commit.lock_check is not None and reply.refused[-1]:
        return LockLost("the lock is not held with this fencing token any more: nothing was written")
    conflicts = [place for place in refused if place.blind is None]
    if conflicts:
        return UnitConflict((place.table.name, PYTHON.back(place.key) or {}) for place in conflicts)
    if refused and refused[0].blind is not None:
        place = refused[0]
        return ConditionFailed(place.table.name, PYTHON.back(place.key) or {}, refused[0].blind["ConditionExpression"])
    return UnitRolledBack(f"the name {commit.name!r} was used or given up meanwhile: nothing was written")
