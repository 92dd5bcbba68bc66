"""A part of the search of units that ``make proof`` makes: every promise is kept; broken units break one."""

from dataclasses import replace

import pytest
from property.failures import FAILURES, kind_of
from property.units.broken import VARIANTS, first_broken
from property.units.every import KINDS, Kind, every
from property.units.proof import all_of, random_ones

A_TEST = 100


@pytest.mark.parametrize(
    "first",
    [0, 100, *(pytest.param(first, marks=pytest.mark.verify("more of the same")) for first in range(200, 2_000, 100))],
)
def test_random_schedules_of_units_with_faults_keep_every_promise(first: int) -> None:
    found = random_ones(range(first, first + A_TEST))
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


WITHOUT_FAULT = [kind for kind in KINDS if not kind.faults]
CAUGHT_BY_EVERY = (
    ("two native units that read what the other writes", "native: what was read is not checked"),
    ("two marked units that read what the other writes", "marked: what was read is not checked"),
    ("two marked units", "a mark without the version"),
    ("two marked units", "the mark of a pending unit is taken off"),
    ("a marked unit and cuts", "a cut by plain reads"),
    ("a marked unit and cuts", "a cut without a second look at the heads"),
    ("a marked unit and cuts", "dirty committed reads"),
)


@pytest.mark.parametrize("kind", WITHOUT_FAULT, ids=lambda kind: kind.name)
def test_every_schedule_of_two_units_with_one_preemption_keeps_every_promise(kind: Kind) -> None:
    found = all_of(replace(kind, preemptions=1))
    assert found.broken == []
    assert found.commits >= found.schedules > 10


@pytest.mark.verify("some seconds each, and up to half a minute")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_schedule_of_two_units_keeps_every_promise(kind: Kind) -> None:
    found = all_of(kind)
    assert found.broken == []
    assert found.commits >= found.schedules > 50


@pytest.mark.parametrize(("of", "name"), CAUGHT_BY_EVERY)
def test_every_schedule_of_two_units_catches_broken_ones(of: str, name: str) -> None:
    kind = next(kind for kind in KINDS if kind.name == of)
    with VARIANTS[name].instead(), pytest.raises(FAILURES) as failure:
        list(every(replace(kind, preemptions=2)))
    assert kind_of(failure.value) in VARIANTS[name].caught_by
