"""Finds the definitions and handlers, and builds assets of functions: for locks, units, dashboards, and users' own.

In a wheel they are beside this package, in a checkout at its top. Both give the same asset: the handlers, the library
and the pinned third-party packages, without boto3, which the Python runtimes include:
https://docs.aws.amazon.com/lambda/latest/dg/lambda-python.html#python-sdk-included
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import ticketlock

_PACKAGE = Path(__file__).parent
_BUNDLED = _PACKAGE / "_bundled"

# Files that differ between installations, or that a function does not need.
_LEFT_OUT = (".*", "__pycache__", "*.pyc", "*.dist-info", "py.typed")
# The parts of ticketlock that functions do not need.
_NOT_FOR_FUNCTIONS = ("__main__.py", "_for_tasks", "aio", "cli", "durable", "testing")


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
    options = ("--no-deps", "--require-hashes", "--only-binary=:all:", "--no-compile", "--no-user")
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


@dataclass(frozen=True, slots=True)
class Asset:
    """The contents of an asset, which several functions share.

    Attributes:
        name: the prefix of its folder's name.
        handlers: the folder of the handlers, below ``functions``.
        left_out: the parts of ticketlock that only other functions need.
    """

    name: str
    handlers: str
    left_out: Sequence[str]


OF_LOCKS = Asset("ticketlock-functions", ".", ("_expressions", "report", "units"))
OF_UNITS = Asset("ticketlock-functions-of-units", "of_units", ("report", "workflow"))
OF_DASHBOARDS = Asset("ticketlock-functions-of-dashboards", "of_dashboards", ("workflow",))


def source_folder(name: str) -> Path:
    """The folder ``functions`` or ``statemachines``.

    Raises:
        FileNotFoundError: the installation lacks it.
    """
    for base in (_BUNDLED, _PACKAGE.parent.parent):
        if (base / name).is_dir():
            return base / name
    raise FileNotFoundError(f"this installation of ticketlock lacks its folder {name!r}: install it again")


def stage_functions(parent: Path, asset: Asset = OF_LOCKS) -> Path:
    """Build an asset, once for each content.

    Args:
        parent: the folder in which its folder is made, which is named by its content.
        asset: which one.

    Raises:
        ThirdPartyError: the third-party packages cannot be installed.
    """
    functions = source_folder("functions")
    with _staging(parent) as staged:
        staged.mkdir()
        for handler in sorted((functions / asset.handlers).glob("*.py")):
            shutil.copyfile(handler, staged / handler.name)
        _copy(Path(ticketlock.__file__).parent, staged / "ticketlock", *_NOT_FOR_FUNCTIONS, *asset.left_out)
        for package in sorted(third_party_packages(functions / "requirements.txt").iterdir()):
            if package.is_dir() and package.name != "bin" and not package.name.endswith(".dist-info"):
                _copy(package, staged / package.name)
            elif package.suffix == ".py":
                shutil.copyfile(package, staged / package.name)
        return _put_by_content(staged, parent / asset.name)


def stage_with_library(parent: Path, folder: Path) -> Path:
    """Build an asset of a user's functions and ticketlock, once for each content.

    Args:
        parent: as for ``stage_functions``.
        folder: what the functions import, but ticketlock and what the runtime has.

    Raises:
        ValueError: it is no folder, or has a ticketlock of its own.
    """
    if not folder.is_dir() or (folder / "ticketlock").exists():
        found = "has a ticketlock of its own" if folder.is_dir() else "is no folder"
        raise ValueError(f"folder is {str(folder)!r}, which {found}; allowed: the folder of your functions' own code")
    with _staging(parent) as staged:
        shutil.copytree(folder, staged, ignore=shutil.ignore_patterns("__pycache__"))
        _copy(Path(ticketlock.__file__).parent, staged / "ticketlock", "__main__.py", "cli", "testing")
        return _put_by_content(staged, parent / "functions-with-ticketlock")


@contextmanager
def _staging(parent: Path) -> Iterator[Path]:
    """Where to build an asset: it gets its final name when it is complete, since other syntheses may use its parent."""
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ticketlock-staging-", dir=parent) as folder:
        yield Path(folder) / "functions"


def _put_by_content(staged: Path, name: Path) -> Path:
    _make_readable(staged)
    return put_in_place(staged, name.with_name(f"{name.name}-{_content_hash(staged)}"))


def _copy(source: Path, target: Path, *left_out: str) -> None:
    ignored = shutil.ignore_patterns(*_LEFT_OUT, *left_out)
    shutil.copytree(source, target, ignore=ignored, copy_function=shutil.copyfile)


def _make_readable(folder: Path) -> None:
    # The asset's files keep their modes, and a function runs as another user: a strict umask would lock it out.
    # https://repost.aws/knowledge-center/lambda-deployment-package-errors
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def _content_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
