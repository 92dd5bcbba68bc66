"""`make engines`: what its last line says of the contract, and how it ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ticketlock_local.checkout import ROOT
from tools.every_engine import verdict_of

pytestmark = pytest.mark.verify("tests no part of the product")

PATIENCE_S = 120
WITHOUT_DYNOXIDE = ["moto", "ministack"]
ALL = [*WITHOUT_DYNOXIDE, "dynoxide"]


@pytest.mark.parametrize(
    ("code", "engines", "line"),
    [
        pytest.param(pytest.ExitCode.OK, ALL, "The contract held on: moto, ministack, dynoxide.", id="held"),
        pytest.param(
            pytest.ExitCode.TESTS_FAILED, ALL, "The contract BROKE on one of: moto, ministack, dynoxide.", id="broke"
        ),
        pytest.param(
            -signal.SIGKILL,
            ALL,
            "Nothing is known of the contract (status -9) on: moto, ministack, dynoxide.",
            id="killed",
        ),
        pytest.param(
            pytest.ExitCode.OK,
            WITHOUT_DYNOXIDE,
            "The contract held on: moto, ministack. "
            "It did NOT run on dynoxide, so on two engines of others instead of three.",
            id="without dynoxide",
        ),
    ],
)
def test_only_a_test_that_fails_breaks_the_contract_and_a_run_without_dynoxide_says_so(
    code: int, engines: list[str], line: str
) -> None:
    assert verdict_of(code, engines) == line


def start_make_engines(search_path: Path, *arguments: str) -> subprocess.Popen[str]:
    """``make engines`` with these arguments for pytest, and nothing but this folder on PATH: no cargo."""
    return subprocess.Popen(
        [sys.executable, "-m", "tools.every_engine", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests"), "PATH": str(search_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    ("argument", "code", "why"),
    [
        ("--no-such-option", pytest.ExitCode.USAGE_ERROR, "usage error"),
        ("-knothing_of_this_name", pytest.ExitCode.NO_TESTS_COLLECTED, "no tests collected"),
    ],
)
def test_without_a_test_nothing_is_known(argument: str, code: pytest.ExitCode, why: str, tmp_path: Path) -> None:
    with start_make_engines(tmp_path, argument) as engines:
        _, said = engines.communicate(timeout=PATIENCE_S)
    assert engines.returncode == code
    assert f"Nothing is known of the contract ({why}) on: moto, memory, ministack" in said.splitlines()[-1]


def test_make_engines_can_be_interrupted(tmp_path: Path) -> None:
    with start_make_engines(tmp_path) as engines:
        assert engines.stdout is not None
        assert "test session starts" in engines.stdout.readline()
        os.killpg(engines.pid, signal.SIGINT)
        _, said = engines.communicate(timeout=PATIENCE_S)
    assert engines.returncode == pytest.ExitCode.INTERRUPTED
    assert "Nothing is known of the contract (interrupted) on: " in said.splitlines()[-1]
    assert "Traceback" not in said
