"""Start executions of the serialised workflow, the first ones so that the functions are warm afterwards."""

import json
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ticketlock_local.errors import LocalCloudError

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

_RECORD_WAIT_S = 300
_POLL_S = 0.25
_TIMEOUT_S = 120.0
_WORK_S = 0.1


class ExecutionsUnfinished(LocalCloudError):
    """Executions still run after the time limit."""


def start(client: "SFNClient", machine: str, name: str, entity: str, task: Mapping[str, Any]) -> str:
    """Start an execution of the serialised workflow.

    Args:
        client: Step Functions.
        machine: the ARN of the state machine.
        name: the execution's name.
        entity: the entity of its lock.
        task: the work, as in the workflow's input.

    Returns:
        The execution's ARN.
    """
    request = {"entity": entity, "recordWaitSeconds": _RECORD_WAIT_S, "task": task}
    return client.start_execution(stateMachineArn=machine, name=name, input=json.dumps(request))["executionArn"]


def wait_for_all(client: "SFNClient", executions: Iterable[str], *, timeout_s: float) -> None:
    """Wait until all have ended, however they end.

    Raises:
        ExecutionsUnfinished: one still runs.
    """
    deadline = time.monotonic() + timeout_s
    for arn in executions:
        while client.describe_execution(executionArn=arn)["status"] == "RUNNING":
            if time.monotonic() > deadline:
                raise ExecutionsUnfinished(f"{arn} still runs after {timeout_s:.0f} s")
            time.sleep(_POLL_S)


def warm_up(client: "SFNClient", outputs: Mapping[str, str], locks: int) -> None:
    """Make two executions of the example function wait for each other on each of so many locks.

    Args:
        client: Step Functions.
        outputs: the stack's.
        locks: how many.

    Raises:
        ExecutionsUnfinished: one still runs after two minutes.
    """
    task = {"functionArn": outputs["ExampleFunctionArn"], "input": {"seconds": _WORK_S}}
    entities = [f"warm-up-{number + 1}" for number in range(locks)]
    started = [
        start(client, outputs["StateMachineArn"], f"{entity}-{turn}", entity, task)
        for turn in (1, 2)
        for entity in entities
    ]
    wait_for_all(client, started, timeout_s=_TIMEOUT_S)
