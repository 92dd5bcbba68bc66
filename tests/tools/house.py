"""The size of the house: lines, files, words, floors, and how many files one call passes; beside the goals.

``PYTHONPATH=tests:functions python -m tools.house`` prints the table; ``--files`` names what each call passes.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

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


def tracked(*folders: str, ends: str) -> list[Path]:
    """The files of git, so that nothing generated counts."""
    found = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in found.stdout.split() if name.endswith(ends) and (ROOT / name).exists()]


def lines(*folders: str) -> str:
    files = tracked(*folders, ends=".py")
    return f"{sum(len(file.read_text().splitlines()) for file in files):,} lines, {len(files)} files"


def words() -> str:
    files = tracked("README.md", "docs", ends=".md")
    return f"{sum(len(file.read_text().split()) for file in files):,} words, {len(files)} pages"


def names_defined_twice() -> dict[str, set[str]]:
    """Class and type names of the product that several files define; a face for tasks is a twin, not a second one."""
    return defined_twice(file for file in tracked(*PRODUCT, ends=".py") if "aio" not in file.parts)


def passed(call: Callable[[], object]) -> set[str]:
    """The files of the library of which the call runs a function, without what the table in memory runs."""
    found: set[str] = set()
    within: list[FrameType] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            name = path.relative_to(PACKAGE).as_posix()
            if name.startswith("testing/_") and not name.endswith("_clock.py"):
                within.append(frame)
            elif not within:
                found.add(name)
        elif event == "return" and within and within[-1] is frame:
            within.pop()

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return {name for name in found if not name.startswith("testing/")}


def ways() -> dict[str, set[str]]:
    """The files that each of three calls passes, on a table in memory."""
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
        turn_of(workflow, execution_arn(), {"entity": "b"}, place="charge", leaseSeconds=60, workMachine="")

    return {
        "a unit of two updates": passed(two_updates),
        "an uncontended `acquire`": passed(acquire),
        "the `take_ticket` step": passed(take_ticket),
    }


def rows() -> list[tuple[str, str, str, str]]:
    """What is measured, before the redesign (at 652ba46), the goal, and now."""
    by_call = ways()
    library = arrows(ROOT / "src", "ticketlock")
    rooms = {name for module in library if (name := ".".join(module.split(".")[:2]))}
    twice = names_defined_twice()
    benchmarks = lines("benchmarks")
    found = [
        ("`src/ticketlock`", "26,600 lines, 204 files", "24,500 lines, 105 files", lines("src/ticketlock")),
        ("`infra` and `functions`", "11,300 lines, 119 files", "8,500 lines, 75 files", lines("infra", "functions")),
        ("`benchmarks`", "6,800 lines", "4,000 lines", benchmarks),
        ("`tests`", "65,800 lines, 419 files", "58,000 lines, 300 files", lines("tests")),
        ("README and `docs`", "87,500 words, 81 pages", "55,000 words, 42 pages", words()),
    ]
    for (name, files), (before, goal) in zip(by_call.items(), (("46", "28"), ("33", "22"), ("26", "18")), strict=True):
        found.append((f"files that {name} passes", before, goal, str(len(files))))
    return [
        *found,
        ("names of classes and types with two meanings", "40", "5", str(len(twice))),
        ("import circles", "0", "0", str(int(bool(circle(library))))),
        ("floors of packages", "9", "9", str(height(between(library, rooms)))),
    ]


def main(arguments: Sequence[str]) -> None:
    """Print the table; with ``--files`` what each call passes, and where a name is defined twice."""
    table = Table("", "before", "goal", "now")
    for row in rows():
        table.add_row(*row)
    console = Console(width=120)
    console.print(table)
    if "--files" in arguments:
        for name, files in (ways() | names_defined_twice()).items():
            console.print(f"{name}: {' '.join(sorted(each.removeprefix(f'{ROOT}/') for each in files))}")


if __name__ == "__main__":
    main(sys.argv[1:])
