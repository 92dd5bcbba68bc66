"""Tests and commands that a page names in backticks are there: no name goes stale when one is renamed."""

import re

import pytest
from kit.pages import ALL_PAGES, ROOT, functions_of, text

COMMANDS = frozenset(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))


@pytest.fixture(scope="module")
def functions() -> frozenset[str]:
    """The names of all tests; two suites take some from ``kit.sentences``."""
    files = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("tests/kit/sentences/*.py")]
    return frozenset[str]().union(*map(functions_of, files))


@pytest.mark.parametrize("page", ALL_PAGES)
def test_what_a_page_names_is_there(page: str, functions: frozenset[str]) -> None:
    prose = re.sub(r"^```.*?^```$", "", text(page), flags=re.DOTALL | re.MULTILINE)
    files = {name.partition(" -k ")[0].partition("::")[0] for name in re.findall(r"`(tests/[^`]*)`", prose)}
    assert [name for name in sorted(files) if not any(ROOT.glob(name))] == []
    assert set(re.findall(r"`(test_\w+)`", prose)) - functions == set()
    assert set(re.findall(r"`make ([\w-]+)", prose)) - COMMANDS == set(), "no target of the Makefile"
