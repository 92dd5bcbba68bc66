"""Random schedules in slices: what was searched of some code is kept in a file, and is not searched again.

Each line of the file is a range of seeds with its figures and a digest of the code that they are of: what the world
imports. Lines of other code do not count, and go when a search has ended. So a search can be ended at any time, begun
again, and shared among days and machines, also if pages, other tests, or the other world's code change meanwhile.
"""

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from property.failures import Counts
from property.report import chunks

C = TypeVar("C", bound=Counts[Any])
_LAST_SEED = 10**9


WORLDS = {"locks": "property.explore", "units": "property.units.explore"}
"""The module that runs a schedule of each world."""

# With its schedules it prints the modules that are there after them.
_IMPORTED = """
import importlib, sys
of_world = importlib.import_module(sys.argv[1])
for seed in range(int(sys.argv[2])):
    of_world.run(importlib.import_module("property.chance").Seeded(seed))
print(*(file for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))), sep="\\n")
"""


def imported_by(module: str, root: Path, schedules: int = 0) -> set[Path]:
    """The files of the product and of its tests that a module imports, and the first schedules of its world."""
    path = os.pathsep.join(each for each in sys.path if each)
    command = [sys.executable, "-c", _IMPORTED, module, str(schedules)]
    told = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, check=True, capture_output=True, text=True)
    files = map(Path, told.stdout.splitlines())
    return {file for file in files if any(file.is_relative_to(root / part) for part in ("src", "tests"))}


def digest_of_code(root: Path, files: Iterable[Path]) -> str:
    """A digest of what a search depends on: some files, the pinned packages, and Python."""
    files = {*files, root / "requirements.txt"}
    digest = hashlib.sha256(platform.python_version().encode())
    for file in sorted(files):
        digest.update(f"{file.relative_to(root)}\n{len(file.read_bytes())}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Slices:
    """The random schedules that are asked for, and the results that are known of them.

    Attributes:
        first, schedules: the seeds.
        file: where results are kept; None to keep none.
        code: the digests of the code that they are of, by the world.
    """

    first: int
    schedules: int
    file: Path | None = None
    code: Mapping[str, str] = field(default_factory=dict)
    _known: dict[tuple[str, int, int], dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.file is not None and self.file.exists():
            for line in self.file.read_text().splitlines():
                with suppress(json.JSONDecodeError):
                    # One that was broken off is searched again.
                    told = json.loads(line)
                    if told.get("code") == self.code.get(told["world"]):
                        self._known[told["world"], told["from"], told["to"]] = told["found"]

    def parts(
        self, world: str, pool: Executor, search: Callable[[Iterable[int]], C], made: Callable[[Any], C]
    ) -> Iterator[tuple[str, Future[C]]]:
        """The result of each range of seeds, kept as soon as it is known.

        Args:
            search: searches a range, in another process.
            made: makes a result of what was kept of it.
        """
        for known in self._known_of(world):
            result: Future[C] = Future()
            result.set_result(made(self._known[world, known.start, known.stop]))
            yield "", result
        for seeds in self._unknown_of(world):
            result = pool.submit(search, seeds)
            result.add_done_callback(partial(self._keep, world, seeds))
            yield "", result

    def join(self, made: Mapping[str, Callable[[Any], Counts[Any]]], commit: str) -> None:
        """Write ranges of each world that follow one another as one; afterwards the file has no other code's.

        Args:
            made: by the world, makes a result of what was kept of it.
            commit: one that has this code.
        """
        if self.file is None or not self.file.exists():
            return
        every = Slices(0, _LAST_SEED, self.file, self.code)
        lines = []
        for world, make in made.items():
            joined: list[tuple[range, Counts[Any]]] = []
            for seeds in every._known_of(world):
                found = make(every._known[world, seeds.start, seeds.stop])
                if joined and joined[-1][0].stop == seeds.start:
                    before, total = joined.pop()
                    total.add(found)
                    seeds, found = range(before.start, seeds.stop), total
                joined.append((seeds, found))
            lines += [self._line(world, *each, commit=commit) for each in joined]
        # What was joined already, and has not grown, keeps its commit.
        if len(lines) < len(self.file.read_text().splitlines()):
            whole = self.file.with_suffix(".joined")
            whole.write_text("".join(lines))
            whole.replace(self.file)

    def _known_of(self, world: str) -> list[range]:
        """Ranges that were searched before, of those that are asked for, none in another; the longest of each seed."""
        ranges: list[range] = []
        for of, start, stop in sorted(self._known, key=lambda each: (each[1], -each[2])):
            after = ranges[-1].stop if ranges else self.first
            if of == world and after <= start and stop <= self.first + self.schedules:
                ranges.append(range(start, stop))
        return ranges

    def _unknown_of(self, world: str) -> Iterator[range]:
        """The ranges between those."""
        at, end = self.first, self.first + self.schedules
        for known in [*self._known_of(world), range(end, end)]:
            yield from chunks(known.start - at, at)
            at = known.stop

    def _keep(self, world: str, seeds: range, done: Future[C]) -> None:
        if self.file is None or done.cancelled() or done.exception() is not None:
            return
        with self.file.open("a") as file:
            # It begins with the end of a line: the one before may have been broken off.
            file.write("\n" + self._line(world, seeds, done.result()))

    def _line(self, world: str, seeds: range, found: Counts[Any], **more: str) -> str:
        told = {"code": self.code[world], **more, "world": world, "from": seeds.start, "to": seeds.stop}
        return json.dumps({**told, "found": found.told()}) + "\n"
