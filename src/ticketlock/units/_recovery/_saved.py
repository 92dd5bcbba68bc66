"""Saved units: their owners, what is stored of them, and how another process resumes them.

The rows of an owner are one partition of the units table: one row for each unit that was saved under it, and one row
that says that it has ended. A save writes the former first, and then the head, in a transaction that requires that the
latter does not exist. The process that ends the owner first writes the latter and then reads the others. So every save
is either refused, even if it arrives late, or its row is found. If the row were written in the transaction of the head,
it could be applied after the check, and the end and its query could come in between.

A save writes its new rows first, then the head that names them. So a crash in between saves nothing, and the unit stays
as it was saved before. Time to live deletes the rows.

A coordinator that resumes a unit claims its record, so that no earlier coordinator can commit or save it. A step that
was saved before writes nothing, so it claims nothing: another coordinator keeps the unit. Each coordinator writes under
an id of its own, and the transaction that commits checks in the record that this id is the last one. So even late
requests of one coordinator cannot be mistaken for another's.
"""

import logging
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ticketlock.errors import (
    ConditionFailed,
    InvalidUnitRequest,
    LockLost,
    OutcomeUnknown,
    RequestNotApplied,
    TableError,
    TicketLockError,
    UnitConflict,
    UnitContended,
    UnitForgotten,
    UnitRolledBack,
    UnsupportedFormat,
)
from ticketlock.units._commit import UnitState, name_refused
from ticketlock.units._records import (
    FORMAT_NAMES,
    FORMAT_VALUES,
    NEVER_USED,
    OWNER_IS_KEPT_S,
    Marks,
    Receipt,
    Record,
    Strange,
    UnitRecord,
    UnitRecords,
    check_row,
    close,
    decide,
    decode_item,
    encode_item,
    ended,
    expires_at,
    fields,
    foreign_row,
    head_key,
    in_pieces,
    is_id,
    of_pieces,
    put_row,
    read_pieces,
    read_receipt,
    row_key,
    rows_expire_at,
    with_pieces,
)
from ticketlock.units._records import _conditions as only_if
from ticketlock.units._statements import (
    Guards,
    Isolation,
    ItemState,
    SaveOptions,
    Terms,
    Work,
    check_of,
    check_owner,
    chunks,
    image_of,
    with_step,
)
from ticketlock.units._words import Tables, UnitTable
from ticketlock.wire import (
    MOST_TOGETHER,
    TIME_TO_LIVE,
    ForkingSteps,
    Item,
    Moment,
    Pause,
    Query,
    Reply,
    Together,
    TransactWrite,
    Write,
    is_foreign,
    raise_if_foreign,
)

OWNER = "owner#"
"""What precedes an owner in place of a unit's id."""

_ENDED = "ended"
_NAMES = {"#unit": "unit", "#ttl": TIME_TO_LIVE} | FORMAT_NAMES

_log = logging.getLogger("ticketlock")

_OTHERS_MAY_CAUSE = (ConditionFailed, LockLost, UnitConflict, UnitContended, UnitRolledBack)

_OF_ITEMS = ("Key", "ExpressionAttributeValues")
SAVED = ("timeoutMs", "isolation", "name", "receipt", "under", "engine", "prefix", "cuts", "guarded", "places")
"""The names in a saved unit."""
_RECEIPT = ("isCommitted", "unit")
_PLACE = ("table", "key", "seen", "image", "glimpse", "isRead", "isWritten", "isChecked", "cut")


def found_by_owner(table: str, head: UnitRecord, owner: str) -> Write:
    """The row of a unit in its owner's partition, written before its head: a query may see half of a transaction."""
    return _put(table, owner, head.unit, rows_expire_at(head))


def owner_goes_on(table: str, owner: str) -> Write:
    """The check, beside the head of a saved unit, that its owner has not ended."""
    end = row_key(_partition(owner), _ENDED)
    return Write("ConditionCheck", end, only_if.NO_SUCH_ROW, names=_NAMES, table=table)


