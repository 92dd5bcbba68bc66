"""The checkout, from which alone the local cloud runs: its paths and locks, and environments for pinned programs."""

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ticketlock_local.errors import EmulatorError

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"


@contextmanager
def exclusive(name: str) -> Iterator[None]:
    """Hold the checkout's lock of this name; the kernel releases it when the process ends."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def pinned_python(name: str, requirements: Path) -> Path:
    """Return the interpreter of an environment, which is rebuilt whenever the pins change.

    It is for a program whose packages must not meet those of the project.

    Args:
        name: the name of the environment's folder, below build.
        requirements: pins, to the last package.

    Raises:
        EmulatorError: the packages cannot be installed.
    """
    venv = BUILD / name
    python = venv / "bin" / "python"
    stamp = venv / "installed-pins.txt"
    pins = f"# Python {sys.version}\n{requirements.read_text()}"
    with exclusive(name):
        # The stamp is written last, so an interrupted installation counts as none.
        if not (python.exists() and stamp.exists() and stamp.read_text() == pins):
            shutil.rmtree(venv, ignore_errors=True)
            _run(sys.executable, "-m", "venv", str(venv))
            _run(str(python), "-m", "pip", "install", "--no-deps", "--requirement", str(requirements))
            stamp.write_text(pins)
    return python


def _run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise EmulatorError(f"{' '.join(command)} failed:\n{done.stdout}")
