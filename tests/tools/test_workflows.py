"""`make workflows`, a part of `make check`: it accepts the workflows, and refuses what is wrong or dangerous in one."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.verify("tests no part of the product")

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RELEASE = (ROOT / ".github" / "workflows" / "release.yml").read_text()
TEST = (ROOT / ".github" / "workflows" / "test.yml").read_text()


def checked(files: Sequence[Path], *more: str) -> tuple[int, str]:
    """The status of the check of these files, and what it prints."""
    command = [
        "make",
        "workflows",
        "--no-print-directory",
        "--old-file=install",
        f"VENV={Path(sys.executable).parents[1]}",
    ]
    done = subprocess.run(
        [*command, f"WORKFLOWS={' '.join(map(str, files))}", *more],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, done.stdout


def test_the_workflows_have_no_fault() -> None:
    status, said = checked(WORKFLOWS)
    assert status == 0, said


CHECKOUT = re.search(r"actions/checkout@\w+ # v\S+", TEST)
assert CHECKOUT is not None
BROKEN = {
    "a key that no workflow has": ("    timeout-minutes:", "    timeout-hours:", "timeout-hours"),
    "permissions that a job does not name": ("permissions: {}\n", "permissions: write-all\n", "excessive-permissions"),
    "a tag's name in a script": ("""--tag "$$TAG"'""", "--tag ${{ github.ref_name }}'", "template-injection"),
    "a version that can be moved": (CHECKOUT[0], "actions/checkout@v6", "unpinned-uses"),
}


@pytest.mark.parametrize(("old", "new", "finding"), BROKEN.values(), ids=BROKEN)
def test_a_broken_workflow_is_refused_with_its_fault(old: str, new: str, finding: str, tmp_path: Path) -> None:
    assert old in RELEASE
    broken = tmp_path / "release.yml"
    broken.write_text(RELEASE.replace(old, new))
    status, said = checked([broken])
    assert status != 0
    assert finding in said


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_each_action_is_pinned_by_its_commit_and_says_its_version(workflow: Path) -> None:
    used = re.findall(r"uses: (.*)", workflow.read_text())
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each)] == []


def test_every_version_of_python_that_the_package_names_is_tested() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    named = [found[1] for each in classifiers if (found := re.fullmatch(r"Programming .* :: (3\.\d+)", each))]
    (matrix,) = re.findall(r"python: \[(.*)\]", TEST)
    assert re.findall(r"[\d.]+", matrix) == named


def test_a_tag_whose_name_is_a_command_is_text_for_the_build() -> None:
    (command,) = re.findall(r"run: (make release .*)", RELEASE)
    done = subprocess.run(
        ["bash", "-c", f"{command} --dry-run --old-file=install --no-print-directory"],
        cwd=ROOT,
        env={"PATH": str(Path(shutil.which("make") or "").parent), "TAG": "v1;$(id)"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[-1].endswith('--tag "$TAG"')