def end_owner(records: UnitRecords, owner: str) -> ForkingSteps[list[str]]:
    """Roll back the units that were saved under an owner, and refuse later saves.

    Returns:
        The units that this call has rolled back.

    Raises:
        UnsupportedFormat, InvalidUnitRequest: a newer version has written one of the records, or no unit; all others
            are rolled back.
        InvalidUnitRequest: it can be no owner.
        TableError: perhaps not all of them are rolled back; call it again.
    """
    check_owner(owner)
    now: Moment = (yield Pause(0)).now
    ended: Reply = yield _end(records.table, owner, now)
    if ended.item is not None:
        check_row(ended.item)
    rolled_back, strange = list[str](), list[Strange]()
    after: Item | None = None
    while True:
        page: Reply = yield _saved(records.table, owner, after)
        for rows in chunks([row for row in page.items if row is not None], MOST_TOGETHER):
            rolled_back += yield from _roll_back(_units_in(rows, strange), records, owner, page.now, strange)
        after = page.last_key
        if after is None:
            for error in strange:
                raise error
            return rolled_back


def _units_in(rows: Sequence[Item], strange: list[Strange]) -> list[str]:
    units = list[str]()
    for row in rows:
        try:
            check_row(row)
        except (UnsupportedFormat, InvalidUnitRequest) as error:
            strange.append(error)
        else:
            units += [unit for unit in (row["row"]["S"],) if is_id(unit)]
    return units


def _roll_back(
    units: Sequence[str], records: UnitRecords, owner: str, now: Moment, strange: list[Strange]
) -> ForkingSteps[list[str]]:
    if not units:
        return []
    rolled_back: list[str] = []
    writes = tuple(records.roll_back(unit, now.latest_ms, owner=owner) for unit in units)
    for unit, reply in zip(units, (yield Together(writes)), strict=True):
        if isinstance(reply, TableError):
            raise reply
        try:
            # The refusal may come from an earlier attempt of this very write.
            if reply.applied or _is_rolled_back(reply.item, repeated=reply.repeated):
                rolled_back.append(unit)
        except (UnsupportedFormat, InvalidUnitRequest) as error:
            strange.append(error)
    return rolled_back


def _is_rolled_back(row: Item | None, *, repeated: bool) -> bool:
    return row is not None and UnitRecord.of(row).state == "rolledBack" and repeated


def _end(table: str, owner: str, now: Moment) -> Write:
    """No unit is saved under it any more: from now on, also if an earlier end is about to be forgotten."""
    return _put(table, owner, _ENDED, expires_at(now.latest_ms, OWNER_IS_KEPT_S))


def _put(table: str, owner: str, row: str, until: Mapping[str, str]) -> Write:
    key, values = row_key(_partition(owner), row), {**FORMAT_VALUES, ":until": until}
    only, contents = only_if.NO_ROW_THAT_STAYS_AS_LONG, {TIME_TO_LIVE: until}
    return put_row(table, key, only, contents, names=_NAMES, values=values)


def _saved(table: str, owner: str, after: Item | None) -> Query:
    """A page of its rows, one for each unit that was ever saved under it."""
    return Query(table, "#unit = :owner", _NAMES, {":owner": {"S": _partition(owner)}}, after=after)


def _partition(owner: str) -> str:
    return f"{OWNER}{owner}"


class SavedUnit:
    """One saved unit's record, with its head as this coordinator has claimed it."""

    def __init__(self, head: UnitRecord, records: UnitRecords) -> None:
        self._head, self._records = head, records

    def roll_back(self) -> ForkingSteps[None]:
        """End it, if it still belongs to this coordinator."""
        now: Moment = (yield Pause(0)).now
        reply: Reply = yield self._records.end_saved(self._head, "rolledBack", now.latest_ms)
        if not reply.applied and not isinstance(error := ended(reply.item, self._head.unit), UnitRolledBack):
            raise error
        yield from self.forget()

    def explain(self, error: TicketLockError, name: str | None, seen: Receipt) -> ForkingSteps[None]:
        """Raise the reason that the record or the name shows, in place of an error that it may have caused.

        Such an error tells the caller to run the unit again; but another coordinator may have committed it.
        """
        if isinstance(error, _OTHERS_MAY_CAUSE):
            yield from self.check_is_mine(error)
        if name is not None and isinstance(error, UnitConflict | UnitRolledBack):
            try:
                yield from self.check_name(name, seen)
            except TableError as failed:
                raise_if_foreign(failed)
                _log.debug("the name of the unit %s was not checked: %s", self._head.unit, failed)

    def check_is_mine(self, error: TicketLockError) -> ForkingSteps[None]:
        try:
            reply: Reply = yield self._records.read(self._head.unit)
        except TableError as failed:
            raise_if_foreign(failed)
            return
        head = UnitRecord.of(reply.item) if reply.item is not None else None
        if head is None or head.state != "pending" or head.rev != self._head.rev:
            raise ended(reply.item, self._head.unit) from error

    def check_name(self, name: str, seen: Receipt) -> ForkingSteps[Receipt]:
        """End it if its name was used or given up since: no coordinator could commit it any more."""
        reply: Reply = yield read_receipt(self._records.table, name)
        if seen.still_lets(found := Receipt.of(reply.item)):
            return found
        try:
            yield from self.roll_back()
        except TableError as error:
            raise_if_foreign(error)
            _log.warning("the saved unit %s has lost its name, and its record stays open: %s", self._head.unit, error)
        raise name_refused(name)

    def forget(self) -> ForkingSteps[None]:
        """Delete its rows after its end, and let time to live delete its head; if that fails, a sweep does it."""
        if not self._head.pieces:
            return
        try:
            now: Moment = (yield Pause(0)).now
            yield from close(self._records, replace(self._head, is_closed=True), now.latest_ms)
        except TableError as error:
            raise_if_foreign(error)
            _log.warning("the record of the saved unit %s is not forgotten yet: %s", self._head.unit, error)

    def forget_rows(self) -> ForkingSteps[None]:
        """Delete the rows of the previous save after a new one; if that fails, time to live deletes them."""
        if self._head.pieces:
            yield Together(tuple(self._records.delete_pieces(self._head)))


