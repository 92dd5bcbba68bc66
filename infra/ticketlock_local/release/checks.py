"""Checks every file of a release as its users will use it: installed or unpacked, outside the checkout."""

import json
import zipfile
from pathlib import Path

from ticketlock_local.cloud.cdk_cli import lint
from ticketlock_local.errors import ReleaseError
from ticketlock_local.release import sbom
from ticketlock_local.release.fresh import Environment, fresh
from ticketlock_local.release.links import dead_links

# A template that names folders, until `aws cloudformation package` has put them into a bucket.
_IS_FOR_PACKAGE = "W3002"


def check(files: Path, folder: Path, version: str) -> None:
    """Check the files of a release.

    Args:
        files: the folder that has them, and nothing else.
        folder: where they are installed and unpacked.
        version: of the package.

    Raises:
        ReleaseError: one of them does not work; the message says which, and why.
    """
    wheel = fresh(folder / "wheel", files / f"ticketlock-{version}-py3-none-any.whl", "aio", "cdk", "cli")
    wheel.check_command(version)
    wheel.check_lock("ticketlock.aio", "ticketlock.units", "ticketlock_cdk")
    sdist = fresh(folder / "sdist", files / f"ticketlock-{version}.tar.gz", "cli")
    sdist.check_command(version)
    sdist.check_lock("ticketlock.units")
    check_template(unpacked(files / f"ticketlock-template-{version}.zip", folder), sdist)
    check_site(unpacked(files / f"ticketlock-site-{version}.zip", folder))
    sbom.check((files / f"ticketlock-{version}.cdx.json").read_text())


def unpacked(archive: Path, folder: Path) -> Path:
    """Unpack an archive, and return the one folder that it has."""
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(folder)
    return folder / archive.stem


def check_template(folder: Path, python: Environment) -> None:
    """Lint the template, and import the handler of each function that it has.

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
        python.check_handler(folder / function["Code"], function["Handler"])


def check_site(folder: Path) -> None:
    """Look for the front page, and follow the links.

    Raises:
        ReleaseError: a page is not there.
    """
    if not (folder / "index.html").is_file():
        raise ReleaseError("the site has no front page")
    if dead := dead_links(folder):
        raise ReleaseError("\n".join(("these links of the site lead nowhere:", *dead)))
