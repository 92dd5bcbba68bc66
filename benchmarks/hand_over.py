"""How fast the lock is handed over: executions wait for each other on the emulator, in the deployed stack.

Each kind of hand-over, callback and polling, in a cloud of its own, after first rounds that start the functions'
workers and are not measured:

- gaps: ten executions on one entity; from one task's end to the next one's start, as the tasks themselves return them;
- burst: ten more, started 50 ms apart; from the first start to the last task's end;
- wait: one that waits for a minute; the transitions that it makes meanwhile, retries included, as AWS bills them.
"""

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from quick import options_of
from rich.console import Console
from rich.table import Table
from rounds import (
    START_EVERY_S,
    deployed,
    gaps_s,
    history,
    keeps_ticket_order,
    run_round,
    starter,
    succeeded,
    took_s,
    transitions,
    warm_up,
)
from ticketlock_local.cloud.deploy import start, wait_for_all
from ticketlock_local.demo.checks import overlaps
from ticketlock_local.demo.executions import Execution
from ticketlock_local.engines.processes import wait_until
from ticketlock_local.errors import LocalCloudError

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

EXECUTIONS = 10
POLL_S = 1
WORK_S = 0.3
BURST_EVERY_S = 0.05
LONG_WAIT_S = 60

_TIMEOUT_S = 240.0
# Of TakeTicket, and of the state in which it waits.
_BEFORE_WAITING = 2


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the figures for one kind of hand-over."""

    median_gap_s: float
    burst_s: float
    transitions: int | None


LIMITS = {
    "callback": Limits(median_gap_s=0.4, burst_s=8.0, transitions=6),
    "poll": Limits(median_gap_s=1.2, burst_s=16.0, transitions=None),
}


@dataclass(frozen=True, slots=True)
class HandOver:
    """The figures of one kind of hand-over; times in seconds."""

    way: str
    gap_median_s: float
    gap_p90_s: float
    gap_max_s: float
    burst_s: float
    in_ticket_order: bool
    overlaps: int
    polls_per_waiter: float
    transitions: int

    @property
    def keeps_its_promises(self) -> bool:
        """Whether the order was that of the tickets, and no two works overlapped."""
        return self.in_ticket_order and not self.overlaps

    @property
    def passed(self) -> bool:
        """Whether the lock keeps its promises and is handed over fast enough."""
        limits = LIMITS[self.way]
        fast = self.gap_median_s <= limits.median_gap_s and self.burst_s <= limits.burst_s
        lean = limits.transitions is None or self.transitions <= limits.transitions
        return self.keeps_its_promises and fast and lean


@dataclass(frozen=True, slots=True)
class Size:
    """Of one measurement: how many executions on one entity, and for how long one waits for another."""

    executions: int
    long_wait_s: int


WHOLE, QUICK = Size(EXECUTIONS, LONG_WAIT_S), Size(3, 2)


def measure(way: str, size: Size) -> HandOver:
    """Deploy, run a round to warm up, and measure."""
    with deployed(way, poll_s=POLL_S) as (client, outputs):
        rounds = _Rounds(client, outputs, size)
        rounds.warm_up()
        calm, burst = rounds.run("calm", START_EVERY_S), rounds.run("burst", BURST_EVERY_S)
        long_wait = rounds.transitions_of_a_long_wait()
    gaps = gaps_s(calm)
    waiters = [run for run in calm if run.polls]
    return HandOver(
        way=way,
        gap_median_s=statistics.median(gaps),
        gap_p90_s=statistics.quantiles(gaps, n=10, method="inclusive")[-1],
        gap_max_s=max(gaps),
        burst_s=took_s(burst),
        in_ticket_order=keeps_ticket_order(calm) and keeps_ticket_order(burst),
        overlaps=len(overlaps(calm)) + len(overlaps(burst)),
        polls_per_waiter=sum(run.polls for run in waiters) / max(1, len(waiters)),
        transitions=long_wait,
    )


class _Rounds:
    def __init__(self, client: "SFNClient", outputs: Mapping[str, str], size: Size) -> None:
        self._size = size
        self._client = client
        self._outputs = outputs

    def warm_up(self) -> None:
        warm_up(self._client, self._on("warm-up"), self._size.executions, timeout_s=_TIMEOUT_S)

    def run(self, entity: str, every_s: float) -> list[Execution]:
        runs = run_round(self._client, self._on(entity), self._size.executions, every_s=every_s, timeout_s=_TIMEOUT_S)
        return list(succeeded(runs).values())

    def transitions_of_a_long_wait(self) -> int:
        """A workflow holds the lock for a minute; another one waits for it."""
        machine = {"stateMachineArn": self._outputs["ExampleTargetArn"], "input": {"seconds": self._size.long_wait_s}}
        work = {"functionArn": self._outputs["ExampleFunctionArn"], "input": {"seconds": 0}}
        holder = self._start("holder", "long", machine)
        # Otherwise the waiter's first step may overtake the holder's.
        if not wait_until(lambda: any(map(_is_the_hold, history(self._client, holder))), timeout_s=_TIMEOUT_S):
            raise LocalCloudError(f"{holder} does not hold the lock after {_TIMEOUT_S:.0f} s")
        waiter = self._start("waiter", "long", work)
        wait_for_all(self._client, [holder, waiter], timeout_s=_TIMEOUT_S)
        waiting = takewhile(lambda event: not _is_the_hold(event), history(self._client, waiter))
        return transitions(waiting) - _BEFORE_WAITING

    def _on(self, entity: str) -> Callable[[int], str]:
        return starter(self._client, self._outputs, entity, WORK_S)

    def _start(self, name: str, entity: str, task: Mapping[str, Any]) -> str:
        return start(self._client, self._outputs["StateMachineArn"], name, entity, task)


def _is_the_hold(event: Mapping[str, Any]) -> bool:
    return bool(event.get("stateEnteredEventDetails", {}).get("name") == "Hold")


def main() -> int:
    """Measure and print; 1 if the hand-over is too slow or a promise was broken."""
    options = options_of(__doc__, "three executions, one kind of hand-over, no long wait, no limits of time")
    chosen = options.parse_args()
    size, ways = (QUICK, ["callback"]) if chosen.quick else (WHOLE, list(LIMITS))
    try:
        figures = [measure(way, size) for way in ways]
    except LocalCloudError as error:
        print(error, file=sys.stderr)
        return 1
    console = Console(width=100)
    work = f"{size.executions} executions on one entity, {WORK_S} s of work each, poll {POLL_S} s, lease 60 s"
    console.print(f"Hand-over on the emulator: {work}", highlight=False)
    console.print(_table(figures))
    return 0 if all(each.keeps_its_promises if chosen.quick else each.passed for each in figures) else 1


def _table(figures: Sequence[HandOver]) -> Table:
    table = Table()
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
    row("polls per waiter", *(f"{each.polls_per_waiter:.1f}" for each in figures))
    row(f"transitions while waiting {LONG_WAIT_S} s", *(f"{each.transitions}" for each in figures))
    row("  at most", *("-" if limit.transitions is None else f"{limit.transitions}" for limit in limits))
    return table


if __name__ == "__main__":
    sys.exit(main())
