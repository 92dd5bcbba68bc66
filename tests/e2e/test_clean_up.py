"""After an execution was stopped: what the clean-up does at once, and what it leaves to the lease.

Leases are 60 s, so that nothing in these times is the end of one, but where a test says so. How long a stopped one's
successor waited is recorded; the limits leave room for a busy machine.
"""

from collections.abc import Callable

import pytest
from e2e.cloud import LEASE_S, NOTHING, SHORT_LEASE_S, Cloud

pytestmark = pytest.mark.verify("waits for leases and works; tests/workflow asks the clean-up in every order")

Measured = Callable[[str, float], None]

# The work of an execution that is to be stopped: longer than every limit here.
WORK_S = 50
HELD_FOR_S = 2
# How often the first in line may be woken between two stops.
TRIES = 5
# On a quiet machine it is 3 s, and poll + 2 s.
LONGEST_HAND_OVER_S = LEASE_S / 4


def held_for(cloud: Cloud, arn: str, seconds: float) -> None:
    """Wait until an execution has held the lock for so long."""

    def has_held() -> bool:
        since_ms = cloud.story(arn).held_from_ms
        return since_ms is not None and cloud.now_ms() - since_ms >= 1_000 * seconds

    cloud.wait_until(has_held, f"a hold of {seconds} s")


def line_of_three(cloud: Cloud, entity: str) -> tuple[str, str, str]:
    """A holder whose work is a nested execution, and two waiters behind it, in this order."""
    holder = cloud.nest(entity, WORK_S)
    cloud.wait_until_held(entity)
    # Long enough to be stopped, also if it gets the lock before.
    first = cloud.sleep(entity, 10)
    cloud.wait_until_queued(entity, first)
    second = cloud.sleep(entity, 0)
    cloud.wait_until_queued(entity, first, second)
    return holder, first, second


def seconds_until_held(cloud: Cloud, arn: str, since_ms: int) -> float:
    """The time from that moment until an execution held the lock, which then succeeded."""
    assert cloud.ended(arn).status == "SUCCEEDED"
    granted_ms = cloud.story(arn).held_from_ms
    assert granted_ms is not None
    return (granted_ms - since_ms) / 1_000


def test_the_nested_work_of_a_stopped_execution_is_stopped_and_the_next_in_line_runs(
    of_the_app: Cloud, entity: str, measured: Measured
) -> None:
    holder = of_the_app.nest(entity, WORK_S)
    of_the_app.wait_until_held(entity)
    waiting = of_the_app.sleep(entity, 0)
    of_the_app.wait_until_queued(entity, waiting)
    if of_the_app.wakes_waiters:
        of_the_app.wait_until_parked(waiting)
    held_for(of_the_app, holder, HELD_FOR_S)
    work = of_the_app.nested(holder, entity)
    assert of_the_app.described(work)["status"] == "RUNNING"

    stopped_ms = of_the_app.stop(holder)

    hand_over_s = seconds_until_held(of_the_app, waiting, stopped_ms)
    child = of_the_app.described(work)
    assert child["status"] == "ABORTED"
    assert seconds_until_held(of_the_app, waiting, round(child["stopDate"].timestamp() * 1_000)) >= 0
    mode = "woken" if of_the_app.wakes_waiters else "polling"
    measured(f"from the stop to the next hold, nested work, {mode}", hand_over_s)
    assert hand_over_s < LONGEST_HAND_OVER_S
    assert of_the_app.cleaned_up(holder) == {**NOTHING, "CleanedUpHolds": 1}
    assert of_the_app.is_free(entity)


