"""A long history of many processes, some of which are suspended past their leases or killed: recorded and judged.

``PYTHONPATH=tests python -m tools.long_history --processes 8 --seconds 60`` prints the counts, and exits with 1 if a
promise is broken, or if the run failed: then the history and its picture stay in ``build/histories``.
"""

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from kit.crowd import Crowd, holding, waiting
from kit.engines import create_table
from kit.kept import Kept
from kit.lock_history import operations, outcome
from kit.lock_model import judge
from kit.programs import Programs, Shared
from rich.console import Console
from rich.table import Table
from ticketlock_local.cloud.deploy import client_arguments, client_environment
from ticketlock_local.demo.checks import Verdict
from ticketlock_local.demo.promises import overtakings
from ticketlock_local.engines.emulator import Emulator

from ticketlock.wire._sdk import make_client

TITLE = "Processes that are suspended and killed"


@dataclass
class Done:
    """What was done to the processes."""

    suspended: Counter[str] = field(default_factory=Counter)
    killed: Counter[str] = field(default_factory=Counter)


def disturb(crowd: Crowd, seconds: float, done: Done) -> None:
    """Suspend and kill, now a holder and now a waiter, of now this lock and now that one."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        who = random.choice((holding, waiting))
        process, entity = crowd.suspend_at_any(who, random.sample(crowd.entities, len(crowd.entities)))
        if random.random() < 0.5:
            crowd.kill(process)
            done.killed[who.__name__] += 1
        else:
            crowd.outlast_a_lease(entity)
            crowd.resume(process)
            done.suspended[who.__name__] += 1


def record(kept: Kept, processes: int, seconds: float, done: Done) -> Verdict:
    """Run the processes, on an emulator of their own."""
    with Emulator() as emulator:
        os.environ |= client_environment(emulator.endpoint)
        table = create_table(make_client(**client_arguments(emulator.endpoint)))
        shared = Shared(emulator.endpoint, table, "history", str(kept.path))
        programs = Programs(shared)
        try:
            crowd = Crowd(shared, programs, kept)
            crowd.grow(processes)
            disturb(crowd, seconds, done)
            # A run in which no process gets the lock breaks no promise either.
            crowd.come_and_go(processes)
            crowd.end()
            return crowd.verdict()
        finally:
            programs.end()


def judged(kept: Kept, recording: Callable[[], Verdict]) -> Verdict:
    """Judge the recorded history, also if the recording has failed."""
    try:
        return recording()
    except Exception as error:
        # Processes still run, so the locks and the counters cannot be checked.
        verdict = judge(kept.read(), {})
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return replace(verdict, failures=(f"the run failed: {reason}", *verdict.failures))


def counts(kept: Kept, done: Done, verdict: Verdict) -> dict[str, str]:
    """What happened, and how often."""
    events = kept.events()
    recorded = operations(events)
    outcomes = Counter((each[0].action, outcome(each)) for each in recorded)
    return {
        "processes": f"{len({event.process for event in events})}",
        "suspended past a lease: holders, waiters": f"{done.suspended['holding']}, {done.suspended['waiting']}",
        "killed: holders, waiters": f"{done.killed['holding']}, {done.killed['waiting']}",
        "operations": f"{len(recorded):,}",
        "grants": f"{outcomes['acquire', 'applied']:,}",
        "record waits that ended": f"{outcomes['acquire', 'refused']:,}",
        "leases found lost at the release": f"{outcomes['release', 'refused']:,}",
        "updates": f"{outcomes['update', 'applied']:,}",
        "updates refused by the fence": f"{outcomes['update', 'refused']:,}",
        "operations with an unknown outcome": f"{sum(outcome(each) == 'unknown' for each in recorded):,}",
        "grants before one of an earlier ticket": f"{overtakings(kept.read().acquisitions).total():,}",
        "slips, which the order allows": f"{len(verdict.slips)}",
        "failures": f"{len(verdict.failures)}",
    }


def main() -> int:
    """Record, judge and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--processes", type=int, default=8)
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--figures", type=Path, help="a file for the counts, written if nothing failed")
    asked = options.parse_args()
    console, kept, done = Console(width=120), Kept("run"), Done()
    verdict = judged(kept, lambda: record(kept, asked.processes, asked.seconds, done))
    counted = counts(kept, done, verdict)
    table = Table("history", "", title=TITLE)
    for row in counted.items():
        table.add_row(*row)
    console.print(table)
    for failure in verdict.failures:
        console.print(failure, style="red")
    if not verdict.passed:
        console.print(kept.draw(verdict.failures[0]), style="red")
        return 1
    if asked.figures is not None:
        asked.figures.write_text(json.dumps({TITLE: counted}))
    kept.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())
