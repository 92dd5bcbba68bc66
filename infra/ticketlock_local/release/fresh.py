"""Environments of Python in which files of a release are tried; none has anything of the checkout."""

import sys
from pathlib import Path

from ticketlock_local.errors import ReleaseError
from ticketlock_local.release.build import run

_TAKES_A_LOCK = Path(__file__).with_name("_takes_a_lock.py")
_IMPORTS_A_HANDLER = Path(__file__).with_name("_imports_a_handler.py")


class Environment:
    """An environment with the package.

    Args:
        folder: that of the environment.
    """

    def __init__(self, folder: Path) -> None:
        self._programs = folder / "bin"

    def run(self, *arguments: str) -> str:
        """What its interpreter prints, which takes no packages from elsewhere.

        Raises:
            ReleaseError: it failed.
        """
        return run(str(self._programs / "python"), "-I", *arguments)

    def check_command(self, version: str) -> None:
        """Ask the command for its version.

        Raises:
            ReleaseError: it does not run, or says another one.
        """
        said = self.run(str(self._programs / "ticketlock"), "--version")
        if said != f"ticketlock {version}\n":
            raise ReleaseError(f"`ticketlock --version` of release {version} says {said!r}")

    def check_lock(self, *modules: str) -> None:
        """Import modules, then acquire and release a lock on a table in memory.

        Raises:
            ReleaseError: a module is not there, or the lock does not work.
        """
        self.run(str(_TAKES_A_LOCK), *modules)

    def check_handler(self, code: Path, name: str) -> None:
        """Import the handler of a function from its code, beside the SDK of this environment, as beside that of Lambda.

        Raises:
            ReleaseError: it is not there, or needs what the code does not have.
        """
        self.run(str(_IMPORTS_A_HANDLER), str(code), name)


def fresh(folder: Path, file: Path, *extras: str) -> Environment:
    """Make an environment, and install a wheel or an sdist in it with these extras.

    Raises:
        ReleaseError: it cannot be installed.
    """
    run(sys.executable, "-m", "venv", str(folder))
    made = Environment(folder)
    wanted = f"ticketlock[{','.join(extras)}] @ {file.as_uri()}"
    made.run("-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted)
    return made
