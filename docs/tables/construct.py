"""The settings and metrics of the constructs, and the parameters of the plain template, from their code."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from ticketlock_cdk import TicketLock, TransactionTables, stack
from ticketlock_cdk.context import RETENTION_DAYS
from ticketlock_cdk.lock.monitoring import LockMetrics
from ticketlock_cdk.monitoring import Metrics
from ticketlock_cdk.units.monitoring import UnitsMetrics
from ticketlock_local.plain.template import _PARAMETERS

from ticketlock.units import Swept

# Where the context has another name than the property.
_IN_CONTEXT = {
    "table": ("table_name",),
    "vpc": ("vpc_id",),
    "vpc_subnets": ("subnet_ids",),
    "security_groups": ("security_group_ids",),
}
# How the context writes what it reads by a method, or one setting; nothing where the page says it of all.
_FORMS = {
    "alarm_thresholds": "`lost_leases=2,oldest_waiter=1800` (an age in seconds)",
    "architecture": "`arm64`, `x86_64`",
    "bound": "or `none`",
    "data_tables": "names or ARNs",
    "flag": "",
    "hand_over": "`callback`, `poll`",
    "log_level": "`all`, `error`, `fatal`, `off`",
    "record_wait": "or `Infinity`",
    "removal_policy": "`retain`, `destroy`",
    "retention": "days, or `infinite`",
    "seconds": "",
    "security_group_ids": "",
    "subnet_ids": "",
    "text": "",
    "texts": "",
    "whole_number": "",
}
_OF_CONTEXT_ALONE = {
    "examples": "an example function and an example workflow as targets; by default if there are no `targets`",
    "permissions_boundary": "the permissions boundary of every role",
    "managed_policies": "managed policies in place of the roles' inline ones",
    "transactions": "also deploy a `TransactionTables`, with the same settings",
    "workflows": "the state machines that save units, to attach",
}
# The sweeper emits these of what `Units.sweep` returns.
_OF_A_SWEEP = {
    "OldestOpenUnitAge": "oldest_ms",
    "CommittedUnfinished": "unfinished",
    "RefusedItems": "refused",
    "RolledBackByOthers": "rolled_back",
    "OpenUnits": "open",
    "FinishedItems": "finished",
    "ClosedUnits": "closed",
    "StoppedSweeps": "not is_whole",
}
_NOT_IN_CONTEXT = {"reserve_concurrency": "set by `clean_up_concurrency`, if that is a number"}


def settings() -> str:
    """A row for each property of a TicketLock, for each further one of a TransactionTables, and for the context's."""
    context = _context()
    units = {name: each for name, each in _properties(TransactionTables).items() if name not in _properties(TicketLock)}
    rows = [("property", "", "default", "`-c`")]
    for whose, properties in (("", _properties(TicketLock)), ("`TransactionTables`: ", units)):
        for name, (says, default) in properties.items():
            names = [each for each in _IN_CONTEXT.get(name, (name,)) if each in context]
            forms = [f"`{each}` {context.pop(each)}".strip() if each != name else context.pop(each) for each in names]
            said = "; ".join(forms) if names else _NOT_IN_CONTEXT.get(name, "not by `-c`")
            rows.append((f"`{name}`", whose + says, default, said))
    rows += [("", says, "", f"`{name}` {context.pop(name)}".strip()) for name, says in _OF_CONTEXT_ALONE.items()]
    assert not context, f"no row has {list(context)}"
    return _table(rows)


def metrics_of_locks() -> str:
    """A row for each metric of a TicketLock."""
    return _table([("`lock.metric_…()`", "metric", "means"), *_metrics(LockMetrics)])


def metrics_of_units() -> str:
    """A row for each metric of a TransactionTables, with what a sweep returns."""
    assert {each.removeprefix("not ") for each in _OF_A_SWEEP.values()} == set(Swept.__dataclass_fields__), (
        "say which metric has each number"
    )
    rows = [
        (method, metric, f"`{_OF_A_SWEEP[name]}`" if (name := metric.strip("`")) in _OF_A_SWEEP else "", means)
        for method, metric, means in _metrics(UnitsMetrics)
    ]
    return _table([("`units.metric_…()`", "metric", "`Swept`", "means"), *rows])


def parameters() -> str:
    """A row for each parameter of the plain template."""
    rows = [("parameter", "default", "allowed")]
    for name, each in _PARAMETERS.items():
        default = f"`{each['Default']}`" if each["Default"] != "" else ""
        rows.append((f"`{name}`", default, _allowed(each)))
    return _table(rows)


def _allowed(parameter: Mapping[str, Any]) -> str:
    if "MinValue" in parameter:
        return f"{parameter['MinValue']} to {parameter['MaxValue']}"
    values = parameter.get("AllowedValues", ())
    return "as for `log_retention`" if values == sorted(RETENTION_DAYS) else ", ".join(map(str, values))


def _metrics(of: type[Metrics]) -> Iterator[Sequence[str]]:
    whole = of()
    whole.service_name = "service"
    for method, function in vars(of).items():
        if method.startswith("metric_"):
            name = getattr(whole, method)().metric_name
            yield f"`{method.removeprefix('metric_')}`", f"`{name}`", _first_sentence(inspect.getdoc(function) or "")


def _context() -> dict[str, str]:
    """What the stack reads from the context: each name, and how it is written."""
    source = inspect.getsource(stack)
    read = [(name, method) for method, name in re.findall(r'context\.(\w+)\("(\w+)"', source)]
    for method, names in re.findall(r"context\.(\w+)\(name\) for name in (\(.*?\)|_\w+)", source):
        listed = getattr(stack, names) if names.startswith("_") else re.findall(r'"(\w+)"', names)
        read += [(name, method) for name in listed]
    return {name: _FORMS[name] if name in _FORMS else _FORMS[method] for name, method in read}


def _properties(construct: Callable[..., Any]) -> dict[str, tuple[str, str]]:
    """What the docstring says of each property, and its default."""
    args = (inspect.getdoc(construct) or "").partition("Args:\n")[2].partition("\n\n")[0]
    told = {
        name: _first_sentence(says) for name, says in re.findall(r"^    (\w+): (.*(?:\n {8,}.*)*)", args, re.MULTILINE)
    }
    signature = inspect.signature(construct.__init__)
    return {
        name: (told[name], _default(each.default))
        for name, each in signature.parameters.items()
        if each.kind is each.KEYWORD_ONLY
    }


def _first_sentence(says: str) -> str:
    sentence = re.split(r"\.(?:\s|$)", re.sub(r"\s+", " ", says), maxsplit=1)[0]
    return re.sub(r"``", "`", sentence)


def _default(value: Any) -> str:
    if isinstance(value, Duration):
        return f"{value.to_seconds():g} s"
    if isinstance(value, logs.RetentionDays):
        return f"{next(days for days, each in RETENTION_DAYS.items() if each == value)} days"
    if isinstance(value, lambda_.Architecture):
        return f"`{value.name}`"
    if isinstance(value, Enum):
        return f"`{value.name}`"
    if value is None or value == () or is_dataclass(value):
        return ""
    return f"`{value}`"


def _table(rows: Sequence[Sequence[str]]) -> str:
    first, *others = (f"| {' | '.join(cells)} |" for cells in rows)
    return "\n".join([first, "|---" * len(rows[0]) + "|", *others])
