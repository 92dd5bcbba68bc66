"""dynoxide: a build takes the place of the old one only when it is complete, and a start waits until it listens."""

import sys
from pathlib import Path

import pytest
from ticketlock_local.engines.dynoxide import dynoxide, dynoxide_program
from ticketlock_local.errors import CargoMissing, EmulatorError

pytestmark = pytest.mark.verify("tests no part of the product")

CARGO_FAILED = 101
LATE_S, LONG_S = 0.5, 60
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


@pytest.mark.usefixtures("search_path")
def test_without_cargo_the_build_is_refused_and_the_old_program_stays(folder: Path, old: Path) -> None:
    with pytest.raises(CargoMissing):
        dynoxide_program(folder)
    assert old.read_text() == "old"


def test_a_failed_build_is_reported_with_the_output_of_cargo_and_the_old_program_stays(
    search_path: Path, folder: Path, old: Path
) -> None:
    put_cargo(search_path, FAILS)
    with pytest.raises(EmulatorError, match=r"no network: \[registry\] unreachable"):
        dynoxide_program(folder)
    assert old.read_text() == "old"


def test_a_build_takes_the_place_of_one_from_another_pin_and_of_an_interrupted_one(
    search_path: Path, folder: Path
) -> None:
    # Left by an interrupted build.
    folder.with_name("dynoxide.new").joinpath("bin").mkdir(parents=True)
    put_cargo(search_path, BUILDS)
    assert dynoxide_program(folder).read_text() == "new"
    assert [each.name for each in folder.parent.iterdir() if each.name.startswith("dynoxide")] == ["dynoxide"]


def test_a_program_without_a_stamp_is_built_again(search_path: Path, folder: Path) -> None:
    (folder / STAMP).unlink()
    put_cargo(search_path, BUILDS)
    assert dynoxide_program(folder).read_text() == "new"


def test_a_build_is_made_once(search_path: Path, folder: Path) -> None:
    put_cargo(search_path, BUILDS)
    dynoxide_program(folder)
    # A second build would fail.
    put_cargo(search_path, FAILS)
    assert dynoxide_program(folder).read_text() == "new"


# Programs in place of dynoxide, with the pauses and the life of such a server; no test sleeps.
WARNS_FIRST = f"""
print("warning: no configuration", flush=True)
time.sleep({LATE_S})
print("listening on", sys.argv[-1], flush=True)
time.sleep({LONG_S})
"""
PORT_IS_TAKEN_AT_FIRST = f"""
tried = Path("tried")
if not tried.exists():
    tried.touch()
    sys.exit("address already in use")
print("listening on", sys.argv[-1], flush=True)
time.sleep({LONG_S})
"""
GIVES_UP = """
print("warning: no configuration", flush=True)
sys.exit("no permission")
"""


def let_cargo_build(path: Path, code: str) -> None:
    """Put a cargo into this folder that builds a program of this code."""
    program = f"#!{sys.executable} -I\nimport sys\nimport time\nfrom pathlib import Path\n{code}"
    put_cargo(path, f"{BUILDS}; (bin / 'dynoxide').write_text({program!r}); (bin / 'dynoxide').chmod(0o755)")


@pytest.mark.parametrize(
    "code",
    [pytest.param(WARNS_FIRST, id="warns first"), pytest.param(PORT_IS_TAKEN_AT_FIRST, id="port is taken at first")],
)
def test_dynoxide_is_waited_for_until_it_says_that_it_listens(search_path: Path, folder: Path, code: str) -> None:
    let_cargo_build(search_path, code)
    with dynoxide(folder) as url:
        assert url.startswith("http://127.0.0.1:")


def test_dynoxide_that_ends_before_it_listens_is_reported_with_its_output(search_path: Path, folder: Path) -> None:
    let_cargo_build(search_path, GIVES_UP)
    with pytest.raises(EmulatorError, match="no permission"), dynoxide(folder):
        pass
