"""The documentation pages: their text, blocks and tables, and the code that they describe."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
ALL_PAGES = sorted(
    str(path.relative_to(ROOT)) for folder in (".", "docs", "docs/decisions") for path in ROOT.glob(f"{folder}/*.md")
)


def text(page: str) -> str:
    return (ROOT / page).read_text()


def _blocks(page: str) -> Iterator[re.Match[str]]:
    return re.finditer(r"^```(\w+)\n(.*?)^```$", text(page), re.DOTALL | re.MULTILINE)


def blocks(page: str, language: str) -> list[str]:
    """The contents of the fenced blocks of a language."""
    return [found[2] for found in _blocks(page) if found[1] == language]


def python_blocks(page: str) -> list[tuple[int, str]]:
    """Each block of Python with its first line number."""
    return [(text(page)[: found.start(2)].count("\n"), found[2]) for found in _blocks(page) if found[1] == "python"]


def first_block(page: str, heading: str, after: str = "") -> tuple[int, str]:
    """The first block of Python below a heading, and below a line that begins so."""
    lines = text(page).splitlines()
    begin = lines.index(heading)
    begin = next(number for number in range(begin, len(lines)) if lines[number].startswith(after))
    return next(each for each in python_blocks(page) if each[0] > begin)


def rows(page: str, heading: str) -> list[list[str]]:
    """The tables under a heading, or under the title: their rows as cells."""
    begins = f"\n## {heading}\n" if heading else "\n"
    section = text(page).partition(begins)[2].partition("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]


@cache
def functions_of(path: Path) -> frozenset[str]:
    """The functions of a file, and the methods."""
    tree = ast.walk(ast.parse(path.read_text()))
    return frozenset(each.name for each in tree if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
