"""Checks every file of a release as its users will use it: installed or unpacked, outside the checkout."""

import json
import sys
import zipfile
from pathlib import Path

from ticketlock_local.cloud import lint
from ticketlock_local.errors import ReleaseError
from ticketlock_local.release import sbom
from ticketlock_local.release.build import run
from ticketlock_local.release.links import dead_links

# A template that names folders, until `aws cloudformation package` has put them into a bucket.
_IS_FOR_PACKAGE = "W3002"
_TAKES_A_LOCK, _IMPORTS_A_HANDLER = (
    str(Path(__file__).with_name(f"{name}.py")) for name in ("_takes_a_lock", "_imports_a_handler")
)


def check(files: Path, folder: Path, version: str) -> None:
    """Check the files of a release.

    Args:
        files: the folder that has them, and nothing else.
        folder: where they are installed and unpacked.
        version: of the package.

    Raises:
        ReleaseError: one of them does not work; the message says which, and why.
    """
    wheel = _installed(folder / "wheel", files / f"ticketlock-{version}-py3-none-any.whl", "aio,cdk,cli,durable")
    check_package(wheel, version, "ticketlock.aio", "ticketlock.durable", "ticketlock.units", "ticketlock_cdk")
    sdist = _installed(folder / "sdist", files / f"ticketlock-{version}.tar.gz", "cli")
    check_package(sdist, version, "ticketlock.units")
    check_template(unpacked(files / f"ticketlock-template-{version}.zip", folder), sdist)
    check_site(unpacked(files / f"ticketlock-site-{version}.zip", folder))
    sbom.check((files / f"ticketlock-{version}.cdx.json").read_text())


def _installed(folder: Path, file: Path, extras: str) -> str:
    """Make an environment of Python with a wheel or an sdist, and nothing of the checkout. Returns its interpreter."""
    run(sys.executable, "-m", "venv", str(folder))
    python = str(folder / "bin" / "python")
    wanted = f"ticketlock[{extras}] @ {file.as_uri()}"
    run(python, "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted)
    return python


def check_package(python: str, version: str, *modules: str) -> None:
    """Ask the command for its version, import modules, and acquire and release a lock on a table in memory.

    Raises:
        ReleaseError: the command says another version, a module is not there, or the lock does not work.
    """
    said = run(python, "-I", str(Path(python).with_name("ticketlock")), "--version")
    if said != f"ticketlock {version}\n":
        raise ReleaseError(f"`ticketlock --version` of release {version} says {said!r}")
    run(python, "-I", _TAKES_A_LOCK, *modules)


def unpacked(archive: Path, folder: Path) -> Path:
    """Unpack an archive, and return the one folder that it has."""
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(folder)
    return folder / archive.stem


def check_template(folder: Path, python: str) -> None:
    """Lint the template, and import the handler of each function from its code, beside this interpreter's SDK.

    Raises:
        ReleaseError: cfn-lint finds something, or a handler is missing.
    """
    file = folder / "ticketlock.json"
    if lint([str(file)], _IS_FOR_PACKAGE) != 0:
        raise ReleaseError("cfn-lint found faults in the template: see above")
    resources = json.loads(file.read_text())["Resources"].values()
    functions = [each["Properties"] for each in resources if each["Type"] == "AWS::Lambda::Function"]
    if not functions:
        raise ReleaseError("the template has no function")
    for function in functions:
        run(python, "-I", _IMPORTS_A_HANDLER, str(folder / function["Code"]), function["Handler"])


def check_site(folder: Path) -> None:
    """Look for the front page, and follow the links.

    Raises:
        ReleaseError: a page is not there.
    """
    if not (folder / "index.html").is_file():
        raise ReleaseError("the site has no front page")
    if dead := dead_links(folder):
        raise ReleaseError("\n".join(("these links of the site lead nowhere:", *dead)))
