"""Random schedules in slices: what was searched of some code is kept in a file, and is not searched again.

Each line of the file is a range of seeds with its figures and a digest of the code that they are of. Lines of other
code are left as they are, and do not count. So a search can be ended at any time, begun again, and shared among days,
also if pages or other tests change meanwhile.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from property.failures import Counts
from property.report import chunks

C = TypeVar("C", bound=Counts[Any])


def digest_of_code(root: Path) -> str:
    """A digest of what a search depends on: the product, the modules of tests that are imported by now, the pinned
    packages, and Python.
    """
    imported = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    tests = {Path(file) for file in imported if file is not None and Path(file).is_relative_to(root / "tests")}
    files = {*(root / "src").rglob("*.py"), *tests, root / "requirements.txt"}
    digest = hashlib.sha256(sys.version.encode())
    for file in sorted(files):
        digest.update(f"{file.relative_to(root)}\n{len(file.read_bytes())}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Slices:
    """The random schedules that are asked for, and the results that are known of them.

    Attributes:
        first, schedules: the seeds.
        file: where results are kept; None to keep none.
        code: the digest of the code that they are of.
    """

    first: int
    schedules: int
    file: Path | None = None
    code: str = ""
    _known: dict[tuple[str, int, int], dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.file is not None and self.file.exists():
            for line in self.file.read_text().splitlines():
                with suppress(json.JSONDecodeError):
                    # One that was broken off is searched again.
                    told = json.loads(line)
                    if told.get("code") == self.code:
                        self._known[told["world"], told["from"], told["to"]] = told["found"]

    def parts(
        self, world: str, pool: Executor, search: Callable[[Iterable[int]], C], made: Callable[[Any], C]
    ) -> Iterator[tuple[str, Future[C]]]:
        """The result of each range of seeds, kept as soon as it is known.

        Args:
            search: searches a range, in another process.
            made: makes a result of what was kept of it.
        """
        for seeds in chunks(self.schedules, self.first):
            known = self._known.get((world, seeds.start, seeds.stop))
            if known is None:
                result = pool.submit(search, seeds)
                result.add_done_callback(partial(self._keep, world, seeds))
            else:
                result = Future()
                result.set_result(made(known))
            yield "", result

    def _keep(self, world: str, seeds: range, done: Future[C]) -> None:
        if self.file is None or done.cancelled() or done.exception() is not None:
            return
        told = {"code": self.code, "world": world, "from": seeds.start, "to": seeds.stop}
        with self.file.open("a") as file:
            # It begins with the end of a line: the one before may have been broken off.
            file.write(f"\n{json.dumps({**told, 'found': done.result().told()})}\n")
