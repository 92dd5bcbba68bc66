"""The native commit, in one request; and what every commit writes in addition to its items.

One TransactWriteItems writes all that a unit writes and checks all that it has read. It is strictly serialisable: at
the instant of the commit, everything is as the unit has read it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ticketlock._expressions import MAX_ITEM_BYTES, Attributes, ExpressionInvalid, Tokens, parse, size_of
from ticketlock.errors import (
    LockLost,
    OutcomeUnknown,
    TableError,
    TicketLockError,
    UnitRolledBack,
)
from ticketlock.units._commit._state import UnitState
from ticketlock.units._records import (
    LENGTH,
    NEVER_USED,
    Marked,
    Marks,
    Meeting,
    Receipt,
    UnitRecords,
    change,
    ended,
    is_receipt_of,
    met_at,
    put_receipt,
    read_receipt,
)
from ticketlock.units._records import _conditions as only_if
from ticketlock.units._statements import ItemState, Statement, Terms, conflict, image_of
from ticketlock.wire import (
    ForkingSteps,
    Get,
    Item,
    Moment,
    Operation,
    Pause,
    Reply,
    TransactWrite,
    Write,
    every,
    raise_if_foreign,
)

# With more changes an Update would come near the limits of expressions; the whole item is put instead.
_MOST_CHANGES = 100
_FORM_OF_VERSIONS: Item = {":text": {"S": "S"}, ":length": {"N": str(LENGTH)}}
_SET = re.compile(r"(?<![#:.\w])SET\b", re.IGNORECASE)

Names = Mapping[str, str]
NONE: Mapping[str, Any] = {}


def if_as_seen(
    operation: Operation, place: ItemState, marks: Marks, names: Names = NONE, values: Item = NONE, **more: Any
) -> Write:
    """A write of an item, with further placeholders, if it was not written since it was read, and has no mark."""
    condition, seen = only_if.NEVER_WRITTEN_BY_A_UNIT, NONE
    if place.seen is None:
        condition = only_if.ABSENT
    elif (version := marks.version_of(place.seen)) is not None:
        condition, seen = only_if.AT_THE_VERSION_I_SAW, {":seen": {"S": version}}
    return Write(
        operation,
        place.key,
        every(only_if.UNMARKED, condition),
        names={**marks.names(place.table.key_names), **names},
        values={**seen, **values},
        table=place.table.name,
        **more,
    )


def check(place: ItemState, marks: Marks) -> Write:
    """Check that an item is as it was read, and has no mark."""
    return if_as_seen("ConditionCheck", place, marks)


def write(place: ItemState, unit: str, marks: Marks) -> Write:
    """Write an item's new value, if the item is as it was read, and has no mark."""
    if place.blind is not None:
        return _blind(place, unit, marks)
    if place.image is None:
        return if_as_seen("Delete", place, marks)
    differs = None if place.seen is None else changed(place.before or {}, place.image)
    if differs is None:
        return if_as_seen("Put", place, marks, item={**place.image, marks.version: {"S": unit}})
    update, names, values = change(*differs)
    return if_as_seen("Update", place, marks, names, {**values, ":unit": {"S": unit}}, update=update)


def changed(before: Attributes, after: Attributes) -> tuple[Attributes, tuple[str, ...]] | None:
    """The attributes that differ between two images: to set, to remove; None if they are too many for an expression."""
    assigned = {name: value for name, value in after.items() if before.get(name) != value}
    removed = tuple(name for name in before if name not in after)
    return (assigned, removed) if len(assigned) + len(removed) <= _MOST_CHANGES else None


def _blind(place: ItemState, unit: str, marks: Marks) -> Write:
    assert place.blind is not None
    given = place.blind.parameters
    return Write(
        "Update",
        place.key,
        unmarked_and(given.get("ConditionExpression")),
        update=with_version(given["UpdateExpression"]),
        names={**given.get("ExpressionAttributeNames", {}), "#version": marks.version, "#mark": marks.mark},
        values={**given.get("ExpressionAttributeValues", {}), **_FORM_OF_VERSIONS, ":unit": {"S": unit}},
        table=place.table.name,
    )


def with_version(update: str) -> str:
    """A user's update expression that also sets our version."""
    ours = "SET #version = :unit"
    if _SET.search(update):
        return _SET.sub(f"{ours},", update, count=1)
    return f"{ours} {update}"


def unmarked_and(condition: str | None) -> str:
    """A user's condition that also requires that the item has no mark, and no version that no unit has written."""
    ours = every(only_if.UNMARKED, only_if.OF_UNITS_ALONE)
    if condition is None:
        return ours
    # DynamoDB refuses redundant parentheses.
    return f"{ours} AND {f'({condition})' if _is_choice(condition) else condition}"


