"""How fast the lock is handed over: executions wait for each other on the emulator, in the deployed stack.

Each kind of hand-over, callback and polling, in a cloud of its own, after first rounds that start the functions'
workers and are not measured:

- gaps: ten executions on one entity; from one task's end to the next one's start, as the tasks themselves return them;
- burst: ten more, started 50 ms apart; from the first start to the last task's end;
- wait: one that waits for a minute; the transitions that it makes meanwhile, retries included, as AWS bills them.
"""

import sys
from collections.abc import Mapping
from itertools import takewhile
from statistics import median, quantiles
from typing import Any

from executions import POLL_S, TIMEOUT_S, Cloud, billed_transitions, deployed, gaps_s, keeps_order, succeeded, took_s
from frame import Run, main
from ticketlock_local.cloud.deploy import wait_for_all
from ticketlock_local.demo.checks import overlaps
from ticketlock_local.demo.executions import HOLDS, Execution
from ticketlock_local.engines.processes import wait_until
from ticketlock_local.errors import LocalCloudError

WORK_S = 0.3
# The emulator starts a worker for each: more than ten a second would overload a small machine.
START_EVERY_S, BURST_EVERY_S = 0.12, 0.05

# Of TakeTicket, of the Pass that has its turn, and of the state in which it waits.
_BEFORE_WAITING = 3

LIMITS: Mapping[str, tuple[float, float, int | None]] = {"callback": (0.7, 2.7, 6), "poll": (1.0, 5.3, None)}
"""For each kind of hand-over, at most: the median gap, of the time from a start without a queue to its task (with
polls, after a poll's sleep); the burst, of the duration of all work; and transitions while waiting."""
# How many executions on one entity, and for how many seconds one waits for another.
WHOLE, QUICK = (10, 60), (3, 2)


def measure(run: Run) -> None:
    """Both kinds of hand-over."""
    (many, long_wait_s), ways = (QUICK, ["callback"]) if run.quick else (WHOLE, list(LIMITS))
    figures = dict[str, Mapping[str, str]]()
    for way in ways:
        run.part(lambda way=way: figures.update({way: _measured(run, way, many, long_wait_s)}))  # type: ignore[misc]
    run.print(
        f"Hand-over on the emulator: {many} executions on one entity, {WORK_S} s of work each, "
        f"poll {POLL_S} s, lease 60 s"
    )
    rows = [[name, *(found[name] for found in figures.values())] for name in figures[ways[0]]]
    run.table("", ["figure", *ways], rows)


def _measured(run: Run, way: str, many: int, long_wait_s: int) -> Mapping[str, str]:
    """Deploy, run a round to warm up, and measure; returns what is printed."""
    most_gap, most_burst, most_transitions = LIMITS[way]
    with deployed(way) as cloud:
        cloud.warm_up(cloud.starter("warm-up", WORK_S), many)
        calm, burst = (
            list(succeeded(cloud.run_all(cloud.starter(entity, WORK_S), many, every_s=every_s)).values())
            for entity, every_s in (("calm", START_EVERY_S), ("burst", BURST_EVERY_S))
        )
        transitions = _transitions_of_a_long_wait(cloud, long_wait_s)
    gaps = gaps_s(calm)
    waiters = [each for each in calm if each.polls]
    ordered = keeps_order(calm) and keeps_order(burst)
    overlapping = len(overlaps(calm)) + len(overlaps(burst))
    run.check(f"{way}: the order is that of the tickets", ordered)
    run.check(f"{way}: no two tasks overlap", not overlapping)
    alone_s = median(_before_the_task_s(runs[0]) for runs in (calm, burst))
    text = f"{way}: the median gap, of the time from a start without a queue to its task"
    sleep_s, after = (POLL_S, " after a poll's sleep") if way == "poll" else (0, "")
    run.compare(text + after, median(gaps) / (sleep_s + alone_s), most=most_gap)
    run.compare(f"{way}: the burst, of the duration of all work", took_s(burst) / (many * WORK_S), most=most_burst)
    if most_transitions is not None:
        text = f"{way}: at most {most_transitions} transitions while waiting {long_wait_s} s"
        run.check(text, transitions <= most_transitions)
    return {
        "start to task, without a queue": f"{alone_s:.2f} s",
        "gap, median": f"{median(gaps):.2f} s",
        "gap, p90": f"{quantiles(gaps, n=10, method='inclusive')[-1]:.2f} s",
        "gap, max": f"{max(gaps):.2f} s",
        f"{many} started {BURST_EVERY_S * 1_000:.0f} ms apart: all": f"{took_s(burst):.1f} s",
        "in ticket order": "yes" if ordered else "NO",
        "overlaps": f"{overlapping}",
        "polls per waiter": f"{sum(each.polls for each in waiters) / max(1, len(waiters)):.1f}",
        f"transitions while waiting {long_wait_s} s": f"{transitions}",
    }


def _before_the_task_s(run: Execution) -> float:
    assert run.work_started_ms is not None
    return (run.work_started_ms - run.started_ms) / 1_000


def _transitions_of_a_long_wait(cloud: Cloud, seconds: int) -> int:
    """A workflow holds the lock for so long; another one waits for it."""
    machine = {"stateMachineArn": cloud.outputs["ExampleTargetArn"], "input": {"seconds": seconds}}
    holder = cloud.start_execution("holder", "long", machine)
    # Otherwise the waiter's first step may overtake the holder's.
    if not wait_until(lambda: any(map(_is_the_hold, cloud.history(holder))), timeout_s=TIMEOUT_S):
        raise LocalCloudError(f"{holder} does not hold the lock after {TIMEOUT_S:.0f} s")
    waiter = cloud.start_execution("waiter", "long", cloud.task(0))
    wait_for_all(cloud.client, [holder, waiter], timeout_s=TIMEOUT_S)
    waiting = takewhile(lambda event: not _is_the_hold(event), cloud.history(waiter))
    return billed_transitions(waiting) - _BEFORE_WAITING


def _is_the_hold(event: Mapping[str, Any]) -> bool:
    return event.get("stateEnteredEventDetails", {}).get("name") in HOLDS


if __name__ == "__main__":
    sys.exit(main(measure, __doc__, "three executions, one kind of hand-over, a short wait"))
