"""What the code writes to the table of locks, in the words of LockTable.tla and Permits.tla."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from property.specs.recorded import Action, Request
from property.specs.tla import Conditions

from ticketlock._expressions._values import Attributes
from ticketlock.locks import _conditions as only_if
from ticketlock.locks._items import _HOLDER, _SESSION, _TOKEN, LockName, holder_attribute
from ticketlock.locks._modes import MAX_HOLDERS
from ticketlock.locks._writes import _KEPT_UNTIL_S, LOCK_EXPIRES

_NAMES = {text: name for name, text in vars(only_if).items() if isinstance(text, str) and name.isupper()}
_EXPIRED = {only_if.expired_holder_as_seen(position): "EXPIRED_HOLDER_AS_SEEN" for position in range(MAX_HOLDERS)}
_CONDITIONS = Conditions(_NAMES | _EXPIRED)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The actions of a request: on the lock item, on a row, on a session."""

    lock: Action | None
    row: Action | None
    session: Action | None


def _integer(value: Mapping[str, Any] | None) -> int | None:
    return None if value is None else int(value["N"])


def steps_of(history: Iterable[Request], name: LockName) -> Iterable[dict[str, Any]]:
    """The steps of a history, one for each request to one lock."""
    for each in history:
        parts = _parts(each, name)
        if parts.lock is not None or parts.row is not None:
            yield _normal(_step(each, parts))


def _parts(request: Request, name: LockName) -> _Parts:
    found: dict[str, Action] = {}
    for action in request.actions:
        pk, sk = action.item[1]
        where = "session" if str(pk).startswith(_SESSION) else "lock" if str(sk).endswith("/") else "row"
        assert where not in found, "one item of each kind"
        assert where == "session" or pk == name.entity, "one lock"
        found[where] = action
    return _Parts(found.get("lock"), found.get("row"), found.get("session"))


# Items.


def _lock_item(item: Attributes | None) -> Any:
    if item is None:
        return None
    holders = {
        _owner(attribute): {
            "token": int(item[_TOKEN + attribute.removeprefix(_HOLDER)]["N"]),
            "ends": int(held["M"]["leaseUntilMs"]["N"]),
            "shared": "shared" in held["M"],
            "suspended": "suspended" in held["M"],
            "invocation": _integer(held["M"].get("invocationEndsMs")) or 0,
        }
        for attribute, held in item.items()
        if attribute.startswith(_HOLDER)
    }
    kept, were_kept = (_integer(item.get(each)) for each in ("permitsKeptUntil", "permitsWereKeptUntil"))
    return {
        "format": int(item["format"]["N"]),
        "issued": int(item["issued"]["N"]),
        "waiting": int(item["waiting"]["N"]),
        "at": int(item["ticketAtMs"]["N"]) or -1,
        "voidUpTo": int(item["voidUpTo"]["N"]),
        "token": int(item["fencingToken"]["N"]),
        "permits": int(item["permits"]["N"]),
        "held": int(item["held"]["N"]),
        "heldShared": int(item["heldShared"]["N"]),
        "holders": holders,
        "since": _integer(item.get("permitsSinceMs")),
        "ofUsers": _integer(item.get("permitsOfUsers")),
        "keptUntil": _kept(kept),
        "wereKeptUntil": _kept(were_kept),
    }


def _kept(second: int | None) -> Any:
    return None if not second else second - _KEPT_UNTIL_S + 1


def _owner(attribute: str) -> str:
    return attribute.partition(":")[2]


def _owner_of(owner: str) -> str:
    return _owner(holder_attribute(owner))


def _rows(ticket: int, item: Attributes | None) -> dict[int, Any]:
    if item is None:
        return {}
    row = {"owner": _owner_of(item["owner"]["S"]), "ends": int(item["leaseUntilMs"]["N"])}
    return {ticket: row}


# Requests.


_UNUSED: Mapping[str, Any] = {
    "op": "",
    "owner": "",
    "ticket": 0,
    "token": 0,
    "issued": 0,
    "permits": 0,
    "seen": frozenset(),
    "now": 0,
    "ends": 0,
    "count": 0,
    "heals": False,
    "shared": False,
    "last": None,
    "lastToken": 0,
    "invocation": 0,
    "passes": frozenset(),
}


