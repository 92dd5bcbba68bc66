"""The tables of docs/python.md that repeat the code: settings and errors."""

import inspect
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from textwrap import fill
from typing import Any

from ticketlock import LockClient, aio
from ticketlock import errors as of_ticketlock
from ticketlock.client._arguments import AcquireArguments

# What a docstring leaves to the page.
_BOUNDS = {
    "namespace": "1 to 255 bytes, no `/`",
    "lease": "1 s to 7 days, and at least four read time-outs of the DynamoDB client",
    "owner_name": "up to 512 bytes",
    "owner": "up to 1,024 bytes; by default a new one",
    "permits": "1 to 100",
    "danger": "0 to the lease, by default a quarter; beside a heartbeat up to three quarters",
}
# Arguments whose None stands for the client's setting.
_OF_THE_CLIENT = ("namespace", "record_wait", "lease", "heartbeat")
# Of workflows and units; the latter have a table in docs/units.md.
_OTHER_ERRORS = {"EventBudgetExceeded", "TaskNotAllowed", "TicketLockError"}
_IN_TREE = (ValueError, TimeoutError, RuntimeError)
_MORE = {
    "InvalidLockRequest": "Also without a Region, or for a `boto3.resource`. Nothing was written",
    "RecordWaitExceeded": "See `holders` and `is_closed`",
    "TableError": "It is one of the following",
    "TableNotFound": "Create one only before the first use: other callers would not use a new one",
}


def settings() -> str:
    """The settings of ``LockClient``, which are those of the client for tasks but for one, and for ``sleep``."""
    of_threads, of_tasks = set(_defaults(LockClient)), set(_defaults(aio.LockClient))
    assert of_tasks - of_threads == {"client_options"}
    assert of_threads - of_tasks == {"sleep"}
    return _arguments(LockClient)


def arguments() -> str:
    """The arguments of ``acquire``."""
    assert _defaults(aio.LockClient.acquire) == _defaults(LockClient.acquire)
    assert all(_defaults(LockClient.acquire)[name] is None for name in _OF_THE_CLIENT)
    first = f"- {_code(_OF_THE_CLIENT)}: by default the client's."
    return f"{first}\n{_arguments(LockClient.acquire, leave_out=_OF_THE_CLIENT)}"


def errors() -> str:
    """The errors of locks in Python."""
    told = {name: getattr(of_ticketlock, name) for name in of_ticketlock.__all__ if name not in _OTHER_ERRORS}
    locks = {name: error for name, error in told.items() if not issubclass(error, of_ticketlock.UnitError)}
    ordered = sorted(locks.items(), key=lambda each: (issubclass(each[1], of_ticketlock.TableError), _depth(each[1])))
    return _list(
        (
            name,
            ", ".join(f"a `{base.__name__}`" for base in _IN_TREE if issubclass(error, base)),
            _sentences(_summary(error), _MORE.get(name, "")),
        )
        for name, error in ordered
    )


def _arguments(call: Callable[..., Any], leave_out: Sequence[str] = ()) -> str:
    defaults, documented = _defaults(call), _documented(call)
    assert {name for names, _ in documented for name in names} >= set(defaults), "a docstring leaves one out"
    told = []
    for names, text in documented:
        first = names[0]
        if first in defaults and first not in leave_out:
            default = json.dumps(defaults[first]) if isinstance(defaults[first], str) else str(defaults[first])
            shown = "" if default == "None" else f"`{default}`"
            told.append((", ".join(names), shown, _sentences(re.split("[;:.] ", text)[0], _BOUNDS.get(first, ""))))
    return _list(told)


def _documented(call: Callable[..., Any]) -> list[tuple[list[str], str]]:
    """The names and the text of each entry of the arguments in a docstring."""
    section = re.split(r"\n\n(?=\w+:\n)", (inspect.getdoc(call) or "").partition("Args:\n")[2])[0]
    found = re.findall(r"^    ([\w, ]+): (.*?)(?=^    \w|\Z)", section, re.DOTALL | re.MULTILINE)
    return [(names.split(", "), _markdown(text)) for names, text in found]


def _defaults(call: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(call).parameters.values()
    defaults = {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}
    if any("AcquireOptions" in str(each.annotation) for each in parameters):
        defaults |= {each.name: each.default for each in fields(AcquireArguments)}
    return defaults


def _summary(error: type) -> str:
    return _markdown((inspect.getdoc(error) or "").partition("\n\n")[0])


def _depth(error: type) -> int:
    return len(error.__mro__) if issubclass(error, of_ticketlock.TableError) else 0


def _sentences(*texts: str) -> str:
    """Texts as sentences, the last one without a full stop."""
    return ". ".join(each[:1].upper() + each[1:].rstrip(".") for each in texts if each)


def _markdown(text: str) -> str:
    return " ".join(text.split()).replace("``", "`").rstrip(".")


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _list(rows: Iterable[tuple[str, str, str]]) -> str:
    """Names, a remark on each in brackets, and what they mean."""
    lines = (f"- {_code(names.split(', '))}{f' ({remark})' if remark else ''}: {text}." for names, remark, text in rows)
    return "\n".join(fill(line, 120, subsequent_indent="  ", break_on_hyphens=False) for line in lines)
