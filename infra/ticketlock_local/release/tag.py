"""Whether a tag may be released: its name, the changelog, and the commit of the proof's figures."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from ticketlock_local.errors import ReleaseError
from ticketlock_local.release.commit import git

PROOF = "docs/tables/proof.json"
# Written after the commit that they are about.
_WRITTEN_BY_THE_PROOF = (f":!{PROOF}", ":!docs/proof.md")


def check_tag(root: Path, tag: str, version: str) -> None:
    """Refuse a tag that does not fit the checkout.

    Raises:
        ReleaseError: the message has every reason.
    """
    if wrong := [*_reasons(root, tag, version)]:
        raise ReleaseError("\n".join((f"{tag} cannot be released:", *wrong)))


def _reasons(root: Path, tag: str, version: str) -> Iterator[str]:
    if tag != f"v{version}":
        yield f"src/ticketlock/_version.py says {version}, whose tag is v{version}"
    heading = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$"
    if len(re.findall(heading, (root / "CHANGELOG.md").read_text(), re.MULTILINE)) != 1:
        yield f"CHANGELOG.md has no section `## [{version}] - YYYY-MM-DD`"
    if not (root / PROOF).exists():
        yield f"{PROOF} is missing: `make proof` writes it"
        return
    proven = json.loads((root / PROOF).read_text())["commit"]
    if not re.fullmatch("[0-9a-f]{40,64}", proven):
        yield f"{PROOF} is of {proven!r}, which is no commit's full name"
        return
    try:
        changed = git(root, "diff", "--name-only", "--no-renames", proven, "HEAD", "--", ".", *_WRITTEN_BY_THE_PROOF)
    except ReleaseError as error:
        yield f"the commit {proven} of {PROOF} cannot be compared: {error}"
        return
    if changed:
        yield f"since the commit of {PROOF}, {proven}, also these files changed: {', '.join(changed.splitlines())}"
