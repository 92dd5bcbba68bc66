"""Whether a tag may be released: its name, the changelog, and the commit of the proof's figures."""

import json
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from ticketlock_local.errors import ReleaseError
from ticketlock_local.release.commit import git

PROOF = "docs/tables/proof.json"
_FULL_NAME = re.compile("[0-9a-f]{40,64}")
# Written after the commit that they are about.
_WRITTEN_BY_THE_PROOF = {PROOF, "docs/proof.md"}


def check_tag(root: Path, tag: str, version: str) -> None:
    """Refuse a tag that does not fit the checkout.

    Raises:
        ReleaseError: the message has every reason.
    """
    if wrong := [*_name(tag, version), *_changelog(root, version), *_proof(root)]:
        raise ReleaseError("\n".join((f"{tag} cannot be released:", *wrong)))


def _name(tag: str, version: str) -> Iterator[str]:
    if tag != f"v{version}":
        yield f"src/ticketlock/_version.py says {version}, whose tag is v{version}"


def _changelog(root: Path, version: str) -> Iterator[str]:
    heading = rf"^## \[{re.escape(version)}\] - (\d{{4}}-\d\d-\d\d)$"
    dates = re.findall(heading, (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    if len(dates) != 1 or not _is_date(dates[0]):
        yield f"CHANGELOG.md has no section `## [{version}] - YYYY-MM-DD`"


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _proof(root: Path) -> Iterator[str]:
    if not (root / PROOF).exists():
        yield f"{PROOF} is missing: `make proof` writes it"
        return
    proven = json.loads((root / PROOF).read_text())["commit"]
    if not _FULL_NAME.fullmatch(proven):
        yield f"{PROOF} is of {proven!r}, which is no commit's full name"
        return
    try:
        changed = git(root, "diff", "--name-only", "--no-renames", proven, "HEAD", "--").splitlines()
    except ReleaseError as error:
        yield f"the commit {proven} of {PROOF} cannot be compared: {error}"
        return
    if others := [name for name in changed if name not in _WRITTEN_BY_THE_PROOF]:
        yield f"since the commit of {PROOF}, {proven}, also these files changed: {', '.join(others)}"
