"""The reference is made without a warning, and nothing public is left without a word."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pdoc.doc
import pytest

pytestmark = pytest.mark.verify("makes the reference in a process of its own")

ROOT = Path(__file__).parents[2]
MODULES = ("ticketlock", "ticketlock.aio", "ticketlock.errors", "ticketlock.testing", "ticketlock.units")


def public(space: pdoc.doc.Module | pdoc.doc.Class) -> Iterator[pdoc.doc.Class | pdoc.doc.Function]:
    """Classes and functions, and what they have in turn."""
    for name, member in space.members.items():
        if name.startswith("_"):
            continue
        if isinstance(member, pdoc.doc.Class | pdoc.doc.Function):
            yield member
        if isinstance(member, pdoc.doc.Class):
            yield from public(member)


@pytest.mark.parametrize("module", MODULES)
def test_every_public_class_and_method_says_what_it_is(module: str) -> None:
    members = list(public(pdoc.doc.Module.from_name(module)))
    assert members
    assert [member.fullname for member in members if not member.docstring] == []


def test_the_reference_is_made_without_a_warning_and_has_what_a_lease_inherits(tmp_path: Path) -> None:
    made = re.search(r"^docs: [^\n]*\n\t\$\(BIN\) (.*?)\n\n", (ROOT / "Makefile").read_text(), re.DOTALL | re.MULTILINE)
    assert made is not None
    arguments = made[1].replace("\\\n", " ").replace("build/reference", str(tmp_path)).split()
    assert tuple(arguments[-len(MODULES) :]) == MODULES
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    for module in MODULES:
        assert tmp_path.joinpath(*module.split(".")).with_suffix(".html").exists()
    assert 'id="Lease.fenced_put"' in (tmp_path / "ticketlock.html").read_text()
