"""Many processes at once, some of them killed or suspended; checked histories show what a pause can spoil."""

import inspect
import os
import signal
import time
from collections.abc import Callable

import pytest
from kit.crowd import Crowd, holding, waiting
from kit.kept import Kept
from kit.lock_history import operations, outcome
from kit.lock_model import judge
from kit.programs import (
    INCREMENTS,
    LEASE_S,
    Counter,
    Programs,
    Shared,
    count_under_the_lock,
    count_without_the_lock,
    heard,
    hold,
    tell,
)
from kit.works import (
    alone,
    reading,
    write_in_a_transaction,
    write_unfenced,
    write_with_the_token,
    write_with_the_token_after_a_plain_read,
)
from ticketlock_local.demo.checks import Verdict

from ticketlock import LockClient
from ticketlock.locks._queue import EXPIRY_MARGIN_MS
from ticketlock.wire import _table_time as _time

pytestmark = pytest.mark.shows("liveness", "is_held", "killed holder", "exclusion", "fencing")
WAITED_FOR = pytest.mark.verify("processes that are killed or suspended, whose leases are waited for")

SURELY_OVER_MS = EXPIRY_MARGIN_MS + _time._DATE_RESOLUTION_MS
"""How long after a lease's end in the table every process that reads the time takes it as expired."""
LONGEST_REPLY_MS = int(LEASE_S / 4 * 1_000)
"""The read time-out of these clients."""


def lease_until_ms(shared: Shared) -> int:
    """The lock in the table, read by a client that is not used again."""
    with shared.locks() as locks:
        item = locks.inspect(shared.entity).item
    assert item is not None
    (holder,) = item.holders
    return holder.lease_until_ms


def killed_holder(programs: Programs) -> int:
    """Its fencing token."""
    victim = programs.start(hold)
    token: int = heard(victim)
    victim.kill()
    assert victim.wait() == -signal.SIGKILL
    return token


def longest_sleep_ms() -> int:
    """How long the first in line sleeps between two polls, at most, by the client's default."""
    _, longest_s = inspect.signature(LockClient).parameters["check_every"].default
    return int(longest_s * 1_000)


@WAITED_FOR
@pytest.mark.always("the way that most crashes take")
def test_a_lock_of_a_killed_process_is_taken_soon_after_its_lease_as_guaranteed(
    programs: Programs, shared: Shared
) -> None:
    token = killed_holder(programs)
    until_ms = lease_until_ms(shared)
    with shared.locks() as locks, locks.acquire(shared.entity) as lease:
        taken_ms = time.time() * 1_000
        assert lease.fencing_token > token
    # The reply that told the time; plus the poll that finds the lease expired, and the transaction.
    assert until_ms < taken_ms <= until_ms + SURELY_OVER_MS + longest_sleep_ms() + 3 * LONGEST_REPLY_MS


@WAITED_FOR
def test_a_process_that_was_suspended_past_its_lease_knows_at_once_that_it_does_not_hold(
    programs: Programs, shared: Shared
) -> None:
    sleeper = programs.start(hold)
    token = heard(sleeper)
    tell(sleeper, "do you hold it?")
    assert heard(sleeper) is True

    os.kill(sleeper.pid, signal.SIGSTOP)
    try:
        with shared.locks() as locks, locks.acquire(shared.entity) as lease:
            tell(sleeper, "do you hold it?")
            os.kill(sleeper.pid, signal.SIGCONT)
            assert heard(sleeper) is False
            assert lease.is_held()
            assert lease.fencing_token > token
            lease.renew()
    finally:
        os.kill(sleeper.pid, signal.SIGCONT)


# Checked histories of real processes that are suspended and killed: what a pause can spoil, and what it cannot.


GRANTS = 100


