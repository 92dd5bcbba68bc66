"""What a process does about another unit's mark: only that unit's record decides.

A process removes a mark, or applies it, only after it has read the unit's record in a final state, closed or gone. Of
two pending units, the older one rolls back the younger one, and the younger one waits for the older one (wound-wait:
Rosenkrantz, Stearns, Lewis, "System Level Concurrency Control for Distributed Database Systems", 1978): a unit never
waits for a younger one, so no two wait for each other, and the oldest is not rolled back while its lease runs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeGuard

from ticketlock.errors import (
    CommittedUnfinished,
    OutcomeUnknown,
    RequestNotApplied,
    TableError,
    TableRefused,
    UnitContended,
)
from ticketlock.units._records import _conditions as only_if
from ticketlock.units._records._marks import INSERT, Mark, Marks
from ticketlock.units._records._packing import Entry, Unpacking
from ticketlock.units._records._record import Record, UnitRecord, UnitRecords, decide, head_key, piece_in
from ticketlock.units._words import PYTHON, UnitTable
from ticketlock.wire import (
    ForkingSteps,
    Get,
    Item,
    Moment,
    Operation,
    Pause,
    Reply,
    Together,
    Write,
    every,
    is_foreign,
    raise_if_foreign,
)

_OF_CONTENTS = ("ValidationException", "ItemCollectionSizeLimitExceededException")

GRACE_MS = 200
_FIRST_PAUSE_MS = 10
_LONGEST_PAUSE_MS = 400

Age = tuple[int, str]


def finish(entry: Entry, unit: str, marks: Marks) -> Write:
    """Give the item its new value, and remove the mark."""
    if entry.kind == "unmark":
        return if_marked("Update", entry, unit, marks, update="REMOVE #mark")
    if entry.kind == "delete":
        return if_marked("Delete", entry, unit, marks)
    if entry.kind == "put":
        return if_marked("Put", entry, unit, marks, item={**entry.assigned, marks.version: {"S": unit}})
    update, names, values = change(entry.assigned, entry.removed, ("#mark",))
    return if_marked("Update", entry, unit, marks, names=names, values=values, update=update)


def if_marked(
    operation: Operation,
    item_of: "Entry | Marked",
    unit: str,
    marks: Marks,
    *conditions: str,
    names: Mapping[str, str] | None = None,
    values: Item | None = None,
    **more: Any,
) -> Write:
    """A write of an item, with further placeholders, if it has the mark of a unit."""
    return Write(
        operation,
        item_of.key,
        every(only_if.MARKED_BY_THE_UNIT, *conditions),
        names={**marks.names((item_of.key_name,)), "#unit": "unit", **(names or {})},
        values={":unit": {"S": unit}, **(values or {})},
        table=item_of.table,
        **more,
    )


def delete_placeholder(item_of: "Entry | Marked", unit: str, marks: Marks) -> Write:
    """Delete an item that only holds a place for the insert of a unit."""
    names, values = {"#kind": "kind"}, {":insert": {"S": INSERT}}
    return if_marked("Delete", item_of, unit, marks, only_if.ONLY_HOLDS_A_PLACE, names=names, values=values)


def is_for_contents(error: object) -> TypeGuard[TableRefused]:
    """Whether DynamoDB refuses a write for its contents: no other permission, and no other process, would help."""
    return isinstance(error, TableRefused) and str(error).startswith(_OF_CONTENTS)


def not_finished(unit: str, refused: Sequence[tuple[Entry, TableRefused]]) -> CommittedUnfinished:
    keys = [(entry.table, PYTHON.to_caller(entry.key) or {}) for entry, _ in refused]
    return CommittedUnfinished(unit, keys, str(refused[0][1]))


def change(assigned: Item, removed: tuple[str, ...], ours: tuple[str, ...] = ()) -> tuple[str, dict[str, str], Item]:
    """An update, with its placeholders, that sets the version and whole attributes, and removes others and ``ours``."""
    update, names, values = _change_of(len(assigned), len(removed), ours)
    named = dict(zip(names, (*assigned, *removed), strict=True))
    return update, named, dict(zip(values, assigned.values(), strict=True))


@lru_cache(maxsize=256)
def _change_of(assigned: int, removed: int, ours: tuple[str, ...]) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The update for so many attributes, with the placeholders of their names and of their values."""
    set_names, values = ([f"{sign}a{at}" for at in range(assigned)] for sign in "#:")
    removed_names = [f"#r{at}" for at in range(removed)]
    sets = ["#version = :unit", *(f"{name} = {value}" for name, value in zip(set_names, values, strict=True))]
    gone = [*ours, *removed_names]
    update = f"SET {', '.join(sets)}" + (f" REMOVE {', '.join(gone)}" if gone else "")
    return update, (*set_names, *removed_names), tuple(values)


