"""Calls of Python functions that the library and the engine in memory make: a busy machine does not change them.

    make bench, or: PYTHONPATH=tests python benchmarks/calls.py [--renew]

``tests/kit/calls.py`` counts them and has their bounds, which a test of `make test` checks, too.
"""

import sys

from frame import Run, main
from kit.calls import MOST, counted


def measure(run: Run) -> None:
    """Print both counts beside their bounds."""
    rows: list[tuple[str, int, int, int, int]] = []
    for what, (library, engine) in counted():
        most, most_of_engine = MOST.get(what, (0, 0))
        rows.append((what, library, most, engine, most_of_engine))
        run.check(f"{what}: at most {most} and {most_of_engine} calls", library <= most and engine <= most_of_engine)
    run.table("calls of Python functions", ("what", "the library", "at most", "the engine", "at most"), rows)
    if run.flags.renew:
        for what, library, _, engine, _ in rows:
            run.print(f'    "{what}": ({library * 11 // 10}, {engine * 11 // 10}),')


if __name__ == "__main__":
    renew = ("--renew", {"action": "store_true", "help": "print new bounds, a tenth above the counts"})
    sys.exit(main(measure, __doc__, "changes nothing: it takes a second", renew))
