"""The size of the project beside its goals: lines, files, words, layers of packages, and the files that a call runs.

``PYTHONPATH=tests:functions python -m tools.house`` prints the table; ``--files`` names what each call passes.
"""

import subprocess
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from kit.architecture import arrows, between, circle, defined_twice, height
from kit.events import execution_arn, turn_of
from rich.console import Console
from rich.table import Table

import ticketlock
from ticketlock import LockClient, LockTable
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.units import Units, create_units_table
from ticketlock.workflow import Workflow

ROOT = Path(__file__).parents[2]
PACKAGE = Path(ticketlock.__file__).parent
PRODUCT = ("src/ticketlock", "infra/ticketlock_cdk", "functions")
NO_MACHINE = ""


def tracked(*folders: str, ends: str) -> list[Path]:
    """The files of git, so that nothing generated counts."""
    found = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in found.stdout.split() if name.endswith(ends) and (ROOT / name).exists()]


def lines(*folders: str) -> str:
    """The lines and the number of the Python files in these folders, in words."""
    files = tracked(*folders, ends=".py")
    return f"{sum(len(file.read_text().splitlines()) for file in files):,} lines, {len(files)} files"


def words() -> str:
    """The words and the number of the pages, in words."""
    files = tracked("README.md", "docs", ends=".md")
    return f"{sum(len(file.read_text().split()) for file in files):,} words, {len(files)} pages"


def names_defined_twice() -> dict[str, set[str]]:
    """Class and type names of the product that several files define; a face for tasks is a twin, not a second one."""
    return defined_twice(file for file in tracked(*PRODUCT, ends=".py") if "aio" not in file.parts)


def files_run_by(call: Callable[[], object]) -> set[str]:
    """The files of the library of which a call runs a function.

    Without what the table in memory runs, which stands for DynamoDB; but with its clock, which the library reads.
    """
    found: set[str] = set()
    of_the_table: FrameType | None = None

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal of_the_table
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            name = path.relative_to(PACKAGE).as_posix()
            if of_the_table is not None:
                return
            if name.startswith("testing/_") and not name.endswith("_clock.py"):
                of_the_table = frame
            else:
                found.add(name)
        elif event == "return" and of_the_table is frame:
            of_the_table = None

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return {name for name in found if not name.startswith("testing/")}


def files_of_three_calls() -> dict[str, set[str]]:
    """The files that each of three calls runs, by what the call is."""
    clock = ManualClock()
    memory = MemoryDynamoDB(lock_table="locks", clock=clock)
    never_called: Any = object()
    workflow = Workflow(LockTable("locks", client=memory.client, step_functions=never_called, clocks=clock))
    create_units_table("units", client=memory.client)
    for name in ("ann", "ben"):
        memory.put_item(TableName="locks", Item={"pk": {"S": name}, "sk": {"S": "balance"}, "balance": {"N": "10"}})
    units = Units("units", client=memory.client, clocks=clock, sleep=clock.sleep)
    accounts = units.table("locks")

    def two_updates() -> None:
        with units.begin() as unit:
            unit.update(accounts, {"pk": "ann", "sk": "balance"}, "SET balance = balance - :n", {":n": 1})
            unit.update(accounts, {"pk": "ben", "sk": "balance"}, "SET balance = balance + :n", {":n": 1})

    def acquire() -> None:
        with LockClient("locks", client=memory.client, clocks=clock, heartbeat=False) as locks:
            locks.acquire("an entity")

    def take_ticket() -> None:
        turn_of(workflow, execution_arn(), {"entity": "b"}, place="charge", leaseSeconds=60, workMachine=NO_MACHINE)

    return {
        "a unit of two updates": files_run_by(two_updates),
        "an uncontended `acquire`": files_run_by(acquire),
        "the `take_ticket` step": files_run_by(take_ticket),
    }


class Measure(NamedTuple):
    """A row of the table.

    Attributes:
        before: at commit 652ba46, in November 2026, before files were merged by subject.
        goal: at most this.
    """

    name: str
    before: str
    goal: str
    now: str


def measures(calls: Mapping[str, Collection[str]]) -> list[Measure]:
    """All rows.

    Args:
        calls: the files that each call runs.
    """
    library = arrows(ROOT / "src", "ticketlock")
    packages = {".".join(module.split(".")[:2]) for module in library}
    unit, acquire, take_ticket = (str(len(files)) for files in calls.values())
    return [
        Measure("`src/ticketlock`", "26,600 lines, 204 files", "24,500 lines, 105 files", lines("src/ticketlock")),
        Measure(
            "`infra` and `functions`", "11,300 lines, 119 files", "8,500 lines, 75 files", lines("infra", "functions")
        ),
        Measure("`benchmarks`", "6,800 lines", "4,000 lines", lines("benchmarks")),
        Measure("`tests`", "65,800 lines, 419 files", "58,000 lines, 300 files", lines("tests")),
        Measure("README and `docs`", "87,500 words, 81 pages", "55,000 words, 42 pages", words()),
        Measure("files that a unit of two updates runs", "46", "28", unit),
        Measure("files that an uncontended `acquire` runs", "33", "22", acquire),
        Measure("files that the `take_ticket` step runs", "26", "18", take_ticket),
        Measure("names of classes and types with two meanings", "40", "5", str(len(names_defined_twice()))),
        Measure("has an import cycle", "no", "no", "yes" if circle(library) else "no"),
        Measure("layers of packages", "9", "9", str(height(between(library, packages)))),
    ]


def main() -> None:
    """Print the table; with ``--files`` what each call runs, and where a name is defined twice."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--files", action="store_true", help="the files that each call runs; names defined twice")
    arguments = parser.parse_args()
    calls = files_of_three_calls()
    table = Table("", "before", "goal", "now")
    for measure in measures(calls):
        table.add_row(*measure)
    console = Console(width=120)
    console.print(table)
    if arguments.files:
        for name, files in (calls | names_defined_twice()).items():
            console.print(f"{name}: {' '.join(sorted(each.removeprefix(f'{ROOT}/') for each in files))}")


if __name__ == "__main__":
    main()