def unmark(met: "Marked", marks: Marks) -> Write:
    """Restore the item as it was before the mark; a placeholder of an insert is deleted."""
    if met.mark.kind == INSERT:
        return delete_placeholder(met, met.mark.unit, marks)
    return if_marked("Update", met, met.mark.unit, marks, update="REMOVE #mark")


def close(records: UnitRecords, head: UnitRecord, now_ms: int) -> ForkingSteps[None]:
    """Delete the rows of a unit whose items are all finished, and let TTL delete its head.

    A process that crashes in between leaves a closed head without TTL, by which a sweep finds the remaining rows.
    """
    if not head.is_closed:
        reply: Reply = yield records.close(head, now_ms)
        if not reply.applied:
            # Others have closed it, and it is gone: its rows, if there are any, are those of a record made again.
            return
    if head.has_rows:
        for reply in (yield Together(tuple(records.delete_rows(head)))):
            if isinstance(reply, TableError):
                raise reply
        yield records.forget(head, now_ms)


@dataclass(frozen=True, slots=True)
class Marked:
    """An item with a mark of another unit; ``key_name`` is the first attribute of its key."""

    table: str
    key: Item
    key_name: str
    mark: Mark

    @classmethod
    def of(cls, table: UnitTable, key: Item, mark: Mark) -> "Marked":
        """An item of a table of users."""
        return cls(table.name, key, table.key_names[0], mark)


def met_at(table: UnitTable, key: Item, item: Item | None, marks: Marks) -> Marked | None:
    """An item as it was found, if it has a mark."""
    mark = None if item is None else marks.mark_of(item)
    return None if mark is None else Marked.of(table, key, mark)


@dataclass(slots=True)
class Meeting:
    """What a unit, or a reader, does about the marks of other units.

    Args:
        age: of the unit that meets the marks.
        timeout_ms: how long it waits for older units, all waits together.
        jitter: random numbers in [0, 1).
    """

    _marks: Marks
    _records: UnitRecords
    _age: Age
    _timeout_ms: int
    _jitter: Callable[[], float]
    _waited_ms: int = 0

    def resolve(self, met: Marked) -> ForkingSteps[tuple[UnitRecord, Moment] | None]:
        """Apply to a marked item what its unit's record says.

        Returns:
            None once that is done; if the unit is pending, its head and the time of the read.
        """
        return (yield from self.resolve_all([met]))

    def resolve_all(self, marked: Sequence[Marked]) -> ForkingSteps[tuple[UnitRecord, Moment] | None]:
        """The same for items with the mark of one unit, whose record is read once."""
        reply: Reply = yield self._records.read(marked[0].mark.unit)
        head = UnitRecord.of(reply.item) if reply.item is not None else None
        says = decide(head, reply.now)
        if head is not None and says in (Record.PENDING, Record.LEASE_OVER):
            return head, reply.now
        if says is Record.ROLLED_BACK:
            for met in marked:
                yield from self._ends(unmark(met, self._marks))
            return None
        if head is not None and says is Record.COMMITTED:
            entries = yield from read_committed(self._records, head, marked)
            if entries is not None:
                for met, entry in zip(marked, entries, strict=True):
                    if entry is None:
                        raise _not_named(head, met)
                    try:
                        yield from self._ends(finish(entry, head.unit, self._marks))
                    except TableRefused as error:
                        if not is_for_contents(error) or is_foreign(error):
                            raise
                        raise TableRefused(str(not_finished(head.unit, [(entry, error)]))) from error
                return None
        # The unit has ended and had finished every item, so a mark that is still there has arrived late.
        for met in marked:
            again: Reply = yield Get(met.table, met.key)
            if again.item is not None and self._marks.mark_of(again.item) == met.mark:
                yield from self._ends(unmark(met, self._marks))
        return None

    def _ends(self, request: Write) -> ForkingSteps[None]:
        """End or finish what another unit has left. If this write is unknown, this unit's own outcome is not."""
        try:
            yield request
        except OutcomeUnknown as error:
            raise_if_foreign(error)
            raise RequestNotApplied(f"the write that ends or finishes another unit got no answer: {error}") from error

    def wait_or_wound(
        self, met: Marked, meanwhile: Callable[[], ForkingSteps[None]] | None = None
    ) -> ForkingSteps[None]:
        """Wait, with ``meanwhile`` before each poll, until a unit's mark is gone, or roll back a younger unit."""
        first_ms: int | None = None
        waited_before_ms = self._waited_ms
        pause_ms: float = _FIRST_PAUSE_MS
        while (pending := (yield from self.resolve(met))) is not None:
            if meanwhile is not None:
                yield from meanwhile()
            head, now = pending
            is_older = self._age < head.age
            first_ms = now.local_ms if first_ms is None else first_ms
            if decide(head, now) is Record.LEASE_OVER:
                yield from self._ends(self._records.roll_back_expired(head, now))
            elif is_older and now.local_ms - first_ms >= GRACE_MS:
                yield from self._ends(self._records.roll_back(head.unit, now.latest_ms, by=self._age[1]))
            elif not is_older and waited_before_ms + now.local_ms - first_ms >= self._timeout_ms:
                waited = f"waited {self._timeout_ms / 1_000:g} s in all for older units, at last for {head.unit}"
                raise UnitContended(f"{waited}: run this unit again")
            else:
                paused: Reply = yield Pause(pause_ms * (0.5 + self._jitter() / 2))
                if not is_older:
                    self._waited_ms = waited_before_ms + paused.now.local_ms - first_ms
                pause_ms = min(2 * pause_ms, _LONGEST_PAUSE_MS)


