"""Many executions on several entities at once, on the emulator, in the deployed stack, as it is by default.

Every second ten more, all on the next entity, until each entity has ten: a queue for each, several at once. On a busy
machine they start more slowly, and the figures show that. First rounds, which start the functions' workers, are not
measured. At the end the guarantees must hold: all succeeded, no two tasks of one entity overlapped, fencing tokens
rose, the order was that of the tickets, and the table contains only lock items and session items.
"""

import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
import psutil
from quick import options_of
from rich.console import Console
from rich.table import Table
from rounds import ASKING_AT_MOST, gaps_s, history, run_round, took_s, warm_up
from ticketlock_local.cloud.deploy import client_arguments, deploy, start
from ticketlock_local.demo.checks import Verdict, judge
from ticketlock_local.demo.executions import Execution
from ticketlock_local.engines.emulator import Emulator
from ticketlock_local.errors import LocalCloudError

from ticketlock import LockName, LockTable
from ticketlock.wire._sdk import make_client

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

ENTITIES = 20
A_SECOND = 10
WORK_S = 0.3

_AT_ONCE = 10
_TIMEOUT_S = 120.0
_WARM_UP_TIMEOUT_S = 60.0
_SAMPLE_EVERY_S = 0.5
_MIB = 1 << 20
_FAILURES_SHOWN = 20
_TOO_BUSY = (
    "where a machine is so busy that a step takes over 15 s, the step is repeated, and the late copy of the call may "
    "stand in the queue for one lease (docs/guarantees.md, 3)"
)


@dataclass(frozen=True, slots=True)
class Load:
    """What was observed.

    Attributes:
        timed_out: steps that took longer than their state allows, and were repeated.
    """

    runs: Sequence[Execution]
    timed_out: int
    verdict: Verdict
    peak: "Peak"

    @property
    def failed(self) -> int:
        """How many did not succeed."""
        return sum(run.status != "SUCCEEDED" for run in self.runs)


@dataclass(slots=True)
class Peak:
    """The most that an emulator and its functions used at one moment."""

    bytes: int = 0
    processes: int = 0

    def sample(self, process: psutil.Process) -> None:
        """Measure the whole tree once. Pages that processes share count for each."""
        resident = [size for each in _tree(process) if (size := _resident(each)) is not None]
        self.bytes = max(self.bytes, sum(resident))
        self.processes = max(self.processes, len(resident))


@contextmanager
def watched(pid: int) -> Iterator[Peak]:
    """Sample the memory of a process tree twice a second."""
    peak, over, process = Peak(), threading.Event(), psutil.Process(pid)

    def watch() -> None:
        while not over.wait(_SAMPLE_EVERY_S):
            peak.sample(process)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()


