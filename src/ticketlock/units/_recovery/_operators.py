"""What operators do with units: list them, end one, repair items, correct an item; and the outcome of a unit.

*Repair.* A sweep goes from the records to the items. If the two do not belong together (a table was restored, records
were lost, a plain writer has put an old copy of an item), there are marks that no sweep finds. A repair reads a table's
items, and then the records of their marks. It treats a mark as any unit does that meets it: it removes the mark, or
applies it, only after it has read the unit's record in a final state, closed or gone. A record is kept for a day after
it was closed. So if a unit began less than a day ago and has no record, the units table is the wrong one, or was lost.
If it is the wrong one, the unit may still be running.

*Correction.* If DynamoDB refuses the new value of a committed unit's item, an operator gives the item another value, or
leaves it the old one; everything else that the unit has written stays. A correction is one transaction: the record
still says that the unit is committed and not closed, the item still has the unit's mark, and a row of the record keeps
who changed what. So either the item was finished by then, by any process, and nothing is corrected; or the mark is gone
with the correction, and no finisher that read the record before can write the unit's value any more. A correction has a
version of its own, as a write beside units has: no version ever stands for two values.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal

from ticketlock._checks import name_text
from ticketlock._expressions import Attributes, canonical_item
from ticketlock._names import AnyName
from ticketlock.errors import (
    CommittedUnfinished,
    InvalidUnitRequest,
    TableError,
    TableNotFound,
    TableRefused,
    UnsupportedFormat,
)
from ticketlock.units._records import (
    CLOSED_IS_KEPT_S,
    INSERT,
    TIME_CHECK,
    Entry,
    Mark,
    Marked,
    Marks,
    Meeting,
    Receipt,
    Record,
    RedoLog,
    Strange,
    UnitRecord,
    UnitRecords,
    begun_ms,
    by_table,
    check_row,
    correction_key,
    decide,
    delete_placeholder,
    finish,
    foreign_row,
    if_marked,
    is_for_contents,
    is_id,
    is_open,
    is_receipt_of,
    met_at,
    put_receipt,
    read_committed,
    read_entries,
    read_receipt,
    result_of,
)
from ticketlock.units._recovery._sweeping import Swept, sweep_one
from ticketlock.units._statements import NAME_BYTES, UnitsSettings, chunks
from ticketlock.units._words import PYTHON, VERSION_BYTES, UnitTable
from ticketlock.wire import (
    MOST_TOGETHER,
    ForkingSteps,
    Get,
    GetMany,
    Item,
    Moment,
    Pause,
    Query,
    Reply,
    Scan,
    TransactWrite,
    Write,
    integer,
)

_log = logging.getLogger("ticketlock")

Action = Literal["finished", "unmarked", "left"]

_MARKED = "attribute_exists(#mark)"

_DONE: Mapping[Record, Action] = {
    Record.LEASE_OVER: "unmarked",
    Record.ROLLED_BACK: "unmarked",
    Record.COMMITTED: "finished",
    Record.CLOSED: "unmarked",
    Record.GONE: "unmarked",
}

Done = Literal["dropped", "replaced", "finished"]


class Outcome(Enum):
    """The outcome of a unit.

    Attributes:
        COMMITTED: everything was written.
        ROLLED_BACK: nothing was written, and nothing will be.
        PENDING: it is being committed, has read locks, or is saved, and its lease (or ``keep_for``) has not ended.
        FORGOTTEN: there is no record of it. A unit that has no record yet may still be committed.
    """

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    PENDING = "pending"
    FORGOTTEN = "forgotten"


OUTCOMES = {"pending": Outcome.PENDING, "committed": Outcome.COMMITTED, "rolledBack": Outcome.ROLLED_BACK}
"""The outcome for each state in a record."""


@dataclass(frozen=True, slots=True)
class UnitOutcome:
    """The outcome of a unit, or of a name, with the result that its commit has kept.

    Attributes:
        state: final, unless it is PENDING.
        result: what the call of a committed one has returned, or its block has set; None for none.
    """

    state: Outcome
    result: Any = None


def outcome(settings: UnitsSettings, own: str, *, name: AnyName | None, unit: str | None) -> ForkingSteps[UnitOutcome]:
    if name is not None and unit is None:
        return outcome_of_name(settings.units_table, name, own, settings.names_kept_s)
    if name is None and unit is not None:
        return outcome_of_unit(settings.units_table, unit)
    raise InvalidUnitRequest("name", name, "a name or a unit: one of the two")


def outcome_of_name(table: str, given: AnyName, own: str, kept_s: int) -> ForkingSteps[UnitOutcome]:
    """The outcome of a name. A name that was not committed is given up, so that no late request can commit it.

    Args:
        kept_s: for how long it stays given up.
        own: a new id. By it a unit notices that the name was given up, even if the receipt of an earlier time that it
            was given up has gone since.
    """
    name = name_text("name", given, NAME_BYTES, InvalidUnitRequest)
    reply: Reply = yield read_receipt(table, name)
    while not (found := Receipt.of(reply.item)).is_committed:
        now: Moment = (yield Pause(0)).now
        given_up = Receipt(is_committed=False, unit=own)
        reply = yield put_receipt(table, name, found, given_up, now.latest_ms, kept_s)
        if reply.applied or is_receipt_of(reply.item, own):
            return UnitOutcome(Outcome.ROLLED_BACK)
    return UnitOutcome(Outcome.COMMITTED, result_of(found.row))


def inspect_name(table: str, given: str) -> ForkingSteps[Receipt | None]:
    """The receipt of a name, which is not given up by that; None if there is none."""
    reply: Reply = yield read_receipt(table, name_text("name", given, NAME_BYTES, InvalidUnitRequest))
    return None if reply.item is None else Receipt.of(reply.item)


def outcome_of_unit(table: str, unit: str) -> ForkingSteps[UnitOutcome]:
    """The outcome of a unit that marked its items. A unit whose lease has ended is rolled back."""
    if not isinstance(unit, str) or not is_id(unit):
        raise InvalidUnitRequest("unit", unit, "the `id` of a unit")
    records = UnitRecords(table)
    while True:
        reply: Reply = yield records.read(unit)
        if reply.item is None:
            return UnitOutcome(Outcome.FORGOTTEN)
        head = UnitRecord.of(reply.item)
        if decide(head, reply.now) is not Record.LEASE_OVER:
            return UnitOutcome(OUTCOMES[head.state], result_of(head.kept))
        yield records.roll_back_expired(head, reply.now)


class Standing(Enum):
    """What an item of a unit contains now.

    Attributes:
        THERE: the unit's mark.
        WRITTEN: the unit's new value, and no mark.
        OFF: neither.
        OF_ANOTHER: the mark of another unit.
        STRANGE: an attribute with the mark's name that no unit has written.
        NO_TABLE: the item's table does not exist.
        UNKNOWN: this caller may not read the item.
    """

    THERE = "there"
    WRITTEN = "off, written"
    OFF = "off"
    OF_ANOTHER = "of another unit"
    STRANGE = "not ours"
    NO_TABLE = "no table"
    UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class OpenUnit:
    """A unit whose record is still needed. Ages and durations are in table time.

    Attributes:
        unit: its id.
        state: ``PENDING``, ``COMMITTED`` or ``ROLLED_BACK``.
        is_closed: whether all of its items are finished; rows with its new values may still exist.
        age_s: seconds since its first try began, by the clock of the process that began it.
        lease_ends_in_s: only if it is pending; negative after the end of its lease.
        ended_for_s: seconds since its end, if it has ended.
        items: how many items it writes or has marked; None if the rows that list them do not exist.
        rolled_back_by: the id of the unit that has rolled it back, if one has.
        is_saved: whether it was saved, to be resumed: it has marked nothing.
        owner: if it is saved: the owner of its last save; None for none.
    """

    unit: str
    state: Outcome
    is_closed: bool
    age_s: float
    lease_ends_in_s: float | None
    ended_for_s: float | None
    items: int | None
    rolled_back_by: str | None
    is_saved: bool
    owner: str | None

    @classmethod
    def of(cls, head: UnitRecord, now: Moment, items: int | None) -> "OpenUnit":
        """The unit as its record describes it at a moment."""
        is_pending = head.state == "pending"
        return cls(
            unit=head.unit,
            state=OUTCOMES[head.state],
            is_closed=head.is_closed,
            age_s=max(0, now.likely_ms - head.born_ms) / 1_000,
            lease_ends_in_s=(head.lease_until_ms - now.likely_ms) / 1_000 if is_pending else None,
            # An end is the upper bound of its moment.
            ended_for_s=None if is_pending else max(0, now.likely_ms - head.final_ms) / 1_000,
            items=items,
            rolled_back_by=head.by,
            is_saved=head.is_saved,
            owner=head.owner,
        )


@dataclass(frozen=True, slots=True)
class Inspected:
    entry: Entry
    standing: Standing


@dataclass(frozen=True, slots=True)
class Shown:
    """A unit and its items, by its record; None if the rows that list them do not exist."""

    unit: OpenUnit
    items: list[Inspected] | None


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcome of a unit, and what was done about it.

    Attributes:
        outcome: final, unless it is PENDING.
        unit: what its record said last; None if there is no record.
        ended: the items that were finished, or from which its mark was removed.
        refused: the items of a committed one whose new values DynamoDB refuses.
        failed: why an item is not finished yet; None if all are.
    """

    outcome: Outcome
    unit: OpenUnit | None = None
    ended: Sequence[Entry] = ()
    refused: Sequence[Entry] = ()
    failed: CommittedUnfinished | TableError | InvalidUnitRequest | UnsupportedFormat | None = None


