"""The record of a unit, in rows of the units table: its id, its head, and what a head says."""

import re
import secrets
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal, get_args

from ticketlock.errors import TableRefused, TicketLockError, UnitChanged, UnitForgotten, UnitRolledBack
from ticketlock.units._records import _conditions as only_if
from ticketlock.units._records._packing import INLINE_BYTES, Entry, packed
from ticketlock.units._records._results import NUMBERED, RESULT
from ticketlock.units._records._rows import (
    FORMAT_NAMES,
    FORMAT_VALUES,
    KEY,
    NOTHING,
    OPEN,
    OWNER_IS_KEPT_S,
    STAMP,
    Misshapen,
    check_row,
    expires_at,
    foreign_row,
    put_row,
    row_key,
)
from ticketlock.wire import (
    MOST_TOGETHER,
    TIME_TO_LIVE,
    ForkingSteps,
    Get,
    GetMany,
    GetTogether,
    Item,
    Moment,
    Reply,
    Scan,
    Write,
    every,
    integer,
    number,
)

_DIGITS = "".join(each for each in string.digits + string.ascii_uppercase if each not in "ILOU")
LENGTH = 26
_ID = re.compile(f"[{_DIGITS}]{{{LENGTH}}}")
_RANDOM_BITS = 80

LEASE_MS = 60_000
CLOSED_IS_KEPT_S = 24 * 3_600
SAVED_IS_KEPT_S = OWNER_IS_KEPT_S
"""After its end."""
CORRECTION_IS_KEPT_S = 366 * 24 * 3_600
_ROWS_OUTLIVE_THE_LEASE_BY_S = 24 * 3_600

RecordState = Literal["pending", "committed", "rolledBack"]

_HEAD = "head"
# What an ended unit was saved with is of no more use.
_WRITES = "writes"
# Nothing else changes a head that has ended, and its format was read with its end.
_OF_KNOWN_HEADS = (only_if.NO_SUCH_ROW, only_if.ENDED_AS_I_SAW, only_if.HEAD_IS_CLOSED)
_NAMES = {"#unit": "unit", "#state": "state", "#rev": "rev", "#lease": "leaseUntilMs", "#coordinator": "coordinator"}
_STATES: Mapping[str, Any] = {
    ":pending": {"S": "pending"},
    ":committed": {"S": "committed"},
    ":rolled_back": {"S": "rolledBack"},
}


def new_id(wall_ms: int) -> str:
    """A new id of this moment, in the form of https://github.com/ulid/spec."""
    number = (wall_ms << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)
    return "".join(_DIGITS[(number >> (5 * place)) & 31] for place in reversed(range(LENGTH)))


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def begun_ms(unit: str) -> int:
    """The time in an id, by the wall clock of the process that made it."""
    number = 0
    for digit in unit:
        number = (number << 5) | _DIGITS.index(digit)
    return number >> _RANDOM_BITS


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRecord:
    """A unit's record, as one read of its head returned it.

    Attributes:
        born_ms: when its first try began, by a wall clock.
        lease_until_ms: of a pending one, in table time: afterwards any process may roll it back.
        final_ms: of an ended one, when, in table time.
        is_closed: whether every item is finished: it has its new value, and no mark.
        by: the id of the unit that has rolled it back, if one has.
        rev: of a saved unit: counts its saves and resumes, so it identifies the present coordinator.
        attempt: names the rows of what it writes.
        pieces: number of rows with the unit's writes; 0 if they are in `inline`.
        coordinator: of a saved one, the id under which its last coordinator writes.
        keys: of one that marks what it reads, how many rows of keys there are; 0 for another one.
        owner: of a saved one, under which owner it was saved last; None for none.
        steps: of a saved one, the digests of the steps that were saved.
        prefix: that of its marks; None for the usual one.
        kept: the row with its result, if a saved one has kept one.
    """

    unit: str
    state: RecordState
    born_ms: int
    lease_until_ms: int
    final_ms: int = 0
    is_closed: bool = False
    by: str | None = None
    rev: int = 0
    attempt: str = ""
    pieces: int = 0
    inline: bytes = b""
    coordinator: str | None = None
    keys: int = 0
    owner: str | None = None
    steps: frozenset[bytes] = frozenset()
    prefix: str | None = None
    kept: Item = field(default_factory=dict, compare=False, repr=False)

    @property
    def has_rows(self) -> bool:
        return self.pieces + self.keys > 0

    @property
    def is_saved(self) -> bool:
        """Whether its rows hold what a unit has read and stated, for a later coordinator: it marks nothing itself."""
        return self.coordinator is not None

    @property
    def is_being_finished(self) -> bool:
        """Whether it is committed, and items of it may still have their marks."""
        return self.state == "committed" and not self.is_closed

    @property
    def open_key(self) -> Item:
        """Its place in the index of open heads."""
        return {OPEN: {"S": self.unit}, **head_key(self.unit)}

    @property
    def age(self) -> tuple[int, str]:
        """The oldest unit is the least."""
        return self.born_ms, self.unit

    @classmethod
    def of(cls, row: Item) -> "UnitRecord":
        check_row(row)
        try:
            state: Any = row["state"]["S"]
            if state in get_args(RecordState) and row["row"]["S"] == _HEAD:
                return cls(
                    unit=row["unit"]["S"],
                    state=state,
                    born_ms=integer(row["born"]),
                    lease_until_ms=integer(row["leaseUntilMs"]),
                    final_ms=integer(row["finalMs"]) if "finalMs" in row else 0,
                    is_closed="closed" in row,
                    by=row["by"]["S"] if "by" in row else None,
                    rev=integer(row["rev"]),
                    attempt=row["attempt"]["S"],
                    pieces=integer(row["pieces"]),
                    inline=bytes(row["writes"]["B"]) if "writes" in row else b"",
                    coordinator=row["coordinator"]["S"] if "coordinator" in row else None,
                    keys=integer(row["keys"]) if "keys" in row else 0,
                    owner=row["owner"]["S"] if "owner" in row else None,
                    steps=frozenset(bytes(step) for step in row["steps"]["BS"]) if "steps" in row else frozenset(),
                    prefix=row["prefix"]["S"] if "prefix" in row else None,
                    kept=row if RESULT in row else {},
                )
        except KeyError as error:
            raise foreign_row(row, Misshapen(f"which lacks {error}")) from error
        except ValueError as error:
            raise foreign_row(row) from error
        raise foreign_row(row)


