"""dynoxide: a build takes the place of the old one only when it is complete."""

import sys
from pathlib import Path

import pytest
from ticketlock_local.engines.dynoxide import dynoxide_program
from ticketlock_local.errors import CargoMissing, EmulatorError

pytestmark = pytest.mark.verify("tests no part of the product")

CARGO_FAILED = 101
STAMP = "built-from.txt"

FAILS = f"print('no network: [registry] unreachable'); sys.exit({CARGO_FAILED})"
BUILDS = "bin = Path(sys.argv[-1], 'bin'); bin.mkdir(parents=True); (bin / 'dynoxide').write_text('new')"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A program that was built from another pin."""
    program = tmp_path / "dynoxide" / "bin" / "dynoxide"
    program.parent.mkdir(parents=True)
    program.write_text("old")
    (tmp_path / "dynoxide" / STAMP).write_text("dynoxide-rs@0.0.0")
    return program


@pytest.fixture
def folder(old: Path) -> Path:
    """The folder of that build."""
    return old.parents[1]


@pytest.fixture
def search_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is all of PATH."""
    path = tmp_path / "path"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    return path


def put_cargo(path: Path, code: str) -> None:
    """Put a cargo into this folder that runs this code."""
    program = path / "cargo"
    program.write_text(f"#!{sys.executable} -I\nimport sys\nfrom pathlib import Path\n{code}\n")
    program.chmod(0o755)


def test_a_failed_build_is_reported_with_the_output_of_cargo_and_the_old_program_stays(
    search_path: Path, folder: Path, old: Path
) -> None:
    with pytest.raises(CargoMissing):
        dynoxide_program(folder)
    put_cargo(search_path, FAILS)
    with pytest.raises(EmulatorError, match=r"no network: \[registry\] unreachable"):
        dynoxide_program(folder)
    assert old.read_text() == "old"


def test_a_build_takes_the_place_of_one_from_another_pin_once(search_path: Path, folder: Path) -> None:
    # Left by an interrupted build.
    folder.with_name("dynoxide.new").joinpath("bin").mkdir(parents=True)
    for cargo in (BUILDS, FAILS):
        put_cargo(search_path, cargo)
        assert dynoxide_program(folder).read_text() == "new"
    assert [each.name for each in folder.parent.iterdir() if each.name.startswith("dynoxide")] == ["dynoxide"]
