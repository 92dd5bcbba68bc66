"""The promises of docs/guarantees.md, and the tests that carry ``@pytest.mark.shows(...)`` with their names."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_TESTS = Path(__file__).parents[2] / "tests"

PROMISES: Mapping[str, Sequence[str]] = {
    "locks": ("exclusion", "fencing", "liveness", "order", "self-cleaning", "lost requests", "cost"),
    "the serialised workflow": (
        "lost lease",
        "work that ends late",
        "early release",
        "one run per grant",
        "names of errors",
        "unreachable functions",
        "long waits and holds",
        "clean-up",
        "no heartbeat",
        "repeated steps",
    ),
    "Python clients": (
        "is_held",
        "reported loss",
        "left queue",
        "signal handlers",
        "end of a client",
        "killed holder",
        "child of the command",
        "mixed queue",
    ),
    "units of work": (
        "atomicity",
        "strict serialisability",
        "unchanged items",
        "committed reads",
        "no dirty read",
        "own writes in queries",
        "no phantoms",
        "known outcomes",
        "exactly once",
        "no deadlock",
        "wrong clocks",
        "killed coordinator",
        "nothing left",
        "read locks",
        "saved units",
        "steps of a saved unit",
        "ended owner",
        "unit under a lock",
        "state that writes once",
        "unit over several states",
        "bad input",
        "DynamoDB's statements",
        "cost of units",
    ),
}


@dataclass(frozen=True)
class Shown:
    """Tests that carry the marker.

    Attributes:
        promise: its name.
        path: the file, seen from the folder of tests.
        in_make_test: whether `make test` runs one of them; otherwise all are left to `make verify`.
    """

    promise: str
    path: str
    in_make_test: bool


def shown(root: Path = _TESTS) -> Iterator[Shown]:
    """The promises that each marked module, class and function shows; nothing is imported."""
    for path in sorted(root.rglob("test_*.py")):
        name = path.relative_to(root).as_posix()
        tree = ast.parse(path.read_text())
        of_module = _marks_of_all(tree.body)
        for promise in _names(of_module):
            yield Shown(promise, name, "verify" not in of_module or _has_always(tree))
        yield from _shown_within(tree, name, "verify" in of_module)


def _shown_within(parent: ast.Module | ast.ClassDef, path: str, is_left: bool) -> Iterator[Shown]:
    for node in parent.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            marks = _marks(node.decorator_list)
            is_node_left = is_left or "verify" in marks
            for promise in _names(marks):
                yield Shown(promise, path, not is_node_left or _has_always(node))
            if isinstance(node, ast.ClassDef):
                yield from _shown_within(node, path, is_node_left)


def _marks_of_all(body: Sequence[ast.stmt]) -> Mapping[str, Sequence[ast.Call]]:
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            return _marks(node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value])
    return {}


def _marks(expressions: Sequence[ast.expr]) -> Mapping[str, Sequence[ast.Call]]:
    """The marks that are called, by their names."""
    found: dict[str, list[ast.Call]] = defaultdict(list)
    for each in expressions:
        if isinstance(each, ast.Call) and ast.unparse(each.func).startswith("pytest.mark."):
            found[ast.unparse(each.func).removeprefix("pytest.mark.")].append(each)
    return found


def _names(marks: Mapping[str, Sequence[ast.Call]]) -> list[str]:
    return [ast.literal_eval(name) for call in marks.get("shows", ()) for name in call.args]


def _has_always(within: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Attribute) and ast.unparse(node) == "pytest.mark.always" for node in ast.walk(within)
    )