class Record(Enum):
    """What the record of a mark's unit says.

    Attributes:
        PENDING: the unit's lease is running.
        LEASE_OVER: the unit's lease has ended.
        ROLLED_BACK: the unit is rolled back.
        COMMITTED: the unit is committed, and this item is not finished.
        CLOSED: the unit has ended, and all of its items were finished: the mark has come back since.
        GONE: the same, and TTL has deleted the record.
        MISSING: there is no record although it cannot have expired: the units table is the wrong one, or was lost.
        STRANGE: no unit has written the mark.
        UNCLEAR: the record does not name the item, rows of it are lost, a newer version wrote it, or a request was
            refused.
    """

    PENDING = "pending"
    LEASE_OVER = "expired"
    ROLLED_BACK = "rolled back"
    COMMITTED = "committed"
    CLOSED = "closed"
    GONE = "gone"
    MISSING = "missing"
    STRANGE = "strange"
    UNCLEAR = "unclear"


def decide(record: UnitRecord | None, now: Moment) -> Record:
    """What a record says, and whether any process may roll its unit back: only one whose lease has ended."""
    if record is None:
        return Record.GONE
    if record.is_closed:
        return Record.CLOSED
    if record.state == "committed":
        return Record.COMMITTED
    if record.state == "rolledBack":
        return Record.ROLLED_BACK
    return Record.LEASE_OVER if now.earliest_ms > record.lease_until_ms else Record.PENDING


def head_key(unit: str) -> Item:
    return row_key(unit, _HEAD)


def piece_key(head: UnitRecord, at: int) -> Item:
    return row_key(head.unit, f"w#{head.attempt}#{at:05}")


def keys_key(head: UnitRecord, at: int) -> Item:
    return row_key(head.unit, f"k#{at:05}")


def _rows_of_pieces(head: UnitRecord) -> list[Item]:
    return [piece_key(head, at) for at in range(head.pieces)]


def _rows_of_keys(head: UnitRecord) -> list[Item]:
    return [keys_key(head, at) for at in range(head.keys)]


def correction_key(unit: str, correction: str) -> Item:
    return row_key(unit, f"c#{correction}")


