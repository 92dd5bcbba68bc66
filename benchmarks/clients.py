"""``LockClient`` beside python_dynamodb_lock, as published: what a cycle costs, and fifty clients on one lock.

    make bench, or: python benchmarks/clients.py [--quick]

- cycle: acquire and release without contention, both locks in turn, with and without 5 ms of delay for each request;
- crowd: fifty clients, each with a DynamoDB client of its own, take one lock repeatedly; the peer at the best of
  several poll intervals, then both in turn, and the median counts;
- depth: the same with ten and with two hundred others in the queue, ours alone.

All on ``ticketlock.testing``'s DynamoDB behind HTTP (``memory_server.py`` says why), anew for each run.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from client_runs import Crowd, Cycle, Cycles, Figures
from installed import installed
from memory_server import memory_server
from quick import options_of
from rich.console import Console
from rich.table import Table
from ticketlock_local.errors import LocalCloudError

CLIENTS = 50
DELAY_S = 0.005
POLLS_S = (0.1, 0.5, 2.0, 5.0)
DEPTHS = (10, 200)

MOST_REQUESTS = 10
LEAST_OF_THE_PEER = 0.9
MOST_OF_THE_PEERS_DELAYED_CYCLE = 0.75
DEPTHS_DIFFER = 0.3
_AS_FAST = 0.98

_RUNS = Path(__file__).with_name("client_runs.py")
_REQUIREMENTS = Path(__file__).with_name("clients-peer-requirements.txt")
_TIMEOUT_S = 240


@dataclass(frozen=True, slots=True)
class Plan:
    """One kind of crowd.

    Attributes:
        work_s: how long each holds the lock.
        settle_s: until the queue of ours moves steadily, after their simultaneous start.
        poll_seconds: for how long each of the peer's poll intervals is tried.
        seconds: for how long each side is counted.
    """

    work_s: float
    settle_s: float
    poll_seconds: float
    seconds: float


PLANS = (Plan(0.05, 8, 5, 8), Plan(0.5, 4, 10, 20))
_PEER_SETTLES_S = 2


@dataclass(frozen=True, slots=True)
class Check:
    """One promise, and whether it was kept.

    Attributes:
        is_of_speed: whether it compares durations or rates, which a short run on a busy machine may miss.
    """

    text: str
    kept: bool
    is_of_speed: bool = False


class Bench:
    """Runs, each in a process of its own and on a table server of its own."""

    def __init__(self, peer: Path, *, quick: bool) -> None:
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(peer), os.environ.get("PYTHONPATH", "")])}
        self.rounds = 1 if quick else 3
        self.polls_s = POLLS_S[1:3] if quick else POLLS_S
        self.shorter = 2 if quick else 1

    def cycles(self, delay_s: float) -> Mapping[str, Cycle]:
        """Uncontended cycles of both."""
        with memory_server() as endpoint:
            done = self._run(asdict(Cycles(endpoint, 200 // self.shorter, delay_s)))
        return {name: Cycle(**cycle) for name, cycle in done.items()}

    def crowd(self, plan: Plan, poll_s: float | None, *, clients: int = CLIENTS, seconds: float) -> Figures:
        """A crowd of our clients, or of the peer's with a poll interval."""
        with memory_server() as endpoint:
            settle_s = plan.settle_s if poll_s is None else _PEER_SETTLES_S
            crowd = Crowd(endpoint, "locks", poll_s, clients, plan.work_s, settle_s, seconds / self.shorter)
            return Figures(**self._run(asdict(crowd)))

    def _run(self, what: Mapping[str, Any]) -> dict[str, Any]:
        command = [sys.executable, str(_RUNS), json.dumps(what)]
        done = subprocess.run(
            command, env=self._environment, stdout=subprocess.PIPE, text=True, check=False, timeout=_TIMEOUT_S
        )
        if done.returncode != 0:
            raise LocalCloudError(f"a run has failed, see above: {json.dumps(what)}")
        result: dict[str, Any] = json.loads(done.stdout)
        return result


def cycle(bench: Bench, console: Console) -> list[Check]:
    """What acquire and release cost without contention."""
    at_once, delayed = bench.cycles(0), bench.cycles(DELAY_S)
    table = _table("uncontended cycle", "ours", "peer", "ours / peer")
    _row(table, "requests", at_once["ours"].requests, at_once["peer"].requests)
    _row(table, "ms, median", at_once["ours"].ms, at_once["peer"].ms)
    name = f"ms, median, each request {DELAY_S * 1_000:.0f} ms later"
    ratio = _row(table, name, delayed["ours"].ms, delayed["peer"].ms)
    console.print(table)
    most = MOST_OF_THE_PEERS_DELAYED_CYCLE
    return [
        Check("a cycle is 2 requests", at_once["ours"].requests == delayed["ours"].requests == 2),
        Check("a cycle takes less time than the peer's", at_once["ours"].ms < at_once["peer"].ms, is_of_speed=True),
        Check(f"with the delay, at most {most} of it", ratio <= most, is_of_speed=True),
    ]


