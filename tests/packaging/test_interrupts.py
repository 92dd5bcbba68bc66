"""A signal handler may raise at any line: no mutex of ours stays locked by that."""

import ast
from collections.abc import Iterator
from pathlib import Path

import ticketlock

_ROOT = Path(ticketlock.__file__).parent
_MUTEXES = ("_mutex", "_lock", "_changed")
_HANDLE_NO_SIGNALS = {("wire/_heartbeat.py", "_next")}
"""What runs on a thread of its own."""
_OTHER_FRAMES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.GeneratorExp, ast.ClassDef)


def test_the_block_of_a_mutex_has_no_jump_back_that_its_exit_does_not_cover() -> None:
    """From Python 3.12 on a conditional jump back is compiled to two, and no handler covers the second, where signal
    handlers run: that of a comprehension's condition, of a ``while``, of an ``if`` that ends a loop.
    """
    found = [each for file in sorted(_ROOT.rglob("*.py")) for each in _in(file)]
    assert found == []


def _in(file: Path) -> Iterator[str]:
    name = str(file.relative_to(_ROOT))
    for function in ast.walk(ast.parse(file.read_text())):
        if isinstance(function, ast.FunctionDef) and (name, function.name) not in _HANDLE_NO_SIGNALS:
            blocks = (each for each in _own(function) if isinstance(each, ast.With) and _frees_a_mutex(each))
            parts = (each for block in blocks for part in block.body for each in (part, *_own(part)))
            yield from (f"{name}: {ast.unparse(each)}" for each in parts if _jumps(each))


def _own(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _OTHER_FRAMES):
            yield child
            yield from _own(child)


def _frees_a_mutex(block: ast.With) -> bool:
    return any(ast.unparse(item.context_expr).endswith(_MUTEXES) for item in block.items)


def _jumps(node: ast.AST) -> bool:
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp):
        return any(each.ifs for each in node.generators)
    return isinstance(node, ast.While) or (isinstance(node, ast.For) and isinstance(node.body[-1], ast.If))
