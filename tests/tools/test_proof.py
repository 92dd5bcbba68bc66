"""`make proof`: its figures are of one commit, and only of a run in which every part has passed."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tools.proof import passed, run_all

pytestmark = pytest.mark.verify("tests no part of the product")

COMMITS = ("git", "-c", "user.name=Ann", "-c", "user.email=a@example.com", "commit", "--quiet", "--all", "--message=a")
PASSES = ("-c", "")
LEAVES_A_TRACE = ("-c", "open('trace', 'w')")
CHANGES = "open('searched.py', 'w').write('changed')"
TESTS = """
import pytest

@pytest.mark.parametrize("engine", ["moto", "memory", "ministack"])
def test_on_each(engine):
    if engine == "ministack":
        pytest.skip("cannot run it")

def test_of_the_word_moto():
    pass
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a file that is committed, and others that git ignores."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for name, contents in {"searched.py": "", "notes": "", ".gitignore": "notes\ntrace\n"}.items():
        (tmp_path / name).write_text(contents)
    git(tmp_path, "git", "init", "--quiet")
    git(tmp_path, "git", "add", "searched.py", ".gitignore")
    git(tmp_path, *COMMITS)
    return tmp_path


def git(checkout: Path, *words: str) -> str:
    return subprocess.run(words, cwd=checkout, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def refused(checkout: Path, *parts: Sequence[str]) -> str:
    with pytest.raises(SystemExit) as end:
        run_all(checkout, parts)
    return str(end.value)


def test_what_has_passed_is_of_the_commit_of_the_checkout(checkout: Path) -> None:
    assert run_all(checkout, [PASSES, PASSES]) == git(checkout, "git", "rev-parse", "HEAD")


def test_a_checkout_with_changes_that_are_not_committed_is_refused_before_anything_runs(checkout: Path) -> None:
    (checkout / "conftest.py").write_text("changed")
    said = refused(checkout, LEAVES_A_TRACE)
    assert "not committed" in said
    assert "conftest.py" in said
    assert not (checkout / "trace").exists()


def test_a_part_that_fails_ends_the_run_with_its_exit_code(checkout: Path) -> None:
    assert refused(checkout, PASSES, ("-c", "exit(3)"), LEAVES_A_TRACE) == "3"
    assert not (checkout / "trace").exists()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        pytest.param(CHANGES, "not committed", id="a file"),
        pytest.param(f"{CHANGES}; import subprocess; subprocess.run({COMMITS})", "at the beginning", id="the commit"),
    ],
)
def test_a_checkout_that_changes_during_the_run_has_no_figures(checkout: Path, changes: str, why: str) -> None:
    said = refused(checkout, ("-c", changes))
    assert said.startswith("NO FIGURES")
    assert why in said


def test_tests_that_passed_are_counted_together_and_on_each_engine(tmp_path: Path) -> None:
    (tmp_path / "test_engines.py").write_text(TESTS)
    report = tmp_path / "report.xml"
    words = (sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", f"--junit-xml={report}")
    subprocess.run([*words, "test_engines.py"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    assert passed(report) == {"tests passed": "3", "skipped": "1", "on moto": "1", "on memory": "1"}
