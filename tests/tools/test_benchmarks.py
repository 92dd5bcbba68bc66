"""Benchmarks run to their end, and a failed check fails the run."""

import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import frame
import pytest
from capacity_units import judge
from counting_proxy import counting_proxy
from frame import Run, main, make_table
from kit.capacity import Billed
from memory_server import memory_server
from ticketlock_local.engines.emulator import Emulator
from ticketlock_local.errors import CargoMissing, LocalCloudError

from ticketlock import LockClient, create_table
from ticketlock.units import Units, create_units_table
from ticketlock.wire._sdk import make_client

pytestmark = pytest.mark.verify("tests no part of the product")

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
THREADS = 8
# Items in one transaction of DynamoDB.
MOST_TOGETHER = 100


def started(monkeypatch: pytest.MonkeyPatch, measure: Callable[[Run], None], *arguments: str) -> int:
    """The exit status of a benchmark."""
    monkeypatch.setattr(sys, "argv", ["benchmark.py", *arguments])
    return main(measure, "A benchmark.", "less")


@pytest.mark.parametrize("arguments", [[], ["--quick"]])
@pytest.mark.parametrize(("kept", "status"), [(True, 0), (False, 1)])
def test_a_failed_check_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, kept: bool, status: int, arguments: list[str]
) -> None:
    def measure(run: Run) -> None:
        run.check("another one", True)
        run.check("the one", kept)

    assert started(monkeypatch, measure, *arguments) == status


@pytest.mark.parametrize(
    ("quick", "bound", "figure", "kept"),
    [
        (False, {"most": 2}, 2, True),
        (False, {"most": 2}, 2.01, False),
        (False, {"least": 2}, 2, True),
        (False, {"least": 2}, 1.99, False),
        (True, {"most": 2}, 3, True),
        (True, {"most": 2}, 3.01, False),
        (True, {"least": 3}, 2, True),
        (True, {"least": 3}, 1.99, False),
    ],
)
def test_a_comparison_has_room_in_a_short_run_alone(
    quick: bool, bound: dict[str, float], figure: float, kept: bool
) -> None:
    run = Run(Namespace(quick=quick))
    run.compare("a share", figure, **bound, room=1.5)
    assert [each.kept for each in run.checks] == [kept]
    assert ("with a short run's room, a factor of 1.5" in run.checks[0].text) is quick


def measured(quick: bool, figures: list[float], kept: list[bool]) -> tuple[int, list[str]]:
    """How often a part was measured whose figure must be at most 1, and its failed checks."""
    run, times = Run(Namespace(quick=quick)), iter(zip(figures, kept, strict=True))

    def measure() -> None:
        figure, is_kept = next(times)
        run.compare("a share", figure, most=1, room=1)
        run.check("a promise", is_kept)

    run.part(measure)
    return len(figures) - len([*times]), [each.partition(":")[0] for each in run.failed]


@pytest.mark.parametrize(
    ("figures", "times", "failed"),
    [([1, 2, 2, 2], 1, []), ([2, 2, 1, 2], 3, []), ([2, 2, 2, 1], 3, ["a share"])],
)
def test_a_short_run_measures_a_part_that_misses_a_comparison_up_to_three_times(
    figures: list[float], times: int, failed: list[str]
) -> None:
    assert measured(True, figures, [True] * 4) == (times, failed)


def test_a_whole_run_measures_each_part_once() -> None:
    assert measured(False, [2, 1], [True] * 2) == (1, ["a share"])


def test_a_promise_must_be_kept_each_time_that_its_part_is_measured() -> None:
    assert measured(True, [2, 1], [False, True]) == (2, ["a promise"])


def test_a_comparison_must_be_kept_once_however_others_of_its_part_end() -> None:
    run, figures = Run(), iter([(1, 2), (2, 1)])

    def measure() -> None:
        for name, figure in zip("ab", next(figures), strict=True):
            run.compare(name, figure, most=1, room=1)

    run.part(measure)
    assert [each.kept for each in run.checks] == [True, True]


def test_a_benchmark_that_cannot_run_says_why_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(_: Run) -> None:
        raise LocalCloudError("there is no engine")

    assert started(monkeypatch, measure) == 1
    assert capsys.readouterr().err == "there is no engine\n"


def test_without_cargo_a_benchmark_runs_on_the_next_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def dynoxide() -> str:
        raise CargoMissing("there is no cargo")

    monkeypatch.setattr(frame, "dynoxide", dynoxide)
    # It sets variables for the clients that a benchmark makes.
    monkeypatch.setattr(os, "environ", os.environ.copy())
    with frame.engine("dynoxide", "memory") as (name, url):
        assert name == "memory"
        assert create_table("locks", client=make_client(endpoint_url=url))


