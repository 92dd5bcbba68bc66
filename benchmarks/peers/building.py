"""Installs and builds the peers that the benchmarks compare with, under build/; else a LocalCloudError says why not."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ticketlock_local.checkout import BUILD, exclusive
from ticketlock_local.errors import LocalCloudError

BENCHMARKS = Path(__file__).parents[1]


def installed(name: str, requirements: Path) -> Path:
    """Install a Python package into a folder of its own, unless this version is already there.

    Args:
        name: of the folder.
        requirements: its pins; everything else comes from this project's environment.

    Returns:
        The folder, for the import path.
    """
    folder = BUILD / name
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip += ["--retries", "1", "--no-deps", "--target", str(folder), "--requirement", str(requirements)]
    _make(name, folder, folder / "installed-pins.txt", requirements.read_text(), BENCHMARKS, pip)
    return folder


def built(name: str, command_of: Callable[[Path], Sequence[str]]) -> Path:
    """Build a peer and the program that drives it, unless it is built from the same sources.

    Args:
        name: of the folder of its sources, beside this file.
        command_of: the command that builds it into a folder.
    """
    folder, home = BUILD / "peers" / name, Path(__file__).with_name(name)
    sources = "".join(path.read_text() for path in sorted(home.rglob("*")) if path.is_file())
    _make(name, folder, BUILD / "peers" / f"{name}.txt", sources, home, command_of(folder))
    return folder


def java_program(name: str) -> list[str]:
    """Build a Java program with Maven. Returns the command that runs it."""
    maven = shutil.which("mvn")
    if maven is None or shutil.which("java") is None:
        raise LocalCloudError(f"{name} needs Java and Maven, and there is no `java` or no `mvn` here")
    goals = ["compile", "dependency:copy-dependencies", "-DincludeScope=runtime"]
    folder = built(name, lambda folder: [maven, "--quiet", "--batch-mode", f"-Dpeer.folder={folder}", *goals])
    path = os.pathsep.join([str(folder / "classes"), str(folder / "dependency" / "*")])
    return ["java", "-Dpeer.key=test", "-cp", path, "Peer"]


def _make(name: str, folder: Path, stamp: Path, made_of: str, home: Path, command: Sequence[str]) -> None:
    with exclusive(name):
        if stamp.exists() and stamp.read_text() == made_of:
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        done = subprocess.run(
            command, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode != 0:
            raise LocalCloudError(f"{name} cannot be installed or built:\n{done.stdout}")
        stamp.write_text(made_of)
