"""A part of the search of units that ``make proof`` makes: every promise is kept; broken units break one."""

from dataclasses import replace

import pytest
from property.chance import Seeded
from property.failures import FAILURES, kind_of
from property.report import first_broken
from property.units.broken import VARIANTS, Variant, by
from property.units.every import KINDS, Kind, every
from property.units.proof import ENOUGH, all_of, random_ones

from ticketlock.units import _commit

pytestmark = pytest.mark.shows(
    "atomicity",
    "strict serialisability",
    "committed reads",
    "no dirty read",
    "no phantoms",
    "known outcomes",
    "exactly once",
    "no deadlock",
    "wrong clocks",
    "nothing left",
    "read locks",
    "saved units",
    "steps of a saved unit",
    "ended owner",
    "unit under a lock",
)

SCHEDULES, A_TEST = 2_000, 100
FIRSTS = range(0, SCHEDULES, A_TEST)
IN_MAKE_TEST = 2
HUNTED = 2_000
"""Schedules in which a variant has to be caught."""
# In half a second and more; the others are caught in a moment.
CAUGHT_LATE = {
    "a check by a plain read at the commit",
    "a check that counts as a read",
    "a claim of a saved unit without rev",
    "a committed read of what the unit has read before",
    "a cut under read locks that may be gone",
    "a cut without what the unit has read before",
    "a plain writer whose condition for an old item holds for a deleted one",
    "a unit that only reads, and is not validated",
    "a commit of a saved unit in any state",
    "a commit of a saved unit without rev",
    "a cut by plain reads",
    "a new token for each try",
    "a refusal after a lost reply is treated as a conflict",
    "a save that does not remember its step",
    "a unit resumed without its checks",
    "an item and its guard in one transaction",
    "heads read beside transactions",
    "marked: what was read is validated in a request before the commit",
    "read locks after the lease",
    "a commit that makes a record where there is none",
    "a cut without a second read of the heads",
    "a network that duplicates an answered request",
    "a placeholder deleted unconditionally",
    "commit checks that ignore marks",
    "commit of any state",
    "a reader treats a missing record as rolled back",
    "a coordinator treats its missing record as rolled back",
    "marks after the lease",
    "native checks that ignore marks",
    "native writes that ignore marks",
}


@pytest.mark.parametrize(
    "first",
    [
        *FIRSTS[:IN_MAKE_TEST],
        *(pytest.param(first, marks=pytest.mark.verify("more of the same")) for first in FIRSTS[IN_MAKE_TEST:]),
    ],
)
def test_random_schedules_of_units_with_faults_keep_every_promise(first: int) -> None:
    found = random_ones(range(first, first + A_TEST))
    assert found.broken == []
    assert found.commits > 3 * A_TEST
    assert found.aborts > A_TEST


@pytest.mark.verify("a thousand schedules")
def test_everything_that_may_go_wrong_does_somewhere_in_a_search() -> None:
    found = random_ones(range(ENOUGH))
    assert found.never_struck == []
    assert found.broken == []


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.verify("caught late") if name in CAUGHT_LATE else ()) for name in VARIANTS],
)
def test_broken_units_are_caught_by_a_promise_that_they_break(name: str) -> None:
    assert first_broken(VARIANTS[name], range(HUNTED)) is not None


def test_every_variant_that_is_caught_late_exists() -> None:
    assert not CAUGHT_LATE - VARIANTS.keys()


def test_what_catches_broken_units_is_shown_again_by_its_seed() -> None:
    variant = VARIANTS["a mark without the version"]
    caught = first_broken(variant, range(HUNTED))
    assert caught is not None
    with variant.instead(), pytest.raises(FAILURES) as failure:
        variant.run(Seeded(caught.seed))
    assert kind_of(failure.value) == caught.promise


def test_an_unexpected_error_does_not_count_as_caught() -> None:
    raises = Variant("raises", by("atomicity", "serialisable"), ((_commit, "check", None), (_commit, "write", None)))
    assert first_broken(raises, range(5)) is None


WITHOUT_FAULT = [kind for kind in KINDS if not kind.faults]
CAUGHT_BY_EVERY = (
    ("two native units that read what the other writes", "native: what was read is not checked"),
    ("two marked units that read what the other writes", "marked: what was read is not checked"),
    ("two marked units", "a mark without the version"),
    ("two marked units", "the mark of a pending unit is removed"),
    ("a marked unit and cuts", "a cut by plain reads"),
    ("a marked unit and cuts", "a cut without a second read of the heads"),
    ("a marked unit and cuts", "dirty committed reads"),
    ("two guarded inserts, each after a query", "a guard that inserts do not write"),
    ("two guarded inserts, each after a query", "a guard that queries do not read"),
    ("two guarded inserts, each after a query", "a guard that is read after the items"),
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


def test_every_schedule_with_a_late_copy_catches_a_mark_that_comes_after_its_unit_has_ended() -> None:
    kind = next(kind for kind in KINDS if kind.name == "a marked insert and a delete, one fault")
    variant = VARIANTS["an insert's mark without the check on the head"]
    with variant.instead(), pytest.raises(FAILURES) as failure:
        list(every(kind))
    assert kind_of(failure.value) in variant.caught_by
