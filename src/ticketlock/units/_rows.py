"""The rows of the units table."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ticketlock.errors import InvalidUnitRequest
from ticketlock.units import _facts as only_if
from ticketlock.wire._attributes import TIME_TO_LIVE, Item, integer, number
from ticketlock.wire._item_requests import Get
from ticketlock.wire._requests import TimeCheck, Write

KEY = ("unit", "row")
RECEIPT_IS_KEPT_S = 30 * 24 * 3_600

NAME = "name#"
"""What precedes a name in place of a unit's id."""

_IS_COMMITTED = {"committed": True, "rolledBack": False}
_NAMES = {"#unit": "unit", "#state": "state", "#try": "try"}


def row_key(unit: str, row: str) -> Item:
    """The key of a row."""
    return {"unit": {"S": unit}, "row": {"S": row}}


def foreign_row(row: Item) -> InvalidUnitRequest:
    """The error for a row of the units table that no unit has written."""
    key = {name: dict(row[name]) for name in KEY}
    return InvalidUnitRequest("units", key, "a table of their own: no unit has written this row")


TIME_CHECK = TimeCheck(row_key("0", "0"))


@dataclass(frozen=True, slots=True)
class Receipt:
    """The receipt of a name.

    Attributes:
        is_committed: whether a unit of that name was committed.
        unit: the id of that unit; of a name that was given up, an id that no unit has.
        tries: how many times the name was given up.
    """

    is_committed: bool = False
    unit: str = ""
    tries: int = 0

    @classmethod
    def of(cls, row: Item | None) -> "Receipt":
        """The receipt in a row; if there is no row, the receipt of an unused name.

        Raises:
            InvalidUnitRequest: no unit has written the row.
        """
        if row is None:
            return NEVER_USED
        try:
            found = cls(_IS_COMMITTED[row["state"]["S"]], row["by"]["S"], integer(row["try"]))
        except (KeyError, ValueError) as error:
            raise foreign_row(row) from error
        if not found.is_committed and found.tries < 1:
            raise foreign_row(row)
        return found


NEVER_USED = Receipt()


def is_receipt_of(row: Item | None, unit: str) -> bool:
    """Whether this unit has written the row in a receipt's place, even if other writers have added to it."""
    return row is not None and row.get("by") == {"S": unit}


def receipt_key(name: str) -> Item:
    """The key of a name's receipt."""
    return row_key(f"{NAME}{name}", "receipt")


def read_receipt(table: str, name: str) -> Get:
    """Read a name's receipt."""
    return Get(table, receipt_key(name))


def put_receipt(table: str, name: str, before: Receipt, after: Receipt, now_ms: int) -> Write:
    """Commit a name, or give it up, if its receipt is unchanged."""
    key = receipt_key(name)
    condition, values = only_if.NO_SUCH_ROW, {}
    if before.tries:
        condition = only_if.RECEIPT_ROLLED_BACK_AS_I_SAW
        values = {":rolled_back": {"S": "rolledBack"}, ":seen_try": number(before.tries)}
    item: Mapping[str, Any] = {
        **key,
        "state": {"S": "committed" if after.is_committed else "rolledBack"},
        "by": {"S": after.unit},
        "try": number(after.tries),
        TIME_TO_LIVE: number(now_ms // 1_000 + RECEIPT_IS_KEPT_S),
    }
    return Write("Put", key, condition, item=item, names=_NAMES, values=values, table=table)
