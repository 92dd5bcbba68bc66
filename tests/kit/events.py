"""What the definition passes to its functions."""

import itertools
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from kit.pages import text

from ticketlock.workflow import Workflow

MACHINE = "arn:aws:states:us-east-1:123456789012:stateMachine:serialize"
CONTINUE_MACHINE = f"{MACHINE}-continue"
ENTERED = "2026-11-21T12:00:00.000Z"
_started = itertools.count(1)


def execution_arn() -> str:
    return f"{MACHINE.replace('stateMachine', 'execution')}:{uuid.uuid4()}"


def started_at(order: int) -> str:
    """When an execution started: the greater the number, the later."""
    start = datetime(2026, 11, 21, tzinfo=UTC) + timedelta(milliseconds=order)
    return start.isoformat(timespec="milliseconds")


def tasks_of(states: Any, name: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The task states anywhere in a definition, with their names."""
    if isinstance(states, list):
        for each in states:
            yield from tasks_of(each)
    elif isinstance(states, dict):
        if states.get("Type") == "Task":
            yield name, states
        for key, value in states.items():
            yield from tasks_of(value, key)


_TASKS = dict(tasks_of(json.loads(text("statemachines/serialize.asl.json"))))


def handed_over(state: Mapping[str, Any], follow: Callable[[str], Any]) -> dict[str, Any]:
    """What a state passes to its function; ``follow`` returns the value of a path."""
    return {
        name.removesuffix(".$"): follow(value) if name.endswith(".$") else value
        for name, value in state["Parameters"]["Payload"].items()
    }


def ticket_event(execution: str, request: Any, **more: Any) -> dict[str, Any]:
    """What TakeTicketAgain passes to its function, with any target allowed; ``more`` is what else the CDK adds."""
    paths = {"$": request, "$$.Execution.Id": execution, "$$.Execution.StartTime": started_at(next(_started))}
    deployed = {"targets": None, "continueMachine": CONTINUE_MACHINE}
    event = handed_over(_TASKS["TakeTicket"], {**paths, "$$.Task.Token": ""}.__getitem__)
    return {name: value for name, value in event.items() if name not in ("goesOn", "taskToken")} | deployed | more


def step_event(
    state: str,
    turn: Mapping[str, Any],
    token: str = "",
    *,
    execution: str | None = None,
    entered: str = ENTERED,
    retry: int = 0,
) -> dict[str, Any]:
    """What a later state passes to its function.

    Args:
        turn: the execution's.
        token: of a callback task.
        execution: the execution of the state; that of the turn, unless another one continues the hold or the wait.
        entered, retry: when the state was entered, and how many times it was tried before.
    """
    paths = {
        "$.lock.turn": turn,
        "$$.Execution.Id": execution if execution is not None else turn["session"]["execution"],
        "$$.Task.Token": token,
        "$$.State.EnteredTime": entered,
        "$$.State.RetryCount": retry,
    }
    return handed_over(_TASKS[state], paths.__getitem__)


def turn_of(workflow: Workflow, execution: str, asked: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The turn of an execution that has requested a lock; ``more`` is as for ``ticket_event``."""
    turn: dict[str, Any] = workflow.take_ticket(ticket_event(execution, asked, **more)).reply["lock"]["turn"]
    return turn
