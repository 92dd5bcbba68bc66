"""What the code writes to the tables of units, in the words of UnitTables.tla."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from property.specs.recorded import Action, Request
from property.specs.tla import Conditions, ModelValue
from property.units.calls import LOCKS, MARKS, UNITS

from ticketlock._expressions._values import Attributes
from ticketlock.units._records import _conditions as only_if
from ticketlock.units._records._marks import INSERT
from ticketlock.units._records._record import is_id
from ticketlock.units._recovery._saved import OWNER
from ticketlock.units._statements._work import GUARD
from ticketlock.wire._requests import every

_CONDITIONS = Conditions(
    {text: name for name, text in vars(only_if).items() if isinstance(text, str) and name.isupper() and text}
)
_ABSENT, _UNVERSIONED, _FOREIGN = (ModelValue(name) for name in ("Absent", "Unversioned", "Foreign"))
_BLIND = every(only_if.UNMARKED, only_if.OF_UNITS_ALONE)


def steps_of(history: Iterable[Request]) -> Iterable[dict[str, Any]]:
    """The steps of a history: one for each request to an item of users, a head, a receipt or a row of saved units."""
    for each in history:
        if (step := _step(each)) is not None:
            yield _normal(step)


def _integer(value: Mapping[str, Any] | None) -> int:
    return 0 if value is None else int(value["N"])


# Items and rows.


def _kind(action: Action) -> str:
    """What it writes: an item of users, or a kind of row; empty for what the specification does not tell."""
    table, (unit, name) = action.item
    if table != UNITS or name == GUARD:
        return "" if table == LOCKS else "item"
    if name in ("head", "receipt"):
        return str(name)
    if str(unit).startswith(OWNER):
        return "owner" if action.kind == "Put" else ""
    if str(name).startswith("k#") and action.kind == "Put":
        return "keys"
    return "saved" if ":try" in action.values else ""


def _item(stored: Attributes | None) -> dict[str, Any]:
    if stored is None:
        return {"version": _ABSENT, "mark": None}
    mark = stored.get(MARKS.mark)
    told = None if mark is None else {"unit": mark["M"]["unit"]["S"], "kind": mark["M"]["kind"]["S"]}
    if MARKS.version in stored:
        version = stored[MARKS.version].get("S", "")
        return {"version": version if is_id(str(version)) else _FOREIGN, "mark": told}
    is_placeholder = told is not None and told["kind"] == INSERT
    return {"version": _ABSENT if is_placeholder else _UNVERSIONED, "mark": told}


def _head(stored: Attributes | None) -> dict[str, Any] | None:
    if stored is None:
        return None
    return {
        "state": stored["state"]["S"] if "state" in stored else "no state",
        "lease": _integer(stored.get("leaseUntilMs")),
        "owner": stored["owner"]["S"] if "owner" in stored else None,
        "final": _integer(stored.get("finalMs")),
        "isOver": False,
        "isClosed": "closed" in stored,
        "format": _integer(stored.get("format")),
    }


def _saved(stored: Attributes | None) -> dict[str, Any] | None:
    if stored is None:
        return None
    return {
        "state": stored["state"]["S"],
        "rev": _integer(stored["rev"]),
        "coordinator": stored["coordinator"]["S"],
        "format": _integer(stored["format"]),
    }


def _receipt(stored: Attributes | None) -> dict[str, Any] | None:
    return None if stored is None else {"state": stored["state"]["S"], "by": stored["by"]["S"]}


# Requests.

_UNUSED: Mapping[str, Any] = {
    "op": "",
    "unit": "",
    "keys": frozenset(),
    "seen": {},
    "writes": {},
    "kind": None,
    "name": None,
    "receipt": None,
    "isResumed": False,
    "rev": 0,
    "lease": 0,
    "owner": None,
    "final": 0,
    "number": 0,
    "until": 0,
}


def _step(request: Request) -> dict[str, Any] | None:
    parts: dict[str, list[Action]] = {}
    for action in request.actions:
        parts.setdefault(_kind(action), []).append(action)
    others = parts.pop("", [])
    if not parts:
        return None
    if any(_has_condition_of_users(action) and action.is_refused for action in parts.get("item", ())):
        return None
    made = dict(_UNUSED)
    for action in parts.get("item", ()):
        _note_item(made, action)
    heads: dict[bool, Action] = {}
    for action in parts.get("head", ()):
        heads[_note_head(made, action)] = action
    for action in parts.get("receipt", ()):
        _note_receipt(made, action)
    for action in parts.get("keys", ()):
        # The first one comes with the head.
        made["number"] = int(str(action.item[1][1]).partition("#")[2]) + 1 if made["op"] == "AddKeys" else 0
    for action in parts.get("saved", ()):
        made |= {"op": "PutSavedRow", "number": _integer(action.values[":try"])}
    for action in parts.get("owner", ()):
        made |= {"op": "PutRowOfOwner", "until": _integer(action.asked["Item"]["expiresAt"])}
    if made["unit"] == "":
        made["unit"] = request.token or "nobody"
    named = [_CONDITIONS.named_in(_of_ours(action)) for each in parts.values() for action in each]
    return {
        "request": made,
        "requires": frozenset().union(*named),
        "found": _state(parts, heads, made, lambda action: action.before),
        "left": _state(parts, heads, made, lambda action: action.after),
        "isApplied": request.is_applied,
        "othersAllow": not any(action.is_refused for action in others),
    }


def _state(
    parts: Mapping[str, list[Action]],
    heads: Mapping[bool, Action],
    made: Mapping[str, Any],
    of: Callable[[Action], Attributes | None],
) -> dict[str, Any]:
    return {
        "item": {_key(action): _item(of(action)) for action in parts.get("item", ())},
        "head": {made["unit"]: _head(of(heads[False])) if False in heads else None},
        "saved": _saved(of(heads[True])) if True in heads else None,
        "receipt": dict.fromkeys((made["name"],), _receipt(of(parts["receipt"][0]))) if "receipt" in parts else {},
        "row": {
            "keys": sum(made["number"] - (of(action) is None) for action in parts.get("keys", ()) if made["number"]),
            "saved": sum(_integer((of(action) or {}).get("try")) for action in parts.get("saved", ())),
            "until": sum(_integer((of(action) or {}).get("expiresAt")) for action in parts.get("owner", ())),
        },
    }


def _key(action: Action) -> str:
    return "/".join(map(str, (action.item[0], *action.item[1])))


def _has_condition_of_users(action: Action) -> bool:
    return action.condition.startswith(_BLIND) and action.condition != _BLIND


def _of_ours(action: Action) -> str:
    return _BLIND if action.condition.startswith(_BLIND) else action.condition


def _note_item(made: dict[str, Any], action: Action) -> None:
    """Add what a request does with one item of users."""
    made["keys"] |= {_key(action)}
    if only_if.MARKED_BY_THE_UNIT in action.condition:
        _note_end_of_mark(made, action)
        return
    made["seen"] = {**made["seen"], _key(action): _seen(action)}
    item, values = action.asked.get("Item", {}), action.values
    mark = item.get(MARKS.mark) or values.get(":mark")
    unit = item.get(MARKS.version) or values.get(":unit")
    if mark is not None:
        made |= {"op": "Mark", "unit": mark["M"]["unit"]["S"]}
        if mark["M"]["kind"]["S"] == "write":
            made["writes"] = {**made["writes"], _key(action): "put"}
        return
    # Beside the decision of a marked commit there are checks alone, and that is noted later.
    made["op"] = "CommitNatively"
    if action.kind != "ConditionCheck":
        made["writes"] = {**made["writes"], _key(action): _written(action)}
    if unit is not None:
        made["unit"] = unit["S"]


def _seen(action: Action) -> str | None:
    """The version that a write or a check of an item requires, as its condition says it."""
    if action.condition.startswith(_BLIND):
        return None
    if ":seen" in action.values:
        return str(action.values[":seen"]["S"])
    return _UNVERSIONED if "attribute_exists(#key)" in action.condition else _ABSENT


def _note_end_of_mark(made: dict[str, Any], action: Action) -> None:
    """Add a new value, the removal of a mark, or a correction; of several together, all are new values."""
    item, values, key = action.asked.get("Item", {}), action.values, _key(action)
    sets, removed = action.update
    made["unit"] = values[":unit"]["S"]
    version = item.get(MARKS.version) or values.get(":version") or values[":unit"]
    is_placeholder = only_if.ONLY_HOLDS_A_PLACE in action.condition
    if version != values[":unit"]:
        made |= {"op": "Correct", "number": version["S"]}
    elif is_placeholder or (not sets and removed):
        made |= {"op": made["op"] or "Unmark", "kind": INSERT if is_placeholder else None}
    else:
        made |= {"op": "Finish", "writes": {**made["writes"], key: _written(action)}}


def _written(action: Action) -> str:
    return "delete" if action.kind == "Delete" else "put"


def _note_head(made: dict[str, Any], action: Action) -> bool:
    """Add what a request does with a head. Returns whether it is that of a saved unit."""
    sets, _ = action.update
    values = action.values
    if ":ended" in values or "#rev = :next" in sets or "coordinator" in action.asked.get("Item", {}):
        made["rev"] = _integer(values.get(":rev"))
        if "#rev = :next" in sets:
            made |= {"op": "Claim", "unit": values[":coordinator"]["S"]}
        elif action.kind == "Put":
            made |= {"op": "Save", "unit": action.asked["Item"]["coordinator"]["S"]}
        elif values[":ended"] == {"S": "rolledBack"}:
            made["op"] = "EndSaved"
        else:
            made |= {"op": made["op"] or "CommitNatively", "isResumed": True}
        return True
    assert values.get(":rev", {"N": "0"}) == {"N": "0"}, "only the revision of a saved unit changes"
    made["unit"] = action.asked.get("Item", action.asked.get("Key", {}))["unit"]["S"]
    if action.kind == "Put":
        made |= {"op": "Open", "lease": _integer(action.asked["Item"]["leaseUntilMs"])}
    elif action.kind == "ConditionCheck":
        made["op"] = "MarkWithHead"
    elif "#state = :committed" in sets:
        made |= {"op": "Commit", "final": _integer(values[":now"])}
    elif "#state = :rolled_back" in sets:
        of_owner = "RollBackOfOwner" if ":owner" in values else "RollBack"
        made["op"] = "RollBackExpired" if ":seen_lease" in values else of_owner
        made |= {"lease": _integer(values.get(":seen_lease")), "owner": values.get(":owner", {}).get("S")}
        made["final"] = _integer(values[":now"])
    elif "#lease = :lease" in sets:
        made |= {"op": "Renew", "lease": _integer(values[":lease"])}
    elif "closed = :yes" in sets:
        made |= {"op": "Close", "final": _integer(values[":seen_final"])}
    elif sets == ["#ttl = :until"]:
        made["op"] = "Forget"
    else:
        made["op"] = {"#keys = :keys": "AddKeys", "pieces = :pieces": "NoteRows"}[sets[0]]
    return False


def _note_receipt(made: dict[str, Any], action: Action) -> None:
    """Add what a request does with the receipt of a name."""
    item, values = action.asked["Item"], action.values
    made["name"] = item["unit"]["S"]
    if ":seen_by" in values:
        made["receipt"] = {"state": "rolledBack", "by": values[":seen_by"]["S"]}
    if item["state"] == {"S": "rolledBack"}:
        made |= {"op": "GiveUpName", "number": item["by"]["S"]}
    elif made["op"] in ("", "CommitNatively"):
        made |= {"op": "CommitNatively", "unit": item["by"]["S"]}


# The same for all histories that differ only in ids, keys and times.

_OF_UNITS = {"unit", "by", "coordinator", "version", "number"}
_MAPPINGS = {"item": ("key", ""), "seen": ("key", "version"), "writes": ("key", "kind"), "head": ("unit", "")}
"""Where a mapping has keys of this kind, and what its values are."""


def _normal(step: dict[str, Any]) -> dict[str, Any]:
    """The step with numbers for units, in the order of their ids, short keys and names, and small times."""
    found: dict[str, set[Any]] = {"unit": set(), "key": set(), "time": {0}, "text": set()}
    _renamed(step, lambda kind, value: found[kind].add(value))
    units = {unit: number for number, unit in enumerate(sorted(found["unit"]), 1)}
    keys = {key: f"k{number}" for number, key in enumerate(sorted(found["key"]))}
    times = {time: rank for rank, time in enumerate(sorted(found["time"]))}
    texts = {text: f"t{number}" for number, text in enumerate(sorted(found["text"]))}
    renamed: Mapping[str, Mapping[Any, Any]] = {"unit": units, "key": keys, "time": times, "text": texts}
    normal: dict[str, Any] = _renamed(step, lambda kind, value: renamed[kind][value])
    return normal


def _renamed(value: Any, rename: Callable[[str, Any], Any], at: str = "") -> Any:
    """The value, with all units, keys and times in it renamed by their kind."""
    if value is None or isinstance(value, bool | ModelValue) or at in ("requires", "op", "kind", "state"):
        return value
    if isinstance(value, frozenset):
        return frozenset(rename("key", key) for key in value)
    if isinstance(value, dict):
        # A request has one receipt, and a table has them by name.
        is_by_name = at == "receipt" and "by" not in value
        of_keys, of_values = ("text", "") if is_by_name else _MAPPINGS.get(at, (None, None))
        return {
            (name if of_keys is None else rename(of_keys, name)): _renamed(
                each, rename, name if of_values is None else of_values
            )
            for name, each in value.items()
        }
    if at in _OF_UNITS and isinstance(value, str):
        return rename("unit", value)
    if at in ("lease", "until", "final"):
        return rename("time", value)
    return rename("text", value) if at in ("name", "owner") else value
