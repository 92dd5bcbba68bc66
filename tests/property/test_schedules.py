"""A part of the search that ``make proof`` makes: random schedules keep every promise, broken locks do not."""

import pytest
from property.broken import BROKEN_LOCKS, BrokenLock
from property.chance import Recorded, Seeded, shrunk
from property.explore import fails, first_broken, run
from property.invariants import Broken

SCHEDULES, A_TEST = 400, 50
# `make proof` looks for these for longer.
RARELY_CAUGHT = {
    "a partial page taken for the whole queue",
    "'<>' for the limit",
    "a count that is put back without declaring tickets void",
    "a renewal that may be earlier than the one that stands",
    "a turn without the token that was seen",
    "an expired holder removed though it has renewed",
}


@pytest.mark.parametrize("first", range(0, SCHEDULES, A_TEST))
def test_random_schedules_with_faults_keep_every_promise(first: int) -> None:
    grants = sum(run(Seeded(seed)).grants for seed in range(first, first + A_TEST))
    assert grants > A_TEST


@pytest.mark.parametrize(
    "lock", [lock for lock in BROKEN_LOCKS if lock.name not in RARELY_CAUGHT], ids=lambda lock: lock.name
)
def test_a_broken_lock_is_caught(lock: BrokenLock) -> None:
    assert first_broken(lock, range(200)) is not None


def test_the_same_choices_are_the_same_schedule_and_what_fails_can_be_made_shorter() -> None:
    lock = BROKEN_LOCKS[0]
    caught = first_broken(lock, range(200))
    assert caught is not None
    with lock.instead():
        chance = Seeded(caught.seed)
        with pytest.raises(Broken) as first:
            run(chance)
        with pytest.raises(Broken) as again:
            run(Recorded(chance.picked))
        shorter = shrunk(chance.picked, fails)
        assert fails(shorter)
    assert str(first.value) == str(again.value)
    assert len(shorter) < len(chance.picked)
