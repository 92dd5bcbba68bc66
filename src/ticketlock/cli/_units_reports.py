"""Units as they are recorded, in JSON and as tables for people."""

import base64
import json
from collections.abc import Sequence
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.text import Text

from ticketlock.cli._wording import Columns, Ending, lease, plain, span
from ticketlock.units import FoundMark, OpenUnit, Outcome
from ticketlock.units._operators import Inspected, Shown
from ticketlock.units._packing import Entry
from ticketlock.units._values import PYTHON
from ticketlock.wire._actions import Item

UnitWord = Literal["pending", "saved", "expired", "committed", "rolled back", "closed"]


def unit_json(unit: OpenUnit) -> dict[str, Any]:
    """A unit of a list. Ages and remaining leases are by table time."""
    return {
        "unit": unit.unit,
        "state": state_of(unit),
        "outcome": unit.state.value,
        "ageSeconds": unit.age_s,
        "leaseEndsInSeconds": unit.lease_ends_in_s,
        "endedForSeconds": unit.ended_for_s,
        "itemCount": unit.items,
        "rolledBackBy": unit.rolled_back_by,
        "isSaved": unit.is_saved,
        "owner": unit.owner,
    }


def shown_json(shown: Shown, *, values: bool) -> dict[str, Any]:
    """A unit with its items."""
    items = None if shown.items is None else [_inspected_json(each, values=values) for each in shown.items]
    return {**unit_json(shown.unit), "items": items}


def entry_json(entry: Entry) -> dict[str, Any]:
    """The item's table, and its key in the form of the low-level API."""
    return {"table": entry.table, "key": dict(entry.key)}


def mark_json(found: FoundMark) -> dict[str, Any]:
    """A mark that a repair has found."""
    return {
        "key": PYTHON.item("key", found.key),
        "unit": found.unit,
        "record": found.record.value,
        "action": found.action,
        "why": found.why,
    }


def json_of(value: Any, indent: int | None = 2) -> str:
    """JSON for programs; bytes are in base64, as in the service's own JSON."""
    return json.dumps(value, indent=indent, ensure_ascii=False, default=_base64)


def state_of(unit: OpenUnit) -> UnitWord:
    """The state of a unit, in the word that tables and JSON have for it.

    ``pending`` or ``saved`` while its lease runs, then ``expired``; ``committed`` or ``rolled back`` until all of its
    items are finished, then ``closed``.
    """
    if unit.is_closed:
        return "closed"
    if unit.state is not Outcome.PENDING:
        return "committed" if unit.state is Outcome.COMMITTED else "rolled back"
    if unit.lease_ends_in_s is not None and unit.lease_ends_in_s <= 0:
        return "expired"
    return "saved" if unit.is_saved else "pending"


def state_with_time(unit: OpenUnit) -> str:
    """The state with its time: ``pending, lease 48 s left``."""
    state, lease_ms = state_of(unit), _ms(unit.lease_ends_in_s or 0)
    if state == "expired":
        return lease(lease_ms) + (", was saved" if unit.is_saved else "")
    if unit.state is Outcome.PENDING:
        return f"{state}, lease {lease(lease_ms)}"
    ended = f"{unit.state.value} {span(_ms(unit.ended_for_s or 0))} ago"
    by = f" by {plain(unit.rolled_back_by)}" if unit.rolled_back_by else ""
    return f"{state}, {ended}{by}" if state == "closed" else f"{ended}{by}"


def items_told(number: int | None) -> str:
    """How many items; ``? items`` if the rows that list them are missing."""
    if number is None:
        return "? items"
    return "1 item" if number == 1 else f"{number} items"


def item_told(entry: Entry) -> str:
    """A table and a key, for people."""
    return f"{plain(entry.table)} {_key(entry.key)}"


def units_table(units: Sequence[OpenUnit]) -> Columns:
    """Units, for people."""
    made = Columns(("unit", "state"), ("age", "lease", "items"), ("rolled back by",))
    for unit in units:
        made.add(
            unit.unit,
            state_of(unit),
            span(_ms(unit.age_s)),
            _lease(unit),
            "?" if unit.items is None else str(unit.items),
            Ending(plain(unit.rolled_back_by or "-")),
        )
    return made


def shown_table(shown: Shown, *, values: bool) -> RenderableType:
    """A unit with its items, for people."""
    title = Text(shown.unit.unit, style="bold")
    owner = "" if shown.unit.owner is None else f"; owner {plain(shown.unit.owner)}"
    facts = Text(f"{state_with_time(shown.unit)}; begun {span(_ms(shown.unit.age_s))} ago{owner}")
    if shown.items is None:
        return Group(title, facts, Text("The rows with what it writes are missing."))
    if not shown.items:
        is_hidden = shown.unit.is_saved and shown.unit.state is Outcome.PENDING
        return Group(title, facts, Text("What a saved unit writes is not listed." if is_hidden else "No items."))
    made = Columns(("table", "item", "writes", "mark"), (), ("sets", "removes") if values else ())
    for each in shown.items:
        entry = each.entry
        cells = [plain(entry.table), _key(entry.key), _writes(entry), each.standing.value]
        if values:
            cells += [plain(json_of(dict(entry.assigned), None)), plain(", ".join(entry.removed))]
        made.add(*cells)
    return Group(title, facts, made)


def marks_table(found: Sequence[FoundMark], *, write: bool) -> Columns:
    """The marks that a repair has found, for people."""
    made = Columns(("item", "unit", "record", "was" if write else "would be"), ())
    for each in found:
        made.add(_key(PYTHON.item("key", each.key)), each.unit or "-", each.record.value, each.action)
    return made


def _inspected_json(inspected: Inspected, *, values: bool) -> dict[str, Any]:
    entry = inspected.entry
    told = {**entry_json(entry), "writes": _writes(entry), "mark": inspected.standing.value}
    return {**told, "sets": dict(entry.assigned), "removes": list(entry.removed)} if values else told


def _writes(entry: Entry) -> str:
    # The item of an "unmark" was only read: ending the unit removes its mark.
    return "nothing" if entry.kind == "unmark" else entry.kind


def _lease(unit: OpenUnit) -> str:
    return "-" if unit.lease_ends_in_s is None else lease(_ms(unit.lease_ends_in_s))


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)


def _key(key: Item) -> str:
    parts = ((name, content) for name, value in key.items() for content in value.values())
    return ", ".join(f"{plain(name)}={plain(_text(content))}" for name, content in parts)


def _text(content: Any) -> str:
    return _base64(content) if isinstance(content, bytes) else str(content)


def _base64(value: Any) -> str:
    return base64.b64encode(bytes(value)).decode()