def test_the_next_never_starts_before_a_stopped_executions_function_or_lease_has_ended(
    short_lease: Cloud, entity: str, measured: Measured
) -> None:
    """One function ends within the lease, one after it.

    AWS would end the lease after either. The emulator goes on with what stood in a Parallel when it was stopped, and so
    releases after the shorter one.
    """
    entities = {seconds: f"{entity}/{seconds}" for seconds in (SHORT_LEASE_S - 2, SHORT_LEASE_S + 6)}
    holders = {seconds: short_lease.fall_asleep(name, seconds) for seconds, name in entities.items()}
    for seconds, name in entities.items():
        short_lease.wait_until_held(name, by=holders[seconds])
    waiting = {seconds: short_lease.sleep(name, 0) for seconds, name in entities.items()}
    for seconds, name in entities.items():
        short_lease.wait_until_queued(name, waiting[seconds])
    leases_ms = {seconds: short_lease.holder(name).lease_until_ms for seconds, name in entities.items()}

    stopped_ms = {seconds: short_lease.stop(holder) for seconds, holder in holders.items()}

    for seconds, name in entities.items():
        assert short_lease.cleaned_up(holders[seconds]) == {**NOTHING, "HoldsLeftToLease": 1}
        hand_over_s = seconds_until_held(short_lease, waiting[seconds], stopped_ms[seconds])
        granted_ms = stopped_ms[seconds] + round(1_000 * hand_over_s)
        measured(f"from the stop to the next hold, a function of {seconds} s, lease {SHORT_LEASE_S} s", hand_over_s)
        function_ended_ms = short_lease.slept_until_ms(holders[seconds])
        assert granted_ms >= min([leases_ms[seconds], *function_ended_ms])
        # It polls when that lease is about to end, not at half a lease of its own.
        assert granted_ms < leases_ms[seconds] + 1_000 * LONGEST_HAND_OVER_S
        assert short_lease.is_free(name)


def test_the_row_of_a_stopped_waiter_is_deleted_at_once_and_the_next_runs_in_its_turn(
    cloud: Cloud, entity: str, measured: Measured
) -> None:
    holder, stopped, behind = line_of_three(cloud, entity)

    stopped_ms = cloud.stop(stopped)

    cloud.wait_until_queued(entity, behind)
    gone_s = (cloud.now_ms() - stopped_ms) / 1_000
    measured("from the stop of a waiter until its row was seen gone", gone_s)
    assert gone_s < LONGEST_HAND_OVER_S
    assert cloud.cleaned_up(stopped) == {**NOTHING, "CleanedUpPlaces": 1}
    assert cloud.holder(entity).owner == holder
    assert cloud.described(behind)["status"] == "RUNNING"

    free_ms = cloud.stop(holder)

    hand_over_s = seconds_until_held(cloud, behind, free_ms)
    measured("from the stop of the holder to the hold of the one behind a stopped waiter", hand_over_s)
    assert hand_over_s < LONGEST_HAND_OVER_S
    assert cloud.is_free(entity)


@pytest.mark.always("the clean-up once, as it is deployed")
def test_the_second_in_line_runs_if_the_holder_and_the_first_in_line_are_stopped_together(
    cloud: Cloud, entity: str, measured: Measured
) -> None:
    """The execution that the first clean-up wakes may have ended by then: the second wakes again.

    If it runs before its stop arrives, the two were not stopped together: its hold is left to its lease, of 60 s. So it
    is if the event of its stop is lost, as EventBridge allows. The emulator goes on with what stood in a Parallel when
    it was stopped: if the first clean-up has woken it, and the second one deletes its row, it joins again.
    """
    for number in range(TRIES):
        lock = f"{entity}/{number}"
        holder, first, behind = line_of_three(cloud, lock)
        cloud.wait_until_parked(behind)

        cloud.stop(holder)
        stopped_ms = cloud.stop(first)

        hand_over_s = seconds_until_held(cloud, behind, stopped_ms)
        is_late = hand_over_s >= LONGEST_HAND_OVER_S
        if is_late and (not cloud.log_lines("clean_up", first) or cloud.cleaned_up(first)["HoldsLeftToLease"]):
            continue
        measured("from the stop of the holder and the first in line to the hold of the second", hand_over_s)
        assert hand_over_s < LONGEST_HAND_OVER_S
        item, rows = cloud.item(lock), cloud.lock(lock).rows
        assert (item.held, item.holders, [row for row in rows if row.owner != first]) == (0, (), [])
        return
    pytest.fail(f"in {TRIES} tries the first in line was woken before it was stopped, or its clean-up did not run")
