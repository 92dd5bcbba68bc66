"""The rows of the units table, and the number of their format.

Everything that units store has the number. A version reads what has its own number, and refuses a greater one by name:
a newer version wrote it. A row without a number was written by no unit.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ticketlock.errors import InvalidUnitRequest, UnsupportedFormat
from ticketlock.units._records import _conditions as only_if
from ticketlock.wire import TIME_TO_LIVE, Get, Item, TimeCheck, Write, integer, number

FORMAT = 1
FORMAT_ATTRIBUTE = "format"
STAMP: Item = {FORMAT_ATTRIBUTE: number(FORMAT)}
"""The attribute of each row."""
FORMAT_NAMES = {"#format": FORMAT_ATTRIBUTE}
FORMAT_VALUES: Item = {":format": number(FORMAT)}
"""The placeholders of conditions."""

Strange = InvalidUnitRequest | UnsupportedFormat
"""What a row raises that no unit has written, or a newer version."""

KEY = ("unit", "row")
OPEN = "open"
"""The index of the heads that are still needed, and the attribute of those that is its key: the unit's id."""
OPEN_KEY = (OPEN, *KEY)
OPEN_INDEX: Mapping[str, Any] = {
    "IndexName": OPEN,
    "KeySchema": [{"AttributeName": OPEN, "KeyType": "HASH"}],
    "Projection": {"ProjectionType": "KEYS_ONLY"},
}
"""As in CreateTable. Only the keys are projected, so that a change of a head costs nothing in the index."""
OWNER_IS_KEPT_S = 30 * 24 * 3_600
"""Longer than the 14 days in which an execution may be redriven."""

NAME = "name#"
"""What precedes a name in place of a unit's id."""

_IS_COMMITTED = {"committed": True, "rolledBack": False}
_NAMES = {"#unit": "unit", "#state": "state", "#by": "by"}


class Misshapen(ValueError):
    """The contents of a row are not of the shape that their format has."""


def foreign_row(row: Item, error: Exception | None = None) -> InvalidUnitRequest:
    key = {name: dict(row[name]) for name in ("unit", "row")}
    why = f", {error}" if isinstance(error, Misshapen) else ""
    return InvalidUnitRequest("units", key, f"a table of their own: no unit has written this row{why}")


def check_row(row: Item) -> None:
    """Refuse a row that a newer version wrote, or no unit."""
    try:
        stored = integer(row[FORMAT_ATTRIBUTE])
    except (KeyError, ValueError) as error:
        raise foreign_row(row, Misshapen(f"which has no number in {FORMAT_ATTRIBUTE!r}")) from error
    check_number(stored, _told(row))
    if stored < FORMAT:
        raise foreign_row(row, Misshapen(f"whose {FORMAT_ATTRIBUTE!r} is {stored}"))


def check_contents(encoded: Any, row: Item) -> Mapping[str, Any]:
    """Refuse the contents of a row, packed JSON, if a newer version wrote them.

    Raises:
        UnsupportedFormat: their format is greater.
        Misshapen: no unit has written them.
    """
    if not isinstance(encoded, dict) or type(encoded.get(FORMAT_ATTRIBUTE)) is not int:
        raise Misshapen(f"which has no number in its {FORMAT_ATTRIBUTE!r}")
    check_number(encoded[FORMAT_ATTRIBUTE], f"what is packed in {_told(row)}")
    if encoded[FORMAT_ATTRIBUTE] < FORMAT:
        raise Misshapen(f"whose {FORMAT_ATTRIBUTE!r} is {encoded[FORMAT_ATTRIBUTE]}")
    return {name: value for name, value in encoded.items() if name != FORMAT_ATTRIBUTE}


def fields(encoded: Any, known: Collection[str]) -> Mapping[str, Any]:
    """A stored mapping, if it has these names and no other one."""
    if not isinstance(encoded, dict):
        raise Misshapen("in which a mapping is missing")
    lacks, more = sorted(set(known) - set(encoded)), sorted(set(encoded) - set(known))
    if lacks or more:
        wrong = [f"lacks {', '.join(map(repr, lacks))}"] if lacks else []
        wrong += [f"has {', '.join(map(repr, more))}, which this format does not have"] if more else []
        raise Misshapen(f"which {' and '.join(wrong)}")
    return encoded


def check_number(stored: int, what: str, known: int = FORMAT) -> None:
    """Refuse the format of a newer version."""
    if stored > known:
        raise UnsupportedFormat(stored, known, what)


def _told(row: Item) -> str:
    unit, name = (str(row[key].get("S")) for key in ("unit", "row"))
    return f"the row {name!r} of {unit!r} in the units table"


def row_key(unit: str, row: str) -> Item:
    return {"unit": {"S": unit}, "row": {"S": row}}


def put_row(table: str, key: Item, condition: str, contents: Item, **more: Any) -> Write:
    """Write a row with the number of its format."""
    return Write("Put", key, condition, item={**key, **STAMP, **contents}, table=table, **more)


def expires_at(now_ms: int, kept_s: int) -> Mapping[str, str]:
    """When time to live may delete a row, as an attribute."""
    return number(now_ms // 1_000 + kept_s)


TIME_CHECK = TimeCheck(row_key("0", "0"))


@dataclass(frozen=True, slots=True)
class Receipt:
    """The receipt of a name.

    Attributes:
        is_committed: whether a unit of that name was committed.
        unit: the id of that unit; of a name that was given up, an id of its own; empty for a name that is not used.
        row: in which it was found, with the result of that unit.
    """

    is_committed: bool = False
    unit: str = ""
    row: Item = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, row: Item | None) -> "Receipt":
        """The receipt in a row; if there is no row, the receipt of an unused name."""
        if row is None:
            return NEVER_USED
        check_row(row)
        try:
            found = cls(_IS_COMMITTED[row["state"]["S"]], row["by"]["S"], row)
        except KeyError as error:
            raise foreign_row(row) from error
        if not found.unit:
            raise foreign_row(row)
        return found

    def still_lets(self, found: "Receipt") -> bool:
        """Whether a unit that has seen this receipt may commit where it finds that one.

        Time to live deletes the receipt of a name that was given up: then the name is as free as before.
        """
        return found == self or (found == NEVER_USED and not self.is_committed)


NEVER_USED = Receipt()
NOTHING: Item = {}
"""What a unit without a result keeps."""


def is_receipt_of(row: Item | None, unit: str) -> bool:
    """Whether this unit has written the row in a receipt's place, even if other writers have added to it."""
    return row is not None and row.get("by") == {"S": unit}


def read_receipt(table: str, name: str) -> Get:
    return Get(table, _receipt_key(name))


def put_receipt(
    table: str, name: str, before: Receipt, after: Receipt, now_ms: int, kept_s: int, kept: Item = NOTHING
) -> Write:
    """Commit a name, or give it up, if its receipt is unchanged, or was given up and is deleted since.

    Args:
        kept: the attributes that keep the result of its unit.
    """
    condition, values = only_if.NO_SUCH_ROW, {}
    if before.unit:
        condition = only_if.RECEIPT_GIVEN_UP_AS_I_SAW
        values = {":rolled_back": {"S": "rolledBack"}, ":seen_by": {"S": before.unit}}
    contents: Item = {
        "state": {"S": "committed" if after.is_committed else "rolledBack"},
        "by": {"S": after.unit},
        TIME_TO_LIVE: expires_at(now_ms, kept_s),
        **kept,
    }
    return put_row(table, _receipt_key(name), condition, contents, names=_NAMES, values=values)


def _receipt_key(name: str) -> Item:
    return row_key(f"{NAME}{name}", "receipt")