def warn_of(error: Strange) -> None:
    _log.warning("a row was left out: %s", error)


def open_units(
    records: UnitRecords, strange: Callable[[Strange], object] = warn_of, most: int | None = None
) -> ForkingSteps[list[OpenUnit]]:
    """The units whose records are still needed, the oldest first; ``strange`` gets an error for each foreign row.

    With ``most`` no page is read after so many of them, and no row but their records: of those whose items are listed
    in other rows, which may be any number of 350 KB, the number of items is None.
    """
    found: list[tuple[UnitRecord, OpenUnit]] = []
    after: Item | None = None
    while True:
        page = yield from records.list_open(after)
        rows: Sequence[Item | None] = ()
        if page.items:
            heads: Reply = yield records.read_open(page)
            rows = heads.items
        # The index may be behind.
        for row in filter(is_open, rows):
            assert row is not None
            try:
                head = UnitRecord.of(row)
                count = None if most is not None and head.has_rows else (yield from _count(records, head))
            except (InvalidUnitRequest, UnsupportedFormat) as error:
                strange(error)
            else:
                found.append((head, OpenUnit.of(head, page.now, count)))
        after = page.last_key
        if after is None or (most is not None and len(found) >= most):
            return [unit for _, unit in sorted(found, key=lambda each: each[0].age)]