def _not_named(head: UnitRecord, met: Marked) -> TableRefused:
    # What the unit has committed is never undone.
    return TableRefused(
        f"the unit {head.unit} is committed, and its mark is in an item of {met.table} that it does not write: "
        f"{dict(met.key)}; do all processes use the same name for the table?"
    )


class RedoLog:
    """What a unit has marked, and what it writes there, of which one piece at a time is in memory.

    Args:
        head: of the unit. The items of a saved one are marked by the coordinators that resume it, under their own ids.
        first: the piece to begin with: the first one of those that were compressed together.
        pace: waits after each row that is read, by what it has cost.

    Attributes:
        is_gone: whether a row of it is gone, or was never written.
    """

    def __init__(
        self,
        records: UnitRecords,
        head: UnitRecord,
        first: int = 0,
        pace: Callable[[Reply], ForkingSteps[object]] | None = None,
    ) -> None:
        self._records, self._head = records, head
        of_keys = head.keys > 0 and head.state != "committed"
        rows = [] if head.is_saved else records.read_keys(head) if of_keys else records.read_pieces(head)
        self._left, self._pace = iter(rows[first:]), pace
        self._is_inline = not rows and not head.is_saved
        self._unpacking = Unpacking(head_key(head.unit))
        self.is_gone = False

    def next(self) -> ForkingSteps[list[Entry]]:
        """The next entries; none at the end, and if it is gone."""
        if self._is_inline:
            self._is_inline = False
            entries = self._unpacking.feed(self._head.inline) or []
            self._unpacking.check_end()
            return entries
        for request in self._left:
            reply: Reply = yield replace(request, asks_units=self._pace is not None)
            if self._pace is not None:
                yield from self._pace(reply)
            if reply.item is None:
                self.is_gone = True
                return []
            decoded = self._unpacking.feed(piece_in(reply.item))
            if decoded is not None:
                return decoded
        self._unpacking.check_end()
        return []

    def check_closed(self) -> ForkingSteps[None]:
        """Check that rows of a committed unit are gone because it was closed meanwhile: every item is finished."""
        # ticketlock deletes the rows only after that.
        reply: Reply = yield self._records.read(self._head.unit)
        if reply.item is not None and not UnitRecord.of(reply.item).is_closed:
            raise TableRefused(
                f"the unit {self._head.unit} is committed, but rows with what it writes are gone from "
                f"{self._records.table}: restore them, or correct its items by hand"
            )


def read_entries(records: UnitRecords, head: UnitRecord) -> ForkingSteps[list[Entry] | None]:
    """What a unit has marked, and what it writes there; None if the rows with that are gone, or were never complete."""
    log, found = RedoLog(records, head), list[Entry]()
    while some := (yield from log.next()):
        found += some
    return None if log.is_gone else found


def read_pieces(records: UnitRecords, head: UnitRecord) -> ForkingSteps[list[bytes] | None]:
    """The rows that belong to a head; None if they are gone, or were never complete."""
    pieces: list[bytes] = []
    requests = records.read_pieces(head)
    if requests:
        for reply in (yield Together(tuple(requests))):
            if isinstance(reply, TableError):
                raise reply
            if reply.item is None:
                return None
            pieces.append(piece_in(reply.item))
    return pieces


def read_committed(
    records: UnitRecords, head: UnitRecord, marked: Sequence[Marked]
) -> ForkingSteps[list[Entry | None] | None]:
    """What a committed unit writes to items with its mark; None if it was closed meanwhile, so that all are finished.

    Returns:
        For each item the entry, or None if the unit does not write it.
    """
    pieces = sorted({met.mark.piece for met in marked if met.mark.piece is not None})
    found = dict[int, Entry]()
    for log, is_whole in [
        *((RedoLog(records, head, first), False) for first in pieces),
        (RedoLog(records, head), True),
    ]:
        while len(found) < len(marked) and (entries := (yield from log.next())):
            for at, met in enumerate(marked):
                for entry in entries:
                    if entry.is_of(met.table, met.key):
                        found[at] = entry
            if not is_whole:
                break
        if log.is_gone:
            yield from log.check_closed()
            return None
    return [found.get(at) for at in range(len(marked))]