@dataclass(frozen=True, slots=True)
class SavedLock:
    """The lock that a saved unit is under, as it was held at the save; its holder may have ended since."""

    check: Mapping[str, Any]

    def condition_check(self) -> dict[str, Any]:
        """The check that it is held, still with that very token."""
        return {"ConditionCheck": dict(self.check)}


def save(
    terms: Terms, work: Work, receipt: Receipt | None, records: UnitRecords, keeping: SaveOptions, state: UnitState
) -> ForkingSteps[UnitRecord]:
    """Save what a unit has read and stated, in place of what it was resumed with.

    Its state notes from when on a request may have handed it on.
    """
    reply: Reply = yield Pause(0)
    now, before = reply.now, terms.saved
    encoded = _unit_told(terms, work, receipt)
    made = UnitRecord(
        unit=terms.id,
        state="pending",
        born_ms=terms.born_ms,
        lease_until_ms=now.latest_ms + keeping.ms,
        rev=1 if before is None else before.rev + 1,
        attempt=terms.unit,
        coordinator=terms.unit,
        owner=keeping.owner,
        steps=with_step(frozenset() if before is None else before.steps, terms.step),
    )
    head, pieces = with_pieces(made, in_pieces(encoded))
    rows = [records.put_saved_piece(head, at, piece, keeping.tries) for at, piece in enumerate(pieces)]
    if head.owner is not None:
        rows.append(found_by_owner(records.table, head, head.owner))
    for written in (yield Together(tuple(rows))) if rows else ():
        if isinstance(written, TableError):
            raise _not_saved(written) from written
        if written.item is not None:
            # Refused by a row that stays longer, or is of a newer version.
            check_row(written.item)
    state.note("sends the save")
    try:
        put = records.save(head, before)
        reply = yield put if head.owner is None else TransactWrite((put, owner_goes_on(records.table, head.owner)))
    except TableError as error:
        if not (isinstance(error, OutcomeUnknown) or is_foreign(error)):
            state.note("save is refused")
        raise
    if not reply.applied and not _is_saved_by(reply, terms.unit):
        if _is_perhaps_succeeded(reply, head):
            raise OutcomeUnknown(
                f"other processes have resumed and saved the unit {terms.id} since, before or after this save: "
                "`resume` shows what is saved"
            )
        state.note("save is refused")
        if not reply.refused[0]:
            end = reply.items[1]
            if end is not None:
                check_row(end)
            if before is not None:
                yield from SavedUnit(before, records).roll_back()
            why = f"its owner {head.owner!r} has ended"
            raise UnitRolledBack(f"the unit {terms.id} was not saved, and is rolled back: {why}")
        raise ended(reply.item, terms.id)
    return head


def _not_saved(error: TableError) -> TableError:
    """The error of a row that no head names yet: with or without that row, nothing was saved."""
    return RequestNotApplied(f"the unit was not saved ({error})") if isinstance(error, OutcomeUnknown) else error


def _is_saved_by(reply: Reply, coordinator: str) -> bool:
    """Whether an earlier attempt of this save was applied: only this coordinator writes rows under its id."""
    return reply.item is not None and UnitRecord.of(reply.item).attempt == coordinator


