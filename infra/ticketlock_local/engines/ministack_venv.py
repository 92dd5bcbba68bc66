"""The emulator's own virtual environment.

Functions run on the emulator's interpreter: in the project's environment they would import packages
that their asset lacks, and pass here what fails on AWS.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from ticketlock_local.checkout import BUILD, exclusive
from ticketlock_local.errors import EmulatorError

_REQUIREMENTS = Path(__file__).with_name("ministack-requirements.txt")
_VENV = BUILD / "ministack-venv"


def ministack_python() -> Path:
    """Return the interpreter of the emulator's environment, which is made anew whenever the pins change.

    Raises:
        EmulatorError: the packages cannot be installed.
    """
    python = _VENV / "bin" / "python"
    stamp = _VENV / "installed-pins.txt"
    pins = f"# Python {sys.version}\n{_REQUIREMENTS.read_text()}"
    with exclusive("ministack-venv"):
        # The stamp is written last, so an interrupted installation counts as none.
        if not (python.exists() and stamp.exists() and stamp.read_text() == pins):
            shutil.rmtree(_VENV, ignore_errors=True)
            _run(sys.executable, "-m", "venv", str(_VENV))
            _run(str(python), "-m", "pip", "install", "--no-deps", "--requirement", str(_REQUIREMENTS))
            stamp.write_text(pins)
    return python


def _run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise EmulatorError(f"{' '.join(command)} failed:\n{done.stdout}")
