"""Which module imports which, read from the source: every import of every module, wherever it is."""

import ast
import graphlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

Arrows = Mapping[str, set[str]]
"""Each module with the modules that it imports, both by their full names."""


def arrows(root: Path, *packages: str) -> Arrows:
    """The imports of all modules of some packages, also those inside a function or for type checkers only.

    A name from the door of a room, its ``__init__.py``, is an import of the module that the door has it from.

    Args:
        root: the folder in which the packages are.
        packages: each a folder, or one file.
    """
    files = {module_of(file, root): file for package in packages for file in _files(root / package)}
    return {module: set(_imported(file, files)) for module, file in files.items()}


def module_of(file: Path, root: Path) -> str:
    return ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def foreign(found: Arrows) -> set[str]:
    """The top-level names of modules that are imported from elsewhere."""
    return {name.partition(".")[0] for names in found.values() for name in names if name not in found}


def circle(found: Arrows) -> Sequence[str]:
    """The modules of one import cycle, each importing the one before it; none if there is no cycle."""
    try:
        graphlib.TopologicalSorter({module: names & found.keys() for module, names in found.items()}).prepare()
    except graphlib.CycleError as error:
        names: Sequence[str] = error.args[1]
        return names
    return ()


def between(found: Arrows, rooms: Iterable[str]) -> Arrows:
    """The imports from one room into another."""
    joined: dict[str, set[str]] = {}
    for module, names in found.items():
        room = room_of(module, rooms)
        others = {room_of(name, rooms) for name in names if name in found}
        joined[room] = joined.get(room, set()) | others - {room}
    return joined


def height(found: Arrows) -> int:
    """The length of the longest chain of imports."""
    heights: dict[str, int] = {}
    for name in graphlib.TopologicalSorter(found).static_order():
        heights[name] = 1 + max((heights[below] for below in found.get(name, ())), default=0)
    return max(heights.values())


def room_of(module: str, rooms: Iterable[str]) -> str:
    """The room that a module is in: the longest name that equals it or begins it."""
    return max((room for room in rooms if module == room or module.startswith(room + ".")), key=len)


def forbidden(found: Arrows, floor_of: Mapping[str, int]) -> list[str]:
    """The imports from one room into another that is not on a lower floor, by name."""
    return [
        f"{module} imports {name}"
        for module, names in found.items()
        for name in sorted(names & found.keys())
        if (mine := room_of(module, floor_of)) != (other := room_of(name, floor_of))
        and floor_of[other] >= floor_of[mine]
    ]


def defined_twice(files: Iterable[Path]) -> dict[str, set[str]]:
    """The names of classes and types that several of the files define, each with the paths of those files."""
    homes: dict[str, set[str]] = {}
    for file in files:
        for name in _types_in(ast.parse(file.read_text(encoding="utf-8"))):
            homes.setdefault(name, set()).add(str(file))
    return {name: paths for name, paths in sorted(homes.items()) if len(paths) > 1}


def imported_names(root: Path, *packages: str) -> Mapping[str, set[str]]:
    """Each module with the full names of what it imports from other modules by ``from``."""
    files = {module_of(file, root): file for package in packages for file in _files(root / package)}
    return {
        module: {
            f"{node.module}.{alias.name}"
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for module, file in files.items()
    }


def _types_in(tree: ast.Module) -> Iterator[str]:
    """The classes, and the names in capitalised words that are assigned: aliases of types, and type variables."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [each.id for each in targets if isinstance(each, ast.Name)]
            yield from (name for name in names if name[:1].isupper() and not name.isupper())


def _files(package: Path) -> Sequence[Path]:
    return [package] if package.is_file() else sorted(package.rglob("*.py"))


def past_doors(room_of_module: str | None, names: Iterable[str], rooms: Iterable[str]) -> list[str]:
    """Of the full names that a module imports, those of other rooms that are not at the door of their room.

    Args:
        room_of_module: the room of the module that imports them; None: of none.
        rooms: by their full names; a room within a room is another one for everybody outside of the outer room.
    """
    found = []
    for name in names:
        homes = sorted((room for room in rooms if name.startswith(f"{room}.")), key=len)
        strange = [room for room in homes if room_of_module is None or not f"{room_of_module}.".startswith(f"{room}.")]
        if strange and name.removeprefix(f"{strange[-1]}.").count("."):
            found.append(name)
    return found


def _imported(file: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import"
            yield from (_home(node.module or "", alias.name, known) for alias in node.names)


def _home(package: str, name: str, known: Mapping[str, Path]) -> str:
    """The module that has a name: a module of the package, or where its door has the name from."""
    if (inner := f"{package}.{name}") in known:
        return inner
    door = known.get(package)
    behind = _behind_door(door).get(name) if door is not None and door.name == "__init__.py" else None
    return _home(*behind, known) if behind is not None else package


@cache
def _behind_door(door: Path) -> Mapping[str, tuple[str, str]]:
    """The names of a door, each with the module that it comes from and its name there."""
    return {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in ast.parse(door.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
