"""Who imports whom: arrows point downwards, there is no circle, and no folder brings what is not its own; nor a folder
of tests what is another's."""

import re
import sys
from collections.abc import Collection
from pathlib import Path

import pytest
from kit.architecture import (
    Arrows,
    arrows,
    between,
    circle,
    defined_twice,
    forbidden,
    foreign,
    height,
    imported_names,
    past_doors,
    room_of,
)

ROOT = Path(__file__).parents[2]
SOURCE, INFRA = ROOT / "src", ROOT / "infra"

FLOORS = {
    "ticketlock.__main__": 8,
    "ticketlock.cli": 7,
    "ticketlock": 6,
    "ticketlock.aio": 6,
    "ticketlock.testing": 6,
    "ticketlock.client": 5,
    "ticketlock.durable": 5,
    "ticketlock.report": 5,
    "ticketlock.workflow": 5,
    "ticketlock.locks": 4,
    "ticketlock.units": 4,
    "ticketlock.wire": 3,
    "ticketlock._checks": 2,
    "ticketlock._decorating": 2,
    "ticketlock._expressions": 2,
    "ticketlock._names": 1,
    "ticketlock._value": 1,
    "ticketlock._version": 1,
    "ticketlock.errors": 1,
}
INFRA_ROOMS = {
    "ticketlock_cdk": ("lock", "units"),
    "ticketlock_local": ("cloud", "demo", "engines", "plain", "release"),
}

UNITS = "ticketlock.units"
# The rooms of units, the highest first; above them is what callers see.
ROOMS_OF_UNITS = (
    "_like_boto3",
    "_unit_of_work",
    "_again",
    "_recovery",
    "_commit",
    "_statements",
    "_records",
    "_words",
)
FOR_TASKS = "_for_tasks"
DOORS = [
    *(
        f"ticketlock.{room}"
        for room in ("_expressions", "aio", "cli", "client", "durable", "locks", "report", "testing")
    ),
    "ticketlock.units",
    "ticketlock.wire",
    "ticketlock.workflow",
    *(f"ticketlock.{room}.{FOR_TASKS}" for room in ("client", "locks", "units", "wire")),
    *(f"{UNITS}.{room}" for room in ROOMS_OF_UNITS),
    *(f"{package}.{room}" for package, rooms in INFRA_ROOMS.items() for room in rooms),
]
"""A name crosses the border of such a room through its ``__init__.py`` alone."""
# What boto3 calls the parameters and the reply of a call: one of the memory's service, the other of a unit's client. A
# reply of the wire is what a protocol is sent.
MEANS_TWO_THINGS = {"Parameters", "Reply"}
BY_NAME = {"importlib", "pkgutil", "runpy"}
# But whether somebody has imported asyncio may be asked.
BY_TEXT = re.compile(r"__import__|sys\.modules(?!\.get\(\"asyncio\"\))")

# What a folder may bring along, beside the standard library and itself.
SDK = {"boto3", "botocore", "mypy_boto3_dynamodb", "mypy_boto3_stepfunctions"}
SDK_FOR_TASKS = {"aiobotocore"}
SDK_FOR_DURABLE = "aws_durable_execution_sdk_python"
ALLOWED = [
    (SOURCE, "ticketlock/errors.py", set()),
    (SOURCE, "ticketlock/_checks.py", set()),
    (SOURCE, "ticketlock/_names.py", set()),
    (SOURCE, "ticketlock/_value.py", set()),
    # Of Python 3.14.
    (SOURCE, "ticketlock/_decorating.py", {"annotationlib"}),
    (SOURCE, "ticketlock/_expressions", set()),
    (SOURCE, "ticketlock/wire", SDK | SDK_FOR_TASKS),
    (SOURCE, "ticketlock/locks", SDK),
    (SOURCE, "ticketlock/units", SDK | SDK_FOR_TASKS),
    (SOURCE, "ticketlock/client", {"mypy_boto3_dynamodb", "mypy_boto3_stepfunctions"}),
    (SOURCE, "ticketlock/durable", {SDK_FOR_DURABLE}),
    (SOURCE, "ticketlock/workflow", set()),
    (SOURCE, "ticketlock/report", set()),
    (SOURCE, "ticketlock/aio", set()),
    # Only the fixtures import pytest, and only pytest imports them: tests/testing/test_testing.py.
    (SOURCE, "ticketlock/testing", SDK | {"pytest", "pytest_asyncio", f"{SDK_FOR_DURABLE}_testing"}),
    (SOURCE, "ticketlock/cli", SDK | {"click", "rich"}),
    (ROOT, "functions", {"_observed", "aws_lambda_powertools", "boto3", "botocore"}),
    # jsii is what aws_cdk is made with: code that gives it something to call declares that by one of its decorators.
    (INFRA, "ticketlock_cdk", {"aws_cdk", "constructs", "jsii"}),
]


