"""The engines: dynoxide is built beside the old build, a program ends with its owner, `make engines` reports."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ticketlock_local.checkout import ROOT
from ticketlock_local.engines import processes
from ticketlock_local.engines.dynoxide import dynoxide, dynoxide_program
from ticketlock_local.errors import CargoMissing, EmulatorError
from tools.every_engine import verdict_of

pytestmark = pytest.mark.verify("tests no part of the product")

FAILS = "print('no network: [registry] unreachable'); sys.exit(101)"
BUILDS = "bin = Path(sys.argv[-1], 'bin'); bin.mkdir(parents=True); (bin / 'dynoxide').write_text('new')"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A program that was built from another pin."""
    program = tmp_path / "dynoxide" / "bin" / "dynoxide"
    program.parent.mkdir(parents=True)
    program.write_text("old")
    return program


@pytest.fixture
def folder(old: Path) -> Path:
    return old.parents[1]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that is on PATH."""
    path = tmp_path / "path"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    return path


def cargo(path: Path, does: str) -> None:
    program = path / "cargo"
    program.write_text(f"#!{sys.executable} -I\nimport sys\nfrom pathlib import Path\n{does}\n")
    program.chmod(0o755)


def test_without_cargo_or_if_it_fails_the_reason_is_reported_and_the_old_build_stays(
    path: Path, folder: Path, old: Path
) -> None:
    with pytest.raises(CargoMissing):
        dynoxide_program(folder)
    cargo(path, FAILS)
    with pytest.raises(EmulatorError, match=r"no network: \[registry\] unreachable"):
        dynoxide_program(folder)
    assert old.read_text() == "old"


def test_a_build_takes_the_place_of_the_old_one_and_of_an_interrupted_one_and_is_made_once(
    path: Path, folder: Path
) -> None:
    folder.with_name("dynoxide.new").joinpath("bin").mkdir(parents=True)
    cargo(path, BUILDS)
    assert dynoxide_program(folder).read_text() == "new"
    cargo(path, FAILS)
    assert dynoxide_program(folder).read_text() == "new"
    assert [each.name for each in folder.parent.iterdir() if each.name.startswith("dynoxide")] == ["dynoxide"]


WARNS_FIRST = """
print("warning: no configuration", flush=True)
time.sleep(0.5)
print("listening on", sys.argv[-1], flush=True)
time.sleep(60)
"""
MEETS_ANOTHER_AT_FIRST = """
met = Path("met")
if not met.exists():
    met.touch()
    sys.exit("address already in use")
print("listening on", sys.argv[-1], flush=True)
time.sleep(60)
"""
GIVES_UP = """
print("warning: no configuration", flush=True)
sys.exit("no permission")
"""


def built(path: Path, does: str) -> None:
    """Let cargo build a program that does this."""
    program = f"#!{sys.executable} -I\nimport sys\nimport time\nfrom pathlib import Path\n{does}"
    cargo(path, f"{BUILDS}; (bin / 'dynoxide').write_text({program!r}); (bin / 'dynoxide').chmod(0o755)")


@pytest.mark.parametrize("does", [WARNS_FIRST, MEETS_ANOTHER_AT_FIRST])
def test_it_is_waited_for_until_it_says_that_it_listens(path: Path, folder: Path, does: str) -> None:
    built(path, does)
    with dynoxide(folder) as url:
        assert url.startswith("http://127.0.0.1:")


def test_an_engine_that_ends_is_reported_with_its_output(path: Path, folder: Path) -> None:
    built(path, GIVES_UP)
    with pytest.raises(EmulatorError, match="no permission"), dynoxide(folder):
        pass


LAUNCHER = Path(processes.__file__).with_name("while_owned.py")
OWNER = """
import subprocess, sys
program = subprocess.Popen([sys.executable, *sys.argv[1:]], stdin=subprocess.PIPE, start_new_session=True)
print(program.pid, flush=True)
sys.stdin.read()
"""


def test_a_program_ends_with_its_owner_also_when_that_is_killed() -> None:
    sleep = shutil.which("sleep")
    assert sleep is not None
    command = [sys.executable, "-c", OWNER, str(LAUNCHER), sleep, "3600"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        group = int(owner.stdout.readline())
        # It has become the program, and its child watches.
        assert processes.wait_until(lambda: processes.command_line(group) == f"{sleep} 3600", timeout_s=30)
        assert len(processes.living_members(group)) == 2
        owner.send_signal(signal.SIGKILL)
    assert processes.wait_until(lambda: not processes.living_members(group), timeout_s=30)


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


def test_only_a_test_that_fails_breaks_the_contract_and_a_run_without_dynoxide_says_so() -> None:
    three = ["moto", "ministack", "dynoxide"]
    assert verdict_of(0, three) == "The contract held on: moto, ministack, dynoxide."
    assert verdict_of(1, three) == "The contract BROKE on one of: moto, ministack, dynoxide."
    assert verdict_of(-9, three) == "Nothing is known of the contract (status -9) on: moto, ministack, dynoxide."
    without = "It did NOT run on dynoxide, so on two engines of others instead of three."
    assert verdict_of(0, three[:2]).endswith(without)


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
