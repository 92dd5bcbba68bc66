"""A step whose client may hang for longer than that of the step before."""

from typing import Any

import pytest
from kit.events import execution_arn, turn_of

from ticketlock import InvalidLockRequest, LockTable
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.workflow import Workflow


def taken(workflow: Workflow, entity: str) -> dict[str, Any]:
    """The turn of a fragment with a lease of 10 s."""
    asked = {"entity": entity}
    return turn_of(workflow, execution_arn(), asked, place="charge", leaseSeconds=10, workMachine="")


def workflow_over(memory: MemoryDynamoDB, clock: ManualClock) -> Workflow:
    never_called: Any = object()
    return Workflow(LockTable("locks", client=memory.client, step_functions=never_called, clocks=clock))


def test_a_lock_is_freed_though_one_hung_request_could_outlast_its_lease(
    memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    turn = taken(workflow_over(memory, clock), "order-42")
    memory.meta.config.read_timeout = 5
    patient = workflow_over(memory, clock)
    with pytest.raises(InvalidLockRequest, match="read time-outs"):
        taken(patient, "order-43")
    patient.release({"turn": turn})
    assert not [item for item in memory.items() if any(name.startswith("holder:") for name in item)]
