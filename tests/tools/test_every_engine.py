"""``make engines`` reports the result of the contract, and on which engines it ran."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ticketlock_local.checkout import ROOT
from tools.every_engine import verdict_of

pytestmark = pytest.mark.verify("runs pytest in processes of its own, and tests no part of the product")


def begun(path: Path, *arguments: str) -> subprocess.Popen[str]:
    """``make engines`` with these arguments for pytest, and nothing but this on PATH: no cargo."""
    return subprocess.Popen(
        [sys.executable, "-m", "tools.every_engine", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests"), "PATH": str(path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_only_a_test_that_fails_breaks_the_contract() -> None:
    three = ["moto", "ministack", "dynoxide"]
    assert verdict_of(0, three) == "The contract held on: moto, ministack, dynoxide."
    assert verdict_of(1, three) == "The contract BROKE on one of: moto, ministack, dynoxide."
    assert verdict_of(-9, three) == "Nothing is known of the contract (status -9) on: moto, ministack, dynoxide."


def test_the_last_line_says_that_it_did_not_run_on_dynoxide() -> None:
    assert verdict_of(0, ["moto", "ministack"]).endswith(
        "It did NOT run on dynoxide, so on two engines of others instead of three."
    )


@pytest.mark.parametrize(
    ("argument", "code", "why"),
    [("--no-such-option", 4, "usage error"), ("-knothing_of_this_name", 5, "no tests collected")],
)
def test_without_a_test_nothing_is_known(argument: str, code: int, why: str, tmp_path: Path) -> None:
    with begun(tmp_path, argument) as engines:
        _, said = engines.communicate(timeout=120)
    assert engines.returncode == code
    assert f"Nothing is known of the contract ({why}) on: moto, memory, ministack" in said.splitlines()[-1]


def test_it_can_be_interrupted(tmp_path: Path) -> None:
    with begun(tmp_path) as engines:
        assert engines.stdout is not None
        assert "test session starts" in engines.stdout.readline()
        os.killpg(engines.pid, signal.SIGINT)
        _, said = engines.communicate(timeout=120)
    assert engines.returncode == 2
    assert "Nothing is known of the contract (interrupted) on: " in said.splitlines()[-1]
    assert "Traceback" not in said
