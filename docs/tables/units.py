"""The tables of units that repeat the code: in docs/units.md, docs/units-table.md and docs/permissions.md."""

import inspect
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ticketlock_cdk.units import access

from ticketlock import errors as of_ticketlock
from ticketlock.units import Isolation, Units
from ticketlock.units._provision import UNITS_TABLE
from ticketlock.units._records._rows import OPEN
from ticketlock.wire._actions import TIME_TO_LIVE

_STORED = Path(__file__).parents[2] / "tests/units/golden"

# What the reader does about each error of units.
_READ = "read the items"
_AGAIN = "run it again"
_WHAT_TO_DO = {
    "ConditionFailed": "you decide by its `item`: the unit may continue, unless a commit has raised it",
    "UnitConflict": f"{_AGAIN}; see `keys`",
    "UnitContended": _AGAIN,
    "UnitRolledBack": f"{_AGAIN}; see `by`",
    "UnitTooLarge": "write less, or leave out `engine`",
    "ItemTooLarge": "write less",
    "InvalidUnitRequest": "correct what it names. If an update's attribute is missing, add a condition, or use `ADD`",
    "CommittedUnfinished": "do not run it again: [correct](#what-dynamodb-refuses-after-the-decision) `keys`",
    "UnitFinished": "begin another; it says how this one ended",
    "UnitChanged": "leave the unit to that process, or resume it again",
    "UnitForgotten": _READ,
}
_OTHER_ERRORS = {
    "LockLost": f"acquire it, and {_AGAIN}",
    "OutcomeUnknown": f"`units.outcome` if it has a name, `units.resume` if it was saved; otherwise {_READ}",
    "UnsupportedFormat": "upgrade",
    "TableError": f"correct what it names, or {_AGAIN}",
}

# Where the first sentence of a docstring says too little here, or too much.
_WHEN = {
    "UnitConflict": "What the unit has read has changed, or a guarded partition that it queried has a new item",
    "UnitRolledBack": "Another unit or process rolled it back; its name was used or given up; its owner has ended; a "
    "request got no answer",
    "UnitTooLarge": 'Too many items, or `engine="native"` and more than one request',
    "ItemTooLarge": "More than DynamoDB allows",
    "CommittedUnfinished": "It is committed, and DynamoDB refuses some of the new values",
    "UnitFinished": "It was used after its end, or its block ended normally after an [interrupt](#interrupts) or a "
    "caught `UnitConflict`",
    "UnitChanged": "Another process has resumed the saved unit since",
    "UnitForgotten": "Another process has ended it, and its record is gone",
    "OutcomeUnknown": "No answer to the commit, after all retries",
    "LockLost": "The lock that the unit is under is no longer held",
    "UnsupportedFormat": "A newer version wrote what it met",
}
_WHEN_TO_TAKE = {
    "SERIALIZABLE": "by default: what you write depends on what you read",
    "READ_LOCK": "the code is costly to run again: others wait for you",
    "COMMITTED": "you only read, or a value may have changed by the commit",
    "UNCOMMITTED": "a slightly old value is good enough",
}

_ROWS = {
    "head": ("a unit that is committed by marks, or saved", "a day after it was closed; if saved, 30"),
    "k#": ("keys that a unit with read locks marks", "when it is closed"),
    "w#": ("writes that do not fit into the head", "when it is closed; if saved, by TTL"),
    "c#": ("an operator's correction of an item", "after 366 days"),
    "receipt": ("the outcome and result of `name#...`", "after 30 days, or `keep_names_for`"),
    "owned": ("a unit saved under `owner#...`", "a day after `keep_for`"),
    "ended": ("`owner#...` has ended", "30 days after the last `end_owner`"),
    "guard": ("partitions of a guarded table, `guard#...`", "never: up to 16,384 a table"),
    "part#": ("where a `sweep` stopped", "at its end, or after a day"),
}

_OPERATORS_RECORDS = tuple(each for each in access.RUN_UNITS if each != "dynamodb:DescribeTable")
_OPERATORS_ITEMS = tuple(
    f"dynamodb:{each}"
    for each in ("BatchGetItem", "DeleteItem", "DescribeTable", "GetItem", "PutItem", "Scan", "UpdateItem")
)
_ROLES = {
    "runs units": (access.RUN_UNITS, access.RUN_UNITS),
    "only reads, outside units": (access.READ_BESIDE_UNITS, access.READ_BESIDE_UNITS),
    "sweeps": (access.SWEEP_RECORDS, access.FINISH_ITEMS),
    "calls `units.end_owner`": (access.ROLL_BACK_SAVED, ()),
    "lists open units": ((*access.SHOW_OPEN_UNITS, "dynamodb:GetItem"), ()),
    "is `ticketlock units`": (_OPERATORS_RECORDS, _OPERATORS_ITEMS),
}
_LISTING = ("sweeps", "lists open units", "is `ticketlock units`")
_ON_THE_INDEX = dict.fromkeys(_LISTING, access.LIST_OPEN_UNITS)


