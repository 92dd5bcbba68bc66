"""Units as they are recorded, in JSON and as tables for people."""

import base64
import json
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ticketlock.cli._wording import Columns, Ending
from ticketlock.report import ListedUnit, lease, plain, span, state_of
from ticketlock.units import FoundMark, OpenUnit, Outcome
from ticketlock.units._records import Entry, Receipt
from ticketlock.units._recovery import Corrected, Inspected, Shown
from ticketlock.units._words import PYTHON
from ticketlock.wire import Item


def unit_json(listed: ListedUnit) -> dict[str, Any]:
    """A unit of a list. Ages and remaining leases are by table time."""
    return {**_unit_json(listed.unit), "unfinishedCount": listed.unfinished}


def _unit_json(unit: OpenUnit) -> dict[str, Any]:
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


def shown_json(shown: Shown, corrected: Sequence[Corrected], *, values: bool) -> dict[str, Any]:
    """A unit with its items and its corrections."""
    items = None if shown.items is None else [_inspected_json(each, values=values) for each in shown.items]
    corrections = [
        {"atMs": each.at_ms, "by": each.by, "why": each.why, "table": each.table, "action": each.action}
        for each in corrected
    ]
    return {**_unit_json(shown.unit), "items": items, "corrections": corrections}


def receipt_json(name: str, receipt: Receipt, *, values: bool) -> dict[str, Any]:
    """The receipt of a name; the result as it is stored: JSON is a text."""
    outcome = Outcome.COMMITTED if receipt.is_committed else Outcome.ROLLED_BACK
    told = {"name": name, "outcome": outcome.value, "unit": receipt.unit if receipt.is_committed else None}
    return {**told, "result": receipt.row.get("result")} if values else told


def receipt_told(told: Mapping[str, Any]) -> str:
    """The same, for people."""
    if told["unit"] is None:
        return "given up: no unit of this name was committed"
    result = told.get("result")
    shown = "" if result is None else f"; result {plain(result.get('S') or json_of(result, None))}"
    return f"committed, by the unit {told['unit']}{shown}"


def to_correct(unit: str, entry: Entry) -> tuple[str, str]:
    """The command that prints what a unit would write to an item that DynamoDB refuses; that which corrects it."""
    # In ASCII, and so without anything that a terminal would not show as it is.
    key = json.dumps(dict(entry.key), default=_base64)
    words, options = f"{unit} {shlex.quote(entry.table)} {shlex.quote(key)}", "--item item.json --why '...'"
    # A table's name may begin with '-'.
    item, corrected = words, f"{words} {options}"
    if entry.table.startswith("-"):
        item, corrected = f"-- {words}", f"{options} -- {words}"
    return f"ticketlock units correct {item} > item.json", f"ticketlock units correct {corrected}"


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


def item_told(entry: Entry) -> str:
    """A table and a key, for people."""
    return f"{plain(entry.table)} {_key(entry.key)}"


def units_table(units: Sequence[ListedUnit]) -> Columns:
    """Units, for people."""
    # Most have none, and columns are scarce.
    by = ("rolled back by",) if any(each.unit.rolled_back_by for each in units) else ()
    made = Columns(("unit", "state"), ("age", "lease", "items", "unfinished"), by)
    for listed in units:
        unit = listed.unit
        made.add(
            unit.unit,
            state_of(unit),
            span(_ms(unit.age_s)),
            _lease(unit),
            "?" if unit.items is None else str(unit.items),
            listed.unfinished_told,
            *([Ending(plain(unit.rolled_back_by or "-"))] if by else []),
        )
    return made


def shown_table(shown: Shown, corrected: Sequence[Corrected], *, values: bool) -> RenderableType:
    """A unit with its items and its corrections, for people."""
    title = Text(shown.unit.unit, style="bold")
    owner = "" if shown.unit.owner is None else f"; owner {plain(shown.unit.owner)}"
    facts = Text(f"{state_with_time(shown.unit)}; begun {span(_ms(shown.unit.age_s))} ago{owner}")
    parts = [title, facts, _items(shown, values=values)]
    return Group(*parts, *([_corrections(corrected)] if corrected else []))


def _items(shown: Shown, *, values: bool) -> RenderableType:
    if shown.items is None:
        return Text("The rows with what it writes are missing.")
    if not shown.items:
        is_hidden = shown.unit.is_saved and shown.unit.state is Outcome.PENDING
        return Text("What a saved unit writes is not listed." if is_hidden else "No items.")
    made = Columns(("table", "item", "writes", "mark"), (), ("sets", "removes") if values else ())
    for each in shown.items:
        entry = each.entry
        cells = [plain(entry.table), _key(entry.key), _writes(entry), each.standing.value]
        if values:
            cells += [plain(json_of(dict(entry.assigned), None)), plain(", ".join(entry.removed))]
        made.add(*cells)
    return made


def _corrections(corrected: Sequence[Corrected]) -> Columns:
    made = Columns(("corrected", "by"), (), ("why", "table", "action"))
    for each in corrected:
        when = datetime.fromtimestamp(each.at_ms / 1_000, UTC)
        made.add(f"{when:%Y-%m-%dT%H:%M:%SZ}", plain(each.by), plain(each.why or "-"), plain(each.table), each.action)
    return made


def marks_table(found: Sequence[FoundMark], *, write: bool) -> Columns:
    """The marks that a repair has found, for people."""
    made = Columns(("item", "unit", "record", "was" if write else "would be"), ())
    for each in found:
        made.add(_key(PYTHON.item("key", each.key)), each.unit or "-", each.record.value, each.action)
    return made


def _inspected_json(inspected: Inspected, *, values: bool) -> dict[str, Any]:
    entry = inspected.entry
    shown = {**entry_json(entry), "writes": _writes(entry), "mark": inspected.standing.value}
    return {**shown, "sets": dict(entry.assigned), "removes": list(entry.removed)} if values else shown


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
