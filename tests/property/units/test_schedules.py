"""A part of the search of `python -m property.units.search`: every promise of units is kept on every schedule."""

import pytest
from property.units.broken import VARIANTS, Variant, by, first_broken
from property.units.search import ENOUGH, HUNTED, searched, shown

from ticketlock.units import _native

A_TEST = 100


@pytest.mark.parametrize(
    "first",
    [0, 100, *(pytest.param(first, marks=pytest.mark.verify("more of the same")) for first in range(200, 2_000, 100))],
)
def test_random_schedules_of_units_with_faults_keep_every_promise(first: int) -> None:
    found = searched(range(first, first + A_TEST))
    assert found.broken == []
    assert found.commits > 3 * A_TEST
    assert found.aborts > A_TEST


@pytest.mark.verify("a thousand schedules")
def test_everything_that_may_go_wrong_does_somewhere_in_a_search() -> None:
    found = searched(range(ENOUGH))
    assert found.never_struck == []
    assert found.broken == []


TAKES_A_WHILE = {
    "a commit that makes a record where there is none",
    "a cut without a second look at the heads",
    "a network that doubles what is answered",
    "a placeholder deleted unconditionally",
    "commit checks that ignore marks",
    "commit of any state",
    "gone taken for rolled back, by a reader",
    "gone taken for rolled back, by its coordinator",
    "marks after the lease",
    "native checks that ignore marks",
    "native writes that ignore marks",
}
"""Half a second and more."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.verify("caught in seconds") if name in TAKES_A_WHILE else ())
        for name in VARIANTS
    ],
)
def test_broken_units_are_caught_by_a_promise_that_they_break(name: str) -> None:
    assert first_broken(VARIANTS[name], range(HUNTED)) is not None


def test_what_catches_broken_units_is_shown_again_by_its_seed() -> None:
    variant = VARIANTS["a mark without the version"]
    caught = first_broken(variant, range(HUNTED))
    assert caught is not None
    assert shown(caught.seed, shorter=False, variant=variant).startswith(f"{caught.promise}: ")


def test_an_error_that_nobody_expected_does_not_count_as_caught() -> None:
    raises = Variant("raises", by("atomicity", "serialisable"), ((_native, "check", None), (_native, "write", None)))
    assert first_broken(raises, range(5)) is None