def _is_choice(condition: str) -> bool:
    """Whether the condition's top level is an OR."""
    depth = 0
    for token in Tokens("ConditionExpression", condition).tokens:
        depth += (token == "(") - (token == ")")
        if depth == 0 and token.upper() == "OR":
            return True
    return False


def may_be_sent_blindly(update: Statement) -> bool:
    """Whether DynamoDB accepts an update with our additions, and does the same as the unit would.

    The expressions must stay within their limits with our additions, and must not use our placeholders. An update whose
    values fill half of an item needs to read the other half, and one that writes an attribute of an index needs to be
    checked. An update that only removes does not create a missing item; together with our version, which it sets, it
    would.
    """
    parameters, change = update.parameters, update.expressions.update
    names = {*parameters.get("ExpressionAttributeNames", {}), *parameters.get("ExpressionAttributeValues", {})}
    values_bytes = size_of(parameters.get("ExpressionAttributeValues", {}))
    touched = set(update.change.paths) if update.change is not None else set()
    return (
        values_bytes <= MAX_ITEM_BYTES // 2
        and not names & {"#version", "#mark", ":unit", *_FORM_OF_VERSIONS}
        and not touched & update.table.schema.index_attributes
        and _is_taken(parameters)
        and change is not None
        and bool(change.assignments or change.additions)
    )


def _is_taken(parameters: Mapping[str, Any]) -> bool:
    """Whether its expressions are within their limits with our additions."""
    try:
        parse("UpdateExpression", with_version(parameters["UpdateExpression"]))
        parse("ConditionExpression", unmarked_and(parameters.get("ConditionExpression")))
    except ExpressionInvalid:
        return False
    return True


Behind = Callable[[ForkingSteps[None]], bool]
"""Takes the steps that finish the items of a committed unit, to perform them behind its caller; returns whether it
has."""


def in_front(_: ForkingSteps[None]) -> bool:
    """Finish the items before the commit returns."""
    return False


@dataclass(frozen=True, slots=True)
class Commit:
    """What a unit commits in addition to its items.

    Attributes:
        terms: of the unit; its id is also the client request token of a native commit.
        state: of the unit, to which the commit reports how far it has come.
        receipt: the name's receipt, as it was read.
        lock_check: the check that a lock is held, as in the low-level API; None for none.
        behind: where its items are finished.
        kept: the attributes that keep its result.
    """

    terms: Terms
    units_table: str
    state: UnitState
    receipt: Receipt = NEVER_USED
    lock_check: Mapping[str, Any] | None = None
    behind: Behind = in_front
    kept: Item = field(default_factory=dict)


def writes_beside(commit: Commit, now_ms: int) -> tuple[Write, ...]:
    """The write that takes the name, and the one that ends the record of the saved unit."""
    writes: tuple[Write, ...] = ()
    if commit.terms.name is not None:
        after = Receipt(is_committed=True, unit=commit.terms.unit)
        kept_s, payload = commit.terms.names_kept_s, commit.terms.payload
        kept = commit.kept if payload is None else {**commit.kept, **payload.attributes}
        writes += (put_receipt(commit.units_table, commit.terms.name, commit.receipt, after, now_ms, kept_s, kept),)
    if commit.terms.saved is not None:
        records = UnitRecords(commit.units_table)
        writes += (records.end_saved(commit.terms.saved, "committed", now_ms, commit.kept),)
    return writes


def refused_beside(commit: Commit, reply: Reply, first: int) -> TicketLockError | None:
    """The final reason for a refusal beside the items, from ``first`` on: the lock, or the record of a saved unit."""
    if commit.lock_check is not None and reply.refused[-1]:
        # The usual mistake beside a loss: the function was given the table of another lock.
        table = commit.lock_check["ConditionCheck"]["TableName"]
        return LockLost(
            f"the lock is not held with this fencing token any more, by the table {table}: nothing was written"
        )
    at = first + (commit.terms.name is not None)
    if commit.terms.saved is not None and reply.refused[at]:
        return ended(reply.items[at], commit.terms.saved.unit)
    return None


def refused_name(commit: Commit, reply: Reply, first: int) -> UnitRolledBack | None:
    if commit.terms.name is None or not reply.refused[first]:
        return None
    return name_refused(commit.terms.name)


def name_refused(name: str) -> UnitRolledBack:
    """The error: since it was read, another unit was committed under this name, or a process has given the name up."""
    return UnitRolledBack(f"the name {name!r} was used or given up meanwhile: nothing was written")


def is_committed_by(row: Item | None, coordinator: str) -> bool:
    """Whether this coordinator has committed a saved unit."""
    return row is not None and (row.get("state"), row.get("coordinator")) == ({"S": "committed"}, {"S": coordinator})


