"""Executions of the serialised workflow, step by step, over a table in memory and a Step Functions that takes notes."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse

from ticketlock import LockTable
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.wire._clocks import Clocks
from ticketlock.workflow import Workflow

ARN = "arn:aws:states:us-east-1:123456789012"
MACHINE = f"{ARN}:stateMachine:serialize"
TARGET = f"{ARN}:stateMachine:ship-order"
FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:work"
LEASE_S = 60
ENTERED = "2026-11-21T12:00:00.000Z"


@dataclass
class Tasks:
    """Step Functions, as far as a lock speaks to it; in the place of a client, or behind one.

    Attributes:
        succeeded, failed: the tokens of the tasks that were answered so.
        causes: of those that failed.
        stopped: the executions that were stopped.
        quotes: over the wire every answer is refused, with its token in the words of the refusal.
    """

    succeeded: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    quotes: bool = False

    def client(self) -> Any:
        """A client of boto3 that is answered here."""
        made = boto3.client("stepfunctions")
        self.serve(made)
        return made

    def serve(self, client: Any) -> None:
        """Answer a client of boto3."""
        client.meta.events.register("before-call.sfn", self._over_the_wire)

    def _over_the_wire(self, model: Any, params: Mapping[str, Any], **_: Any) -> tuple[AWSResponse, dict[str, Any]]:
        """What a handler of ``before-call`` returns is taken for the reply."""
        asked = json.loads(params["body"])
        if self.quotes and "taskToken" in asked:
            text = (
                f"1 validation error detected: Value '{asked['taskToken']}' at 'taskToken' failed to satisfy constraint"
            )
            return _reply(400, {"Error": {"Code": "ValidationException", "Message": text}})
        operations: Mapping[str, Callable[..., Any]] = {
            "SendTaskSuccess": self.send_task_success,
            "SendTaskFailure": self.send_task_failure,
            "DescribeExecution": self.describe_execution,
            "StopExecution": self.stop_execution,
        }
        return _reply(200, operations[model.name](**asked))

    def send_task_success(self, *, taskToken: str, output: str) -> Any:
        assert output == "{}"
        self.succeeded.append(taskToken)
        return {}

    def send_task_failure(self, *, taskToken: str, error: str, cause: str) -> Any:
        assert error
        self.failed.append(taskToken)
        self.causes.append(cause)
        return {}

    def describe_execution(self, *, executionArn: str) -> Any:
        return {"status": "ABORTED" if executionArn in self.stopped else "RUNNING"}

    def stop_execution(self, *, executionArn: str, error: str, cause: str) -> Any:
        assert error
        assert cause
        self.stopped.append(executionArn)
        return {}


def _reply(status: int, body: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]]:
    headers: Any = {}
    metadata = {"HTTPHeaders": headers, "HTTPStatusCode": status}
    return AWSResponse("https://states", status, headers, None), {**body, "ResponseMetadata": metadata}


class Table:
    """A lock table in memory, and a Step Functions, in a time that a test moves.

    Args:
        clock: another time than that, for code that has clocks of its own.
    """

    def __init__(self, clock: Clocks | None = None) -> None:
        self.clock = ManualClock()
        self.memory = MemoryDynamoDB(clock=clock if clock is not None else self.clock)
        self.tasks = Tasks()
        self.workflow = Workflow(self.over(self.memory.client))

    def over(self, client: Any) -> LockTable:
        """The table, by a client of somebody's."""
        step_functions: Any = self.tasks
        return LockTable(
            "locks", client=client, step_functions=step_functions, clocks=self.clock, sleep=self.clock.sleep
        )

    def execution(self, name: str) -> "Execution":
        return Execution(self, f"{ARN}:execution:serialize:{name}")


def ticket_event(execution: str, request: Any, **more: Any) -> dict[str, Any]:
    """What the first step of the serialised workflow gets, or of a fragment where a place is given."""
    return {
        "request": request,
        "execution": execution,
        "targets": [FUNCTION, TARGET],
        "defaultRecordWaitSeconds": "Infinity",
        "defaultPermits": 1,
        "leaseSeconds": LEASE_S,
        "pollSeconds": 5,
        "handOver": "callback",
        "continueMachine": f"{ARN}:stateMachine:continue",
        "workMachine": "",
        "pollsAnExecution": 200,
        "beatsAnExecution": 500,
    } | more


@dataclass
class Execution:
    """One execution, and the events that its functions get."""

    table: Table
    arn: str
    turn: Any = None

    def ticket_event(self, request: Any, **more: Any) -> dict[str, Any]:
        return ticket_event(self.arn, request, **more)

    def event(self, **more: Any) -> dict[str, Any]:
        return {"turn": self.turn, "leaseSeconds": LEASE_S, "execution": self.arn} | more

    def task_event(self, token: str, retry: int = 0) -> dict[str, Any]:
        return self.event(taskToken=token, entered=ENTERED, retry=retry)

    def end_event(self, request: Any, status: str = "ABORTED") -> dict[str, Any]:
        detail = {"executionArn": self.arn, "stateMachineArn": MACHINE, "status": status, "input": json.dumps(request)}
        # Whatever its own time is, it is over.
        return {"detail": detail | {"stopDate": 10**13}}

    # The steps, by the library's own calls.

    def asks(self, entity: str, task: Any = None) -> "Execution":
        request = {"entity": entity, "task": task or {"functionArn": FUNCTION}}
        self.turn = self.table.workflow.take_ticket(self.ticket_event(request)).reply["lock"]["turn"]
        return self

    def parks(self, token: str) -> "Execution":
        self.table.workflow.wait_for_call(self.task_event(token))
        return self

    def beats(self, token: str, retry: int = 0) -> Any:
        return self.table.workflow.heartbeat(self.task_event(token, retry))

    def finishes(self) -> Any:
        return self.table.workflow.release({"turn": self.turn})

    def is_cleaned_up_after(self, entity: str, task: Any = None) -> Any:
        event = self.end_event({"entity": entity, "task": task or {"functionArn": FUNCTION}})
        return self.table.workflow.clean_up(event, state_machine=MACHINE, lease_ms=LEASE_S * 1_000)