def _count(records: UnitRecords, head: UnitRecord) -> ForkingSteps[int | None]:
    """How many items a unit writes or has marked, in memory for one piece; None if the rows are gone."""
    log, count = RedoLog(records, head), 0
    while entries := (yield from log.next()):
        count += len(entries)
    return None if log.is_gone else count


def inspect(records: UnitRecords, unit: str) -> ForkingSteps[Shown | None]:
    """A unit with its items as they are now; None if there is no record of it."""
    _check_id(unit)
    reply: Reply = yield records.read(unit)
    if reply.item is None:
        return None
    head = UnitRecord.of(reply.item)
    entries = yield from read_entries(records, head)
    inspected = None if entries is None else (yield from _inspect_items(head, entries))
    return Shown(OpenUnit.of(head, reply.now, None if entries is None else len(entries)), inspected)


def settle(records: UnitRecords, unit: str) -> ForkingSteps[Settled]:
    """Find out the outcome of a unit, and do what a sweep would do about it."""
    return (yield from _end(records, unit, is_forced=False))


def roll_back(records: UnitRecords, unit: str) -> ForkingSteps[Settled]:
    """Roll back a unit that is pending, even if its lease has not ended; a committed unit is not changed."""
    return (yield from _end(records, unit, is_forced=True))


