"""`make release` in a clone, and its build in another at another place: the bytes are the same, and it tries them."""

import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

import ticketlock

pytestmark = [
    pytest.mark.verify("builds all files of a release twice; tests/tools/test_release.py asks its parts"),
    # Each fills two environments of Python's own from the package index.
    pytest.mark.timeout(1800),
]
ROOT = Path(__file__).parents[2]
VERSION = ticketlock.__version__
BUILD = """
import ticketlock
from ticketlock_local.checkout import ROOT
from ticketlock_local.release.build import build
from ticketlock_local.release.commit import checked_out, write_files

commit, source, files = checked_out(ROOT), ROOT.parent / "source", ROOT / "dist"
source.mkdir()
files.mkdir()
write_files(ROOT, source)
build(source, files, ticketlock.__version__, commit)
"""


class Clone:
    """The last commit of this repository at a place of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True, timeout=120)

    def release(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run `make release` with this environment's packages, as they are installed."""
        return self._run("make", "release", "--old-file=install", f"BIN={sys.executable}", environment=environment)

    def build(self, *, umask: int, **environment: str) -> subprocess.CompletedProcess[str]:
        """Build the files of a release, without trying them."""
        return self._run(sys.executable, "-c", BUILD, environment=environment, umask=umask)

    def _run(self, *command: str, environment: Mapping[str, str], umask: int = -1) -> subprocess.CompletedProcess[str]:
        own = os.pathsep.join(str(self.folder / name) for name in ("src", "infra"))
        return subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": own, **environment},
            umask=umask,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=1200,
        )


@pytest.fixture(scope="module")
def clones(tmp_path_factory: pytest.TempPathFactory) -> tuple[Clone, Clone]:
    """Two, which have built at different times, with different settings of their users."""
    here, there = (tmp_path_factory.mktemp(name) / "deeper" / name for name in ("here", "there"))
    one, other = Clone(here), Clone(there)
    for done in (
        one.release(TZ="America/Lima", PYTHONHASHSEED="1"),
        other.build(TZ="Asia/Tokyo", PYTHONHASHSEED="2", LC_ALL="C", umask=0o077),
    ):
        assert done.returncode == 0, done.stdout
    return one, other


def test_two_clones_give_the_same_bytes(clones: tuple[Clone, Clone]) -> None:
    one, other = ((clone.folder / "dist" / "SHA256SUMS").read_text() for clone in clones)
    assert one == other
    assert [line.split()[1] for line in one.splitlines()] == [
        f"ticketlock-{VERSION}-py3-none-any.whl",
        f"ticketlock-{VERSION}.cdx.json",
        f"ticketlock-{VERSION}.tar.gz",
        f"ticketlock-site-{VERSION}.zip",
        f"ticketlock-template-{VERSION}.zip",
    ]
    for clone in clones:
        check = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
        subprocess.run(check, cwd=clone.folder / "dist", check=True, timeout=60)


def test_the_sdist_has_what_the_wheel_is_built_from_and_nothing_else(clones: tuple[Clone, Clone]) -> None:
    with tarfile.open(clones[0].folder / "dist" / f"ticketlock-{VERSION}.tar.gz") as sdist:
        tops = {name.split("/")[1] for name in sdist.getnames()}
    folders = {"functions", "infra", "src", "statemachines"}
    assert tops == folders | {".gitignore", "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}


def test_a_clone_with_a_change_is_refused_by_the_name_of_its_file_and_keeps_its_files(
    clones: tuple[Clone, Clone],
) -> None:
    clone, _ = clones
    before = (clone.folder / "dist" / "SHA256SUMS").read_text()
    (clone.folder / "README.md").write_text("changed")
    done = clone.release()
    assert done.returncode != 0
    assert " M README.md\n" in done.stdout
    assert (clone.folder / "dist" / "SHA256SUMS").read_text() == before
