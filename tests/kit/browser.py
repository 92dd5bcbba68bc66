"""A headless browser for the tests of pages: an installed one, or Debian's package."""

import os
import shutil
import subprocess
from pathlib import Path

from ticketlock_local.checkout import exclusive
from ticketlock_local.errors import LocalCloudError

_PACKAGE = "chromium-headless-shell"
_PROGRAMS = (_PACKAGE, "chromium", "chromium-browser", "google-chrome", "chrome")


class BrowserMissing(LocalCloudError):
    """There is no browser, and none could be installed; the message says what to install."""


def browser_program() -> Path:
    """Return a Chromium; if none is installed, root installs Debian's with ``apt-get``."""
    with exclusive("browser"):
        said = "" if _found() else _install()
        found = _found()
    if found is None:
        raise BrowserMissing(f"no browser: install Chromium, on Debian `apt-get install {_PACKAGE}`{said}")
    return Path(found)


def _found() -> str | None:
    return next((path for name in _PROGRAMS if (path := shutil.which(name))), None)


def _install() -> str:
    """Install it if possible; return the error otherwise."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return ""
    for command in (["apt-get", "update"], ["apt-get", "install", "--yes", "--no-install-recommends", _PACKAGE]):
        done = subprocess.run(
            command,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            return f"; {' '.join(command)} failed:\n{done.stdout}"
    return ""
