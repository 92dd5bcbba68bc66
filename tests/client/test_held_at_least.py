"""A lock that stays held for some time after its grant, however soon its holder releases it."""

import pytest
from kit.places import Moved

from ticketlock import LockLost, LockName, OutcomeUnknown, RecordWaitExceeded
from ticketlock.testing import Fault

pytestmark = pytest.mark.shows("exclusion", "liveness")

LEASE_S, HOLD_S = 60, 600


@pytest.mark.parametrize(
    ("works_s", "held_s"),
    [(0, HOLD_S), (HOLD_S - LEASE_S / 2, HOLD_S + LEASE_S / 2), (HOLD_S + 30, 0)],
    ids=["for the rest of it", "for a lease if less is left", "no longer than it works"],
)
def test_a_lock_stays_held_after_its_block_until_its_least_time_is_over(
    moved: Moved, entity: str, works_s: float, held_s: float
) -> None:
    with moved.client(heartbeat=False).acquire(entity, lease=LEASE_S, hold_at_least=HOLD_S) as lease:
        for _ in range(int(works_s) // 30):
            moved.clock.advance(30)
            lease.renew()
    assert not lease.is_held()
    others = moved.client()
    if held_s:
        moved.clock.advance(held_s - works_s - 1)
        assert others.try_acquire(entity) is None
        moved.clock.advance(5)
    assert others.try_acquire(entity)


def test_an_error_in_the_block_and_the_close_of_the_client_keep_it_held_too(moved: Moved, entity: str) -> None:
    with pytest.raises(LookupError), moved.client().acquire(entity, hold_at_least=HOLD_S):
        raise LookupError
    another = f"{entity}-2"
    locks = moved.client()
    locks.acquire(another, hold_at_least=HOLD_S)
    locks.close()
    moved.clock.advance(HOLD_S - 1)
    assert [moved.client().try_acquire(each) for each in (entity, another)] == [None, None]


@pytest.mark.parametrize("kind", ["threads"])
def test_a_function_that_skips_runs_once_in_each_period_although_it_takes_no_time(moved: Moved, entity: str) -> None:
    def work() -> int:
        runs.append(1)
        return 42

    runs: list[int] = []
    jobs = [
        locks.serialized(lambda: entity, record_wait=0, skip=True, hold_at_least=HOLD_S)(work)
        for locks in (moved.client(), moved.client())
    ]
    found = []
    for _ in range(6):
        found += [job() for job in jobs]
        moved.clock.advance(HOLD_S / 3 + 2)
    assert found == ([42] + [None] * 5) * 2
    assert len(runs) == 2


def test_locks_that_were_taken_for_nothing_are_freed_at_once(moved: Moved, entity: str) -> None:
    first, second = f"{entity}-1", f"{entity}-2"
    moved.client().acquire(second)
    with pytest.raises(RecordWaitExceeded):
        moved.client().acquire_all([first, second], record_wait=0, hold_at_least=HOLD_S)
    assert moved.client().try_acquire(first)


def test_its_holder_is_told_if_the_lock_was_taken_away(moved: Moved, entity: str) -> None:
    lease = moved.client().acquire(entity, hold_at_least=HOLD_S)
    moved.table.force_release(LockName(entity), lease.fencing_token)
    with pytest.raises(LockLost):
        lease.release()


def test_a_release_without_an_answer_may_be_repeated(moved: Moved, entity: str) -> None:
    lease = moved.client(heartbeat=False).acquire(entity, hold_at_least=HOLD_S)
    with moved.time_flies(), moved.memory.outage(Fault.REPLY_LOST), pytest.raises(OutcomeUnknown):
        lease.release()
    lease.release()
    moved.clock.advance(HOLD_S - 30)
    assert moved.client().try_acquire(entity) is None
