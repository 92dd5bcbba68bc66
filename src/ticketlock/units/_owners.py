"""The owners of saved units, for example executions of a workflow: the end of an owner rolls its units back.

The rows of an owner are one partition of the units table: one row for each unit that was saved under it, and one row
that says that it has ended. A save writes the former first, and then the head, in a transaction that requires that the
latter does not exist. The process that ends the owner first writes the latter and then reads the others. So every save
is either refused, even if it arrives late, or its row is found. If the row were written in the transaction of the head,
it could be applied after the check, and the end and its query could come in between.
"""

from collections.abc import Sequence

from ticketlock.errors import InvalidUnitRequest, TableError, UnsupportedFormat
from ticketlock.units import _facts as only_if
from ticketlock.units._batches import cut
from ticketlock.units._formats import FORMAT_NAMES, FORMAT_VALUES, STAMP, Strange, check_row
from ticketlock.units._heads import Head, Heads, rows_expire_at
from ticketlock.units._ids import is_id
from ticketlock.units._rows import RECEIPT_IS_KEPT_S, row_key
from ticketlock.wire._answers import Reply
from ticketlock.wire._attributes import TIME_TO_LIVE, Item, number
from ticketlock.wire._item_requests import MOST_TOGETHER, Query
from ticketlock.wire._requests import Attributes, ForkingSteps, Pause, Together, Write
from ticketlock.wire._table_time import Moment

OWNER = "owner#"
"""What precedes an owner in place of a unit's id."""

_ENDED = "ended"
_NAMES = {"#unit": "unit", "#ttl": TIME_TO_LIVE} | FORMAT_NAMES


def found_by_owner(table: str, head: Head, owner: str) -> Write:
    """The row of a unit in its owner's partition, written before its head: a query may see half of a transaction."""
    key, until = row_key(_partition(owner), head.unit), rows_expire_at(head)
    item: Item = {**key, **STAMP, TIME_TO_LIVE: until}
    values = {":until": until, **FORMAT_VALUES}
    return Write("Put", key, only_if.NO_ROW_THAT_STAYS_AS_LONG, item=item, names=_NAMES, values=values, table=table)


def owner_goes_on(table: str, owner: str) -> Write:
    """The check, beside the head of a saved unit, that its owner has not ended."""
    end = row_key(_partition(owner), _ENDED)
    return Write("ConditionCheck", end, only_if.NO_SUCH_ROW, names=_NAMES, table=table)


def end_owner(heads: Heads, owner: str) -> ForkingSteps[list[str]]:
    """Roll back the units that were saved under an owner, and refuse later saves.

    Returns:
        The units that this call has rolled back.

    Raises:
        UnsupportedFormat, InvalidUnitRequest: a newer version has written one of the records, or no unit; all others
            are rolled back.
        TableError: perhaps not all of them are rolled back; call it again.
    """
    now: Moment = (yield Pause(0)).now
    ended: Reply = yield _end(heads.table, owner, now)
    if ended.item is not None:
        check_row(ended.item)
    rolled_back, strange = list[str](), list[Strange]()
    after: Attributes | None = None
    while True:
        page: Reply = yield _saved(heads.table, owner, after)
        for rows in cut([row for row in page.items if row is not None], MOST_TOGETHER):
            rolled_back += yield from _roll_back(_units_in(rows, strange), heads, owner, page.now, strange)
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
    units: Sequence[str], heads: Heads, owner: str, now: Moment, strange: list[Strange]
) -> ForkingSteps[list[str]]:
    if not units:
        return []
    rolled_back: list[str] = []
    writes = tuple(heads.roll_back(unit, now.latest_ms, owner=owner) for unit in units)
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
    return row is not None and Head.of(row).state == "rolledBack" and repeated


def _end(table: str, owner: str, now: Moment) -> Write:
    """No unit is saved under it any more: from now on, also if an earlier end is about to be forgotten."""
    key, until = row_key(_partition(owner), _ENDED), number(now.latest_ms // 1_000 + RECEIPT_IS_KEPT_S)
    item: Item = {**key, **STAMP, TIME_TO_LIVE: until}
    values = {":until": until, **FORMAT_VALUES}
    return Write("Put", key, only_if.NO_ROW_THAT_STAYS_AS_LONG, item=item, names=_NAMES, values=values, table=table)


def _saved(table: str, owner: str, after: Attributes | None) -> Query:
    """A page of its rows, one for each unit that was ever saved under it."""
    return Query(table, "#unit = :owner", _NAMES, {":owner": {"S": _partition(owner)}}, after=after)


def _partition(owner: str) -> str:
    """The partition of an owner; no unit has such an id."""
    return f"{OWNER}{owner}"
