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

from kit.mass_end import Ended, MassEnd
from quick import options_of
from rich.console import Console
from rich.table import Table

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


def main() -> int:
    """Count and print; 1 if an event failed, or if one of an execution that left nothing cost more than one request."""
    events = 300 if options_of(__doc__, "300 events").parse_args().quick else EVENTS
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    console = Console(width=115)
    made = Table(title=f"{events:,} clean-up events at {A_SECOND} a second (virtual time)", title_justify="left")
    made.add_column("figure")
    rows: dict[str, list[str]] = {}
    kept = True
    for name, share in SHARES.items():
        made.add_column(name, justify="right")
        mass, ended = mass_end(share, events)
        nothing = [each for each in ended if each.kind == "left nothing"]
        others = [each for each in ended if each.kind != "left nothing"]
        failed = sum(each.error is not None for each in ended)
        figures = {
            "failed events": f"{failed}",
            "left nothing: requests to the table": counts([each.table.total() for each in nothing]),
            "left nothing: calls of Step Functions": counts([each.calls.total() for each in nothing]),
            "left a row: requests to the table": counts([each.table.total() for each in others]),
            "descriptions refused": f"{mass.step_functions.refused:,}",
            "rows left behind": f"{mass.rows()}",
            "longest from event to end": f"{max(each.late_s for each in ended):,.1f} s",
        }
        for figure, value in figures.items():
            rows.setdefault(figure, []).append(value)
        kept &= not failed and not mass.rows() and all(each.table.total() == 1 and not each.calls for each in nothing)
    for figure, values in rows.items():
        made.add_row(figure, *values)
    console.print(made)
    if not kept:
        print("FAILED: an event failed, or cost more than it should", file=sys.stderr)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
