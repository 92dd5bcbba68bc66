"""Checked histories of real processes that are suspended and killed: what a pause can spoil, and what it cannot."""

import signal
from collections.abc import Callable

import pytest
from kit.crowd import Crowd, holding, waiting
from kit.kept import Kept
from kit.lock_history import operations, outcome
from kit.lock_model import Verdict, judge
from kit.programs import Counter, Programs, Shared, heard, tell
from kit.works import (
    alone,
    reading,
    write_in_a_transaction,
    write_unfenced,
    write_with_the_token,
    write_with_the_token_after_a_plain_read,
)

pytestmark = [
    pytest.mark.shows("exclusion", "fencing"),
    pytest.mark.verify("processes that are suspended past their leases, and waited for"),
]

GRANTS = 100


def is_applied(programs: Programs, work: Callable[[Shared], None]) -> tuple[bool, bool]:
    """Two processes add one: the first is suspended with what it read until the second has the lock, and has read."""
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


@pytest.mark.always("what fencing is for, in real processes")
@pytest.mark.parametrize("write", [write_in_a_transaction, write_with_the_token])
def test_a_fenced_write_after_a_pause_past_the_lease_is_refused_and_no_update_is_lost(
    programs: Programs, shared: Shared, kept: Kept, write: Callable[[Shared], None]
) -> None:
    assert is_applied(programs, write) == (False, True)
    assert Counter(shared).read() == 1
    assert verdict_on(shared, kept).failures == ()


@pytest.mark.parametrize("write", [write_unfenced, write_with_the_token_after_a_plain_read])
def test_a_write_whose_read_was_not_fenced_loses_an_update_and_the_history_shows_it(
    programs: Programs, shared: Shared, kept: Kept, write: Callable[[Shared], None]
) -> None:
    assert is_applied(programs, write) == (True, True)
    assert Counter(shared).read() == 1
    failures = verdict_on(shared, kept).failures
    assert {failure.partition(":")[0] for failure in failures} == {"exclusion", "no lost update"}


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