def _tree(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _resident(process: psutil.Process) -> int | None:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return None


def measure(entities: int) -> Load:
    """Deploy, warm up, run everything, check it."""
    with Emulator() as emulator:
        outputs = deploy(emulator, context={"removal_policy": "destroy"})
        step_functions = boto3.client("stepfunctions", **client_arguments(emulator.endpoint))
        with watched(emulator.pid) as peak:
            warm_up(step_functions, _on(step_functions, outputs, "warm-up"), 2 * _AT_ONCE, timeout_s=_WARM_UP_TIMEOUT_S)
            begin = _on(step_functions, outputs, "load")
            done = run_round(
                step_functions,
                begin,
                entities * _AT_ONCE,
                every_s=1 / A_SECOND,
                timeout_s=_TIMEOUT_S,
                asking_at_most=ASKING_AT_MOST,
            )
        timed_out = sum(_timed_out(history(step_functions, arn)) for arn in done)
        runs = list(done.values())
        failures, slips = _judged(emulator.endpoint, outputs["TableName"], runs)
    return Load(runs, timed_out, Verdict(tuple(failures), slips), peak)


def _on(client: "SFNClient", outputs: Mapping[str, str], prefix: str) -> Callable[[int], str]:
    """Starts the execution of a number: the first ten on the first entity, and so on."""
    task = {"functionArn": outputs["ExampleFunctionArn"], "input": {"seconds": WORK_S}}

    def begin(number: int) -> str:
        entity = f"{prefix}-{number // _AT_ONCE + 1:02}"
        return start(client, outputs["StateMachineArn"], f"{entity}-{number % _AT_ONCE + 1:02}", entity, task)

    return begin


def _timed_out(events: Iterable[Mapping[str, Any]]) -> int:
    """How many steps timed out, without callback tasks, whose time-outs are intended."""
    failed = [event["taskFailedEventDetails"] for event in events if event["type"] == "TaskFailed"]
    return sum(
        details.get("error") == "States.Timeout" and "waitForTaskToken" not in details["resource"] for details in failed
    )


def _judged(endpoint: str, table_name: str, runs: Sequence[Execution]) -> tuple[list[str], tuple[str, ...]]:
    client = make_client(**client_arguments(endpoint))
    locks = LockTable(table_name, client=client)
    verdict = judge(runs, {entity: locks.inspect(LockName(entity)) for entity in sorted({run.entity for run in runs})})
    strays = [f"left in the table: {key}" for key in _strays(client, table_name)]
    return [*verdict.failures, *strays], verdict.slips


def _strays(client: Any, table_name: str) -> list[str]:
    """The keys of all items that are neither locks nor sessions."""
    pages = client.get_paginator("scan").paginate(TableName=table_name, ConsistentRead=True)
    keys = [(item["pk"]["S"], item["sk"]["S"]) for page in pages for item in page["Items"]]
    return [f"{pk} {sk}" for pk, sk in keys if not (sk.endswith("/") or pk.startswith("session#"))]


def main() -> int:
    """Measure and print; 1 if a guarantee was broken."""
    chosen = options_of(__doc__, "two entities instead of twenty").parse_args()
    entities = 2 if chosen.quick else ENTITIES
    began = time.monotonic()
    try:
        load = measure(entities)
    except LocalCloudError as error:
        print(f"{error}; {_TOO_BUSY}", file=sys.stderr)
        return 1
    console = Console(width=100)
    starts = f"{A_SECOND} started a second at most, {_AT_ONCE} on each of {entities} entities, {WORK_S} s of work each"
    console.print(f"Load on the emulator: {starts}", highlight=False)
    console.print(_table(load, time.monotonic() - began))
    if load.timed_out:
        print(f"note: {_TOO_BUSY}")
    for slip in load.verdict.slips:
        print(f"note: {slip}; the order allows one such slip for each waiter")
    for failure in load.verdict.failures[:_FAILURES_SHOWN]:
        print(f"FAILED: {failure}")
    if len(load.verdict.failures) > _FAILURES_SHOWN:
        print(f"FAILED: and {len(load.verdict.failures) - _FAILURES_SHOWN} more")
    # A short run on a busy machine is none of a busy lock.
    return 0 if load.verdict.passed or (chosen.quick and load.timed_out) else 1


def _table(load: Load, everything_s: float) -> Table:
    runs = load.runs
    table = Table()
    table.add_column("figure")
    table.add_column("callback", justify="right")
    granted = [run for run in runs if run.fencing_token is not None]
    seconds = took_s(runs)
    started = sorted(run.started_ms for run in runs)
    rows = {
        "executions": f"{len(runs)}",
        "failed": f"{load.failed}",
        "promises broken": f"{len(load.verdict.failures)}",
        "steps that timed out": f"{load.timed_out}",
        "slips, which the order allows": f"{len(load.verdict.slips)}",
        "started a second": f"{(len(runs) - 1) * 1_000 / max(1, started[-1] - started[0]):.1f}",
        "seconds, from the first start to the last task's end": f"{seconds:.1f}",
        "grants per second": f"{len(granted) / seconds:.1f}" if seconds > 0 else "-",
        "polls per grant": f"{sum(run.polls for run in runs) / max(1, len(granted)):.2f}",
        "gap from one task to the next, median": f"{statistics.median(gaps_s(granted)):.2f} s" if granted else "-",
        "memory of the emulator and its functions, peak": f"{load.peak.bytes / _MIB:,.0f} MiB",
        "processes, peak": f"{load.peak.processes}",
        "deployment and checks included": f"{everything_s:.0f} s",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


if __name__ == "__main__":
    sys.exit(main())
