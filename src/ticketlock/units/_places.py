"""How far a sweep has come that ran out of time: a row in the units table for each part of the table."""

from typing import Any

from ticketlock.errors import InvalidUnitRequest, UnsupportedFormat
from ticketlock.units import _facts as only_if
from ticketlock.units._formats import FORMAT_NAMES, FORMAT_VALUES, check_row
from ticketlock.units._rows import KEY, row_key
from ticketlock.wire._attributes import TIME_TO_LIVE, Item, number
from ticketlock.wire._item_requests import Get
from ticketlock.wire._requests import Attributes, Write

SWEEP = "sweep"
"""Used in place of a unit's id; no id of a unit has this form."""

_IS_KEPT_S = 24 * 3_600
_NAMES = {"#unit": "unit", "#state": "state", "#after": "after", "#ttl": TIME_TO_LIVE} | FORMAT_NAMES


class PlaceOfPart:
    """The requests about how far one part was swept.

    The row is a hint: if a sweep reads an old one, it sweeps some units twice, or leaves some to the next sweep.

    Args:
        table: the units table.
        part: its number, from 0 on, and how many parts there are.
    """

    def __init__(self, table: str, part: tuple[int, int]) -> None:
        self._table = table
        self._key = row_key(SWEEP, "part#{}of{}".format(*part))

    def read(self) -> Get:
        """Read it."""
        return Get(self._table, self._key)

    def after(self, row: Item | None) -> Attributes | None:
        """The key after which to continue; None for the beginning, also if no process of this format has written it."""
        if row is None:
            return None
        try:
            check_row(row)
        except (UnsupportedFormat, InvalidUnitRequest) as error:
            _log.warning("this sweep begins at the beginning: %s", error)
            return None
        found: Any = row.get("after", {}).get("M", {})
        is_ours = set(found) == set(KEY) and all(set(value) == {"S"} for value in found.values())
        return found if is_ours else None

    def keep(self, after: Attributes, now_ms: int) -> Write:
        """Let the next sweep continue after this key."""
        values: Item = {**FORMAT_VALUES, ":after": {"M": after}, ":until": number(now_ms // 1_000 + _IS_KEPT_S)}
        update = "SET #format = :format, #after = :after, #ttl = :until"
        return Write(
            "Update", self._key, only_if.NO_HEAD, update=update, names=_NAMES, values=values, table=self._table
        )

    def forget(self) -> Write:
        """Let the next sweep begin at the beginning."""
        return Write("Delete", self._key, only_if.ROW_IS_THERE, names=_NAMES, table=self._table)