def _ticket(sort_key: Any) -> int:
    return int(str(sort_key).rpartition("/")[2])


def _step(request: Request, parts: _Parts) -> dict[str, Any]:
    ticket = 0 if parts.row is None else _ticket(parts.row.item[1][1])
    stated = frozenset[str]()
    if parts.lock is not None:
        existing = parts.lock.condition.removeprefix(only_if.NO_LOCK_ITEM).removeprefix(" OR (")
        is_created = existing != parts.lock.condition
        stated |= _CONDITIONS.named_in(existing.removesuffix(")") if is_created else existing)
    if parts.row is not None:
        stated |= _CONDITIONS.named_in(parts.row.condition)
    if parts.lock is None:
        lock_before = lock_after = None
    else:
        lock_before, lock_after = _lock_item(parts.lock.before), _lock_item(parts.lock.after)
    row_before = row_after = None
    if parts.row is not None:
        row_before, row_after = parts.row.before, parts.row.after
    values = {} if parts.lock is None else parts.lock.values
    request_told = _request(parts, ticket, stated)
    return {
        "modes": _modes(parts, request_told),
        "request": request_told,
        "number": _number(parts.lock),
        "requires": stated,
        "found": {"lock": lock_before, "rows": _rows(ticket, row_before)},
        "left": {"lock": lock_after, "rows": _rows(ticket, row_after)},
        "isApplied": request.is_applied,
        "othersAllow": parts.session is None or not parts.session.is_refused,
        "epoch": _integer(values.get(":epoch")) or 0,
    }


_OF_ROWS = {"Update": ("ExtendRow", "ShortenRow"), "Delete": ("DeleteMyRow", "DeleteStaleRow")}


def _operation(parts: _Parts, stated: frozenset[str]) -> str:
    lock, row = parts.lock, parts.row
    if lock is None:
        assert row is not None
        if row.kind == "Put":
            return "PutRow"
        of_mine, of_others = _OF_ROWS[row.kind]
        return of_others if ":seen_owner" in row.values else of_mine
    sets, removed = lock.update
    if "#last" in lock.names:
        return "HandOver"
    if "#me = :holder" in sets:
        if row is not None:
            return "TakeMyTurn"
        if ":seen_token" not in lock.values:
            return "TakeAtOnce"
        # Their updates may be the same.
        return "TakePastTheCount" if "NO_TICKET_SINCE_I_READ" in stated else "TakeOver"
    if row is not None:
        return {"Put": "JoinTogether", "Delete": "Withdraw"}[row.kind]
    if "issued = if_not_exists(issued, :epoch) + :one" in sets:
        return "MintTicket" if "ticketAtMs = :now" in sets else "MintTicketBehind"
    if "#me.suspended = :one" in sets:
        return "Suspend"
    if "#me.suspended" in removed:
        return "Resume"
    if "#me.leaseUntilMs = :lease_until" in sets:
        return "Renew" if ":now" in lock.values else "WriteWholeLease"
    if "#me" in removed:
        return "FreeSuspended" if "I_AM_SUSPENDED" in stated else "Release"
    if "permitsKeptUntil = :kept_until" in sets:
        return "SetLimit"
    if "permitsKeptUntil" in removed:
        return "UnsetLimit"
    if "data" in lock.names.values():
        return "SetData"
    if set(sets) == {LOCK_EXPIRES}:
        return "Outlive"
    raise AssertionError(f"no request of LockTable: {lock.asked}")


def _modes(parts: _Parts, request: Mapping[str, Any]) -> Mapping[str, bool]:
    """By owner, whether it shares the lock, as far as the request says it."""
    owner, shares = request["owner"], request["shared"]
    if request["op"] == "HandOver":
        assert parts.lock is not None
        sets, _ = parts.lock.update
        is_same = not any(each.startswith("heldShared = heldShared ") for each in sets)
        return {owner: shares, request["last"]: shares == is_same}
    return {owner: shares} if request["op"] in _WITH_A_MODE else {}


