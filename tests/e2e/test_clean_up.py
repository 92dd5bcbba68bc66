"""After executions were stopped, what the clean-up does at once, as it is deployed: with EventBridge's own events.

A lease is 60 s, so that nothing in these times is the end of one. How long the successor waited is recorded; the limit
leaves room for a busy machine.
"""

from collections.abc import Callable

import pytest
from e2e.cloud import LEASE_S, Cloud

# The work of an execution that is to be stopped: longer than every limit here.
WORK_S = 50
# How often the first in line may be woken between two stops.
TRIES = 5
# On a quiet machine it is 3 s.
LONGEST_HAND_OVER_S = LEASE_S / 4


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


def test_the_second_in_line_runs_if_the_holder_and_the_first_in_line_are_stopped_together(
    cloud: Cloud, entity: str, measured: Callable[[str, float], None]
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
        work = cloud.nested(holder, lock)

        cloud.stop(holder)
        stopped_ms = cloud.stop(first)

        hand_over_s = seconds_until_held(cloud, behind, stopped_ms)
        is_late = hand_over_s >= LONGEST_HAND_OVER_S
        if is_late and (not cloud.log_lines("clean_up", first) or cloud.cleaned_up(first)["HoldsLeftToLease"]):
            continue
        measured("from the stop of the holder and the first in line to the hold of the second", hand_over_s)
        assert hand_over_s < LONGEST_HAND_OVER_S
        assert cloud.described(work)["status"] == "ABORTED"
        item, rows = cloud.item(lock), cloud.lock(lock).rows
        assert (item.held, item.holders, [row for row in rows if row.owner != first]) == (0, (), [])
        return
    pytest.fail(f"in {TRIES} tries the first in line was woken before it was stopped, or its clean-up did not run")
