"""What a lock costs in a function and in a workflow, and a month of a deployment, at the prices of tests/kit/prices.py.

cost.json has the dollars of a million of what benchmarks/cost.py counts of workflows, which fails if they differ;
durable_cost.json what benchmarks/durable_cost.py counts of durable executions.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aws_cdk import App, Stack
from aws_cdk.assertions import Template
from kit.prices import AMonth, OfAMillion
from tables.capacity import lived
from ticketlock_cdk import TicketLock, TransactionTables
from ticketlock_cdk.lock.monitoring import LockMetrics
from ticketlock_cdk.units.monitoring import UnitsMetrics

OF_WORKFLOWS: Mapping[str, float] = json.loads(Path(__file__).with_suffix(".json").read_text())
OF_DURABLE: Mapping[str, Mapping[str, float]] = json.loads(Path(__file__).with_name("durable_cost.json").read_text())
_FREE = ("acquire at once", "release")
_CONTENDED = ("join: a try, the ticket, the row", "a poll that takes the lock", "release")
_MEMORY_MB = (512, 1_024)
_DURABLE = "https://docs.aws.amazon.com/lambda/latest/dg/durable-functions.html"
_CONCURRENCY = "https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html"
# Of the first in line, at the longest `check_every`.
_POLLS_A_SECOND = 2.5


def choices() -> str:
    """What decides between a client in a function, a workflow and a durable function."""
    units = {step.name: sum(each.by_rule or 0 for each in step.requests if not each.reads) for step in lived(0)}
    free, contended = (sum(units[name] for name in names) * OfAMillion.write_unit for names in (_FREE, _CONTENDED))
    seconds = [OfAMillion.gb_second * mb / 1_024 + _POLLS_A_SECOND * OfAMillion.read_unit for mb in _MEMORY_MB]
    of_a_workflow = OF_WORKFLOWS["an hour of waiting"] / 3_600
    more = OF_WORKFLOWS["a free lock"] + OF_WORKFLOWS["a waiter that is woken, beyond a free lock"] - contended
    sizes = [f"at {mb:,} MB" for mb in _MEMORY_MB]
    lean, replay = "the same, without heartbeat", f"[is replayed]({_DURABLE})"
    waits = {name: OF_DURABLE[name]["dollars"] for name in ("a free lock", "a wait, woken once", "a wait of a day")}
    of_a_suspension = waits["a wait of a day"] / 86_400

    def cheaper(beyond: float, of_a_second: float) -> str:
        """The waits that cost less than in a function: what is paid once is made up for by each second."""
        return "; ".join(
            f"over some {beyond / (second - of_a_second):.0f} s {size}"
            for second, size in zip(seconds, sizes, strict=True)
        )

    return _table(
        (
            "",
            "[`LockClient`](python.md#lambda) in your function",
            "[a workflow](workflows.md)",
            "[a durable function](durable.md)",
        ),
        (
            "a million free locks",
            f"${free:.2f}",
            f"{_of_workflows('a free lock')}; {_of_workflows(lean)} without heartbeat",
            f"${waits['a free lock']:.2f}",
        ),
        (
            "a million held ones, without the time of waiting",
            f"${contended:.2f}",
            f"${more + contended:.2f}",
            f"${waits['a wait, woken once']:.2f}",
        ),
        (
            "a second of waiting, a million times",
            "; ".join(f"${second:.2f} {size}" for second, size in zip(seconds, sizes, strict=True)),
            f"${of_a_workflow:.2f}",
            f"${of_a_suspension:.2f} in a wait of a day",
        ),
        (
            "cheaper than in a function for waits",
            "",
            cheaper(more, of_a_workflow),
            cheaper(waits["a wait, woken once"] - contended, of_a_suspension),
        ),
        (
            "while it waits",
            f"the function runs: one of [the account's 1,000]({_CONCURRENCY})",
            "no function runs",
            "the same",
        ),
        ("wait and work may take", "15 minutes", "a year", "a year"),
        (
            "take it if",
            "waits are short, and the work is in the function",
            "waits are long, or nobody knows; the work is a workflow",
            f"the work is a long workflow in Python, whose code {replay}",
        ),
    )


def durable() -> str:
    """What a hold in a durable execution costs, beside the state machine's execution."""
    rows = [
        (name, *(f"{each[part]:,.0f}" for part in ("operations", "writes", "reads", "invocations")), _dollars(each))
        for name, each in OF_DURABLE.items()
    ]
    of_a_workflow = ("[the state machine](costs.md#prices-of-workflows), a free lock", "", "", "", "")
    header = ("", "operations", "write units", "read units", "invocations", "$ a million")
    return _table(header, *rows, (*of_a_workflow, f"{OF_WORKFLOWS['a free lock']:,.2f}"))


def _dollars(counted: Mapping[str, float]) -> str:
    return f"{counted['dollars']:,.2f}"


def a_month() -> str:
    """What a deployment costs a month if it emits each of its metrics in every hour."""
    made = {
        "TicketLock": (TicketLock, LockMetrics),
        "TransactionTables": (TransactionTables, UnitsMetrics),
    }
    rows = [_month(name, construct, metrics) for name, (construct, metrics) in made.items()]
    return _table(("", "its metrics", "metrics that `alarms` watch", "`dashboard`", "together"), *rows)


def _month(name: str, construct: Any, metrics: type) -> tuple[str, ...]:
    stack = Stack(App(), name)
    construct(stack, name, alarms=True, dashboard=True)
    template = Template.from_stack(stack)
    alarms = template.find_resources("AWS::CloudWatch::Alarm").values()
    counts = (
        (sum(method.startswith("metric_") for method in vars(metrics)), AMonth.metric),
        (sum(map(_watched, alarms)), AMonth.alarm),
        (len(template.find_resources("AWS::CloudWatch::Dashboard")), AMonth.dashboard),
    )
    cells = (f"{count}: ${count * price:.2f}" for count, price in counts)
    return (f"`{name}`", *cells, f"${sum(count * price for count, price in counts):.2f}")


def _watched(alarm: Mapping[str, Any]) -> int:
    """How many metrics an alarm reads: more than one for an expression."""
    return max(1, sum("MetricStat" in each for each in alarm["Properties"].get("Metrics", ())))


def _of_workflows(name: str) -> str:
    return f"${OF_WORKFLOWS[name]:.2f}"


def _table(*rows: tuple[str, ...]) -> str:
    return "\n".join(_lines(rows))


def _lines(rows: tuple[tuple[str, ...], ...]) -> Iterator[str]:
    for number, cells in enumerate(rows):
        yield f"| {' | '.join(cells)} |"
        if number == 0:
            yield "|---" * len(cells) + "|"