@pytest.fixture(scope="module")
def library() -> Arrows:
    return arrows(SOURCE, "ticketlock")


def planted(folder: Path, **modules: str) -> Arrows:
    """The arrows of a package that is written for the test: names of modules with what they import."""
    package = folder / "ticketlock"
    for name, imports in {"__init__": "", **modules}.items():
        file = package.joinpath(*name.split("__in__")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(imports + "\n")
    return arrows(folder, "ticketlock")


def test_the_floors_are_those_of_the_page() -> None:
    rooms = {room: room.removeprefix("ticketlock").lstrip(".") or "__init__" for room in FLOORS}
    floors = [
        " · ".join(sorted(told for room, told in rooms.items() if FLOORS[room] == floor))
        for floor in sorted(set(FLOORS.values()), reverse=True)
    ]
    lines = [line.strip() for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines()]
    first = lines.index(floors[0])
    assert lines[first : first + len(floors)] == floors, "the page lists the floors of FLOORS, the highest first"


def test_every_module_of_the_library_is_in_a_room(library: Arrows) -> None:
    assert len(library) > 80
    assert {module for module in library if room_of(module, FLOORS) == "ticketlock"} == {"ticketlock"}, (
        "a new package or module of the library needs its floor in FLOORS"
    )
    assert {room_of(module, FLOORS) for module in library} == FLOORS.keys()


def test_the_library_has_at_most_9_floors(library: Arrows) -> None:
    assert height(between(library, FLOORS)) <= max(FLOORS.values()) <= 9


def test_no_arrow_hides_in_an_import_by_name_or_in_a_room_that_is_imported_whole(library: Arrows) -> None:
    """A module that is asked of its package, or for by text, would be an arrow that nobody sees."""
    hidden = {
        f"{module} imports {name}"
        for module, names in library.items()
        for name in names
        if name.partition(".")[0] in BY_NAME or (name.startswith("ticketlock") and name not in library)
    }
    assert hidden == set(), "import the module that has the name: no test sees any other import"
    assert not [path for path in (SOURCE / "ticketlock").rglob("*.py") if BY_TEXT.search(path.read_text())]


def test_a_module_imports_its_own_room_and_lower_floors_alone(library: Arrows) -> None:
    assert forbidden(library, FLOORS) == [], (
        "a module imports its own room and lower floors: docs/decisions/0004-generators-and-packages.md"
    )


def test_a_name_crosses_the_border_of_a_room_through_its_door_alone() -> None:
    assert crossing(ROOT) == [], "import it from the room's package, whose __init__.py is its only door"


def test_an_import_past_a_door_is_found(tmp_path: Path) -> None:
    files = {
        "src/ticketlock/wire/_driver.py": "",
        "src/ticketlock/locks/_reads.py": "from ticketlock.wire._driver import Clocks",
        "src/ticketlock/locks/_queue.py": "from ticketlock.wire import Read",
        "src/ticketlock/wire/_performer.py": "from ticketlock.wire._driver import Driver",
        "src/ticketlock/units/_commit/_state.py": "from ticketlock.units._records._record import decide",
        "functions/heartbeat.py": "from ticketlock.workflow._turn import LockRequest",
        "infra/ticketlock_cdk/tables.py": "from ticketlock.units._records import KEY",
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    assert crossing(tmp_path) == [
        "heartbeat imports ticketlock.workflow._turn.LockRequest",
        "ticketlock.locks._reads imports ticketlock.wire._driver.Clocks",
        "ticketlock.units._commit._state imports ticketlock.units._records._record.decide",
    ]


def crossing(root: Path) -> list[str]:
    """The names that a module of the product imports past the door of a room."""
    places = [(root / "src", "ticketlock"), (root / "infra", "ticketlock_cdk"), (root / "infra", "ticketlock_local")]
    places += [(path.parent, path.name) for path in (root / "functions").rglob("*.py")]
    return sorted(
        f"{module} imports {name}"
        for folder, package in places
        if (folder / package).exists()
        for module, names in imported_names(folder, package).items()
        for name in past_doors(room_within(module), names, DOORS)
    )


def room_within(module: str) -> str | None:
    return max((room for room in DOORS if f"{module}.".startswith(f"{room}.")), key=len, default=None)


def test_the_rooms_of_units_import_lower_ones_alone(library: Arrows) -> None:
    rooms = [f"{UNITS}.{room}" for room in ROOMS_OF_UNITS]
    of_rooms = {module: names for module, names in library.items() if module.startswith(tuple(rooms))}
    floor_of = {UNITS: len(rooms) + 1, **{room: len(rooms) - at for at, room in enumerate(rooms)}}
    named = {module: {name for name in names if name.startswith(UNITS)} for module, names in of_rooms.items()}
    assert {room_of(module, rooms) for module in of_rooms} == set(rooms)
    assert forbidden({**{module: set() for module in library}, **named}, {"ticketlock": 0, **floor_of}) == []


def test_only_what_stays_out_of_the_functions_evaluates_expressions(library: Arrows) -> None:
    users = {
        room_of(module, FLOORS) for module, names in library.items() if any("._expressions" in name for name in names)
    }
    assert users - {"ticketlock._expressions"} <= {
        "ticketlock.testing",
        "ticketlock.units",
    }, "the functions of locks are deployed without _expressions"


def test_no_modules_of_the_library_import_each_other_in_a_circle(library: Arrows) -> None:
    assert circle(library) == (), "these modules import each other: move what they share below them"


@pytest.mark.parametrize("package", INFRA_ROOMS)
def test_no_modules_and_no_rooms_of_the_infrastructure_import_each_other_in_a_circle(package: str) -> None:
    found = arrows(INFRA, package)
    assert len(found) > 20
    assert circle(found) == (), "these modules import each other: move what they share below them"
    folders = [f"{package}.{name}" for name in INFRA_ROOMS[package]]
    assert all(any(module.startswith(folder + ".") for module in found) for folder in folders)
    alone = [module for module in found if not module.startswith(tuple(folder + "." for folder in folders))]
    assert circle(between(found, [*folders, *alone])) == (), "these folders import each other"


@pytest.mark.parametrize(("root", "folder", "allowed"), ALLOWED, ids=[each[1] for each in ALLOWED])
def test_a_folder_brings_no_more_than_it_may(root: Path, folder: str, allowed: set[str]) -> None:
    found = arrows(root, folder)
    assert found
    own = {"ticketlock", folder.partition("/")[0]}
    assert foreign(found) - own - sys.stdlib_module_names <= allowed, f"{folder} is shipped without these packages"


def test_only_what_is_for_tasks_brings_aiobotocore(library: Arrows) -> None:
    """The functions are deployed without it."""
    bring = {module for module, names in library.items() if foreign({module: names}) & SDK_FOR_TASKS}
    assert bring
    assert all(FOR_TASKS in module.split(".") for module in bring)


def test_only_what_is_for_durable_functions_brings_their_sdk(library: Arrows) -> None:
    """All else is installed without it."""
    bring = {module for module, names in library.items() if any(SDK_FOR_DURABLE in name for name in names)}
    assert {"ticketlock.durable._sdk", "ticketlock.testing.durable"} == bring


def test_a_class_or_a_type_of_the_product_has_its_name_for_itself() -> None:
    """A face for tasks has the names of the one for threads."""
    places = (SOURCE / "ticketlock", INFRA / "ticketlock_cdk", ROOT / "functions")
    files = [file for place in places for file in place.rglob("*.py") if "_for_tasks" not in file.parts]
    assert len(files) > 100
    assert set(defined_twice(files)) == MEANS_TWO_THINGS, "choose another name, or say why not in MEANS_TWO_THINGS"


def test_a_name_that_two_files_define_is_found(tmp_path: Path) -> None:
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text("class Turn: ...\nSeconds = float\nT = 1\n_ONCE = 2")
    other.write_text("Seconds: type = int\nTurn = dict\nT = 1\n_ONCE = 2")
    assert defined_twice([one, other]) == {name: {str(one), str(other)} for name in ("Seconds", "Turn")}


@pytest.mark.parametrize(
    "imports",
    [
        "from ticketlock.locks._items import LockItem",
        "from ticketlock.locks import _items",
        "import ticketlock.locks._items",
        "def late() -> None:\n    from ticketlock.locks import _items",
        "if TYPE_CHECKING:\n    from ticketlock.locks import _items",
    ],
)
def test_an_arrow_that_points_up_is_found(tmp_path: Path, imports: str) -> None:
    found = planted(tmp_path, locks__in___items="", wire__in___driver=imports)
    assert forbidden(found, FLOORS) == ["ticketlock.wire._driver imports ticketlock.locks._items"]


def test_an_arrow_between_rooms_of_one_floor_and_a_package_in_no_room_are_found(tmp_path: Path) -> None:
    lease = "from ticketlock.client import _lease"
    found = planted(tmp_path, client__in___lease="", workflow__in___pace=lease, shelf__in___a="")
    assert forbidden(found, FLOORS) == ["ticketlock.workflow._pace imports ticketlock.client._lease"]
    assert room_of("ticketlock.shelf._a", FLOORS) == "ticketlock"
    assert "ticketlock.shelf._a" in found


def test_the_modules_of_a_circle_within_one_room_are_found(tmp_path: Path) -> None:
    found = planted(
        tmp_path,
        locks__in___a="from ticketlock.locks import _b",
        locks__in___b="from ticketlock.locks._c import name",
        locks__in___c="import ticketlock.locks._a",
    )
    assert forbidden(found, FLOORS) == []
    assert set(circle(found)) == {f"ticketlock.locks._{name}" for name in "abc"}


# Tests: what two folders use is in the kit, else a test moves with another.


def packages(root: Path) -> set[str]:
    """The folders, and the files beside them."""
    return {path.relative_to(root).parts[0] for path in root.rglob("*.py")}


def across(root: Path) -> list[str]:
    """The imports from one folder of tests into another, as ``from -> into``."""
    rooms = packages(root)
    crossing: Arrows = between(arrows(root, *rooms), [room.removesuffix(".py") for room in rooms])
    return sorted(f"{room} -> {other}" for room, others in crossing.items() for other in others if other != "kit")


def planted_tests(root: Path, imports: Collection[tuple[str, str]]) -> Path:
    """Folders of tests that are written for the test: files with what they import."""
    for name, statement in [("client/test_acquiring.py", ""), ("kit/places.py", ""), *imports]:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(statement + "\n")
    return root


def test_no_file_imports_from_a_folder_of_tests_but_its_own() -> None:
    assert len(packages(ROOT / "tests")) > 10
    assert across(ROOT / "tests") == [], "what two folders use belongs into tests/kit"


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
    assert across(planted_tests(tmp_path, [(name, statement)])) == [f"{folder} -> client"]


def test_a_folder_may_import_from_itself_and_from_the_kit(tmp_path: Path) -> None:
    mine = [("client/test_waiting.py", "from client import test_acquiring\nfrom kit.places import until")]
    assert across(planted_tests(tmp_path, mine)) == []
