"""Many executions on several entities at once, on the emulator, in the deployed stack, as it is by default.

Every second ten more, all on the next entity, until each entity has ten: a queue for each, several at once. On a busy
machine they start more slowly, and the figures show that. First rounds, which start the functions' workers, are not
measured. At the end the guarantees must hold: all succeeded, no two tasks of one entity overlapped, fencing tokens
rose, the order was that of the tickets, and the table contains only lock items and session items.
"""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from executions import ASKING_AT_MOST, deployed, gaps_s, took_s
from frame import Run, main
from ticketlock_local.cloud.deploy import client_arguments
from ticketlock_local.demo.checks import judge
from ticketlock_local.demo.executions import Execution

from ticketlock import LockName, LockTable
from ticketlock.wire._sdk import make_client

ENTITIES, AT_ONCE = 20, 10
A_SECOND = 10
WORK_S = 0.3

_TIMEOUT_S = 120.0
_WARM_UP_TIMEOUT_S = 60.0
_LEFT = "nothing left"
_TOO_BUSY = (
    "where a machine is so busy that a step takes over 15 s, the step is repeated, and the late copy of the call may "
    "stand in the queue for one lease (docs/guarantees.md, 3)"
)


def measure(run: Run) -> None:
    """Deploy, warm up, run everything, and judge it."""
    entities, began = 2 if run.quick else ENTITIES, time.monotonic()
    with deployed() as cloud:
        cloud.warm_up(cloud.starter("warm-up", WORK_S, each=AT_ONCE), 2 * AT_ONCE, timeout_s=_WARM_UP_TIMEOUT_S)
        done = cloud.run_all(
            cloud.starter("load", WORK_S, each=AT_ONCE),
            entities * AT_ONCE,
            every_s=1 / A_SECOND,
            timeout_s=_TIMEOUT_S,
            asking_at_most=ASKING_AT_MOST,
        )
        timed_out = sum(_timed_out(cloud.history(arn)) for arn in done)
        runs = list(done.values())
        failures, slips = _judged(cloud.emulator.endpoint, cloud.outputs["TableName"], runs)
    run.print(
        f"Load on the emulator: {A_SECOND} started a second at most, {AT_ONCE} on each of {entities} entities, "
        f"{WORK_S} s of work each"
    )
    granted = [each for each in runs if each.fencing_token is not None]
    seconds, started = took_s(runs), sorted(each.started_ms for each in runs)
    rows = {
        "executions": len(runs),
        "failed": sum(each.status != "SUCCEEDED" for each in runs),
        "promises broken": len(failures),
        "steps that timed out": timed_out,
        "slips, which the order allows": len(slips),
        "started a second": f"{(len(runs) - 1) * 1_000 / max(1, started[-1] - started[0]):.1f}",
        "seconds, from the first start to the last task's end": f"{seconds:.1f}",
        "grants per second": f"{len(granted) / seconds:.1f}" if seconds > 0 else "-",
        "polls per grant": f"{sum(each.polls for each in runs) / max(1, len(granted)):.2f}",
        "gap from one task to the next, median": f"{median(gaps):.2f} s" if (gaps := gaps_s(granted)) else "-",
        "deployment and checks included": f"{time.monotonic() - began:.0f} s",
    }
    run.table("", ["figure", "callback"], list(rows.items()))
    if timed_out:
        run.print(f"note: {_TOO_BUSY}")
    for slip in slips:
        run.print(f"note: {slip}; the order allows one such slip for each waiter")
    # A short run may be on a busy machine, and ends before such a copy does.
    if run.quick and timed_out:
        failures = [each for each in failures if not each.startswith(_LEFT)]
    run.fail("a guarantee is broken", failures)
    run.check("the guarantees hold: all succeeded, in order, one at a time, and left nothing", not failures)


def _timed_out(events: Iterable[Mapping[str, Any]]) -> int:
    """How many steps timed out, without callback tasks, whose time-outs are intended."""
    failed = [event["taskFailedEventDetails"] for event in events if event["type"] == "TaskFailed"]
    return sum(
        details.get("error") == "States.Timeout" and "waitForTaskToken" not in details["resource"] for details in failed
    )


def _judged(endpoint: str, table_name: str, runs: Sequence[Execution]) -> tuple[list[str], Sequence[str]]:
    """What is broken, and which slips there were that the order allows."""
    client: Any = make_client(**client_arguments(endpoint))
    locks = LockTable(table_name, client=client)
    verdict = judge(runs, {entity: locks.inspect(LockName(entity)) for entity in sorted({run.entity for run in runs})})
    pages = client.get_paginator("scan").paginate(TableName=table_name, ConsistentRead=True)
    keys = [(item["pk"]["S"], item["sk"]["S"]) for page in pages for item in page["Items"]]
    strays = [f"{_LEFT}: {pk} {sk}" for pk, sk in keys if not (sk.endswith("/") or pk.startswith("session#"))]
    return [*verdict.failures, *strays], verdict.slips


if __name__ == "__main__":
    sys.exit(main(measure, __doc__, "two entities instead of twenty"))
