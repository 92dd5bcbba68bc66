"""A part of the search of units that ``make proof`` makes: every promise is kept; broken units break one."""

from dataclasses import replace

import pytest
from property.chance import Recorded, Seeded
from property.failures import FAILURES, kind_of
from property.faults import LATEST_MS
from property.report import all_from, first_broken
from property.units.broken import VARIANTS, Variant, by
from property.units.calls import UNITS
from property.units.every import KINDS, Kind, every
from property.units.machines import NONE
from property.units.proof import ENOUGH, all_of, random_ones
from property.units.world import UnitsWorld

from ticketlock.units._commit import _commit
from ticketlock.wire._actions import Actions, Call

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
IN_MAKE_TEST = 200
MORE = pytest.mark.verify("more of the same; the next test searches those before `ENOUGH`")
HUNTED = 2_000
"""Schedules in which a variant has to be caught."""
BEGINS_AT = {
    "a check by a plain read at the commit": 205,
    "a commit of a saved unit in any state": 177,
    "a commit of a saved unit without rev": 202,
    "a commit that makes a record where there is none": 1306,
    "a committed read of what the unit has read before": 431,
    "a correction of an item that may be finished": 236,
    "a cut under read locks that may be gone": 223,
    "a cut without a second read of the heads": 77,
    "a cut without what the unit has read before": 257,
    "a name that is given up by a counter": 242,
    "a plain writer whose condition for an old item holds for a deleted one": 458,
    "a query that hides what it has not shown before": 136,
    "a read lock without the version that was read": 113,
    "a reader treats a missing record as rolled back": 273,
    "a save that does not remember its step": 159,
    "a snapshot of more absent items than one transaction reads": 528,
    "a snapshot that ignores marks": 63,
    "a snapshot that reads what is absent last": 71,
    "a unit resumed without its checks": 442,
    "a unit that only reads, and is not validated": 529,
    "an end of an owner that reads its units before it refuses saves": 322,
    "an index with what was only read for later": 1373,
    "an item and its guard in one transaction": 1089,
    "commit checks that ignore marks": 342,
    "heads read beside transactions": 1998,
    "marked: what was read is validated in a request before the commit": 500,
    "marks after the lease": 421,
    "native checks that ignore marks": 138,
    "native writes that ignore marks": 83,
    "read locks after the lease": 177,
    "wound without order": 101,
}
"""The seeds at which the search for a variant begins, where it would take seconds from 0. All others come after it."""


@pytest.mark.parametrize(
    "first",
    [
        *range(0, IN_MAKE_TEST, A_TEST),
        *(pytest.param(first, marks=MORE) for first in range(ENOUGH, SCHEDULES, A_TEST)),
    ],
)
def test_random_schedules_of_units_with_faults_keep_every_promise(first: int) -> None:
    found = random_ones(range(first, first + A_TEST))
    assert found.broken == []
    assert found.commits > 3 * A_TEST
    assert found.aborts > A_TEST


@pytest.mark.verify("a thousand schedules")
def test_everything_that_may_go_wrong_does_and_all_that_a_unit_can_do_is_done_somewhere_in_a_search() -> None:
    found = random_ones(range(ENOUGH))
    assert found.never_there == []
    assert found.broken == []


@pytest.mark.parametrize("name", VARIANTS)
def test_broken_units_are_caught_by_a_promise_that_they_break(name: str) -> None:
    assert first_broken(VARIANTS[name], all_from(BEGINS_AT.get(name, 0), HUNTED)) is not None


def test_every_variant_whose_seed_is_known_exists() -> None:
    assert not BEGINS_AT.keys() - VARIANTS.keys()


def test_what_catches_broken_units_is_shown_again_by_its_seed() -> None:
    variant = VARIANTS["a mark without the version"]
    caught = first_broken(variant, range(HUNTED))
    assert caught is not None
    with variant.instead(), pytest.raises(FAILURES) as failure:
        variant.run(Seeded(caught.seed))
    assert kind_of(failure.value) == caught.promise


@pytest.mark.parametrize("arrives", [True, False])
def test_what_a_machine_had_sent_when_it_crashed_arrives_unless_its_signature_is_too_old(arrives: bool) -> None:
    it_arrives_and_none_continues = Recorded([1, 2])
    world = UnitsWorld(it_arrives_and_none_continues, NONE, [], is_append_only=True)
    machine = world.add("a", sends_a_row, rate=1)
    world.let_time_pass(LATEST_MS if arrives else LATEST_MS + 1)
    world._crashes(machine)
    assert len(world.service.memory.items(UNITS)) == arrives


def sends_a_row(*_: object) -> Actions[None]:
    yield Call("dynamodb", "put_item", {"TableName": UNITS, "Item": {"unit": {"S": "one"}, "row": {"S": "w#1#00000"}}})


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
