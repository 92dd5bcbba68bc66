"""What each operation of the lock costs in capacity units, by DynamoDB's published rules and as an engine counts them.

    PYTHONPATH=tests python benchmarks/capacity_units.py            on dynoxide, built by cargo if necessary
    PYTHONPATH=tests python benchmarks/capacity_units.py ENDPOINT   on your own: a table is created and deleted

Writes that a condition refuses are billed too, but no engine counts them: the API's errors carry no units.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from frame import Run, engine, main
from kit.capacity import Billed
from kit.capacity_units import OTHERS, MeteredWorld, Step, figure, life_of_a_lock
from kit.engines import Engine, table_of_its_own


@contextmanager
def chosen(endpoint: str | None) -> Iterator[Engine]:
    """The engine at an endpoint, with the environment's credentials; dynoxide without one."""
    if endpoint is not None:
        with table_of_its_own(Engine("endpoint", endpoint, "")) as subject:
            yield subject
        return
    with engine("dynoxide") as (name, url), table_of_its_own(Engine(name, url, "")) as subject:
        yield subject


def row(step: Step) -> Iterator[str]:
    """One line of the table."""
    yield step.name
    yield f"{len(step.requests)}"
    yield figure(request.by_rule for request in step.refused)
    for requests in (step.writes, step.reads):
        yield figure(request.by_rule for request in requests)
        yield figure(request.by_engine for request in requests)


def judge(run: Run, requests: Sequence[Billed], name: str) -> None:
    """Check how an engine has counted."""
    applied = [request for request in requests if not request.refused]
    reported = [request for request in applied if request.by_engine is not None]
    by_rule = [request for request in reported if request.by_engine == request.by_rule]
    run.check(f"{name} reports the units of {len(reported)} of {len(applied)} requests", reported == applied)
    run.check(f"{name} counts {len(by_rule)} of these {len(reported)} by the rules", by_rule == reported)


def measure(run: Run) -> None:
    """Count the whole life of a lock, alone and beside other holders."""
    requests: list[Billed] = []
    columns = ("step", "requests", "refused: rule", "writes: rule", "engine", "reads: rule", "engine")
    with chosen(run.flags.endpoint) as subject:
        for others in (0,) if run.quick else (0, OTHERS):
            steps = list(life_of_a_lock(MeteredWorld(subject), others))
            title = f"Beside {others} other holders, each with 256 bytes of data" if others else "One holder"
            rows = [list(row(step)) for step in steps]
            run.table(f"{title}: capacity units, by the rules and by {subject.name}", columns, rows)
            requests += (request for step in steps for request in step.requests)
    judge(run, requests, subject.name)


if __name__ == "__main__":
    sys.exit(main(measure, __doc__, "one holder alone", ("endpoint", {"nargs": "?"})))
