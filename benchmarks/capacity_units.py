"""What each operation of the lock costs in capacity units, by DynamoDB's published rules and as an engine counts them.

        PYTHONPATH=tests python benchmarks/capacity_units.py            on dynoxide, built by cargo if necessary
    PYTHONPATH=tests python benchmarks/capacity_units.py ENDPOINT   on your own: a table is created and deleted

Writes that a condition refuses are billed too, but no engine counts them: the API's errors carry no units.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError
from kit.capacity_units import OTHERS, Billed, MeteredWorld, Step, figure, life_of_a_lock
from kit.engines import Engine, table_of_its_own
from rich.console import Console
from rich.table import Table
from ticketlock_local.cloud.deploy import client_environment
from ticketlock_local.engines.dynoxide import dynoxide
from ticketlock_local.errors import LocalCloudError


@contextmanager
def chosen(endpoint: str | None) -> Iterator[Engine]:
    """The engine at an endpoint, with the environment's credentials; dynoxide without one."""
    if endpoint is not None:
        with table_of_its_own(Engine("endpoint", endpoint, "")) as engine:
            yield engine
        return
    with dynoxide() as url:
        os.environ |= client_environment(url)
        with table_of_its_own(Engine("dynoxide", url, "")) as engine:
            yield engine


def row(step: Step) -> Iterator[str]:
    """One line of the table."""
    yield step.name
    yield f"{len(step.requests)}"
    yield figure(request.by_rule for request in step.refused)
    for requests in (step.writes, step.reads):
        yield figure(request.by_rule for request in requests)
        yield figure(request.by_engine for request in requests)


def table(title: str, steps: Sequence[Step]) -> Table:
    """The whole life of a lock."""
    made = Table(title=title, title_justify="left")
    made.add_column("step")
    for column in ("requests", "refused: rule", "writes: rule", "engine", "reads: rule", "engine"):
        made.add_column(column, justify="right")
    for step in steps:
        made.add_row(*row(step))
    return made


def verdict(requests: Iterable[Billed], name: str) -> tuple[str, int]:
    """How this engine has counted, in words and as the exit code: 0 if it counts by the rules."""
    applied = [request for request in requests if not request.refused]
    reported = [request for request in applied if request.by_engine is not None]
    if not reported:
        return f"{name} reports no units.", 1
    otherwise = sum(request.by_engine != request.by_rule for request in reported)
    unreported = len(applied) - len(reported)
    words = f"{name} counts {otherwise} requests differently"
    return f"{words}, and {unreported} not at all." if unreported else f"{words}.", int(otherwise + unreported > 0)


def main() -> int:
    """Count and print; 1 if the engine's counts differ from the rules or are missing, or if there is no engine."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("endpoint", nargs="?")
    console, requests = Console(width=115), list[Billed]()
    try:
        with chosen(options.parse_args().endpoint) as engine:
            for others in (0, OTHERS):
                steps = list(life_of_a_lock(MeteredWorld(engine), others))
                title = f"Beside {others} other holders, each with 256 bytes of data" if others else "One holder"
                console.print(table(f"{title}: capacity units, by the rules and by {engine.name}", steps))
                requests += (request for step in steps for request in step.requests)
    except (LocalCloudError, BotoCoreError, ClientError) as error:
        print(error, file=sys.stderr)
        return 1
    words, code = verdict(requests, engine.name)
    console.print(words, highlight=False)
    return code


if __name__ == "__main__":
    sys.exit(main())