def outcome_of_rollback(records: UnitRecords, unit: str) -> ForkingSteps[Outcome]:
    """The outcome of a unit after ``roll_back``; a warning says why some of its items are not finished yet."""
    settled = yield from roll_back(records, unit)
    if settled.failed is not None:
        _log.warning("the unit %s has ended, and some of its marks are not removed yet: %s", unit, settled.failed)
    return settled.outcome


def _end(records: UnitRecords, unit: str, *, is_forced: bool) -> ForkingSteps[Settled]:
    _check_id(unit)
    while True:
        reply: Reply = yield records.read(unit)
        if reply.item is None:
            return Settled(Outcome.FORGOTTEN)
        head, now = UnitRecord.of(reply.item), reply.now
        known = OpenUnit.of(head, now, None)
        says = decide(head, now)
        if says is Record.CLOSED or (is_forced and says is Record.COMMITTED):
            return Settled(known.state, known)
        if says is Record.PENDING and not is_forced:
            return Settled(Outcome.PENDING, known)
        if says in (Record.PENDING, Record.LEASE_OVER):
            rolls_back = records.roll_back(unit, now.latest_ms) if is_forced else records.roll_back_expired(head, now)
            flipped: Reply = yield rolls_back
            if not flipped.applied:
                # Its lease was renewed, or another process has ended it.
                continue
            head = replace(head, state="rolledBack", final_ms=now.latest_ms)
        # The outcome is final, even if some items cannot be finished yet.
        known = OpenUnit.of(head, now, None)
        there: list[Entry] = []
        try:
            entries = yield from read_entries(records, head)
            known = replace(known, items=None if entries is None else len(entries))
            inspected = yield from _inspect_items(head, entries or ())
            there = [each.entry for each in inspected if each.standing is Standing.THERE]
            yield from sweep_one(head, now, records, Swept())
        except CommittedUnfinished as error:
            refused = [each for each in there if (each.table, PYTHON.to_caller(each.key)) in error.keys]
            return Settled(known.state, known, [each for each in there if each not in refused], refused, error)
        except (TableError, InvalidUnitRequest, UnsupportedFormat) as error:
            return Settled(known.state, known, failed=error)
        return Settled(known.state, known, there)


@dataclass(frozen=True, slots=True)
class Counted:
    """What was found of the items of a committed unit.

    Attributes:
        unfinished: how many of those that were read are not finished.
        read: how many items were asked for.
        are_all: whether these are all of them.
        are_refused: whether this caller may not read some of them.
    """

    unfinished: int
    read: int
    are_all: bool
    are_refused: bool = False


def count_unfinished(records: UnitRecords, unit: str, most: int) -> ForkingSteps[Counted]:
    """How many items of a committed unit are not finished, of the first ``most``; one piece at a time is in memory."""
    reply: Reply = yield records.read(unit)
    if reply.item is None or not (head := UnitRecord.of(reply.item)).is_being_finished:
        return Counted(0, 0, are_all=True)
    log, count, read, are_refused = RedoLog(records, head), 0, 0, False
    while entries := (yield from log.next()):
        some = entries[: most - read]
        inspected = yield from _inspect_items(head, some)
        read += len(some)
        count += sum(each.standing in (Standing.THERE, Standing.STRANGE) for each in inspected)
        are_refused |= any(each.standing is Standing.UNKNOWN for each in inspected)
        if len(some) < len(entries):
            return Counted(count, read, are_all=False, are_refused=are_refused)
    return Counted(count, read, are_all=not log.is_gone, are_refused=are_refused)


