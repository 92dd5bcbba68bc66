"""What a user gets by installing the package."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_has_the_library_the_constructs_the_handlers_and_the_definition(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "ticketlock/__init__.py",
        "ticketlock/py.typed",
        "ticketlock_cdk/__init__.py",
        "ticketlock_cdk/_bundled/functions/take_ticket.py",
        "ticketlock_cdk/_bundled/functions/requirements.txt",
        "ticketlock_cdk/_bundled/statemachines/serialize.asl.json",
    } <= names


def test_the_wheel_has_nothing_else(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"ticketlock", "ticketlock_cdk"}


def test_the_library_works_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import ticketlock; "
        "print(ticketlock.__file__, ticketlock.LockName('order-42').namespace)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == [str(tmp_path / "ticketlock" / "__init__.py"), "default"]
