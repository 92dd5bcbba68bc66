"""docs/proof.md counts what there is, and its commands name what can be replayed."""

import re

from kit.pages import rows, text
from property.broken import BROKEN_LOCKS, FOUND
from property.every import KINDS

PAGE = "docs/proof.md"


def numbers_of(heading: str, part: str) -> list[int]:
    """Those that a table of the page has of a part."""
    (told,) = (what for name, what, _ in rows(PAGE, heading) if name == part)
    return [int(number) for number in re.findall(r"\d+", told)]


def test_the_broken_locks_are_as_many_as_there_are() -> None:
    there_are = [len(BROKEN_LOCKS), len(BROKEN_LOCKS) - len(FOUND), len(FOUND)]
    assert numbers_of("Seen", "broken locks") == there_are


def test_the_kinds_of_schedules_are_as_many_as_there_are_and_as_far_as_they_go() -> None:
    fair, at_one_fault = ([kind.preemptions for kind in KINDS if kind.faults == faults] for faults in (0, 1))
    assert set(at_one_fault) == {1, 2}
    assert numbers_of("", "every schedule, up to a bound") == [min(fair), max(fair), 1, 2, len(KINDS)]


def test_each_bug_that_was_put_back_has_the_command_that_shows_it() -> None:
    assert re.findall(r"""ARGS='--seed \d+ --lock "([^"]+)"'""", text(PAGE)) == [lock.name for lock in FOUND]