AS_THE_RULES = Billed("PutItem", refused=False, by_rule=1, by_engine=1)


@pytest.mark.parametrize(
    ("other", "failed"),
    [
        (AS_THE_RULES, []),
        (replace(AS_THE_RULES, refused=True, by_engine=None), []),
        (replace(AS_THE_RULES, by_engine=2), ["it counts 1 of these 2 by the rules"]),
        (replace(AS_THE_RULES, by_engine=None), ["it reports the units of 1 of 2 requests"]),
    ],
    ids=["by the rules", "a refusal without units", "otherwise", "no units"],
)
def test_an_engine_that_counts_otherwise_than_the_rules_is_reported(other: Billed, failed: list[str]) -> None:
    run = Run()
    judge(run, [AS_THE_RULES, other], "it")
    assert run.failed == failed


def test_an_endpoint_without_a_server_is_reported_in_a_sentence() -> None:
    # The discard port of this machine.
    command = [sys.executable, str(BENCHMARKS / "capacity_units.py"), "http://127.0.0.1:9"]
    environment = {"PYTHONPATH": str(BENCHMARKS.parent / "tests"), "AWS_DEFAULT_REGION": "us-east-1"}
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    done = subprocess.run(command, env=environment | keys, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == 'Could not connect to the endpoint URL: "http://127.0.0.1:9/"\n'


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


def test_the_proxy_may_be_told_of_its_engine_later_and_tells_which_requests_passed_when(emulator: Emulator) -> None:
    with counting_proxy() as proxy:
        proxy.lead_to(emulator.endpoint)
        client = make_client(endpoint_url=proxy.url)
        before_ms = time.time_ns() // 1_000_000
        client.list_tables()
        client.describe_limits()
        passed = proxy.counts().passed
        assert [each.operation for each in passed] == ["ListTables", "DescribeLimits"]
        times = [before_ms, *(each.at_ms for each in passed), time.time_ns() // 1_000_000]
        assert times == sorted(times)
        assert proxy.counts().passed == []


def test_a_unit_is_saved_resumed_and_committed_with_marks_on_the_engine_in_memory_of_the_benchmarks() -> None:
    with memory_server() as endpoint:
        client = make_client(endpoint_url=endpoint)
        create_units_table("units", client=client)
        make_table(client, "accounts", "id")
        units = Units("units", client=client)
        accounts = units.table("accounts")
        unit = units.begin()
        photo = b"\x00\xff"
        for number in range(MOST_TOGETHER + 1):
            unit.put(accounts, {"id": f"a-{number}", "photo": photo})
        units.resume(unit.save()).commit()
        stored = units.get(accounts, {"id": f"a-{MOST_TOGETHER}"})
        assert stored is not None
        assert bytes(stored["photo"]) == photo


def programs(target: str) -> list[str]:
    """The command lines of a target of the Makefile that run a benchmark, for a short run."""
    dry = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", target, "ARGS=--quick"],
        cwd=BENCHMARKS.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = dry.stdout.replace("\\\n", " ").splitlines()
    return [line for line in lines if "benchmarks/" in line]


# One side needs no other lock.
SHORTER = {"peer_locks.py": " --side ours"}
TARGETS = ("bench", "bench-peer", "soak")
# It needs dynoxide, which cargo builds for minutes; tests/locks/test_capacity_units.py has what it checks.
IN_NO_TARGET = {"capacity_units.py"}


def short_runs(target: str) -> list[str]:
    """The command lines of a target, as `make verify` runs them."""
    return [line + "".join(more for name, more in SHORTER.items() if f"/{name}" in line) for line in programs(target)]


def test_every_benchmark_has_a_short_run_here() -> None:
    run = {
        Path(found).name for target in TARGETS for found in re.findall(r"benchmarks/\S+", "".join(short_runs(target)))
    }
    assert run | IN_NO_TARGET == {path.name for path in BENCHMARKS.glob("*.py") if "sys.exit(main(" in path.read_text()}


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_that_prints_figures_can_be_asked_for_a_short_run(target: str) -> None:
    assert short_runs(target)
    without = [line for line in programs(target) if not line.endswith(" --quick")]
    assert without == [], "without $(ARGS) in its recipe `make` cannot ask for a short run"


@pytest.mark.parametrize("line", [line for target in TARGETS for line in short_runs(target)])
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
