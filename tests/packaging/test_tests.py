"""A folder of tests imports from itself and from the kit, and the kit from itself: else a test moves with another."""

from collections.abc import Collection
from pathlib import Path

import pytest
from kit.architecture import Arrows, arrows, between

TESTS = Path(__file__).parents[1]
KIT = "kit"


def packages(root: Path) -> set[str]:
    """The folders, and the files beside them."""
    return {path.relative_to(root).parts[0] for path in root.rglob("*.py")}


def across(root: Path) -> list[str]:
    """The imports from one folder of tests into another, as ``from -> into``."""
    rooms = packages(root)
    crossing: Arrows = between(arrows(root, *rooms), [room.removesuffix(".py") for room in rooms])
    return sorted(f"{room} -> {other}" for room, others in crossing.items() for other in others if other != KIT)


def planted(root: Path, imports: Collection[tuple[str, str]]) -> Path:
    """Folders of tests that are written for the test: files with what they import."""
    for name, statement in [("client/test_acquiring.py", ""), ("kit/places.py", ""), *imports]:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(statement + "\n")
    return root


def test_no_file_imports_from_a_folder_of_tests_but_its_own() -> None:
    assert len(packages(TESTS)) > 10
    assert across(TESTS) == [], "what two folders use belongs into tests/kit"


@pytest.mark.parametrize(
    "statement",
    [
        "from client.test_acquiring import line",
        "from client import test_acquiring",
        "import client.test_acquiring",
        "def late() -> None:\n    from client import test_acquiring",
    ],
)
@pytest.mark.parametrize(
    ("name", "folder"), [("wire/test_suite.py", "wire"), ("kit/far.py", "kit"), ("conftest.py", "conftest")]
)
def test_an_import_across_folders_is_named(tmp_path: Path, name: str, folder: str, statement: str) -> None:
    assert across(planted(tmp_path, [(name, statement)])) == [f"{folder} -> client"]


def test_a_folder_may_import_from_itself_and_from_the_kit(tmp_path: Path) -> None:
    mine = [("client/test_waiting.py", "from client import test_acquiring\nfrom kit.places import until")]
    assert across(planted(tmp_path, mine)) == []
