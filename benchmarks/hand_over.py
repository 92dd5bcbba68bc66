"""How fast the lock is handed over: ten executions wait for each other on the emulator, in the deployed stack.

The gap between one task's end and the next one's start is taken from what the tasks themselves return. A first round
on the same lock is not measured: it starts the functions' workers.
"""

import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import boto3
from rich.console import Console
from rich.table import Table
from ticketlock_local.cloud import client_arguments, deploy
from ticketlock_local.demo_checks import by_entity, overlaps, overtakings, unsuccessful
from ticketlock_local.emulator import Emulator
from ticketlock_local.errors import LocalCloudError
from ticketlock_local.executions import Execution, observe, start, wait_for_all

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

EXECUTIONS = 10
POLL_S = 1
WORK_S = 0.3
MOST_MEDIAN_GAP_S = 1.2

_ENTITY = "order-42"
_START_EVERY_S = 0.12
_TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True)
class HandOver:
    """The figures of one round; gaps in seconds."""

    executions: int
    poll_s: int
    work_s: float
    gap_median_s: float
    gap_p90_s: float
    gap_max_s: float
    in_ticket_order: bool
    overlaps: int
    looks_per_waiter: float

    @classmethod
    def of(cls, runs: Sequence[Execution]) -> "HandOver":
        """Take the figures of a round whose executions all succeeded."""
        gaps = gaps_s(runs)
        waiters = [run for run in runs if run.looks]
        return cls(
            executions=len(runs),
            poll_s=POLL_S,
            work_s=WORK_S,
            gap_median_s=round(statistics.median(gaps), 3),
            gap_p90_s=round(statistics.quantiles(gaps, n=10, method="inclusive")[-1], 3),
            gap_max_s=round(max(gaps), 3),
            in_ticket_order=not overtakings(runs),
            overlaps=len(overlaps(runs)),
            looks_per_waiter=round(sum(run.looks for run in waiters) / max(1, len(waiters)), 1),
        )

    @property
    def passed(self) -> bool:
        """Whether the lock keeps its promises and is handed over as fast as it should be."""
        return self.in_ticket_order and not self.overlaps and self.gap_median_s <= MOST_MEDIAN_GAP_S


def gaps_s(runs: Sequence[Execution]) -> list[float]:
    """Return the time from each work's end to the next one's start, in the order of the holds."""
    (held,) = by_entity(runs).values()
    works = [(run.work_started_ms or 0, run.work_ended_ms or 0) for run in held]
    return [(started - ended) / 1_000 for (_, ended), (started, _) in pairwise(works)]


def measure() -> HandOver:
    """Deploy, run a round to warm up and another one to measure."""
    with Emulator() as emulator:
        outputs = deploy(emulator, context={"poll": f"{POLL_S}", "removal_policy": "destroy"})
        client = boto3.client("stepfunctions", **client_arguments(emulator.endpoint))
        machine, function = outputs["StateMachineArn"], outputs["ExampleFunctionArn"]
        _round(client, machine, function, "warm-up")
        return HandOver.of(_round(client, machine, function, "measured"))


def _round(client: "SFNClient", machine: str, function: str, name: str) -> list[Execution]:
    task = {"functionArn": function, "input": {"seconds": WORK_S}}
    arns = []
    for number in range(EXECUTIONS):
        # The emulator starts a worker for each: more than ten a second would starve a small machine.
        time.sleep(_START_EVERY_S)
        arns.append(start(client, machine, f"{name}-{number + 1:02}", _ENTITY, task))
    wait_for_all(client, arns, timeout_s=_TIMEOUT_S)
    runs = [observe(client, arn) for arn in arns]
    if failures := unsuccessful(runs):
        raise LocalCloudError("; ".join(failures))
    return runs


def main() -> int:
    """Measure and print; 1 when the hand-over is slower than it should be or a promise was broken."""
    try:
        figures = measure()
    except LocalCloudError as error:
        print(error, file=sys.stderr)
        return 1
    Console().print(_table(figures))
    return 0 if figures.passed else 1


def _table(figures: HandOver) -> Table:
    table = Table(title="Hand-over on the emulator", title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    work = f"{figures.executions} on one entity, {figures.work_s} s of work each"
    table.add_row("executions", work)
    table.add_row("poll", f"{figures.poll_s} s")
    table.add_row("gap, median", f"{figures.gap_median_s:.2f} s (at most {MOST_MEDIAN_GAP_S} s)")
    table.add_row("gap, p90", f"{figures.gap_p90_s:.2f} s")
    table.add_row("gap, max", f"{figures.gap_max_s:.2f} s")
    table.add_row("in ticket order", "yes" if figures.in_ticket_order else "NO")
    table.add_row("overlaps", f"{figures.overlaps}")
    table.add_row("looks per waiter", f"{figures.looks_per_waiter}")
    return table


if __name__ == "__main__":
    sys.exit(main())
