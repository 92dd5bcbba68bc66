"""Benchmarks run to their end, and a failed check fails the run."""

import os
import re
import shutil
import subprocess
import sys
import uuid
from argparse import Namespace
from pathlib import Path

import pytest
from counting_proxy import counting_proxy
from frame import Run, main
from ticketlock_local.engines.emulator import Emulator

from ticketlock import LockClient, create_table
from ticketlock.wire._sdk import make_client

pytestmark = pytest.mark.verify("tests no part of the product")

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize(("kept", "status"), [(True, 0), (False, 1)])
def test_a_failed_check_fails_the_run(monkeypatch: pytest.MonkeyPatch, kept: bool, status: int) -> None:
    def measure(run: Run) -> None:
        run.check("another one", True)
        run.check("the one", kept)

    monkeypatch.setattr(sys, "argv", ["benchmark.py"])
    assert main(measure, "A benchmark.", "less") == status


@pytest.mark.parametrize(
    ("quick", "bound", "figure", "kept"),
    [
        (False, {"most": 2}, 2, True),
        (False, {"most": 2}, 2.01, False),
        (False, {"least": 2}, 1.99, False),
        (True, {"most": 2}, 3, True),
        (True, {"most": 2}, 3.01, False),
        (True, {"least": 3}, 1.99, False),
    ],
)
def test_a_comparison_has_room_in_a_short_run_alone(
    quick: bool, bound: dict[str, float], figure: float, kept: bool
) -> None:
    run = Run(Namespace(quick=quick))
    run.compare("a share", figure, **bound, room=1.5)
    assert [each.kept for each in run.checks] == [kept]


@pytest.mark.parametrize(
    ("quick", "figures", "promises", "times", "failed"),
    [
        (True, [1], [True], 1, []),
        (True, [2, 2, 1], [True] * 3, 3, []),
        (True, [2, 2, 2], [True] * 3, 3, ["a share"]),
        # A promise must be kept each time.
        (True, [2, 1], [False, True], 2, ["a promise"]),
        (False, [2, 1], [True] * 2, 1, ["a share"]),
    ],
)
def test_a_short_run_measures_a_part_that_misses_a_comparison_up_to_three_times(
    quick: bool, figures: list[float], promises: list[bool], times: int, failed: list[str]
) -> None:
    """The figure of the part must be at most 1."""
    run, left = Run(Namespace(quick=quick)), [*zip(figures, promises, strict=True)]

    def measure() -> None:
        figure, is_kept = left.pop(0)
        run.compare("a share", figure, most=1, room=1)
        run.check("a promise", is_kept)

    run.part(measure)
    assert (len(figures) - len(left), [each.partition(":")[0] for each in run.failed]) == (times, failed)


def test_the_proxy_between_a_client_and_an_engine_counts_each_request_and_what_it_costs(emulator: Emulator) -> None:
    with counting_proxy(emulator.endpoint) as proxy:
        client = make_client(endpoint_url=proxy.url)
        name = f"locks-{uuid.uuid4().hex}"
        create_table(name, client=client)
        with LockClient(name, client=client) as locks:
            locks.acquire("order-42").release()
            proxy.counts()
            locks.acquire("order-42").release()
            counted = proxy.counts()
        assert dict(counted.requests) == {"UpdateItem": 2}
        assert (counted.write_units, counted.read_units) == (2, None)
        assert not proxy.counts().passed


TARGETS = ("bench", "bench-peer", "soak")
# It needs dynoxide, which cargo builds for minutes; tests/locks/test_capacity_units.py has what it checks.
IN_NO_TARGET = {"capacity_units.py"}


def short_runs(target: str) -> list[str]:
    """The command lines of a target of the Makefile that run a benchmark, as `make verify` runs them."""
    command = ["make", "--dry-run", "--no-print-directory", target, "ARGS=--quick"]
    dry = subprocess.run(command, cwd=BENCHMARKS.parent, capture_output=True, text=True, check=True)
    lines = dry.stdout.replace("\\\n", " ").splitlines()
    # One side needs no other lock.
    return [f"{line} --side ours" if "/peer_locks.py" in line else line for line in lines if "benchmarks/" in line]


LINES = [line for target in TARGETS for line in short_runs(target)]


def test_every_benchmark_has_a_short_run_here() -> None:
    run = {Path(found).name for found in re.findall(r"benchmarks/\S+", "".join(LINES))}
    assert run | IN_NO_TARGET == {path.name for path in BENCHMARKS.glob("*.py") if "sys.exit(main(" in path.read_text()}
    assert [line for line in LINES if " --quick" not in line] == [], "a recipe of the Makefile lacks $(ARGS)"


# A peer is installed first.
@pytest.mark.timeout(1_000)
@pytest.mark.parametrize("line", LINES)
def test_the_short_run_of_every_program_that_prints_figures_succeeds(line: str) -> None:
    if "/units_peer.py" in line and not (shutil.which("java") and shutil.which("mvn")):
        pytest.skip("the peer is a Java library, and this machine has no Java or no Maven")
    # Where cargo is, a benchmark of units would build an engine for some minutes.
    folders = [each for each in os.environ["PATH"].split(os.pathsep) if shutil.which("cargo", path=each) is None]
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=BENCHMARKS.parent,
        env=os.environ | {"PATH": os.pathsep.join(folders)},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert re.search(r"\d", done.stdout), "it prints no figures"
