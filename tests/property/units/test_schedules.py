"""A part of the search of `python -m property.units.search`: every promise of units is kept on every schedule."""

import pytest
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