def _inspect_items(head: UnitRecord, entries: Sequence[Entry]) -> ForkingSteps[list[Inspected]]:
    inspected, marks = list[Inspected](), Marks.of(head)
    for _, of_table in by_table(entries):
        for batch in chunks(of_table, MOST_TOGETHER):
            try:
                reply: Reply = yield GetMany([(entry.table, entry.key) for entry in batch])
            except TableNotFound:
                inspected += [Inspected(entry, Standing.NO_TABLE) for entry in batch]
            except TableRefused:
                inspected += [Inspected(entry, Standing.UNKNOWN) for entry in batch]
            else:
                inspected += [
                    Inspected(entry, _standing(head.unit, item, marks))
                    for entry, item in zip(batch, reply.items, strict=True)
                ]
    return inspected


def _standing(unit: str, item: Item | None, marks: Marks) -> Standing:
    if item is None:
        return Standing.OFF
    try:
        mark, version = marks.mark_of(item), marks.version_of(item)
    except InvalidUnitRequest:
        return Standing.STRANGE
    if mark is not None:
        return Standing.THERE if mark.unit == unit else Standing.OF_ANOTHER
    return Standing.WRITTEN if version == unit else Standing.OFF


def _check_id(unit: object) -> None:
    if not isinstance(unit, str) or not is_id(unit):
        raise InvalidUnitRequest("unit", unit, "the `id` of a unit: 26 digits and capital letters")


@dataclass(frozen=True, slots=True)
class FoundMark:
    """A mark in an item.

    Attributes:
        key: the item's, in Python values.
        unit: the id of the mark's unit; None if no unit has written the mark.
        record: what the unit's record says.
        action: what was done, or would be done with ``write``: ``"finished"``, the item gets the unit's new value;
            ``"unmarked"``, the item keeps its value; ``"left"``.
        why: the reason, if the record is unclear.
    """

    key: Mapping[str, Any]
    unit: str | None
    record: Record
    action: Action
    why: str | None = None

    @property
    def needs_you(self) -> bool:
        """Whether the mark is left, and no process will remove it."""
        return self.action == "left" and self.record is not Record.PENDING


@dataclass(frozen=True, slots=True)
class _Seen:
    """A mark with its unit's record, and the reason if that is unclear."""

    record: Record
    head: UnitRecord | None
    now: Moment
    why: str | None = None


def repair(
    table: UnitTable, records: UnitRecords, marks: Marks, *, write: bool, lost_records: bool
) -> ForkingSteps[list[FoundMark]]:
    """Treat each mark in a table as its unit's record says. Safe to repeat, and beside itself and beside units."""
    # A table with other keys refuses this, before the first mark is found.
    yield TIME_CHECK
    # It never waits.
    meeting = Meeting(marks, records, (0, ""), 0, lambda: 0.0)
    repairing = _Repairing(table, records, marks, meeting, write=write, lost_records=lost_records)
    names = {f"#k{at}": name for at, name in enumerate(table.key_names)} | {"#mark": marks.mark}
    found, after = list[FoundMark](), None
    while True:
        page: Reply = yield Scan(_MARKED, tuple(names), after, table.name, names)
        for item in page.items:
            assert item is not None
            one = yield from repairing.item(item)
            if one is not None:
                found.append(one)
        after = page.last_key
        if after is None:
            return found


