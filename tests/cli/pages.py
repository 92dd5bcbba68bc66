"""The command lines of a page, and what they print."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """One command line, and what it prints."""

    command: str
    prints: str


def examples(block: str) -> list[Example]:
    """The command lines of a console block, each with the lines behind it."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
    assert parts[0] == ""
    return [Example(*part.split("\n", 1)) for part in parts[1:]]


def comparable(printed: str) -> str:
    """A text without times, tokens, ports and versions, and without the width of a table."""
    one_number = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z|\d+(\.\d+)+|\d{4,}|\d+(?= s\b)", "0", printed)
    one_space = re.sub(r" *$", "", re.sub(r" +", " ", one_number), flags=re.MULTILINE)
    return re.sub(r"─+", "─", one_space).strip()
