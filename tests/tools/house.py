"""The size of the project beside its goals, and a line that it must not cross.

``make sizes`` prints the table, and writes what fell into ``size.json``; ``--check``, a part of ``make check``, fails
if a figure is greater than that file says. Who raises a figure edits the file in the same commit, and says why in
``raised``. ``--files`` names what each call runs, and the names that other rooms import. ``--uncovered`` does the same
with a report of ``make coverage``.
"""

import json
import subprocess
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from kit.architecture import arrows, between, circle, defined_twice, height, imported_names, room_of
from kit.events import execution_arn, turn_of
from rich.console import Console
from rich.table import Table

import ticketlock
from ticketlock import LockClient, LockTable
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.units import Units, create_units_table
from ticketlock.workflow import Workflow

ROOT = Path(__file__).parents[2]
SIZES = ROOT / "size.json"
PACKAGE = Path(ticketlock.__file__).parent
PRODUCT = ("src/ticketlock", "infra/ticketlock_cdk", "functions")
ROOMS = ("units", "locks", "wire", "client", "workflow", "report", "testing", "cli", "_expressions")
ROOMS_OF_UNITS = tuple(
    f"units.{room}"
    for room in ("_like_boto3", "_unit_of_work", "_again", "_recovery", "_commit", "_statements", "_records", "_words")
)
NO_MACHINE = ""


def tracked(*folders: str, ends: str) -> list[Path]:
    """The files of git, so that nothing generated counts."""
    found = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in found.stdout.split() if name.endswith(ends) and (ROOT / name).exists()]


def lines(files: Iterable[Path]) -> int:
    return sum(len(file.read_text().splitlines()) for file in files)


def words(files: Iterable[Path]) -> int:
    return sum(len(file.read_text().split()) for file in files)


def names_defined_twice() -> dict[str, set[str]]:
    """Class and type names of the product that several files define; a face for tasks is a twin, not a second one."""
    return defined_twice(file for file in tracked(*PRODUCT, ends=".py") if "_for_tasks" not in file.parts)


def names_at_the_door(room: str, folder: Path, package: str = "ticketlock") -> set[str]:
    """The names of a room of the library that the files of a folder import, if they are in no part of that room."""
    home = f"ticketlock.{room}"
    return {
        name.removeprefix(f"{home}.")
        for module, names in imported_names(folder, package).items()
        if room_of(module, ["ticketlock", package, home]) != home
        for name in names
        if name.startswith(f"{home}.")
    }


@dataclass
class Walk:
    """What a call runs of the library, without what the table in memory runs, which stands for DynamoDB.

    Attributes:
        functions: each with its file.
        hops: calls of a function from another file.
    """

    functions: set[tuple[str, str, int]] = field(default_factory=set)
    hops: int = 0

    @property
    def files(self) -> set[str]:
        return {file for file, _, _ in self.functions}

    def of(self, call: Callable[[], object]) -> "Walk":
        """Note what this call runs."""
        sys.setprofile(self._note)
        try:
            call()
        finally:
            sys.setprofile(None)
        return self

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        file = _file_of(frame)
        if event != "call" or file is None or any(map(_is_of_the_table, _callers(frame))):
            return
        code = frame.f_code
        self.functions.add((file, code.co_qualname, code.co_firstlineno))
        caller = next(filter(None, map(_file_of, _callers(frame.f_back))), file)
        self.hops += caller != file