def rows_expire_at(head: UnitRecord) -> Mapping[str, str]:
    """When the rows beside the head of a saved unit may be deleted: not while a coordinator may resume it."""
    return number(head.lease_until_ms // 1_000 + _ROWS_OUTLIVE_THE_LEASE_BY_S)


def with_pieces(head: UnitRecord, pieces: list[bytes]) -> tuple[UnitRecord, list[bytes]]:
    """A head that holds what its unit writes, or how many rows of it there are, and the pieces for these rows."""
    if len(pieces) == 1 and len(pieces[0]) <= INLINE_BYTES:
        return replace(head, inline=pieces[0], pieces=0), []
    return replace(head, pieces=len(pieces)), pieces


def piece_in(row: Item) -> bytes:
    check_row(row)
    try:
        return bytes(row["data"]["B"])
    except KeyError as error:
        raise foreign_row(row) from error


class UnitRecords:
    def __init__(self, table: str) -> None:
        self.table = table

    def read(self, unit: str) -> Get:
        return Get(self.table, head_key(unit))

    def read_together(self, units: Sequence[str]) -> GetTogether:
        """Read up to 100 heads, as of one instant in the order of all transactions."""
        return GetTogether([(self.table, head_key(unit)) for unit in units])

    def list_open(self, after: Item | None, part: tuple[int, int] = (0, 1)) -> ForkingSteps[Reply]:
        """A page of the index of open heads; of a part of it, or of all of it. It may be behind the table."""
        try:
            page: Reply = yield Scan(
                None, (), after, self.table, part=part, index=OPEN, limit=MOST_TOGETHER, asks_units=True
            )
        except TableRefused as error:
            if "index" not in str(error):
                raise
            needed = f"{self.table} needs its index `{OPEN}`: `create_units_table` adds it, and DynamoDB then fills it"
            raise TableRefused(f"{error}. {needed}") from error
        return page

    def read_open(self, page: Reply) -> GetMany:
        """Read the heads that a page has shown; ``is_open`` says whether one is still needed."""
        found = (row for row in page.items if row is not None)
        return GetMany([(self.table, {name: row[name] for name in KEY}) for row in found], asks_units=True)

    def read_pieces(self, head: UnitRecord) -> list[Get]:
        return [Get(self.table, key) for key in _rows_of_pieces(head)]

    def open(self, head: UnitRecord) -> Write:
        """Write a new head, before the unit marks its first item."""
        return self._write("Put", head.unit, only_if.NO_SUCH_ROW, item=_row(head))

    def put_piece(self, head: UnitRecord, at: int, piece: bytes, not_after_local_ms: int) -> Write:
        """Write a row of what it writes; not sent once another process may have closed the record."""
        return self._put_new(piece_key(head, at), {"data": {"B": piece}}, not_after_local_ms=not_after_local_ms)

    def delete_rows(self, head: UnitRecord) -> list[Write]:
        return [*map(self._delete, _rows_of_keys(head)), *self.delete_pieces(head)]

    def delete_pieces(self, head: UnitRecord) -> list[Write]:
        return [*map(self._delete, _rows_of_pieces(head))]

    def _delete(self, key: Item) -> Write:
        return Write("Delete", key, only_if.ANYHOW, table=self.table)

    def _put_new(self, key: Item, contents: Item, **more: Any) -> Write:
        return put_row(self.table, key, only_if.NO_SUCH_ROW, contents, names=_NAMES, **more)

    def is_pending(self, head: UnitRecord) -> Write:
        return self._write("ConditionCheck", head.unit, _mine(), values={":rev": number(head.rev)})

    def read_keys(self, head: UnitRecord) -> list[Get]:
        return [Get(self.table, key) for key in _rows_of_keys(head)]

    def put_keys(self, head: UnitRecord, piece: bytes) -> Write:
        return self._put_new(keys_key(head, head.keys - 1), {"data": {"B": piece}})

    def add_keys(self, head: UnitRecord) -> Write:
        """Note one more row of keys in its head, together with that row, which is new."""
        return self._change(head, "SET #keys = :keys", keys=number(head.keys))

    def announce(self, head: UnitRecord) -> Write:
        """Note in its head how many rows of what it writes there will be."""
        return self._change(head, "SET pieces = :pieces", pieces=number(head.pieces))

    def commit_with_writes(self, head: UnitRecord, now_ms: int) -> Write:
        """The deciding write of a head that did not hold what its unit writes before."""
        made = self.commit(head, now_ms)
        if head.pieces:
            return made
        return replace(
            made, update=f"{made.update}, writes = :writes", values={**made.values, ":writes": {"B": head.inline}}
        )

    def renew(self, head: UnitRecord, lease_until_ms: int) -> Write:
        """A longer lease; two that are sent may arrive in any order."""
        lease = number(lease_until_ms)
        return self._change(head, "SET #lease = :lease", only_if.LEASE_ENDS_BEFORE, lease=lease)

    def commit(self, head: UnitRecord, now_ms: int) -> Write:
        return self._change(head, "SET #state = :committed, finalMs = :now", now=number(now_ms))

    def roll_back_expired(self, head: UnitRecord, now: Moment) -> Write:
        """Decide that a unit whose lease has ended is rolled back, if its lease is as it was seen."""
        return self.roll_back(head.unit, now.latest_ms, lease_seen_ms=head.lease_until_ms)

    def roll_back(
        self,
        unit: str,
        now_ms: int,
        *,
        by: str | None = None,
        lease_seen_ms: int | None = None,
        owner: str | None = None,
    ) -> Write:
        """The other deciding write; with a lease, only if that was not renewed; with an owner, only if it has that."""
        conditions, values = [only_if.HEAD_IS_PENDING], {":now": number(now_ms)}
        update = "SET #state = :rolled_back, finalMs = :now"
        if by is not None:
            update += ", #by = :by"
            values[":by"] = {"S": by}
        if lease_seen_ms is not None:
            conditions.append(only_if.LEASE_AS_I_SAW)
            values[":seen_lease"] = number(lease_seen_ms)
        if owner is not None:
            conditions.append(only_if.OWNER_AS_ASKED)
            values[":owner"] = {"S": owner}
        return self._write("Update", unit, every(*conditions), update=update, values=values)

    def close(self, head: UnitRecord, now_ms: int) -> Write:
        """Close a record of which every item is finished; it may be deleted once none of its rows is left.

        It requires the end that was seen: a process that is suspended for more than a day finds no record, or, if its
        unit was suspended as long, one that was made again, of which items are not finished.
        """
        removed = [_WRITES] if head.is_saved else []
        update = "SET closed = :yes"
        if not head.has_rows:
            update, removed = f"{update}, #ttl = :until", [*removed, "#open"]
        update += _removing(removed)
        values = {":yes": {"BOOL": True}, ":until": _until(head, now_ms), ":seen_final": number(head.final_ms)}
        return self._write("Update", head.unit, only_if.ENDED_AS_I_SAW, update=update, values=values)

    def forget(self, head: UnitRecord, now_ms: int) -> Write:
        """Let a closed record be deleted by time to live: none of its rows is left."""
        values = {":until": _until(head, now_ms)}
        update = f"SET #ttl = :until{_removing(['#open'])}"
        return self._write("Update", head.unit, only_if.HEAD_IS_CLOSED, update=update, values=values)

    # Of corrections.

    def read_correction(self, unit: str, correction: str) -> Get:
        return Get(self.table, correction_key(unit, correction))

    def keep_correction(self, head: UnitRecord, correction: str, row: Item, entry: Entry, now_ms: int) -> Write:
        """Keep who has corrected an item, and what the unit would have written; time to live deletes it."""
        pieces = packed([entry]).pieces
        # What fits into no row was never one item's: it is larger than DynamoDB allows.
        data: Item = {"data": {"B": pieces[0]}} if len(pieces) == 1 else {}
        when = {"atMs": number(now_ms), TIME_TO_LIVE: expires_at(now_ms, CORRECTION_IS_KEPT_S)}
        return self._put_new(correction_key(head.unit, correction), {**row, **when, **data})

    # Of saved units.

    def save(self, head: UnitRecord, seen: UnitRecord | None) -> Write:
        """Save a unit for the first time, or again by its coordinator, unless another one has resumed it since."""
        if seen is None:
            return self._write("Put", head.unit, only_if.NO_SUCH_ROW, item=_row(head))
        return self._write("Put", head.unit, _mine(), item=_row(head), values={":rev": number(seen.rev)})

    def put_saved_piece(self, head: UnitRecord, at: int, piece: bytes, tries: int) -> Write:
        """Write a row of what it has read and stated, before the head that names it; time to live deletes it.

        Args:
            tries: how many times its coordinator has tried to save it: a try that failed may have left other rows.
        """
        contents: Item = {"data": {"B": piece}, "try": number(tries), TIME_TO_LIVE: rows_expire_at(head)}
        names, values = {**_NAMES, "#try": "try"}, {":try": number(tries)}
        only = only_if.NOT_WRITTEN_SINCE_THIS_TRY
        return put_row(self.table, piece_key(head, at), only, contents, names=names, values=values)

    def claim(self, head: UnitRecord, coordinator: str) -> Write:
        """A coordinator resumes it: no earlier one can commit or save it from now on."""
        update = "SET #rev = :next, #coordinator = :coordinator"
        return self._change(head, update, next=number(head.rev + 1), coordinator={"S": coordinator})

    def end_saved(self, head: UnitRecord, state: RecordState, now_ms: int, kept: Item = NOTHING) -> Write:
        """End it by its coordinator: it has marked nothing under its own id, so it is closed at once.

        Args:
            kept: the attributes that keep its result.
        """
        update = "SET #state = :ended, finalMs = :now, closed = :yes"
        values: Item = {"ended": {"S": state}, "now": number(now_ms), "yes": {"BOOL": True}}
        for name, value in kept.items():
            update, values = f"{update}, #{name} = :{name}", {**values, name: value}
        removed = [_WRITES]
        if head.pieces == 0:
            update, values = f"{update}, #ttl = :until", {**values, "until": _until(head, now_ms)}
            removed.append("#open")
        return self._change(head, update + _removing(removed), **values)

    def _change(self, head: UnitRecord, update: str, *conditions: str, **values: Any) -> Write:
        """Change a pending head that is still this coordinator's; the values are those of the placeholders."""
        given = {":rev": number(head.rev)} | {f":{name}": value for name, value in values.items()}
        return self._write("Update", head.unit, every(_mine(), *conditions), update=update, values=given)

    def _write(self, operation: Any, unit: str, condition: str, **more: Any) -> Write:
        if condition not in _OF_KNOWN_HEADS:
            # Some processes write a head that they have not read.
            condition = every(only_if.KNOWN_FORMAT, condition)
        values = {**_STATES, **FORMAT_VALUES, **more.pop("values", {})}
        names = {**_NAMES, **FORMAT_NAMES, "#by": "by", "#ttl": TIME_TO_LIVE, "#keys": "keys", "#owner": "owner"}
        names |= {"#open": OPEN, f"#{RESULT}": RESULT, f"#{NUMBERED}": NUMBERED}
        return Write(operation, head_key(unit), condition, names=names, values=values, table=self.table, **more)


def _row(head: UnitRecord) -> Item:
    item: dict[str, Any] = {
        **head.open_key,
        **STAMP,
        "state": {"S": "pending"},
        "rev": number(head.rev),
        "born": number(head.born_ms),
        "leaseUntilMs": number(head.lease_until_ms),
        "attempt": {"S": head.attempt},
        "pieces": number(head.pieces),
    }
    if head.pieces == 0:
        item["writes"] = {"B": head.inline}
    if head.keys:
        item["keys"] = number(head.keys)
    if head.coordinator is not None:
        item["coordinator"] = {"S": head.coordinator}
    if head.owner is not None:
        item["owner"] = {"S": head.owner}
    if head.steps:
        item["steps"] = {"BS": sorted(head.steps)}
    if head.prefix is not None:
        item["prefix"] = {"S": head.prefix}
    return item


def is_open(row: Item | None) -> bool:
    """Whether a head is still needed: it has not been closed, or rows beside it are left."""
    return row is not None and OPEN in row


def _removing(names: Sequence[str]) -> str:
    return f" REMOVE {', '.join(names)}" if names else ""


def _until(head: UnitRecord, now_ms: int) -> Mapping[str, str]:
    return expires_at(now_ms, SAVED_IS_KEPT_S if head.is_saved else CLOSED_IS_KEPT_S)


def _mine() -> str:
    return every(only_if.HEAD_IS_PENDING, only_if.REV_AS_I_SAW)


def is_renewed(reply: Reply, lease_until_ms: int) -> bool:
    """Whether a unit has a lease until then: by this reply to a renewal, or by an earlier or a later one."""
    if reply.applied or reply.item is None:
        return reply.applied
    found = UnitRecord.of(reply.item)
    return found.state == "pending" and found.lease_until_ms >= lease_until_ms


def ended(row: Item | None, unit: str) -> TicketLockError:
    """Why a write to a unit's head was refused: its condition is that the unit is pending, and this coordinator's."""
    if row is None:
        return UnitForgotten(f"the unit {unit} was ended by another process, and its record is gone")
    head = UnitRecord.of(row)
    if head.state != "rolledBack":
        committed = ", and committed it" if head.state == "committed" else ""
        return UnitChanged(
            f"another process has resumed the unit {unit} since{committed}; nothing of this object was written"
        )
    why = ", by an operator or because its lease had ended"
    if head.by is not None:
        why = f" by the unit {head.by}, which is older"
    elif head.is_saved:
        owner = "" if head.owner is None else f", or its owner {head.owner!r} had ended"
        why = f": by a `rollback`, or because its `keep_for` was over, its name was used or given up{owner}"
    return UnitRolledBack(f"the unit {unit} was rolled back{why}", head.by)