_WITH_A_MODE = {
    "TakeAtOnce",
    "TakeOver",
    "TakePastTheCount",
    "TakeMyTurn",
    "PutRow",
    "JoinTogether",
    "Release",
    "FreeSuspended",
}


_FIELDS = {
    ":now": "now",
    ":lease_until": "ends",
    ":issued": "issued",
    ":seen_permits": "permits",
    ":token": "token",
    ":seen_token": "token",
    ":invocation_ends": "invocation",
}
"""By placeholder of an update of the lock item, the field that its value is. A release to the next in line has both
tokens: its own, and below the one that was read.
"""


def _request(parts: _Parts, ticket: int, stated: frozenset[str]) -> dict[str, Any]:
    made = {**_UNUSED, "op": _operation(parts, stated), "ticket": ticket}
    if parts.row is not None:
        made |= _of_row(parts.row)
    if parts.lock is not None:
        made |= _of_lock(parts.lock, made["op"])
    if "MY_LEASE_IS_AS_I_SAW" in stated and parts.lock is not None:
        made["seen"] = frozenset({(made["owner"], int(parts.lock.values[":seen_lease"]["N"]))})
    return made


def _of_row(row: Action) -> dict[str, Any]:
    """What a write of a row says."""
    if row.kind == "Put":
        item = row.asked["Item"]
        ends = int(item["leaseUntilMs"]["N"])
        return {"owner": _owner_of(item["owner"]["S"]), "ends": ends, "shared": "shared" in item}
    extended = {"ends": int(row.values[":lease_until"]["N"])} if row.kind == "Update" else {}
    if ":seen_owner" in row.values:
        owner = _owner_of(row.values[":seen_owner"]["S"])
        return {"owner": owner, "seen": frozenset({(owner, int(row.values[":seen_lease"]["N"]))}), **extended}
    return {"owner": _owner_of(row.values[":me"]["S"]), **extended}


def _of_lock(lock: Action, operation: str) -> dict[str, Any]:
    """What an update of the lock item says."""
    sets, _ = lock.update
    values, names = lock.values, lock.names
    made: dict[str, Any] = {field: int(values[name]["N"]) for name, field in _FIELDS.items() if name in values}
    for name in ("#me", "#my_token"):
        if name in names:
            made["owner"] = _owner(names[name])
    if ":holder" in values:
        holder = values[":holder"]["M"]
        made |= {"ends": int(holder["leaseUntilMs"]["N"]), "shared": "shared" in holder}
    expired = [name.removeprefix("#") for name in names if f":{name.removeprefix('#')}" in values and name[1] == "x"]
    if expired:
        made["seen"] = frozenset((_owner(names[f"#{each}"]), int(values[f":{each}"]["N"])) for each in expired)
    made["heals"] = "waiting = :zero" in sets
    if operation == "HandOver":
        made |= {"last": _owner(names["#last"]), "lastToken": int(values[":token"]["N"])}
    elif operation in ("Release", "FreeSuspended"):
        made["shared"] = "heldShared = heldShared - :one" in sets
    elif operation in ("TakeMyTurn", "JoinTogether"):
        made["count"] = int(any(clause.startswith("waiting = waiting ") for clause in sets))
    return made


_NO_NUMBER: Mapping[str, Any] = {
    "op": "none",
    "asks": 0,
    "since": None,
    "limit": 0,
    "isFirst": False,
    "keptUntil": None,
    "wereKeptUntil": None,
}


