"""How executions far behind in a queue keep their places: by the lease of the definition that routes them."""

from typing import Any

import pytest
from kit.events import execution_arn, step_event, turn_of
from kit.world import Process

from ticketlock import LockName
from ticketlock.workflow import Workflow

pytestmark = pytest.mark.shows("liveness", "order")

# As in the definition. Before the first release, a turn is expected to last a lease.
LEASE_MS, ROW_MS = 60_000, 600_000
NEAR = 1 + ROW_MS // 2 // LEASE_MS
KNOWN_MS = 4_000


@pytest.fixture
def turns(workflow: Workflow, lock: LockName) -> list[dict[str, Any]]:
    """Of the holder, of those that are near the front, and of one that is far behind."""
    asked = {"entity": lock.entity, "task": {"functionArn": "arn:aws:lambda:us-east-1:123456789012:function:work"}}
    return [turn_of(workflow, execution_arn(), asked) for _ in range(1 + NEAR + 1)]


def left_ms(alice: Process, lock: LockName) -> list[int]:
    """What is left of the lease of each row."""
    return [row.lease_until_ms - alice.table.now().likely_ms for row in alice.table.inspect(lock).rows]


def test_only_one_far_behind_is_sent_to_park_for_half_of_a_rows_lease(turns: list[dict[str, Any]]) -> None:
    assert [turn["status"] for turn in turns] == ["granted", *["parked"] * NEAR, "parkedBehind"]


def test_its_row_lasts_longer_once_it_has_parked(
    alice: Process, lock: LockName, workflow: Workflow, turns: list[dict[str, Any]]
) -> None:
    assert max(left_ms(alice, lock)) == pytest.approx(LEASE_MS, abs=KNOWN_MS)
    for turn in turns[-2:]:
        workflow.wait_for_wake_up(step_event("WaitForWakeUp", turn, f"token of {turn['place']['ticket']}"))
    *near, far = left_ms(alice, lock)
    assert max(near) == pytest.approx(LEASE_MS, abs=KNOWN_MS)
    assert far == pytest.approx(ROW_MS, abs=KNOWN_MS)


def test_each_poll_goes_by_what_the_definition_of_its_own_execution_knows(
    workflow: Workflow, turns: list[dict[str, Any]]
) -> None:
    """One that began with an earlier version, or continues in the machine of a later one."""
    event = step_event("CheckPosition", turns[-1])
    assert workflow.check_position(event).reply["status"] == "parkedBehind"
    del event["rowLeaseSeconds"]
    earlier = workflow.check_position(event).reply
    assert earlier["status"] == "parked"
    earlier = {name: value for name, value in earlier.items() if name != "rowMs"}
    assert workflow.wait_for_wake_up(step_event("WaitForWakeUp", earlier, "token")).keys["stays"]
    assert workflow.check_position(step_event("CheckPosition", earlier)).reply["status"] == "parkedBehind"
