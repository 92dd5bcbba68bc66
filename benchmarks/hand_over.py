"""How fast the lock is handed over: executions wait for each other on the emulator, in the deployed stack.

Each way to hand over, called and polling, in a cloud of its own, after a first round that starts the functions' workers
and is not measured:

- gaps: ten executions on one entity; from one task's end to the next one's start, as the tasks themselves return them;
- burst: ten more, started 50 ms apart; from the first start to the last task's end;
- wait: one that waits for a minute; the transitions that it makes meanwhile.
"""

import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
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
BURST_EVERY_S = 0.05
LONG_WAIT_S = 60

# The emulator starts a worker for each: more than ten a second would starve a small machine.
_START_EVERY_S = 0.12
_TIMEOUT_S = 240.0
_AFTER_WAITING = frozenset({"Hold"})
_BEFORE_WAITING = frozenset({"TakeTicket"})


@dataclass(frozen=True, slots=True)
class Limits:
    """What the figures of one way to hand over may be at most."""

    median_gap_s: float
    burst_s: float
    transitions: int | None


LIMITS = {
    "callback": Limits(median_gap_s=0.4, burst_s=8.0, transitions=6),
    "poll": Limits(median_gap_s=1.2, burst_s=16.0, transitions=None),
}


@dataclass(frozen=True, slots=True)
class HandOver:
    """The figures of one way to hand over; times in seconds."""

    way: str
    gap_median_s: float
    gap_p90_s: float
    gap_max_s: float
    burst_s: float
    in_ticket_order: bool
    overlaps: int
    looks_per_waiter: float
    transitions: int

    @property
    def passed(self) -> bool:
        """Whether the lock keeps its promises and is handed over as fast as it should be."""
        limits = LIMITS[self.way]
        fast = self.gap_median_s <= limits.median_gap_s and self.burst_s <= limits.burst_s
        lean = limits.transitions is None or self.transitions <= limits.transitions
        return self.in_ticket_order and not self.overlaps and fast and lean


def measure(way: str) -> HandOver:
    """Deploy, run a round to warm up, and measure."""
    with Emulator() as emulator:
        outputs = deploy(emulator, context={"hand_over": way, "poll": f"{POLL_S}", "removal_policy": "destroy"})
        rounds = _Rounds(boto3.client("stepfunctions", **client_arguments(emulator.endpoint)), outputs)
        rounds.run("warm-up", _START_EVERY_S)
        calm, burst = rounds.run("calm", _START_EVERY_S), rounds.run("burst", BURST_EVERY_S)
        transitions = rounds.transitions_of_a_long_wait()
    gaps = gaps_s(calm)
    waiters = [run for run in calm if run.looks]
    return HandOver(
        way=way,
        gap_median_s=statistics.median(gaps),
        gap_p90_s=statistics.quantiles(gaps, n=10, method="inclusive")[-1],
        gap_max_s=max(gaps),
        burst_s=(max(run.work_ended_ms or 0 for run in burst) - min(run.started_ms for run in burst)) / 1_000,
        in_ticket_order=not overtakings(calm) and not overtakings(burst),
        overlaps=len(overlaps(calm)) + len(overlaps(burst)),
        looks_per_waiter=sum(run.looks for run in waiters) / max(1, len(waiters)),
        transitions=transitions,
    )


def gaps_s(runs: Sequence[Execution]) -> list[float]:
    """Return the time from each work's end to the next one's start, in the order of the holds."""
    (held,) = by_entity(runs).values()
    works = [(run.work_started_ms or 0, run.work_ended_ms or 0) for run in held]
    return [(started - ended) / 1_000 for (_, ended), (started, _) in pairwise(works)]


class _Rounds:
    def __init__(self, client: "SFNClient", outputs: Mapping[str, str]) -> None:
        self._client = client
        self._outputs = outputs

    def run(self, name: str, every_s: float) -> list[Execution]:
        task = {"functionArn": self._outputs["ExampleFunctionArn"], "input": {"seconds": WORK_S}}
        arns = []
        for number in range(EXECUTIONS):
            arns.append(self._start(f"{name}-{number + 1:02}", name, task))
            time.sleep(every_s)
        return self._ended(arns)

    def transitions_of_a_long_wait(self) -> int:
        """A workflow holds the lock for a minute; another one waits for it."""
        machine = {"stateMachineArn": self._outputs["ExampleTargetArn"], "input": {"seconds": LONG_WAIT_S}}
        work = {"functionArn": self._outputs["ExampleFunctionArn"], "input": {"seconds": 0}}
        holder = self._start("holder", "long", machine)
        waiter = self._start("waiter", "long", work)
        wait_for_all(self._client, [holder, waiter], timeout_s=_TIMEOUT_S)
        pages = self._client.get_paginator("get_execution_history").paginate(executionArn=waiter)
        entered = Counter(
            event["stateEnteredEventDetails"]["name"]
            for page in pages
            for event in page["events"]
            if "stateEnteredEventDetails" in event
        )
        # From the moment that it has its ticket and is told to wait, to the hold.
        others = _BEFORE_WAITING | _AFTER_WAITING
        return sum(count for name, count in entered.items() if name not in others) - 1

    def _start(self, name: str, entity: str, task: dict[str, object]) -> str:
        return start(self._client, self._outputs["StateMachineArn"], name, entity, task)

    def _ended(self, arns: Sequence[str]) -> list[Execution]:
        wait_for_all(self._client, arns, timeout_s=_TIMEOUT_S)
        runs = [observe(self._client, arn) for arn in arns]
        if failures := unsuccessful(runs):
            raise LocalCloudError("; ".join(failures))
        return runs


def main() -> int:
    """Measure and print; 1 when the hand-over is slower than it should be or a promise was broken."""
    try:
        figures = [measure(way) for way in LIMITS]
    except LocalCloudError as error:
        print(error, file=sys.stderr)
        return 1
    Console().print(_table(figures))
    return 0 if all(each.passed for each in figures) else 1


def _table(figures: Sequence[HandOver]) -> Table:
    work = f"{EXECUTIONS} executions on one entity, {WORK_S} s of work each, poll {POLL_S} s, lease 60 s"
    table = Table(title=f"Hand-over on the emulator: {work}", title_justify="left")
    table.add_column("figure")
    for each in figures:
        table.add_column(each.way, justify="right")

    def row(name: str, *values: str) -> None:
        table.add_row(name, *values)

    limits = [LIMITS[each.way] for each in figures]
    row("gap, median", *(f"{each.gap_median_s:.2f} s" for each in figures))
    row("  at most", *(f"{limit.median_gap_s} s" for limit in limits))
    row("gap, p90", *(f"{each.gap_p90_s:.2f} s" for each in figures))
    row("gap, max", *(f"{each.gap_max_s:.2f} s" for each in figures))
    row(
        f"{EXECUTIONS} started {BURST_EVERY_S * 1_000:.0f} ms apart: all",
        *(f"{each.burst_s:.1f} s" for each in figures),
    )
    row("  at most", *(f"{limit.burst_s:g} s" for limit in limits))
    row("in ticket order", *("yes" if each.in_ticket_order else "NO" for each in figures))
    row("overlaps", *(f"{each.overlaps}" for each in figures))
    row("looks per waiter", *(f"{each.looks_per_waiter:.1f}" for each in figures))
    row(f"transitions while waiting {LONG_WAIT_S} s", *(f"{each.transitions}" for each in figures))
    row("  at most", *("-" if limit.transitions is None else f"{limit.transitions}" for limit in limits))
    return table


if __name__ == "__main__":
    sys.exit(main())