def commit_natively(places: Sequence[ItemState], marks: Marks, commit: Commit, meeting: Meeting) -> ForkingSteps[None]:
    lock = (commit.lock_check,) if commit.lock_check is not None else ()
    writes = tuple(_action(place, commit.terms.unit, marks) for place in places)
    if commit.terms.name is not None or commit.terms.saved is not None:
        now: Moment = (yield Pause(0)).now
        writes += writes_beside(commit, now.latest_ms)
    while True:
        # Every attempt is the same request, with the same receipt time: DynamoDB refuses a token with another request.
        # From now on the outcome of an interrupted commit is unknown.
        commit.state.note("sends the decision")
        try:
            reply: Reply = yield TransactWrite(writes, lock, commit.terms.unit)
        except OutcomeUnknown as unknown:
            raise_if_foreign(unknown)
            if not (yield from _was_applied(places, marks, commit)):
                raise _told(commit, unknown) from unknown
            break
        except TableError as refused:
            raise_if_foreign(refused)
            commit.state.note("decision is refused")
            raise
        if reply.applied or _has_mine(reply, places, marks, commit):
            break
        if reply.repeated:
            # An earlier attempt may still arrive, or another unit may have written after it was applied.
            if not (yield from _was_applied(places, marks, commit)):
                raise _told(commit, OutcomeUnknown("an earlier attempt may have been applied, and a later one was not"))
            break
        commit.state.note("decision is refused")
        met = _met(reply, places, marks)
        error = _refusal(reply, places, met, commit, marks)
        if error is not None:
            raise error
        for each in met.values():
            yield from meeting.wait_or_wound(each)
    commit.state.note("decision is applied")


def _action(place: ItemState, unit: str, marks: Marks) -> Write:
    return write(place, unit, marks) if place.writes else check(place, marks)


def _met(reply: Reply, places: Sequence[ItemState], marks: Marks) -> dict[int, Marked]:
    """The marks of other units that refused the commit, by the positions of their items."""
    found = enumerate(zip(places, reply.items, strict=False))
    met = {at: met_at(place.table, place.key, item, marks) for at, (place, item) in found if reply.refused[at]}
    return {at: each for at, each in met.items() if each is not None}


def _refusal(
    reply: Reply, places: Sequence[ItemState], met: dict[int, Marked], commit: Commit, marks: Marks
) -> TicketLockError | None:
    """The error if the commit was refused for good; None if only marks blocked it."""
    beside = refused_beside(commit, reply, len(places))
    if beside is not None:
        return beside
    refused = [place for at, place in enumerate(places) if reply.refused[at] and at not in met]
    changed = [place for place in refused if place.blind is None]
    if changed:
        return conflict(changed)
    failed = None
    for at, place in enumerate(places):
        if place.blind is None or not reply.refused[at]:
            continue
        item = reply.items[at]
        if item is not None:
            # The unit has not read it: it may have a version that no unit has written.
            marks.check_item(item)
        if failed is None and at not in met:
            failed = place.blind.condition_failed(image_of(item, marks))
    if failed is not None:
        return failed
    return refused_name(commit, reply, len(places))


def _has_mine(reply: Reply, places: Sequence[ItemState], marks: Marks, commit: Commit) -> bool:
    """Whether the unit's own writes refused the request: then an earlier attempt was committed.

    The items of users come first, each with the unit's version; then the unit's other writes.
    """
    terms, beside = commit.terms, reply.items[len(places) :]
    return (
        any(marks.is_by(item, terms.unit) for item in reply.items[: len(places)])
        or (terms.name is not None and is_receipt_of(beside[0], terms.unit))
        or (terms.saved is not None and is_committed_by(beside[terms.name is not None], terms.unit))
    )


def _was_applied(places: Sequence[ItemState], marks: Marks, commit: Commit) -> ForkingSteps[bool]:
    """Read one of the unit's writes. Finding it shows the commit; not finding it shows nothing."""
    written = [place for place in places if place.writes and (place.blind or place.image is not None)]
    try:
        if commit.terms.name is not None:
            receipt: Reply = yield read_receipt(commit.units_table, commit.terms.name)
            return is_receipt_of(receipt.item, commit.terms.unit)
        if commit.terms.saved is not None:
            head: Reply = yield UnitRecords(commit.units_table).read(commit.terms.saved.unit)
            return is_committed_by(head.item, commit.terms.unit)
        if written:
            reply: Reply = yield Get(written[0].table.name, written[0].key)
            return marks.is_by(reply.item, commit.terms.unit)
    except TableError as error:
        raise_if_foreign(error)
    return False


def _told(commit: Commit, unknown: OutcomeUnknown) -> OutcomeUnknown:
    ask = "a unit with a name can be asked for"
    if commit.terms.name is not None:
        ask = f"ask `outcome(name={commit.terms.name!r})`"
    elif commit.terms.saved is not None:
        ask = f"`resume({commit.terms.saved.unit!r})` finds out"
    return OutcomeUnknown(f"the unit {commit.terms.unit} may or may not be committed; {ask} ({unknown})")
