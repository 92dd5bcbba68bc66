"""`make engines`: what its last line says of the contract, and how it ends."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ticketlock_local.checkout import ROOT
from tools.every_engine import verdict_of

pytestmark = pytest.mark.verify("tests no part of the product")

WITHOUT_DYNOXIDE = ["moto", "ministack"]
DID_NOT_RUN = "It did NOT run on dynoxide, so on two engines of others instead of three."
ALL = [*WITHOUT_DYNOXIDE, "dynoxide"]


@pytest.mark.parametrize(
    ("code", "engines", "line"),
    [
        (pytest.ExitCode.OK, ALL, "The contract held on: moto, ministack, dynoxide."),
        (pytest.ExitCode.TESTS_FAILED, ALL, "The contract BROKE on one of: moto, ministack, dynoxide."),
        (-signal.SIGKILL, ALL, "Nothing is known of the contract (status -9) on: moto, ministack, dynoxide."),
        (
            pytest.ExitCode.OK,
            WITHOUT_DYNOXIDE,
            f"The contract held on: moto, ministack. {DID_NOT_RUN}",
        ),
    ],
    ids=["held", "broke", "killed", "without dynoxide"],
)
def test_only_a_test_that_fails_breaks_the_contract_and_a_run_without_dynoxide_says_so(
    code: int, engines: list[str], line: str
) -> None:
    assert verdict_of(code, engines) == line


def test_without_a_test_nothing_is_known(tmp_path: Path) -> None:
    # Node, of which tests that synthesise need one to be imported, and no cargo.
    (tmp_path / "node").symlink_to(shutil.which("node") or "")
    done = subprocess.run(
        [sys.executable, "-m", "tools.every_engine", "-knothing_of_this_name"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests"), "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "Nothing is known of the contract (no tests collected)" in done.stderr.splitlines()[-1]
