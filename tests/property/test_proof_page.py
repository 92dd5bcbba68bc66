"""The counts in docs/proof.md are right, and its commands name what can be replayed."""

import re

from kit.pages import rows, text
from property.broken import BROKEN_LOCKS, FOUND
from property.every import KINDS
from property.units import every as every_of_units
from property.units.broken import VARIANTS

PAGE = "docs/proof.md"


def numbers_of(heading: str, part: str) -> list[int]:
    """The numbers in a part's row of a table of the page."""
    (listed,) = (what for name, what, _ in rows(PAGE, heading) if name == part)
    return [int(number) for number in re.findall(r"\d+", listed)]


def test_the_broken_locks_are_as_many_as_there_are() -> None:
    there_are = [len(BROKEN_LOCKS), len(BROKEN_LOCKS) - len(FOUND), len(FOUND)]
    assert numbers_of("Results of the last runs", "broken locks") == there_are


def test_the_kinds_of_schedules_are_as_many_as_there_are_and_as_far_as_they_go() -> None:
    fair, at_one_fault = ([kind.preemptions for kind in KINDS if kind.faults == faults] for faults in (0, 1))
    assert set(at_one_fault) == {1, 2}
    assert numbers_of("", "every schedule, up to a bound") == [min(fair), max(fair), 1, 2, len(KINDS)]


def test_the_kinds_of_schedules_of_units_are_as_many_as_there_are_and_as_far_as_they_go() -> None:
    of_units = every_of_units.KINDS
    fair, at_one_fault = ([kind.preemptions for kind in of_units if kind.faults == faults] for faults in (0, 1))
    listed = [min(fair), max(fair), min(at_one_fault), max(at_one_fault), len(of_units)]
    assert numbers_of("", "units: every schedule, up to a bound") == listed


def test_each_kind_of_schedules_of_units_is_listed_with_its_bounds() -> None:
    kinds = {kind.name: kind for kind in every_of_units.KINDS}
    there_are = [
        [name, str(kind.preemptions), str(kinds[f"{name}, one fault"].preemptions)]
        for name, kind in kinds.items()
        if not kind.faults
    ]
    table = [row for row in rows(PAGE, "The simulated world of units") if len(row) == 5]
    assert [[what.partition(":")[0], fair, faulty] for what, fair, _, faulty, _ in table[2:]] == there_are


def test_the_broken_units_are_listed_with_a_promise_that_they_break() -> None:
    listed = [row for row in rows(PAGE, "The simulated world of units") if len(row) == 2]
    begins = listed.index(["caught by", "what is broken"])
    caught = {name: promise for promise, names in listed[begins + 2 :] for name in names.split("; ")}
    assert caught.keys() == VARIANTS.keys()
    assert all(promise in VARIANTS[name].caught_by for name, promise in caught.items())
    assert numbers_of("Results of the last runs", "units: broken ones")[0] == len(VARIANTS)


def test_the_broken_units_that_the_page_replays_are_there() -> None:
    assert set(re.findall(r'--variant "([^"]+)"', text(PAGE))) <= VARIANTS.keys()


def test_each_bug_that_was_put_back_has_the_command_that_shows_it() -> None:
    assert re.findall(r"""ARGS='--lock "([^"]+)"'""", text(PAGE)) == [lock.name for lock in FOUND]
