"""`make demo`: workflows that wait for each other, on an emulator, in the real stack."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ticketlock import LockName, LockState, LockTable
from ticketlock_local.checkout import BUILD, ROOT
from ticketlock_local.cloud import ExecutionsUnfinished, client_arguments, deploy, start, warm_up
from ticketlock_local.demo.checks import Verdict, by_entity, judge
from ticketlock_local.demo.executions import Execution, observe
from ticketlock_local.demo.picture import picture
from ticketlock_local.demo.timeline import Lines, Timeline
from ticketlock_local.engines import Emulator

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

PICTURE = BUILD / "demo.svg"

_CONTEXT = {"poll": "1", "removal_policy": "destroy"}
_RUNS = {"order-42": 10, "order-7": 5}
_WORK_S = (0.6, 0.8, 1.0, 0.7, 0.9)
_TIMEOUT_S = 120.0
# New workers start slowly on a small machine: ten executions a second at most.
_START_EVERY_S = 0.12
_POLL_EVERY_S = 0.3


@dataclass(frozen=True, slots=True)
class Planned:
    """An execution to start."""

    name: str
    entity: str
    work_s: float


def main() -> int:
    """Run the demo; 1 when a promise was broken."""
    console = Console(highlight=False)
    with Emulator() as emulator:
        began = time.monotonic()
        console.print("Deploying the stack to an emulator on this machine ...")
        outputs = deploy(emulator, context=_CONTEXT)
        console.print(f"Deployed in {time.monotonic() - began:.0f} s.")
        step_functions = boto3.client("stepfunctions", **client_arguments(emulator.endpoint))
        began = time.monotonic()
        warm_up(step_functions, outputs, len(_RUNS))
        took = time.monotonic() - began
        console.print(f"The first calls of the functions, which are slow, took {took:.0f} s.\n")
        runs = _run(console, step_functions, outputs)
        verdict = judge(runs, _locks(emulator.endpoint, outputs["TableName"]))
    console.print(table(runs))
    PICTURE.write_text(picture(runs).to_svg(), encoding="utf-8")
    _tell(verdict)
    print(f"The picture: {PICTURE.relative_to(ROOT)}")
    return 0 if verdict.passed else 1


def plan(runs: Mapping[str, int], work_s: Sequence[float]) -> list[Planned]:
    """Interleave the executions of all entities: the first of each, then the second of each, and so on."""
    return [
        Planned(f"{entity}-{number + 1:02}", entity, work_s[number % len(work_s)])
        for number in range(max(runs.values()))
        for entity, count in runs.items()
        if number < count
    ]


def _run(console: Console, client: "SFNClient", outputs: Mapping[str, str]) -> list[Execution]:
    # The console alone is not enough: environment variables can make it treat a pipe as a terminal.
    if not (console.is_interactive and sys.stdout.isatty()):
        return _watch(client, outputs, Lines().show)
    with Live(console=console, auto_refresh=False) as live:
        return _watch(client, outputs, lambda runs, now_ms: live.update(Timeline(runs, now_ms), refresh=True))


def _watch(
    client: "SFNClient", outputs: Mapping[str, str], show: Callable[[Sequence[Execution], int], None]
) -> list[Execution]:
    """Start everything, and show it until it has ended."""
    planned = deque(plan(_RUNS, _WORK_S))
    seen: dict[str, Execution] = {}
    deadline = time.monotonic() + _TIMEOUT_S
    while planned or any(run.ended_ms is None for run in seen.values()):
        running = [arn for arn, run in seen.items() if run.ended_ms is None]
        if time.monotonic() > deadline:
            raise ExecutionsUnfinished(f"after {_TIMEOUT_S:.0f} s there still run: {', '.join(running)}")
        time.sleep(_START_EVERY_S if planned else _POLL_EVERY_S)
        if planned:
            running.append(_started(client, outputs, planned.popleft()))
        now_ms = time.time_ns() // 1_000_000
        seen |= {arn: observe(client, arn) for arn in running}
        show(list(seen.values()), now_ms)
    show(list(seen.values()), max(run.ended_ms or 0 for run in seen.values()))
    return list(seen.values())


def _started(client: "SFNClient", outputs: Mapping[str, str], planned: Planned) -> str:
    task: dict[str, Any] = {"functionArn": outputs["ExampleFunctionArn"], "input": {"seconds": planned.work_s}}
    return start(client, outputs["StateMachineArn"], planned.name, planned.entity, task)


def _locks(endpoint: str, table_name: str) -> dict[str, LockState]:
    config = Config(connect_timeout=1, read_timeout=2, retries={"total_max_attempts": 1})
    client = boto3.client("dynamodb", config=config, **client_arguments(endpoint))
    locks = LockTable(table_name, client=client)
    return {entity: locks.inspect(LockName(entity)) for entity in _RUNS}


def _tell(verdict: Verdict) -> None:
    for slip in verdict.slips:
        print(f"note: {slip}; the order allows one such slip for each waiter")
    for failure in verdict.failures:
        print(f"FAILED: {failure}")
    if verdict.passed:
        order = "that of the tickets except these slips" if verdict.slips else "that of the tickets"
        print(
            "Checked: no two works of one entity overlapped, fencing tokens rose with every hold, the order was "
            f"{order}, every execution succeeded, and neither a holder nor a queue row is left."
        )


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
