"""An execution's first step, as the serialised workflow takes it."""

import uuid
from collections.abc import Mapping
from typing import Any

from kit.world import LEASE_MS

from ticketlock.workflow import Workflow

MACHINE = "arn:aws:states:us-east-1:123456789012:stateMachine:serialize"


def execution_arn() -> str:
    """Of an execution that nobody has seen before."""
    return f"{MACHINE.replace('stateMachine', 'execution')}:{uuid.uuid4()}"


def turn_of(workflow: Workflow, execution: str, asked: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The turn of an execution that has asked for a lock; ``more`` is what else TakeTicket is given."""
    event = {
        "request": asked,
        "execution": execution,
        "targets": None,
        "defaultRecordWaitSeconds": "Infinity",
        "defaultPermits": 1,
        "leaseSeconds": LEASE_MS / 1_000,
        "pollSeconds": 5,
        "handOver": "callback",
        "continueMachine": f"{MACHINE}-continue",
        "pollsAnExecution": 100,
        "beatsAnExecution": 100,
    }
    turn: dict[str, Any] = workflow.take_ticket(event | more).reply["lock"]["turn"]
    return turn