def _is_perhaps_succeeded(reply: Reply, made: UnitRecord) -> bool:
    """Whether an earlier attempt of this save may have been applied, and a later coordinator has saved the unit since.

    A claim and a save raise `rev` by one each, and no save drops a step.
    """
    if not reply.repeated or reply.item is None:
        return False
    found = UnitRecord.of(reply.item)
    return found.state != "rolledBack" and found.rev >= made.rev + 2 and made.steps <= found.steps


def _unit_told(terms: Terms, work: Work, receipt: Receipt | None) -> dict[str, Any]:
    return {
        "timeoutMs": terms.timeout_ms,
        "isolation": terms.isolation.value,
        "name": terms.name,
        "receipt": None if receipt is None else {"isCommitted": receipt.is_committed, "unit": receipt.unit},
        "under": None if terms.under is None else _lock(check_of(terms.under)["ConditionCheck"], encode_item),
        "engine": terms.engine,
        "prefix": work.marks.prefix,
        "cuts": work.reads,
        "guarded": sorted({place.table.name for place in work.places.values() if place.table.is_guarded}),
        "places": [_place_told(place) for place in work.places.values()],
    }


def terms_of(encoded: Mapping[str, Any], own: Terms, head: UnitRecord) -> Terms:
    """What the unit was begun with, under the id and the step of the coordinator that goes on with it.

    What the coordinator's own client is set to, it keeps: how names are kept, and how items are marked.
    """
    under = None if encoded["under"] is None else SavedLock(_lock(encoded["under"], decode_item))
    return Terms(
        unit=own.unit,
        born_ms=head.born_ms,
        timeout_ms=encoded["timeoutMs"],
        isolation=Isolation(encoded["isolation"]),
        name=encoded["name"],
        under=under,
        engine=encoded["engine"],
        saved=head,
        step=own.step,
        names_kept_s=own.names_kept_s,
        marks_together=own.marks_together,
    )


def receipt_of(encoded: Mapping[str, Any]) -> Receipt | None:
    if encoded["receipt"] is None:
        return None
    seen = fields(encoded["receipt"], _RECEIPT)
    return Receipt(is_committed=seen["isCommitted"], unit=seen["unit"])


def work_of(encoded: Mapping[str, Any], work: Work, tables: Mapping[str, UnitTable]) -> None:
    """Put the unit's items into an empty work."""
    work.reads = encoded["cuts"]
    for each in encoded["places"]:
        saved = fields(each, _PLACE)
        place = work.place(tables[saved["table"]], decode_item(saved["key"]))
        place.seen = _item(saved["seen"])
        place.before = image_of(place.seen, work.marks)
        place.image = _item(saved["image"][0]) if saved["image"] else place.before
        place.glimpse = (_item(saved["glimpse"][0]),) if saved["glimpse"] else None
        place.is_read, place.is_written = saved["isRead"], saved["isWritten"]
        # Its reads may be of another day: even if it writes nothing, they hold at the commit, as its checks do.
        place.is_checked = place.is_asserted = saved["isChecked"]
        place.read_number = saved["cut"]


def _place_told(place: ItemState) -> dict[str, Any]:
    return {
        "table": place.table.name,
        "key": encode_item(place.key),
        "seen": _told(place.seen),
        # An item that was only read is stored once.
        "image": [] if place.image == place.before else [_told(place.image)],
        "glimpse": [] if place.glimpse is None else [_told(place.glimpse[0])],
        "isRead": place.is_read,
        "isWritten": place.is_written,
        "isChecked": place.is_checked,
        "cut": place.read_number,
    }