def levels() -> str:
    """What a read sees at each level, and when to take it."""
    told = _attributes(Isolation)
    return _table(
        "level",
        "what a read sees",
        "when to take it",
        rows={f"`{each.name}`": (told[each.name], _WHEN_TO_TAKE[each.name]) for each in Isolation},
    )


def settings() -> str:
    """The arguments of ``Units`` and of its methods that begin units, with their defaults."""
    told = []
    for call in (Units, Units.begin, Units.transactional):
        given = [
            f"{each.name}={_code(each.default)}"
            for each in inspect.signature(call).parameters.values()
            if each.kind is each.KEYWORD_ONLY and each.name not in ("client", "clocks", "sleep")
        ]
        told.append(f"{call.__name__}({', '.join(given)})")
    return "\n".join(["```text", *told, "```"])


def errors() -> str:
    """The errors, when they are raised and what to do."""
    units = [name for name in of_ticketlock.__all__ if name != "UnitError" and _is_of_units(name)]
    assert set(units) == set(_WHAT_TO_DO), "say what to do about each error of units"
    return _table(
        "error",
        "when",
        "what to do",
        rows={
            f"`{name}`": (_WHEN.get(name) or _summary(getattr(of_ticketlock, name)), todo)
            for name, todo in (_WHAT_TO_DO | _OTHER_ERRORS).items()
        },
    )


def stored() -> str:
    """The rows of the units table, from the stored examples that every version must read."""
    seen = {
        _kind(row)
        for path in sorted(_STORED.glob("*.json"))
        for row in json.loads(path.read_text())["tables"].get("units", ())
    }
    assert _ROWS.keys() - seen <= {"owned", "ended"}, f"no example has such a row: {_ROWS.keys() - seen}"
    return _table(
        "`row`",
        "what it holds",
        "deleted",
        rows={
            f"`{kind}{'...' * kind.endswith('#')}`" if kind != "owned" else "a unit's id": told
            for kind, told in _ROWS.items()
        },
    )


def permissions() -> str:
    """The actions that each role needs, as the construct grants them."""
    return _table(
        "a process that",
        "on the units table",
        "on your tables",
        rows={
            role: (_actions(units) + _on_the_index(role), "the same" if data == units else _actions(data))
            for role, (units, data) in _ROLES.items()
        },
    )


def _on_the_index(role: str) -> str:
    actions = _ON_THE_INDEX.get(role)
    return "" if actions is None else f"; on its `index/{OPEN}` {_actions(actions)}"


def creation() -> str:
    """The commands that create the units table."""
    told: Mapping[str, Any] = UNITS_TABLE.definition("units")
    kinds = " ".join(_shorthand(each) for each in told["AttributeDefinitions"])
    keys = " ".join(_shorthand(each) for each in told["KeySchema"])
    return "\n".join(
        [
            "```sh",
            f"aws dynamodb create-table --table-name units --billing-mode {told['BillingMode']} \\",
            f"  --attribute-definitions {kinds} \\",
            f"  --key-schema {keys} \\",
            f"  --global-secondary-indexes '{json.dumps(told['GlobalSecondaryIndexes'])}' \\",
            "  --deletion-protection-enabled",
            "aws dynamodb wait table-exists --table-name units",
            "aws dynamodb update-time-to-live --table-name units \\",
            f"  --time-to-live-specification Enabled=true,AttributeName={TIME_TO_LIVE}",
            "```",
        ]
    )


def _shorthand(given: Mapping[str, str]) -> str:
    """As the AWS CLI takes it."""
    return ",".join(f"{name}={value}" for name, value in given.items())


def _is_of_units(name: str) -> bool:
    return issubclass(getattr(of_ticketlock, name), of_ticketlock.UnitError)


def _actions(given: tuple[str, ...]) -> str:
    return ", ".join(f"`{each.removeprefix('dynamodb:')}`" for each in given) or "-"


def _kind(row: Mapping[str, Any]) -> str:
    name: str = row["row"]["S"]
    if row["unit"]["S"].startswith("owner#") and name != "ended":
        return "owned"
    (kind,) = [each for each in _ROWS if name.startswith(each)]
    return kind


def _summary(error: type[Exception]) -> str:
    """The first sentence, without what it says to do: the next column says that."""
    said = _as_markdown((inspect.getdoc(error) or "").split("\n\n")[0])
    return re.split(r"; nothing was written|: begin another|\. |\.$", said)[0]


def _attributes(documented: type) -> dict[str, str]:
    """The entries under "Attributes:" of a docstring."""
    listed = (inspect.getdoc(documented) or "").partition("Attributes:\n")[2].split("\n\n")[0]
    found = re.findall(r"^ {4}(\w+): (.*?)(?=^ {4}\w|\Z)", listed, re.DOTALL | re.MULTILINE)
    return {name: _as_markdown(told).rstrip(".") for name, told in found}


def _as_markdown(said: str) -> str:
    return re.sub(r"\s+", " ", said).replace("``", "`").strip()


def _code(value: object) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _table(*header: str, rows: Mapping[str, tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join((name, *cells)) + " |" for name, cells in rows.items())])