@dataclass(frozen=True, slots=True)
class _Repairing:
    table: UnitTable
    records: UnitRecords
    marks: Marks
    meeting: Meeting
    write: bool
    lost_records: bool

    def item(self, item: Item) -> ForkingSteps[FoundMark | None]:
        """Treat one item of a page; None if its mark is gone meanwhile."""
        key = canonical_item({name: item[name] for name in self.table.key_names})
        try:
            met = met_at(self.table, key, item, self.marks)
        except InvalidUnitRequest:
            return FoundMark(PYTHON.to_caller(key) or {}, None, Record.STRANGE, "left")
        if met is None:
            return None
        try:
            return (yield from self._mark(met))
        except (TableRefused, InvalidUnitRequest, UnsupportedFormat) as error:
            # InvalidUnitRequest: the item or a row has attributes of ours that no unit has written.
            return FoundMark(PYTHON.to_caller(key) or {}, met.mark.unit, Record.UNCLEAR, "left", str(error))

    def _mark(self, met: Marked) -> ForkingSteps[FoundMark | None]:
        key = PYTHON.to_caller(met.key) or {}
        while True:
            seen = yield from self._look(met)
            if seen is None:
                return None
            action = self._action(seen.record)
            found = FoundMark(key, met.mark.unit, seen.record, action, seen.why)
            if action == "left" or not self.write:
                return found
            if seen.record is Record.LEASE_OVER:
                assert seen.head is not None
                yield self.records.roll_back_expired(seen.head, seen.now)
            if (yield from self.meeting.resolve(met)) is None:
                return found
            # It has renewed its lease.

    def _action(self, record: Record) -> Action:
        if record is Record.MISSING:
            return "unmarked" if self.lost_records else "left"
        return _DONE.get(record, "left")

    def _look(self, met: Marked) -> ForkingSteps[_Seen | None]:
        """Read the record, and then the item again: the Scan may have returned an older version."""
        reply: Reply = yield self.records.read(met.mark.unit)
        head, now = None if reply.item is None else UnitRecord.of(reply.item), reply.now
        again: Reply = yield Get(met.table, met.key)
        if again.item is None or self.marks.mark_of(again.item) != met.mark:
            return None
        says = decide(head, now)
        if head is None:
            is_kept_yet = now.earliest_ms < begun_ms(met.mark.unit) + CLOSED_IS_KEPT_S * 1_000
            return _Seen(Record.MISSING if is_kept_yet else says, None, now)
        if says is not Record.COMMITTED:
            return _Seen(says, head, now)
        entries = yield from read_committed(self.records, head, [met])
        if entries is None:
            # It was closed meanwhile.
            return _Seen(Record.CLOSED, head, now)
        if entries == [None]:
            why = f"the unit is committed, and its record does not name this item of {met.table}"
            return _Seen(Record.UNCLEAR, head, now, why)
        return _Seen(Record.COMMITTED, head, now)


