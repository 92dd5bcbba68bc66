"""The number of the data format, which is in everything that units store.

A version reads what has its own number. It refuses a greater one by name, because a newer version wrote it. What has no
number, no unit has written.
"""

from collections.abc import Collection, Mapping
from typing import Any

from ticketlock.errors import InvalidUnitRequest, UnsupportedFormat
from ticketlock.wire._attributes import Item, integer, number

FORMAT = 1
FORMAT_ATTRIBUTE = "format"
STAMP: Item = {FORMAT_ATTRIBUTE: number(FORMAT)}
"""The attribute of each row."""
FORMAT_NAMES = {"#format": FORMAT_ATTRIBUTE}
FORMAT_VALUES: Item = {":format": number(FORMAT)}
"""The placeholders of conditions."""


Strange = InvalidUnitRequest | UnsupportedFormat
"""What a row raises that no unit has written, or a newer version."""


class Misshapen(ValueError):
    """The contents of a row are not of the shape that their format has."""


def foreign_row(row: Item, error: Exception | None = None) -> InvalidUnitRequest:
    """The error for a row of the units table that no unit has written.

    Args:
        error: what reading it raised.
    """
    key = {name: dict(row[name]) for name in ("unit", "row")}
    why = f", {error}" if isinstance(error, Misshapen) else ""
    return InvalidUnitRequest("units", key, f"a table of their own: no unit has written this row{why}")


def check_row(row: Item) -> None:
    """Refuse a row that a newer version wrote, or no unit.

    Raises:
        UnsupportedFormat: its format is greater.
        InvalidUnitRequest: no unit has written it.
    """
    try:
        stored = integer(row[FORMAT_ATTRIBUTE])
    except (KeyError, ValueError) as error:
        raise foreign_row(row, Misshapen(f"which has no number in {FORMAT_ATTRIBUTE!r}")) from error
    _check(stored, _told(row))
    if stored < FORMAT:
        raise foreign_row(row, Misshapen(f"whose {FORMAT_ATTRIBUTE!r} is {stored}"))


def check_contents(told: Any, row: Item) -> Mapping[str, Any]:
    """Refuse the contents of a row, packed JSON, if a newer version wrote them.

    Raises:
        UnsupportedFormat: their format is greater.
        Misshapen: no unit has written them.
    """
    if not isinstance(told, dict) or type(told.get(FORMAT_ATTRIBUTE)) is not int:
        raise Misshapen(f"which has no number in its {FORMAT_ATTRIBUTE!r}")
    _check(told[FORMAT_ATTRIBUTE], f"what is packed in {_told(row)}")
    if told[FORMAT_ATTRIBUTE] < FORMAT:
        raise Misshapen(f"whose {FORMAT_ATTRIBUTE!r} is {told[FORMAT_ATTRIBUTE]}")
    return {name: value for name, value in told.items() if name != FORMAT_ATTRIBUTE}


def fields(told: Any, known: Collection[str]) -> Mapping[str, Any]:
    """A stored mapping, if it has these names and no other one.

    Raises:
        Misshapen: names those that it lacks, and those that are not known.
    """
    if not isinstance(told, dict):
        raise Misshapen("in which a mapping is missing")
    lacks, more = sorted(set(known) - set(told)), sorted(set(told) - set(known))
    if lacks or more:
        wrong = [f"lacks {', '.join(map(repr, lacks))}"] if lacks else []
        wrong += [f"has {', '.join(map(repr, more))}, which this format does not have"] if more else []
        raise Misshapen(f"which {' and '.join(wrong)}")
    return told


def _check(stored: int, what: str) -> None:
    if stored > FORMAT:
        raise UnsupportedFormat(stored, FORMAT, what)


def _told(row: Item) -> str:
    unit, name = (str(row[key].get("S")) for key in ("unit", "row"))
    return f"the row {name!r} of {unit!r} in the units table"
