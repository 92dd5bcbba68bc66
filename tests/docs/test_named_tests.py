"""The pages that name tests, beside the tests: what is named is there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from kit.pages import ALL_PAGES, ROOT, functions_of, text

FOLDERS = {
    "docs/threat-model.md": "tests/security",
    "docs/engines.md": "tests/locks",
    "docs/coming-from-awslabs-transactions.md": "tests/units",
    **{page: "tests/locks" for page in ALL_PAGES if page.startswith("docs/decisions/")},
}
"""Of the tests that a page names without one."""


def named(page: str) -> list[str]:
    """What stands in backticks and is a test, or of the tests."""
    prose = re.sub(r"^```.*?^```$", "", text(page), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"`((?:tests/|test_)[^`]*)`", prose)


def test_the_pages_that_promise_name_tests() -> None:
    promise = ("guarantees", "threat-model", "proof", "engines", "operations")
    assert all(named(f"docs/{page}.md") for page in promise)


@cache
def chosen_among(path: Path) -> frozenset[str]:
    """The tests of a file and its classes of tests."""
    tree = ast.walk(ast.parse(path.read_text()))
    classes = {each.name for each in tree if isinstance(each, ast.ClassDef)}
    return frozenset(each for each in functions_of(path) | classes if each.lower().startswith("test"))


@cache
def functions_of_all_tests() -> frozenset[str]:
    """Those that two suites take from ``kit.sentences`` as well."""
    files = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("tests/kit/sentences/*.py")]
    return frozenset[str]().union(*map(functions_of, files))


def is_there(name: str, folder: str) -> bool:
    """A test by its name; a folder; a file, or several (``test_clean_up_*.py``); a function (``a_file.py::name``);
    those of a file that have a word in their names (``a_file.py -k word``).
    """
    name, _, word = name.partition(" -k ")
    path, _, function = name.partition("::")
    if path.startswith("test_") and not path.endswith(".py"):
        return path in functions_of_all_tests()
    found = list(ROOT.glob(path if path.startswith("tests/") else f"{folder}/{path}"))
    if word:
        return any(word.lower() in each.lower() for path in found for each in chosen_among(path))
    return bool(found) and all(not function or function in functions_of(each) for each in found)


@pytest.mark.parametrize("page", ALL_PAGES)
def test_each_test_that_a_page_names_is_there(page: str) -> None:
    missing = [name for name in named(page) if not is_there(name, FOLDERS.get(page, ""))]
    assert missing == [], "the page names tests that are not there: with their folder, as tests/cli/test_run.py"


@pytest.mark.parametrize(
    "name",
    [
        "tests/locks/test_that_nobody_wrote.py",
        "tests/locks/test_grants.py::test_that_nobody_wrote",
        "test_that_nobody_wrote",
        "test_that_nobody_wrote_*.py",
        "test_grants.py",
        "tests/locks/test_grants.py -k that_nobody_wrote",
        "tests/locks/test_that_nobody_wrote.py -k grant",
        "tests/nowhere",
    ],
)
def test_a_test_that_is_not_there_is_missed(name: str) -> None:
    assert not is_there(name, "tests/client")


@pytest.mark.parametrize("page", ALL_PAGES)
def test_each_command_that_a_page_names_is_there(page: str) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"`make ([\w-]+)", text(page))) - set(targets) == set(), "no target of the Makefile"
