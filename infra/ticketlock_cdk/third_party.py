"""The third-party packages of the functions: installed once for each list of pins, then cached."""

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path


class ThirdPartyError(Exception):
    """The third-party packages of the functions could not be installed; the message ends with what pip said."""


def third_party_packages(requirements: Path) -> Path:
    """The folder with the packages of a list of pins with hashes; only its first use needs a package index.

    Args:
        requirements: the list, for pip.

    Raises:
        ThirdPartyError: pip failed, or this interpreter has none.
    """
    pins = hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]
    cache = _cache_folder()
    packages = cache / f"functions-packages-{pins}"
    if not packages.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="installing-", dir=cache) as folder:
            installed = Path(folder) / "packages"
            _pip_install(requirements, installed)
            put_in_place(installed, packages)
    return packages


def put_in_place(complete: Path, final: Path) -> Path:
    """Rename a folder to the name of its content, unless an equal folder has that name already."""
    try:
        complete.rename(final)
    except OSError:
        if not final.is_dir():
            raise
    return final


def _cache_folder() -> Path:
    """The user's cache folder: https://specifications.freedesktop.org/basedir-spec/latest/."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ticketlock"


def _pip_install(requirements: Path, target: Path) -> None:
    # The user's pip configuration says from where; the hashes say what. Only wheels, which run no code here.
    options = ("--no-deps", "--require-hashes", "--only-binary=:all:", "--no-compile")
    quiet = ("--quiet", "--no-input", "--disable-pip-version-check")
    command = [*(sys.executable, "-m", "pip", "install"), *options, *quiet]
    done = subprocess.run(
        [*command, "--target", str(target), "--requirement", str(requirements)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ThirdPartyError(f"installing the packages of {requirements} failed:\n{done.stdout}")