def _callers(frame: FrameType | None) -> Iterable[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _file_of(frame: FrameType) -> str | None:
    name = frame.f_code.co_filename.removeprefix(f"{PACKAGE}/")
    return None if name == frame.f_code.co_filename else name


def _is_of_the_table(frame: FrameType) -> bool:
    return (_file_of(frame) or "").startswith("testing/")


def walks() -> dict[str, Walk]:
    """What five calls run, by what the call is; nothing is run for the first time."""
    clock = ManualClock()
    memory = MemoryDynamoDB(lock_table="locks", clock=clock)
    never_called: Any = object()
    workflow = Workflow(LockTable("locks", client=memory.client, step_functions=never_called, clocks=clock))
    create_units_table("units", client=memory.client)
    for name in ("ann", "ben"):
        memory.put_item(TableName="locks", Item={"pk": {"S": name}, "sk": {"S": "balance"}, "balance": {"N": "10"}})
    units = Units("units", client=memory.client, clocks=clock, sleep=clock.sleep)
    accounts = units.table("locks")
    locks = LockClient("locks", client=memory.client, clocks=clock, heartbeat=False)

    def two_updates(engine: Any = None) -> None:
        with units.begin(engine=engine) as unit:
            unit.update(accounts, {"pk": "ann", "sk": "balance"}, "SET balance = balance - :n", {":n": 1})
            unit.update(accounts, {"pk": "ben", "sk": "balance"}, "SET balance = balance + :n", {":n": 1})

    def marked() -> None:
        two_updates("marked")

    def acquire() -> None:
        with locks.acquire("an entity"):
            pass

    def refused() -> None:
        assert locks.try_acquire("held") is None

    def take_ticket() -> None:
        turn_of(workflow, execution_arn(), {"entity": "b"}, place="charge", leaseSeconds=60, workMachine=NO_MACHINE)

    calls = {
        "a unit of two updates": two_updates,
        "the same, marked": marked,
        "`acquire` and release": acquire,
        "`try_acquire` of a held lock": refused,
        "the `take_ticket` step": take_ticket,
    }
    # An object, not a block: a caller inside of a block would be told that it waits for itself.
    locks.acquire("held")
    for call in calls.values():
        call()
    return {name: Walk().of(call) for name, call in calls.items()}


@dataclass(frozen=True)
class Row:
    """A figure.

    Attributes:
        before: at two commits, both in November 2026: 652ba46, before files were merged by subject, and 2217ae99.
        goal: at most this; None for none.
    """

    name: str
    before: tuple[str, str]
    goal: int | None
    now: int


def rows() -> list[Row]:
    """All figures."""
    library = arrows(ROOT / "src", "ticketlock")
    units = {module: names for module, names in library.items() if module.startswith("ticketlock.units.")}
    within = between(
        {module: names & units.keys() for module, names in units.items()}, _parts(units, "ticketlock.units")
    )
    tests = tracked("tests", ends=".py")
    walked = walks()
    found = [
        Row("lines of src", ("26,600", "31,600"), 31_000, lines(tracked("src", ends=".py"))),
        Row("files of src", ("204", "136"), None, len(tracked("src", ends=".py"))),
        Row("lines of infra and functions", ("11,300", ""), None, lines(tracked("infra", "functions", ends=".py"))),
        Row("lines of benchmarks", ("6,800", ""), None, lines(tracked("benchmarks", ends=".py"))),
        Row("lines of tests", ("65,800", "74,900"), 66_000, lines(tests)),
        Row(
            "of them machinery (not `test_*.py`)",
            ("18,000", "25,000"),
            18_000,
            lines(file for file in tests if not file.name.startswith("test_")),
        ),
        Row("words of README and docs", ("83,800", "59,100"), 52_000, words(tracked("README.md", "docs", ends=".md"))),
    ]
    for room in (*ROOMS, *ROOMS_OF_UNITS):
        before, goal = _DOORS.get(room, (("", ""), None))
        found.append(Row(f"names of `{room}` that other rooms import", before, goal, len(_door(room))))
    private = {name for room in ROOMS for name in names_at_the_door(room, ROOT, "tests") if _is_private(name)}
    found += [
        Row("private names that tests import", ("", ""), None, len(private)),
        Row("floors of `units`", ("18", "18"), 10, height(within)),
        Row("imports within `units`", ("273", "173"), 55, sum(map(len, within.values()))),
        Row("floors of the library", ("9", "9"), 9, height(between(library, _parts(library, "ticketlock")))),
        Row("import cycles", ("0", "0"), 0, int(bool(circle(library)))),
        Row("names of classes and types with two meanings", ("40", "2"), 5, len(names_defined_twice())),
    ]
    for name, walk in walked.items():
        before, goal = _WALKS.get(name, (("", ""), None))
        found.append(Row(f"functions that {name} runs", before, goal, len(walk.functions)))
        found.append(Row(f"its calls into another file ({name})", ("", ""), None, walk.hops))
    return found


_DOORS = {
    "units": (("", "81"), 28),
    "locks": (("", "66"), 30),
    "wire": (("", "57"), 35),
    "client": (("", "20"), 5),
}
_WALKS = {"a unit of two updates": (("200", "214"), 180), "the same, marked": (("240", "295"), 240)}


def _parts(modules: Iterable[str], package: str) -> set[str]:
    """The rooms of a package, and its files that are in none."""
    return {".".join(module.split(".")[: package.count(".") + 2]) for module in modules}


def _is_private(name: str) -> bool:
    return any(part.startswith("_") for part in name.split("."))


def _door(room: str) -> set[str]:
    return names_at_the_door(room, ROOT / "src")


def greater(found: Mapping[str, int], said: Mapping[str, int]) -> list[str]:
    """The figures that are greater than a file says, or that it does not have, in words."""
    return [
        f"{name}: {now:,}, and size.json says {said[name]:,}" if name in said else f"{name}: {now:,}, not in size.json"
        for name, now in found.items()
        if now > said.get(name, -1)
    ]


def uncovered(report: Path) -> list[Row]:
    """What ran in none of the tests that wrote a JSON report of coverage."""
    totals = json.loads(report.read_text())["totals"]
    return [
        Row(f"{what} of src that `make test` does not run", ("", ""), None, totals[f"missing_{what}"])
        for what in ("lines", "branches")
    ]


def main(arguments: Iterable[str] | None = None, file: Path = SIZES) -> int:
    """Print the table, and write what fell; fail if a figure grew."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="say which figures grew, and write nothing")
    parser.add_argument("--files", action="store_true", help="the files that each call runs; names that others import")
    parser.add_argument("--uncovered", type=Path, metavar="REPORT", help="the figures of this report in place of sizes")
    given = parser.parse_args(None if arguments is None else [*arguments])
    kept = json.loads(file.read_text())
    section, found = ("uncovered", uncovered(given.uncovered)) if given.uncovered else ("figures", rows())
    now = {row.name: row.now for row in found}
    grown = greater(now, kept[section])
    for each in grown:
        sys.stderr.write(f"{each}\n")
    if grown:
        sys.stderr.write("Make it smaller, or raise the figure in size.json and say why in `raised`.\n")
    if given.check:
        return bool(grown)
    table = Table("", "652ba46", "2217ae99", "now", "goal")
    for row in found:
        table.add_row(row.name, *row.before, f"{row.now:,}", "" if row.goal is None else f"{row.goal:,}")
    console = Console(width=120)
    console.print(table)
    if given.files:
        of_rooms = {f"names of {room}": _door(room) for room in (*ROOMS, *ROOMS_OF_UNITS)}
        files = {name: walk.files for name, walk in walks().items()}
        for name, all_of_it in (files | of_rooms | names_defined_twice()).items():
            console.print(f"{name}: {' '.join(sorted(each.removeprefix(f'{ROOT}/') for each in all_of_it))}")
    kept[section] = {name: min(each, kept[section].get(name, each)) for name, each in now.items()}
    file.write_text(json.dumps(kept, indent=2) + "\n")
    return bool(grown)


if __name__ == "__main__":
    sys.exit(main())