def _number(lock: Action | None) -> Mapping[str, Any]:
    """What a request does with the number of permits."""
    if lock is None:
        return _NO_NUMBER
    sets, removed = lock.update
    values = lock.values
    if "permitsKeptUntil = :kept_until" in sets or "permitsKeptUntil" in removed:
        is_set = "permitsKeptUntil = :kept_until" in sets
        # Which of the two it has read, as the condition says it.
        read = "wereKeptUntil" if "permitsWereKeptUntil = :" in lock.condition else "keptUntil"
        seen = _kept(_integer(values.get(":seen_kept_until"))) if ":seen_kept_until" in lock.condition else None
        limit = 0 if "permits = permitsOfUsers" in sets else int(values[":limit"]["N"])
        made = {**_NO_NUMBER, "op": "SetLimit" if is_set else "UnsetLimit", "limit": limit, read: seen}
        return {**made, "isFirst": lock.condition == only_if.NO_LOCK_ITEM}
    if ":permits" not in values:
        return _NO_NUMBER
    asks, since = int(values[":permits"]["N"]), _integer(values.get(":since"))
    if "permits = :permits" in sets:
        operation = "LATER"
    elif "permitsOfUsers = :permits" in sets:
        operation = "LATER_BENEATH_A_LIMIT"
    elif any(each.startswith("permitsSinceMs = if_not_exists") for each in sets):
        operation = "OF_NO_TIME"
    else:
        operation = "OWN" if since is None else "LEFT"
    return {**_NO_NUMBER, "op": operation, "asks": asks, "since": since, "isFirst": True}


# The same for all histories that differ only in times, numbers and names.

_TIMES = {"at", "ends", "now"}
_NUMBERS = {"issued", "voidUpTo", "token", "ticket", "lastToken", "epoch"}
_OWNERS = {"owner", "last"}


def _normal(step: dict[str, Any]) -> dict[str, Any]:
    """The step with small numbers and short names.

    The order of times stays, and that of tickets and tokens, and which of those follows which. A name says whether its
    owner shares the lock.
    """
    found: dict[str, set[int]] = {"time": set(), "number": set(), "since": set(), "invocation": set()}
    _renamed(step, lambda kind, value: found[kind].add(value) if kind in found else None)
    times = {at: rank for rank, at in enumerate(sorted(found["time"] - {-1, 0}), 1)} | {-1: -1, 0: 0}
    since = {at: rank for rank, at in enumerate(sorted(found["since"] - {0}), 1)} | {0: 0}
    invocations = {at: rank for rank, at in enumerate(sorted(found["invocation"] - {0}), 1)} | {0: 0}
    numbers, last, small = {0: 0}, 0, 0
    for number in sorted(found["number"] - {0}):
        small += min(number - last, 2)
        numbers[number], last = small, number
    renamed: Mapping[str, Mapping[Any, Any]] = {
        "time": times,
        "number": numbers,
        "since": since,
        "invocation": invocations,
        "owner": _names(step),
    }
    normal: dict[str, Any] = _renamed(step, lambda kind, value: renamed[kind][value])
    del normal["modes"]
    return normal


def _renamed(value: Any, rename: Callable[[str, Any], Any], key: str = "") -> Any:
    """The value, with all times, numbers and owners in it renamed by their kind."""
    if value is None:
        return None
    if key == "seen":
        return frozenset((rename("owner", owner), rename("time", ends)) for owner, ends in value)
    if isinstance(value, dict):
        of_keys = {"holders": "owner", "rows": "number", "modes": "owner"}.get(key)
        return {
            (name if of_keys is None else rename(of_keys, name)): _renamed(each, rename, "" if of_keys else name)
            for name, each in value.items()
        }
    kind = "time" if key in _TIMES else "number" if key in _NUMBERS else "owner" if key in _OWNERS else key
    return rename(kind, value) if kind in ("time", "number", "owner", "since", "invocation") else value


def _names(step: dict[str, Any]) -> Mapping[str, str]:
    modes: dict[str, bool] = {}
    for lock in (step["found"]["lock"], step["left"]["lock"]):
        if lock is not None:
            modes |= {owner: held["shared"] for owner, held in lock["holders"].items()} | modes
    modes = {**step["modes"], **modes}
    _renamed(step, lambda kind, value: modes.setdefault(value, False) if kind == "owner" else None)
    places, named = {True: 0, False: 0}, {}
    for owner, shares in modes.items():
        places[shares] += 1
        named[owner] = f"{'s' if shares else 'x'}{places[shares]}"
    return named
