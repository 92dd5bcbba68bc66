"""A table of the executions."""

from collections.abc import Iterable

from rich import box
from rich.table import Table
from rich.text import Text

from ticketlock_local.demo.checks import by_entity
from ticketlock_local.demo.executions import Execution


def table(executions: Iterable[Execution]) -> Table:
    """Return a row for each execution, grouped by entity, in the order of the holds."""
    made = Table(box=box.SIMPLE_HEAD)
    made.add_column("execution", no_wrap=True)
    for name in ("ticket", "fencing token", "waited", "held"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("status")
    for runs in by_entity(executions).values():
        for run in runs:
            made.add_row(
                Text(run.name),
                _count(run.ticket),
                _count(run.fencing_token),
                _seconds(run.waited_ms),
                _seconds(run.held_ms),
                Text(run.status, style="" if run.status == "SUCCEEDED" else "red"),
            )
        made.add_section()
    return made


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def _seconds(milliseconds: int | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds / 1_000:.2f} s"