def crowd(bench: Bench, console: Console, plan: Plan) -> list[Check]:
    """Fifty clients on one lock, of ours and of the peer's."""
    work = f"{plan.work_s * 1_000:.0f} ms of work"
    tried = {poll_s: bench.crowd(plan, poll_s, seconds=plan.poll_seconds) for poll_s in bench.polls_s}
    rates = ", ".join(f"{figures.grants:.2f} at {poll_s} s" for poll_s, figures in tried.items())
    console.print(
        f"{CLIENTS} clients, {work}: the peer's grants a second, by its poll interval: {rates}", highlight=False
    )
    # Of those that are as fast, the one with the fewest requests.
    most = max(figures.grants for figures in tried.values())
    fastest = [poll_s for poll_s, figures in tried.items() if figures.grants >= most * _AS_FAST]
    best_s = min(fastest, key=lambda poll_s: tried[poll_s].requests)
    ours, peer = [], []
    for _ in range(bench.rounds):
        peer.append(bench.crowd(plan, best_s, seconds=plan.seconds))
        ours.append(bench.crowd(plan, None, seconds=plan.seconds))
    table = _table(f"{CLIENTS} clients, {work}", "ours", f"peer, each {best_s} s", "ours / peer")
    ratio = _row(table, "grants a second", _median(ours, "grants"), _median(peer, "grants"))
    requests = _median(ours, "requests")
    _row(table, "requests a grant", requests, _median(peer, "requests"))
    _row(table, "longest wait, s", _median(ours, "longest_wait_s"), _median(peer, "longest_wait_s"))
    _row(table, "grants out of order", _median(ours, "out_of_order"), _median(peer, "out_of_order"))
    slips = sum(figures.beyond_the_slip for figures in ours)
    table.add_row("overtakings beyond the one slip, all rounds", f"{slips}", "-", "")
    console.print(table)
    return [
        Check(
            f"{work}: at least {LEAST_OF_THE_PEER} of the peer's grants", ratio >= LEAST_OF_THE_PEER, is_of_speed=True
        ),
        Check(f"{work}: at most {MOST_REQUESTS} requests a grant", requests <= MOST_REQUESTS),
        Check(f"{work}: no one is overtaken more than once", slips == 0),
    ]


def depth(bench: Bench, console: Console) -> list[Check]:
    """Whether a wait costs more in a long queue."""
    plan, each = PLANS[0], []
    for ahead in DEPTHS:
        # Two turnovers of the queue before counting, and one that counts.
        turnover_s = max(4.0, ahead * plan.work_s * 1.4)
        settled = Plan(plan.work_s, 2 * turnover_s, 0, 0)
        each.append(bench.crowd(settled, None, clients=ahead + 1, seconds=turnover_s * bench.shorter))
    table = _table("50 ms of work, with others in the queue", *(f"{ahead}" for ahead in DEPTHS), "ratio")
    _row(table, "grants a second", each[1].grants, each[0].grants, turned=True)
    ratio = _row(table, "requests a grant", each[1].requests, each[0].requests, turned=True)
    console.print(table)
    slips = sum(figures.beyond_the_slip for figures in each)
    return [
        Check("requests a grant differ by less than 30 % with depth", abs(ratio - 1) < DEPTHS_DIFFER, is_of_speed=True),
        Check("no one is overtaken more than once there either", slips == 0),
    ]


def _median(rounds: Sequence[Figures], name: str) -> float:
    return statistics.median([float(getattr(figures, name)) for figures in rounds])


def _table(*columns: str) -> Table:
    table = Table()
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    return table


def _row(table: Table, name: str, ours: float, theirs: float, *, turned: bool = False) -> float:
    """Add a figure and its ratio, which is returned; ``turned`` shows the second one first."""
    ratio = ours / theirs if theirs else float("inf")
    shown = [f"{figure:.2f}" for figure in ((theirs, ours) if turned else (ours, theirs))]
    table.add_row(name, *shown, f"{ratio:.2f}" if theirs else "-")
    return ratio


def main() -> int:
    """Measure and print; 1 if the peer cannot be installed, or a promise is broken."""
    parser = options_of(__doc__, "one round, two poll intervals, half the time")
    chosen = parser.parse_args()
    console = Console(width=110)
    checks: list[Check] = []
    try:
        bench = Bench(installed("clients-peer", _REQUIREMENTS), quick=chosen.quick)
        console.print(f"{_REQUIREMENTS.read_text().split()[-1]} and ticketlock's LockClient", highlight=False)
        checks += cycle(bench, console)
        for plan in PLANS:
            checks += crowd(bench, console, plan)
        checks += depth(bench, console)
    except LocalCloudError as error:
        print(error, file=sys.stderr)
        return 1
    for check in checks:
        print(f"{'PASS  ' if check.kept else 'FAILED'} {check.text}")
    return 0 if all(check.kept or (chosen.quick and check.is_of_speed) for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