def _told(item: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if item is None else encode_item(item)


def _item(encoded: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if encoded is None else decode_item(encoded)


def _lock(check: Mapping[str, Any], convert: Callable[[Any], Any]) -> dict[str, Any]:
    return {name: convert(value) if name in _OF_ITEMS else value for name, value in check.items()}


@dataclass(frozen=True, slots=True)
class Resumed:
    """A saved unit, as the coordinator that resumes it gets it.

    Attributes:
        receipt: of its name, as it was seen.
        is_committed: whether another coordinator has committed it.
        kept: the row with the result of the unit that was committed, or of its name.
    """

    terms: Terms
    work: Work
    receipt: Receipt | None
    is_committed: bool
    kept: Item = field(default_factory=dict)

    @property
    def is_repeated(self) -> bool:
        """Whether it is committed, its name was used, or its step was saved before: then it writes nothing more."""
        return self.is_committed or self.terms.repeats_step or (self.receipt or NEVER_USED).is_committed


def resume(given: Any, own: Terms, units_table: str, marks: Marks, tables: Tables) -> ForkingSteps[Resumed]:
    """Resume a saved unit; ``own`` has the id under which this coordinator writes, and its step."""
    if not isinstance(given, str) or not is_id(given):
        raise InvalidUnitRequest("unit", given, "what `save` has returned")
    records = UnitRecords(units_table)
    while True:
        reply: Reply = yield records.read(given)
        if reply.item is None:
            raise ended(None, given)
        head = UnitRecord.of(reply.item)
        if not head.is_saved:
            raise InvalidUnitRequest("unit", given, "what `save` has returned: this unit was not saved")
        if head.state == "committed":
            terms = replace(own, born_ms=head.born_ms, saved=head)
            return Resumed(terms, Work(marks), None, is_committed=True, kept=head.kept)
        if head.state == "rolledBack":
            raise ended(reply.item, given)
        if decide(head, reply.now) is Record.LEASE_OVER:
            yield records.roll_back_expired(head, reply.now)
            continue
        pieces = yield from read_pieces(records, head)
        if pieces is None:
            again: Reply = yield records.read(given)
            if again.item is not None and not _is_the_same(UnitRecord.of(again.item), head):
                continue
            raise UnitForgotten(f"the rows of the saved unit {given} are gone")
        # Before the claim: a process that cannot go on leaves the unit to the one that has it.
        encoded = [head.inline] if head.pieces == 0 else pieces
        resumed = yield from _resumed(head, encoded, own, marks, tables, units_table)
        if resumed.terms.repeats_step:
            return resumed
        claimed: Reply = yield records.claim(head, own.unit)
        if not claimed.applied and not _is_claimed_by(claimed, own.unit):
            continue
        mine = replace(head, rev=head.rev + 1, coordinator=own.unit)
        yield from _end_the_one_before(head, records, claimed.now.latest_ms)
        if resumed.terms.name is not None:
            # No earlier coordinator can commit it any more: a new receipt belongs to another unit.
            seen = resumed.receipt or NEVER_USED
            receipt = yield from SavedUnit(mine, records).check_name(resumed.terms.name, seen)
            resumed = replace(resumed, kept=receipt.row if receipt.is_committed else {})
        return replace(resumed, terms=replace(resumed.terms, saved=mine))


def _is_claimed_by(reply: Reply, coordinator: str) -> bool:
    return reply.item is not None and UnitRecord.of(reply.item).coordinator == coordinator


def _is_the_same(again: UnitRecord, head: UnitRecord) -> bool:
    """Whether the unit was neither saved, resumed nor ended meanwhile."""
    return (again.rev, again.state) == (head.rev, head.state)


def _end_the_one_before(head: UnitRecord, records: UnitRecords, now_ms: int) -> ForkingSteps[None]:
    """Roll back what the previous coordinator has marked: it cannot commit any more, and others would wait for it."""
    if head.coordinator is None or head.coordinator == head.attempt:
        return
    try:
        yield records.roll_back(head.coordinator, now_ms)
    except OutcomeUnknown as error:
        why = f"the coordinator before was not ended in time: resume the unit again ({error})"
        raise RequestNotApplied(why) from error


def _resumed(
    head: UnitRecord, pieces: list[bytes], own: Terms, marks: Marks, tables: Tables, units_table: str
) -> ForkingSteps[Resumed]:
    try:
        encoded = fields(of_pieces(pieces, head_key(head.unit)), SAVED)
        terms, receipt = terms_of(encoded, own, head), receipt_of(encoded)
        names = sorted({place["table"] for place in encoded["places"]})
        prefix, guarded = str(encoded["prefix"]), frozenset(encoded["guarded"])
    except (AttributeError, LookupError, TypeError, ValueError, zlib.error) as error:
        raise foreign_row(head_key(head.unit), error) from error
    if prefix != marks.prefix:
        raise InvalidUnitRequest("prefix", marks.prefix, f"{prefix!r}, which the saved unit {head.unit} uses")
    known, guards = {}, Guards(units_table)
    for name in names:
        # Its reads of the units table are reads of guards.
        is_guard = name == guards.table.name
        known[name] = guards.table if is_guard else (yield from tables.table(name, guarded=name in guarded or None))
    work = Work(marks)
    try:
        work_of(encoded, work, known)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise foreign_row(head_key(head.unit), error) from error
    return Resumed(terms, work, receipt, is_committed=False)
