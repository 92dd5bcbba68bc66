"""Long histories: each run ends with a verdict, also if it fails."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kit.crowd import Crowd
from kit.engines import create_table
from kit.kept import Kept
from kit.lines import ENTITY, line
from kit.lock_history import Recorder
from kit.lock_model import Verdict
from kit.programs import LEASE_S, Programs, Shared
from kit.recorded import RecordedLocks
from kit.works import TWO, several
from ticketlock_local.engines.emulator import Emulator
from ticketlock_local.errors import EmulatorError
from tools.long_history import judged

from ticketlock import LockClient, RecordWaitExceeded
from ticketlock.wire._sdk import make_client

pytestmark = pytest.mark.verify("tests no part of the product")


@pytest.fixture
def recorded(request: pytest.FixtureRequest) -> Iterator[Kept]:
    """A history that may end badly."""
    kept = Kept(request.node.name)
    yield kept
    kept.remove()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (AssertionError("a grant of order-42 did not come about in 30.0 s"), "AssertionError: a grant of order-42 did"),
        (EmulatorError("it did not start:\n  no such file"), "EmulatorError: it did not start: no such file"),
        (RecordWaitExceeded("not the turn"), "RecordWaitExceeded: not the turn"),
        (BrokenPipeError(), "BrokenPipeError"),
    ],
)
def test_a_run_that_fails_says_so_in_a_line_and_is_judged_and_drawn(
    recorded: Kept, error: Exception, reason: str
) -> None:
    def ends_badly() -> Verdict:
        late = [replace(each, local_ms=2_500) if each.kind == "holds" else each for each in line(2)]
        recorded.write(late)
        raise error

    first, *failures = judged(recorded, ends_badly).failures
    assert first.startswith(f"the run failed: {reason}")
    assert "\n" not in first
    assert [failure.partition(":")[0] for failure in failures] == ["exclusion"]
    recorded.draw(first)
    assert recorded.picture.exists()


def test_a_run_that_ends_before_anything_was_recorded_is_drawn(recorded: Kept) -> None:
    def ends_badly() -> Verdict:
        raise EmulatorError("it did not start")

    (failure,) = judged(recorded, ends_badly).failures
    assert failure == "the run failed: EmulatorError: it did not start"
    recorded.draw("it did not start")
    assert recorded.picture.exists()


def test_the_end_of_a_crowd_comes_after_the_leases_of_its_crashed_processes(emulator: Emulator, kept: Kept) -> None:
    table = create_table(make_client(endpoint_url=emulator.endpoint))
    shared = Shared(emulator.endpoint, table, ENTITY, str(kept.path))
    crowd = Crowd(shared, Programs(shared), kept)
    with LockClient(table, client=shared.client(), lease=LEASE_S, heartbeat=False) as locks:
        dies = RecordedLocks(locks, Recorder(Path(shared.history), "dies"))
        dies.acquire(several(ENTITY), permits=TWO)
        crowd.end()
        assert crowd.verdict().failures == ()
