"""A part of the search of `python -m property.units.search`: every promise of units is kept on every schedule."""

import pytest
from property.units.broken import VARIANTS, first_broken
from property.units.search import searched

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


CAUGHT_SOON = {
    "a cut by plain reads",
    "a mark without the version",
    "a new token for each try",
    "a new value without the mark",
    "a refusal is told whatever may come late",
    "closed before applied",
    "dirty committed reads",
    "marked: what was read is not checked",
    "native: what was read is not checked",
    "rollback of any state",
    "the mark of a pending unit is taken off",
    "told before it is decided",
}
NOT_CAUGHT_YET = {
    "a cut without a second look at the heads",
    "an insert's mark without the check on the head",
    "marks after the lease",
    "wound without order",
}
"""In 1,000 schedules and more."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in CAUGHT_SOON else pytest.mark.verify("caught in seconds, or a minute"))
        for name in VARIANTS
        if name not in NOT_CAUGHT_YET
    ],
)
def test_broken_units_are_caught_by_a_promise_that_they_break(name: str) -> None:
    assert first_broken(VARIANTS[name], range(2_000)) is not None
