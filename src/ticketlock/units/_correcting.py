"""An operator's way out if DynamoDB refuses the new value of a committed unit's item: another value, or the old one.

Everything else that a committed unit has written stays. A correction is one transaction: the record still says that the
unit is committed and not closed, the item still has the unit's mark, and a row of the record keeps who changed what. So
either the item was finished by then, by any process, and nothing is corrected; or the mark is gone with the correction,
and no finisher that read the record before can write the unit's value any more.

A correction has a version of its own, as a write beside units has: no version ever stands for two values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ticketlock._expressions._values import Item as Attributes
from ticketlock._expressions._values import canonical_item
from ticketlock.errors import InvalidUnitRequest, TableRefused
from ticketlock.units import _facts as only_if
from ticketlock.units._finishing import finish, is_for_contents
from ticketlock.units._heads import Head, Heads
from ticketlock.units._marks import INSERT, Mark, Marks
from ticketlock.units._meeting import Marked, read_committed
from ticketlock.units._packing import Entry
from ticketlock.units._tables import UnitTable
from ticketlock.units._work import VERSION_BYTES
from ticketlock.wire._answers import Reply
from ticketlock.wire._attributes import Item
from ticketlock.wire._conditions import every
from ticketlock.wire._item_requests import Get
from ticketlock.wire._requests import ForkingSteps, Pause, TransactWrite, Write
from ticketlock.wire._table_time import Moment

Done = Literal["dropped", "replaced", "finished"]


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
        """What it does to the item."""
        return "dropped" if self.image is None else "replaced"


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An item of a committed unit that is not finished.

    Attributes:
        head: the unit's record.
        entry: what the unit writes.
        mark: the unit's, in the item.
        image: the item's new value, as readers at ``COMMITTED`` see it; None if the unit deletes it.
    """

    head: Head
    entry: Entry
    mark: Mark
    image: Attributes | None


def unfinished(heads: Heads, marks: Marks, unit: str, table: UnitTable, key: Attributes) -> ForkingSteps[Unfinished]:
    """Read an item of a committed unit that is not finished, and what the unit writes there.

    Raises:
        InvalidUnitRequest: there is none: says why.
        TableError: a table could not be used.
    """
    reply: Reply = yield heads.read(unit)
    if reply.item is None:
        raise InvalidUnitRequest("unit", unit, f"a unit with a record in {heads.table}")
    head = Head.of(reply.item)
    if head.state != "committed" or head.is_closed or head.is_saved:
        raise InvalidUnitRequest("unit", unit, "a unit that is committed, and has items that are not finished")
    found: Reply = yield Get(table.name, key)
    mark = None if found.item is None else marks.mark_of(found.item)
    entry = None
    if mark is not None and mark.unit == unit:
        entries = yield from read_committed(heads, head, [Marked(table.name, key, table.key_names[0], mark)])
        entry = None if entries is None else entries[0]
    if found.item is None or mark is None or entry is None:
        allowed = f"the key of an item of {table.name} that the unit {unit} writes, and has not finished"
        raise InvalidUnitRequest("key", dict(key), allowed)
    before = None if mark.kind == INSERT else canonical_item(marks.without(found.item))
    return Unfinished(head, entry, mark, entry.applied_to(before))


def correct(
    heads: Heads, marks: Marks, unit: str, table: UnitTable, key: Attributes, correction: Correction
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
        _check(correction.image, table, key, marks)
    while True:
        try:
            left = yield from unfinished(heads, marks, unit, table, key)
        except InvalidUnitRequest:
            kept: Reply = yield heads.read_correction(unit, correction.id)
            if kept.item is None:
                raise
            # An earlier attempt of the transaction was applied.
            return correction.action
        if left.entry.kind == "unmark" and correction.image is not None:
            raise InvalidUnitRequest("item", None, "nothing: the unit has only read this item, so drop its mark")
        try:
            finished: Reply = yield finish(left.entry, unit, marks)
        except TableRefused as refused:
            if not is_for_contents(refused):
                raise
            yield from _corrects(left, refused, heads, marks, correction)
        else:
            if finished.applied:
                return "finished"


def _corrects(
    left: Unfinished, refused: TableRefused, heads: Heads, marks: Marks, correction: Correction
) -> ForkingSteps[None]:
    now: Moment = (yield Pause(0)).now
    row: dict[str, Any] = {
        "table": {"S": left.entry.table},
        "action": {"S": correction.action},
        "by": {"S": correction.by},
        "why": {"S": correction.why},
        "refusal": {"S": str(refused)},
    }
    check = heads.is_not_finished(left.head)
    kept = heads.keep_correction(left.head, correction.id, row, left.entry, now.latest_ms)
    # If it is refused, the item, or the unit, is finished by now: the next look says so.
    yield TransactWrite((check, kept, _ends(left, correction, marks)))


def _ends(left: Unfinished, correction: Correction, marks: Marks) -> Write:
    entry, image = left.entry, correction.image
    names = {**marks.names((entry.key_name,)), "#unit": "unit"}
    values: Item = {":unit": {"S": left.head.unit}}
    only = only_if.MARKED_BY_THE_UNIT
    if image is not None:
        whole: Item = {**image, marks.version: {"S": correction.id}}
        return Write("Put", entry.key, only, item=whole, names=names, values=values, table=entry.table)
    if left.mark.kind == INSERT:
        only = every(only, only_if.ONLY_HOLDS_A_PLACE)
        names, values = {**names, "#kind": "kind"}, {**values, ":insert": {"S": INSERT}}
        return Write("Delete", entry.key, only, names=names, values=values, table=entry.table)
    update, values = "SET #version = :version REMOVE #mark", {**values, ":version": {"S": correction.id}}
    return Write("Update", entry.key, only, update=update, names=names, values=values, table=entry.table)


def _check(image: Mapping[str, Any], table: UnitTable, key: Attributes, marks: Marks) -> None:
    if table.key_of("item", dict(image)) != key:
        raise InvalidUnitRequest("item", dict(image), f"an item with the key {dict(key)}")
    marks.check_free_of_ours("item", image)
    table.check_item(dict(image), "statement", VERSION_BYTES)
