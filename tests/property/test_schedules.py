"""A part of the search of ``make proof``: every promise holds on every schedule; a broken lock breaks one."""

from collections.abc import Sequence
from typing import Any

import pytest
from property.broken import BROKEN_LOCKS, BrokenLock
from property.chance import Seeded
from property.every import KINDS, every
from property.explore import run
from property.failures import FAILURES, kind_of
from property.faults import LATEST_MS, ON_A_REQUEST, TIMED_OUT_MS, Faults
from property.parties import TABLE
from property.report import all_from, first_broken
from property.scripts import client
from property.stateful import found_by_hypothesis
from property.world import World

pytestmark = pytest.mark.shows("exclusion", "fencing", "liveness", "order", "self-cleaning", "lost requests")

SCHEDULES, A_TEST = 400, 50
HUNTED = 1_000
"""Schedules in which a broken lock has to be caught."""
# These numbers change if the protocol's requests change.
SCHEDULES_OF_KIND = {
    "workflows that are woken": 160,
    "two permits and a crashed holder": 255,
    "two readers": 366,
    "a reader and a writer": 510,
    "a free lock, no fault": 655,
}
# `make proof` searches for these for longer.
RARELY_CAUGHT = {
    "a count that is put back without declaring tickets void",
    "a partial page treated as the whole queue",
    "not equal for the limit",
    "an expired holder removed though it has renewed",
    "a turn without the token that was seen",
    "a lease settled by what is known now",
    "a transaction without a token",
    "the Date of a reply to a frozen machine",
    "a refusal beside a conflict",
    "a waiter that only withdraws what it reads",
    "a second withdrawal of a ticket",
}
BEGINS_AT = {
    "a grant to an owner that holds already": 44,
    "a late mint that puts the time of the last ticket back": 630,
    "a least time that is not held": 45,
    "a limit that hides a deployment": 89,
    "a limit without a number": 231,
    "a lock that was freed by force, and reported as not held": 219,
    "a record wait without an end": 28,
    "a release that grants the lock to a waiter that has left": 67,
    "a release that treats every refusal as its own earlier attempt": 143,
    "a row that is put again": 530,
    "a second row of a waiter that a release grants the lock": 110,
    "a sweep that lowers the count": 169,
    "a take-over of ten at most": 57,
    "a withdrawal that does nothing": 28,
    "no room beside a holder": 502,
    "room by the number before": 37,
    "without the condition PARKED_AS_I_SAW": 958,
}
"""The seeds at which the search for a variant begins, where it would take seconds from 0. All others come after it."""
CAUGHT_BY_EVERY = (
    ("a free lock, no fault", "count, then insert"),
    ("a free lock, one fault", "a heartbeat that revives"),
    ("a free lock, one fault", "without the condition MY_LEASE_GROWS"),
    ("a free lock, two faults", "a release without a condition"),
    ("a crashed holder, one fault", "a flag for an empty queue in place of the count"),
    ("a crashed waiter", "a crashed waiter is waited for"),
    ("a crashed waiter", "without the condition NO_WAITER_IS_COUNTED"),
    ("a reader and a writer", "a release that does nothing"),
)


def others_than_first_in_verify(cases: Sequence[Any]) -> list[Any]:
    """The first of the cases runs in `make test`, the others in `make verify`."""
    first, *others = cases
    return [first, *(pytest.param(case, marks=pytest.mark.verify("more of the same")) for case in others)]


@pytest.mark.parametrize("first", others_than_first_in_verify(range(0, SCHEDULES, A_TEST)))
def test_random_schedules_with_faults_keep_every_promise(first: int) -> None:
    grants = sum(run(Seeded(seed)).checker.grants for seed in range(first, first + A_TEST))
    assert grants > A_TEST


def test_schedules_by_hypothesis_keep_every_promise() -> None:
    grants = []
    assert found_by_hypothesis(0, A_TEST, lambda world: grants.append(world.checker.grants)) is None
    assert sum(grants) > A_TEST


@pytest.mark.parametrize("name", others_than_first_in_verify([*SCHEDULES_OF_KIND]))
def test_every_schedule_of_two_machines_without_a_fault_keeps_every_promise(name: str) -> None:
    kind = next(kind for kind in KINDS if kind.name == name)
    grants = [world.checker.grants for world in every(kind)]
    assert len(grants) == SCHEDULES_OF_KIND[name]
    assert set(grants) == {2 if kind.before is None else 3}


@pytest.mark.parametrize(
    "lock", [pytest.param(lock, id=lock.name) for lock in BROKEN_LOCKS if lock.name not in RARELY_CAUGHT]
)
def test_a_broken_lock_is_caught_by_a_promise_that_it_breaks(lock: BrokenLock) -> None:
    assert first_broken(lock, all_from(BEGINS_AT.get(lock.name, 0), HUNTED)) is not None


def test_every_lock_whose_seed_is_known_or_that_is_rarely_caught_exists() -> None:
    assert not (BEGINS_AT.keys() | RARELY_CAUGHT) - {lock.name for lock in BROKEN_LOCKS}


@pytest.mark.parametrize(("of", "name"), CAUGHT_BY_EVERY)
def test_every_schedule_of_two_machines_catches_a_broken_lock(of: str, name: str) -> None:
    lock = next(lock for lock in BROKEN_LOCKS if lock.name == name)
    kind = next(kind for kind in KINDS if kind.name == of)
    with lock.instead(), pytest.raises(FAILURES) as failure:
        list(every(kind))
    assert kind_of(failure.value) in lock.caught_by


def test_what_never_happens_is_not_drawn() -> None:
    chance = Seeded(0)
    assert Faults().which(ON_A_REQUEST, chance) is None
    assert chance.picked == []


def test_time_to_live_deletes_some_of_what_it_may() -> None:
    world = World(Seeded(0), Faults())
    expired = [{"pk": {"S": "entity"}, "sk": {"S": f"row {number}"}, "expiresAt": {"N": "0"}} for number in range(20)]
    for item in expired:
        world.memory.put_item(TableName=TABLE, Item=item)
    world.checker.reads_table = False
    world.expires()
    assert 0 < len(world.memory.items(TABLE)) < len(expired)


def test_a_copy_is_late_by_moments_and_by_minutes() -> None:
    a_moment_ms, minutes_ms, a_step_takes_ms = 1_000, 120_000, TIMED_OUT_MS + 1_000
    world = World(Seeded(0), Faults(late=200))
    for name in "abcd":
        world.add(name, client(rounds=20))
    late_by_ms = set()
    while world.step():
        late_by_ms |= {copy.arrives_ms - copy.sent_ms for copy in world.late}
        assert all(copy.arrives_ms > world.time.now_ms - a_step_takes_ms for copy in world.late)
    assert min(late_by_ms) < a_moment_ms
    assert minutes_ms < max(late_by_ms) <= LATEST_MS