@dataclass(frozen=True, slots=True)
class Correction:
    """What an operator decides about one item.

    Attributes:
        id: in the form of a unit's: the item's new version, and the name of the row that keeps it.
        image: the item's new value; None to drop what the unit writes, so that the item keeps its old value.
        by, why: who decides, and for what reason.
    """

    id: str
    image: Attributes | None
    by: str
    why: str

    @property
    def action(self) -> Done:
        return "dropped" if self.image is None else "replaced"


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An item of a committed unit that is not finished.

    Attributes:
        mark: the unit's, in the item.
        image: the item's new value, as readers at ``COMMITTED`` see it; None if the unit deletes it.
    """

    head: UnitRecord
    entry: Entry
    mark: Mark
    image: Attributes | None


@dataclass(frozen=True, slots=True)
class Corrected:
    """A correction, as the unit's record keeps it for a year.

    Attributes:
        at_ms: when, in table time.
        by, why: who has decided, and for what reason.
        table: of the item.
        action: what was done.
    """

    at_ms: int
    by: str
    why: str
    table: str
    action: str

    @classmethod
    def of(cls, row: Item) -> "Corrected":
        check_row(row)
        try:
            by, why, table, action = (row[name]["S"] for name in ("by", "why", "table", "action"))
            return cls(integer(row["atMs"]), by, why, table, action)
        except (KeyError, ValueError) as error:
            raise foreign_row(row) from error


def corrections(records: UnitRecords, unit: str) -> ForkingSteps[list[Corrected]]:
    """The corrections of a unit, the first one first."""
    _check_id(unit)
    condition, names = "#unit = :unit AND begins_with(#row, :prefix)", {"#unit": "unit", "#row": "row"}
    key = correction_key(unit, "")
    values = {":unit": key["unit"], ":prefix": key["row"]}
    found, after = list[Corrected](), None
    while True:
        page: Reply = yield Query(records.table, condition, names, values, after=after)
        found += [Corrected.of(row) for row in page.items if row is not None]
        after = page.last_key
        if after is None:
            return found


def unfinished(records: UnitRecords, unit: str, table: UnitTable, key: Attributes) -> ForkingSteps[Unfinished]:
    """Read an item of a committed unit that is not finished, and what the unit writes there."""
    reply: Reply = yield records.read(unit)
    if reply.item is None:
        raise InvalidUnitRequest("unit", unit, f"a unit with a record in {records.table}")
    head = UnitRecord.of(reply.item)
    if not head.is_being_finished or head.is_saved:
        raise InvalidUnitRequest("unit", unit, "a unit that is committed, and has items that are not finished")
    found: Reply = yield Get(table.name, key)
    marks = Marks.of(head)
    met, entry = met_at(table, key, found.item, marks), None
    if met is not None and met.mark.unit == unit:
        entries = yield from read_committed(records, head, [met])
        entry = None if entries is None else entries[0]
    if found.item is None or met is None or entry is None:
        allowed = f"the key of an item of {table.name} that the unit {unit} writes, and has not finished"
        raise InvalidUnitRequest("key", dict(key), allowed)
    before = None if met.mark.kind == INSERT else canonical_item(marks.without(found.item))
    return Unfinished(head, entry, met.mark, entry.applied_to(before))


def correct(
    records: UnitRecords, unit: str, table: UnitTable, key: Attributes, correction: Correction
) -> ForkingSteps[Done]:
    """End one item in another way than its unit would, if DynamoDB refuses that way. Safe to repeat.

    Returns:
        What was done: ``"finished"`` if DynamoDB has taken the unit's own value now.

    Raises:
        InvalidUnitRequest: the item is not, or no longer, an unfinished one of a committed unit; or the new value does
            not fit the table. Nothing was written.
        TableRefused: DynamoDB refuses the new value, too, or the permission is missing.
        OutcomeUnknown: call it again.
        TableError: nothing was written.
    """
    if correction.image is not None:
        _check(correction.image, table, key)
    while True:
        try:
            left = yield from unfinished(records, unit, table, key)
        except InvalidUnitRequest:
            kept: Reply = yield records.read_correction(unit, correction.id)
            if kept.item is None:
                raise
            # An earlier attempt of the transaction was applied.
            return correction.action
        if left.entry.kind == "unmark" and correction.image is not None:
            raise InvalidUnitRequest("item", None, "nothing: the unit has only read this item, so drop its mark")
        marks = Marks.of(left.head)
        if correction.image is not None:
            marks.check_free_of_ours("item", correction.image)
        try:
            finished: Reply = yield finish(left.entry, unit, marks)
        except TableRefused as refused:
            if not is_for_contents(refused):
                raise
            yield from _corrects(left, refused, records, marks, correction)
        else:
            if finished.applied:
                return "finished"


def _corrects(
    left: Unfinished, refused: TableRefused, records: UnitRecords, marks: Marks, correction: Correction
) -> ForkingSteps[None]:
    now: Moment = (yield Pause(0)).now
    row: dict[str, Any] = {
        "table": {"S": left.entry.table},
        "action": {"S": correction.action},
        "by": {"S": correction.by},
        "why": {"S": correction.why},
        "refusal": {"S": str(refused)},
    }
    kept = records.keep_correction(left.head, correction.id, row, left.entry, now.latest_ms)
    # If it is refused, the item is finished by now: the next look says so.
    yield TransactWrite((kept, _ends(left, correction, marks)))


def _ends(left: Unfinished, correction: Correction, marks: Marks) -> Write:
    entry, unit, version = left.entry, left.head.unit, {"S": correction.id}
    if correction.image is not None:
        return if_marked("Put", entry, unit, marks, item={**correction.image, marks.version: version})
    if left.mark.kind == INSERT:
        return delete_placeholder(entry, unit, marks)
    update = "SET #version = :version REMOVE #mark"
    return if_marked("Update", entry, unit, marks, values={":version": version}, update=update)


def _check(image: Mapping[str, Any], table: UnitTable, key: Attributes) -> None:
    if table.key_of("item", dict(image)) != key:
        raise InvalidUnitRequest("item", dict(image), f"an item with the key {dict(key)}")
    table.check_item(dict(image), "statement", VERSION_BYTES)
