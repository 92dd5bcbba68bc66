"""What the definition hands to a function, above all to the first one of an execution."""

import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from kit.pages import text

from ticketlock.workflow import Workflow

MACHINE = "arn:aws:states:us-east-1:123456789012:stateMachine:serialize"
CONTINUE_MACHINE = f"{MACHINE}-continue"
_STATES: Mapping[str, Any] = json.loads(text("statemachines/serialize.asl.json"))["States"]


def execution_arn() -> str:
    """Of an execution that nobody has seen before."""
    return f"{MACHINE.replace('stateMachine', 'execution')}:{uuid.uuid4()}"


def handed_over(state: Mapping[str, Any], follow: Callable[[str], Any]) -> dict[str, Any]:
    """What a state hands to its function; ``follow`` says what a path stands for."""
    return {
        name.removesuffix(".$"): follow(value) if name.endswith(".$") else value
        for name, value in state["Parameters"]["Payload"].items()
    }


def ticket_event(execution: str, request: Any, **more: Any) -> dict[str, Any]:
    """What TakeTicket hands to its function, with any target allowed; ``more`` is what else the CDK puts in."""
    paths = {"$": request, "$$.Execution.Id": execution}
    deployed = {"targets": None, "continueMachine": CONTINUE_MACHINE}
    return handed_over(_STATES["TakeTicket"], paths.__getitem__) | deployed | more


def turn_of(workflow: Workflow, execution: str, asked: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The turn of an execution that has asked for a lock; ``more`` is as for ``ticket_event``."""
    turn: dict[str, Any] = workflow.take_ticket(ticket_event(execution, asked, **more)).reply["lock"]["turn"]
    return turn