def answers_of_two(programs: Programs, work: Callable[[Shared], None]) -> tuple[bool, bool]:
    """Whether each of two processes added one: the first is suspended with what it read until the second, which has
    the lock then, has read.
    """
    first = programs.start(work)
    assert heard(first) == 0
    first.send_signal(signal.SIGSTOP)
    second = programs.start(work)
    try:
        assert heard(second) == 0
    finally:
        first.send_signal(signal.SIGCONT)
    answers: list[bool] = []
    for process in (first, second):
        tell(process, "go on")
        answers.append(heard(process))
        assert heard(process) == "done"
    return answers[0], answers[1]


def verdict_on(shared: Shared, kept: Kept) -> Verdict:
    with shared.locks() as locks:
        left = {shared.entity: locks.inspect(shared.entity)}
    return judge(kept.read(), left, {shared.entity: Counter(shared).read()})


@WAITED_FOR
@pytest.mark.always("what fencing is for, in real processes")
@pytest.mark.parametrize("write", [write_in_a_transaction, write_with_the_token])
def test_a_fenced_write_after_a_pause_past_the_lease_is_refused_and_no_update_is_lost(
    programs: Programs, shared: Shared, kept: Kept, write: Callable[[Shared], None]
) -> None:
    assert answers_of_two(programs, write) == (False, True)
    assert Counter(shared).read() == 1
    assert verdict_on(shared, kept).failures == ()


@WAITED_FOR
@pytest.mark.parametrize("write", [write_unfenced, write_with_the_token_after_a_plain_read])
def test_a_write_whose_read_was_not_fenced_loses_an_update_and_the_history_shows_it(
    programs: Programs, shared: Shared, kept: Kept, write: Callable[[Shared], None]
) -> None:
    assert answers_of_two(programs, write) == (True, True)
    assert Counter(shared).read() == 1
    failures = verdict_on(shared, kept).failures
    assert {failure.partition(":")[0] for failure in failures} == {"exclusion", "no lost update"}


@WAITED_FOR
def test_processes_that_are_suspended_and_killed_at_random_break_no_promise_to_the_others(
    programs: Programs, shared: Shared, kept: Kept
) -> None:
    crowd, lock = Crowd(shared, programs, kept), alone(shared.entity)
    crowd.grow(6)
    crowd.come_and_go(GRANTS)
    holder = crowd.suspend(holding, lock)
    waiter, victim = crowd.suspend(waiting, lock), crowd.suspend(waiting, lock)
    crowd.kill(victim)
    crowd.kill(crowd.suspend(holding, reading(shared.entity)))
    crowd.outlast_a_lease(lock)
    crowd.resume(holder)
    crowd.resume(waiter)
    crowd.end()

    assert crowd.verdict().failures == ()
    outcomes = [(each[0].action, outcome(each)) for each in operations(kept.events())]
    assert outcomes.count(("acquire", "applied")) > GRANTS
    # The one that was killed while it waited; the one whose lease ended while it was suspended.
    assert outcomes.count(("acquire", "unknown")) >= 1
    assert outcomes.count(("release", "refused")) >= 1


# Many processes that increment a counter, with the lock and without it.


PROCESSES = 8
TOGETHER = pytest.mark.verify("eight processes; the simulated world asks the same of many machines")


@TOGETHER
@pytest.mark.shows("order")
def test_eight_processes_under_the_lock_lose_no_increment_and_take_turns(
    programs: Programs, shared: Shared, kept: Kept
) -> None:
    programs.all_at_once(count_under_the_lock, PROCESSES)
    counted = Counter(shared).read()
    assert counted == PROCESSES * INCREMENTS == len(kept.read().updates)
    with shared.locks() as locks:
        kept.check({shared.entity: locks.inspect(shared.entity)}, {shared.entity: counted})


@TOGETHER
def test_the_same_processes_without_the_lock_lose_increments(programs: Programs, shared: Shared) -> None:
    programs.all_at_once(count_without_the_lock, PROCESSES)
    assert 0 < Counter(shared).read() < PROCESSES * INCREMENTS
