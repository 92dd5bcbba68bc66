"""An environment of Python that has one file of the release installed, and nothing of the checkout."""

import sys
from pathlib import Path

from ticketlock_local.errors import ReleaseError
from ticketlock_local.release.build import run

_TAKES_A_LOCK = Path(__file__).with_name("_takes_a_lock.py")
_IMPORTS_A_HANDLER = Path(__file__).with_name("_imports_a_handler.py")


class Fresh:
    """An environment with the package and some of its extras.

    Args:
        folder: is made.
        file: the wheel or the sdist.
        extras: which of them.

    Raises:
        ReleaseError: it cannot be installed.
    """

    def __init__(self, folder: Path, file: Path, *extras: str) -> None:
        run(sys.executable, "-m", "venv", str(folder))
        self._programs = folder / "bin"
        wanted = f"ticketlock[{','.join(extras)}] @ {file.as_uri()}"
        self._run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted)

    def check_command(self, version: str) -> None:
        """Ask the command for its version.

        Raises:
            ReleaseError: it does not run, or tells another one.
        """
        said = self._run("ticketlock", "--version")
        if said != f"ticketlock {version}\n":
            raise ReleaseError(f"`ticketlock --version` of release {version} says {said!r}")

    def check_lock(self, *modules: str) -> None:
        """Import modules, then acquire and release a lock on a table in memory.

        Raises:
            ReleaseError: one of it failed.
        """
        self._run("python", "-I", str(_TAKES_A_LOCK), *modules)

    def check_handler(self, code: Path, name: str) -> None:
        """Import the handler of a function from its code; the SDK is that of this environment, as it is Lambda's there.

        Raises:
            ReleaseError: it is not there, or cannot be imported.
        """
        self._run("python", "-I", str(_IMPORTS_A_HANDLER), str(code), name)

    def _run(self, program: str, *arguments: str) -> str:
        return run(str(self._programs / program), *arguments)
