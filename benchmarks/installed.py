"""Installs the packages that the benchmarks compare with under build/, since nothing else here needs them."""

import shutil
import subprocess
import sys
from pathlib import Path

from ticketlock_local.checkout import BUILD, exclusive
from ticketlock_local.errors import LocalCloudError


def installed(name: str, requirements: Path) -> Path:
    """Install a peer into a folder of its own, unless this version is already there.

    Args:
        name: of the folder.
        requirements: its pins; everything else comes from this project's environment.

    Returns:
        The folder, for the import path.

    Raises:
        LocalCloudError: it cannot be installed.
    """
    folder = BUILD / name
    stamp = folder / "installed-pins.txt"
    pins = requirements.read_text()
    with exclusive(name):
        if stamp.exists() and stamp.read_text() == pins:
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pip += ["--retries", "1", "--no-deps", "--target", str(folder), "--requirement", str(requirements)]
        done = subprocess.run(pip, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            said = done.stdout.strip().splitlines() or ["pip says nothing"]
            raise LocalCloudError(f"the peer cannot be installed: {said[-1]}")
        stamp.write_text(pins)
    return folder
