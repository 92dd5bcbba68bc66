"""``make spec``: TLC searches every state of the whole models, and finds what breaks without each condition.

What it finds as it should is written into spec/found.json.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

from property.specs.found import WHOLE, Search, note, without
from property.specs.histories import RARE, WORLDS, recorded
from property.specs.models import TABLES, conditions_of
from property.specs.tlc import NotRun, check, is_here
from rich.console import Console
from rich.table import Table

CONSOLE = Console(width=140)
HELD, NONE = "all hold", "none"
PARTS = ("states", "conditions", "histories")


def _searched(searches: Sequence[Search], workers: int) -> int:
    """Search whole models, one after the other; returns how many failed."""
    table = Table(
        "specification", "model", "states", "longest way", "s", "promises", title="Every state, or ways at random"
    )
    failed = 0
    for search in searches:
        result = check(search.model, workers=workers)
        table.add_row(
            search.model.module,
            search.model.name,
            f"{result.states:,}",
            str(result.steps),
            f"{result.seconds:.0f}",
            result.broken or HELD,
        )
        if result.broken is not None:
            failed += 1
            CONSOLE.print(result.trace, markup=False)
        else:
            note([(search, result)])
    CONSOLE.print(table)
    return failed


def _left_out(title: str, searches: Sequence[Search], workers: int) -> int:
    """Search without each condition, some at a time; returns how often another promise was broken, or none."""
    table = Table("without", "breaks", "in so many steps", "states", "s", "model", title=title)
    failed = 0

    with ThreadPoolExecutor(workers) as pool:
        for one, result in zip(searches, pool.map(lambda each: check(each.model, each.without), searches), strict=True):
            as_expected = result.broken == one.breaks
            failed += not as_expected
            if as_expected:
                note([(one, result)])
            broken = result.broken or NONE
            table.add_row(
                one.without,
                broken if as_expected else f"[red]{broken}, not {one.breaks}",
                str(result.steps),
                f"{result.states:,}",
                f"{result.seconds:.0f}",
                one.model.name,
            )
    CONSOLE.print(table)
    return failed


def _replayed(schedules: int, workers: int) -> int:
    """Replay what schedules of the simulated worlds send; returns how often a step was none of the specification."""
    table = Table(
        "world", "schedules", "requests", "different steps", "s", "steps of", title="Histories of the simulated worlds"
    )
    failed = 0
    for world in WORLDS:
        began = time.perf_counter()
        with ProcessPoolExecutor(workers) as pool:
            histories = recorded(world, schedules, pool)
        disagreed = []
        for model in histories.models():
            result = check(model)
            if result.broken is not None:
                disagreed.append(result.broken)
                CONSOLE.print(result.trace, markup=False)
        missing = conditions_of(histories.module) - histories.conditions - RARE
        if missing:
            disagreed.append(f"no request states {', '.join(sorted(missing))}")
        failed += len(disagreed)
        table.add_row(
            world,
            f"{histories.schedules:,}",
            f"{histories.requests:,}",
            f"{histories.count:,}",
            f"{time.perf_counter() - began:.0f}",
            f"[red]{', '.join(disagreed)}" if disagreed else histories.module,
        )
    CONSOLE.print(table)
    return failed


def main() -> int:
    """Search, print the tables, and fail if a promise is broken, or if a condition is not needed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2, help="how many processors TLC uses")
    parser.add_argument("--only", choices=PARTS, action="append", help="of: %(choices)s")
    parser.add_argument("--schedules", type=int, default=1_000, help="how many histories of each world")
    asked = parser.parse_args()
    if not is_here():
        CONSOLE.print("NOT CHECKED: TLC needs Java, and Maven, which installs it; there is no `java` or no `mvn` here")
        return 1
    began, parts, failed = time.perf_counter(), asked.only or PARTS, 0
    try:
        if "states" in parts:
            failed += _searched(WHOLE, asked.workers)
        if "conditions" in parts:
            for title, conditions in TABLES.values():
                failed += _left_out(f"{title}: what breaks without a condition", without(conditions), asked.workers)
        if "histories" in parts:
            failed += _replayed(asked.schedules, asked.workers)
    except NotRun as error:
        CONSOLE.print(str(error), markup=False)
        return 1
    CONSOLE.print(f"{failed} failures, {time.perf_counter() - began:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
