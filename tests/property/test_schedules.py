"""A part of the search that ``make proof`` makes: every promise is kept on every schedule; a broken lock breaks one."""

import shlex

import pytest
from property.broken import BROKEN_LOCKS, FOUND, BrokenLock
from property.chance import Recorded, Seeded, shrunk
from property.every import KINDS, every
from property.explore import fails, first_broken, replay, run
from property.invariants import Broken
from property.stateful import told_by_hypothesis

SCHEDULES, A_TEST = 400, 50
REVIVING = next(lock for lock in BROKEN_LOCKS if lock.name == "a heartbeat that revives")
# `make proof` looks for these for longer.
RARELY_CAUGHT = {
    "a count that is put back without declaring tickets void",
    "a partial page taken for the whole queue",
    "a withdrawal that does nothing",
    "not equal for the limit",
    "an expired holder removed though it has renewed",
    "a turn without the token that was seen",
    "without the condition MY_LEASE_IS_AS_I_SAW",
    "without the condition PERMITS_AS_I_SAW",
    "without the condition ROW_IS_AS_I_SAW",
    *(lock.name for lock in FOUND),
}


@pytest.mark.parametrize("first", range(0, SCHEDULES, A_TEST))
def test_random_schedules_with_faults_keep_every_promise(first: int) -> None:
    grants = sum(run(Seeded(seed)).witness.grants for seed in range(first, first + A_TEST))
    assert grants > A_TEST


def test_schedules_by_hypothesis_keep_every_promise() -> None:
    grants = []
    assert told_by_hypothesis(0, 50, lambda world: grants.append(world.witness.grants)) is None
    assert sum(grants) > 50


def test_every_schedule_of_two_machines_at_a_free_lock_keeps_every_promise() -> None:
    assert sum(world.witness.grants == 2 for world in every(KINDS[0])) > 500


@pytest.mark.parametrize(
    "lock", [lock for lock in BROKEN_LOCKS if lock.name not in RARELY_CAUGHT], ids=lambda lock: lock.name
)
def test_a_broken_lock_is_caught(lock: BrokenLock) -> None:
    assert first_broken(lock, range(400)) is not None


@pytest.mark.parametrize("lock", BROKEN_LOCKS, ids=lambda lock: lock.name)
def test_the_command_that_shows_a_broken_lock_again_is_read_as_it_is_meant(lock: BrokenLock) -> None:
    _, _, arguments = shlex.split(replay(17, lock.name))
    assert shlex.split(arguments.removeprefix("ARGS=")) == ["--seed", "17", "--lock", lock.name]


def test_a_broken_lock_is_told_as_a_short_story() -> None:
    with REVIVING.instead():
        story = told_by_hypothesis(0, 100)
    assert story is not None
    assert story.partition(":")[0] in ("counts", "leases grow")
    assert story.count("state.") < 15


def test_the_same_choices_are_the_same_schedule_and_what_fails_can_be_made_shorter() -> None:
    caught = first_broken(REVIVING, range(200))
    assert caught is not None
    with REVIVING.instead():
        chance = Seeded(caught.seed)
        with pytest.raises(Broken) as first:
            run(chance)
        with pytest.raises(Broken) as again:
            run(Recorded(chance.picked))
        shorter = shrunk(chance.picked, fails)
        assert fails(shorter)
    assert str(first.value) == str(again.value)
    assert len(shorter) < len(chance.picked)
