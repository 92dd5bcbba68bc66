"""The clean-up after a mass failure: 6,000 executions end in a minute.

    make bench, or: PYTHONPATH=tests:functions python benchmarks/mass_failure.py

The handler is the real one, over a table in memory; time is virtual. Step Functions describes executions from a bucket
of 300 that fills at 15 a second, its quota in the largest Regions
(https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html), and refuses the others. Ten events are
handled at once, the function's reserved concurrency; a request to the table takes 5 ms, one to Step Functions 20 ms.
"""

import os
import random
import sys
from collections import Counter
from collections.abc import Sequence

from frame import Run, main
from kit.mass_end import Ended, MassEnd

EVENTS = 6_000
A_SECOND = 100
CONCURRENCY = 10
# The share of events of executions that left nothing: a mass failure of tasks, and one of waiters.
SHARES = {"all of them left nothing": 1.0, "half of them left a row": 0.5, "all of them left a row": 0.0}


def mass_end(share: float, events: int) -> tuple[MassEnd, Sequence[Ended]]:
    """So many executions that end, this share of them with nothing left."""
    mass = MassEnd()
    nothing = round(events * share)
    ended = mass.failed_works(nothing // 2) + mass.never_came(nothing - nothing // 2)
    left = events - nothing
    if left:
        ended += mass.waiters(left // 2) + mass.waiters(left - left // 2)
    random.Random(1).shuffle(ended)
    mass.clean_up(ended, a_second=A_SECOND, concurrency=CONCURRENCY)
    return mass, ended


def counts(values: Sequence[int]) -> str:
    """The counted values, most frequent first."""
    return ", ".join(f"{value}" for value, _ in Counter(values).most_common()) or "-"


def measure(run: Run) -> None:
    """Count, and check that no event failed, or cost more than it should."""
    events = 300 if run.quick else EVENTS
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    figures = {}
    for name, share in SHARES.items():
        mass, ended = mass_end(share, events)
        nothing = [each for each in ended if each.kind == "left nothing"]
        others = [each for each in ended if each.kind != "left nothing"]
        failed = sum(each.error is not None for each in ended)
        figures[name] = {
            "failed events": f"{failed}",
            "left nothing: requests to the table": counts([each.table.total() for each in nothing]),
            "left nothing: calls of Step Functions": counts([each.calls.total() for each in nothing]),
            "left a row: requests to the table": counts([each.table.total() for each in others]),
            "descriptions refused": f"{mass.step_functions.refused:,}",
            "rows left behind": f"{mass.rows()}",
            "longest from event to end": f"{max(each.late_s for each in ended):,.1f} s",
        }
        run.check(f"{name}: no event fails, and no row is left", not failed and not mass.rows())
        one_request = all(each.table.total() == 1 and not each.calls for each in nothing)
        run.check(f"{name}: an execution that left nothing costs one request", one_request)
    rows = [[figure, *(found[figure] for found in figures.values())] for figure in figures[next(iter(SHARES))]]
    run.table(f"{events:,} clean-up events at {A_SECOND} a second (virtual time)", ["figure", *SHARES], rows)


if __name__ == "__main__":
    sys.exit(main(measure, __doc__, "300 events"))
