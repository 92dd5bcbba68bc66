"""The history of a test: recorded while it runs; kept and drawn if it fails."""

import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from kit.lock_history import Event, Seen, history
from kit.lock_model import History, judge
from kit.picture import drawn
from ticketlock_local.checkout import BUILD, ROOT
from ticketlock_local.demo.checks import Verdict

from ticketlock import LockState

FOLDER = BUILD / "histories"


class Kept:
    """A history in a file, to which recorders of any process append.

    Args:
        name: of the file and of the picture.

    Attributes:
        path: the file.
    """

    def __init__(self, name: str) -> None:
        FOLDER.mkdir(parents=True, exist_ok=True)
        self.path = FOLDER / f"{name}.jsonl"
        self.picture = self.path.with_suffix(".svg")
        self.remove()
        self.path.touch()
        self._seen = Seen(self.path)

    def write(self, events: Iterable[Event]) -> None:
        """Replace it by events that were recorded elsewhere."""
        self.path.write_text("".join(event.line() for event in events), encoding="utf-8")
        self._seen = Seen(self.path)

    def events(self) -> list[Event]:
        """All events that were recorded so far."""
        return self._seen.events()

    def read(self) -> History:
        return history(self.events())

    def check(self, left: Mapping[str, LockState], counters: Mapping[str, int] | None = None) -> Verdict:
        """Check it; fails with what is broken."""
        verdict = judge(self.read(), left, counters)
        assert verdict.passed, "\n".join(verdict.failures)
        return verdict

    def draw(self, why: str) -> str:
        """Draw it. Returns where the history and its picture are."""
        self.picture.write_text(drawn(self.events(), self.path.stem, why).to_svg(), encoding="utf-8")
        return f"{_shown(self.path)} and, drawn, {_shown(self.picture)}"

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.picture.unlink(missing_ok=True)


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


_failed: pytest.StashKey[bool] = pytest.StashKey()


@pytest.fixture
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    """The history of the test."""
    name = re.sub(r"\W+", "-", request.node.nodeid.removeprefix("tests/")).strip("-")
    kept = Kept(name)
    yield kept
    if not request.node.stash.get(_failed, False):
        kept.remove()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report where the history of a failed test is."""
    report = yield
    kept = getattr(item, "funcargs", {}).get("kept")
    # A failure in the test's teardown may come after its history was removed.
    if report.failed and kept is not None and kept.path.exists():
        item.stash[_failed] = True
        reason = str(report.longrepr).splitlines()[-1] if report.longrepr else ""
        report.sections.append(("history", kept.draw(reason)))
    return report
