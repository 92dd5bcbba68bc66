"""``make spec``: TLC searches every state of the whole models, and finds what breaks without each condition."""

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console
from rich.table import Table
from specs.models import TABLES, WHOLE, Needed
from specs.tlc import Model, NotRun, Result, check, is_here

CONSOLE = Console(width=140)
HELD, NONE = "all hold", "none"


def _searched(models: Sequence[Model], workers: int) -> int:
    """Search whole models, one after the other; returns how many failed."""
    table = Table("specification", "model", "states", "longest way", "s", "promises", title="Every state")
    failed = 0
    for model in models:
        result = check(model, workers=workers)
        table.add_row(
            model.module,
            model.name,
            f"{result.states:,}",
            str(result.steps),
            f"{result.seconds:.0f}",
            result.broken or HELD,
        )
        if result.broken is not None:
            failed += 1
            CONSOLE.print(result.trace, markup=False)
    CONSOLE.print(table)
    return failed


def _left_out(title: str, conditions: Sequence[Needed], workers: int) -> int:
    """Search without each condition, some at a time; returns how often another promise was broken, or none."""
    table = Table("without", "breaks", "in so many steps", "states", "s", "model", title=title)
    failed = 0

    def search(needed: Needed) -> Result:
        return check(needed.model, needed.condition)

    with ThreadPoolExecutor(workers) as pool:
        for needed, result in zip(conditions, pool.map(search, conditions), strict=True):
            as_expected = result.broken == needed.breaks
            failed += not as_expected
            broken = result.broken or NONE
            table.add_row(
                needed.condition,
                broken if as_expected else f"[red]{broken}, not {needed.breaks}",
                str(result.steps),
                f"{result.states:,}",
                f"{result.seconds:.0f}",
                needed.model.name,
            )
    CONSOLE.print(table)
    return failed


def main() -> int:
    """Search, print the tables, and fail if a promise is broken, or if a condition is not needed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2, help="how many processors TLC uses")
    parser.add_argument("--conditions", action="store_true", help="only what breaks without each condition")
    asked = parser.parse_args()
    if not is_here():
        CONSOLE.print("NOT CHECKED: TLC needs Java, and Maven, which installs it; there is no `java` or no `mvn` here")
        return 1
    began = time.perf_counter()
    try:
        failed = 0 if asked.conditions else _searched(WHOLE, asked.workers)
        for title, conditions in TABLES.values():
            failed += _left_out(f"{title}: what breaks without a condition", conditions, asked.workers)
    except NotRun as error:
        CONSOLE.print(str(error), markup=False)
        return 1
    CONSOLE.print(f"{failed} failures, {time.perf_counter() - began:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
