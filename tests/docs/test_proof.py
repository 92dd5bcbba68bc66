"""docs/proof.md counts what there is, and its commands name what can be replayed."""

import re

from docs.pages import rows, text
from property.broken import BROKEN_LOCKS, FOUND
from property.every import KINDS

PAGE = "docs/proof.md"


def seen(part: str) -> str:
    """What was seen of a part, as the page has it."""
    return next(what for name, what, _ in rows(PAGE, "Seen") if name == part)


def test_the_broken_locks_are_as_many_as_there_are() -> None:
    numbers = [int(number) for number in re.findall(r"\d+", seen("broken locks"))]
    assert numbers == [len(BROKEN_LOCKS), len(BROKEN_LOCKS) - len(FOUND), len(FOUND)]


def test_the_kinds_of_schedules_are_as_many_as_there_are() -> None:
    assert re.findall(r"in (\d+) kinds", seen("every schedule, up to a bound")) == [str(len(KINDS))]


def test_each_bug_that_was_put_back_has_the_command_that_shows_it() -> None:
    assert re.findall(r"""ARGS='--seed \d+ --lock "([^"]+)"'""", text(PAGE)) == [lock.name for lock in FOUND]
