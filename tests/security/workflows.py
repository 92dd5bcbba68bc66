"""Executions of the serialised workflow, step by step, over a table in memory and a recording Step Functions."""

import json
from dataclasses import dataclass
from typing import Any

from kit.events import MACHINE, step_event, ticket_event
from kit.step_functions import TaskService

from ticketlock import LockTable
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.wire._driver import Clocks
from ticketlock.workflow import Workflow

ARN = "arn:aws:states:us-east-1:123456789012"
TARGET = f"{ARN}:stateMachine:ship-order"
FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:work"
LEASE_S = 60


class Table:
    """A lock table in memory, and a Step Functions, in a time that a test moves.

    Args:
        clock: another time than that, for code that has clocks of its own.
    """

    def __init__(self, clock: Clocks | None = None) -> None:
        self.clock = ManualClock()
        self.memory = MemoryDynamoDB(clock=clock if clock is not None else self.clock)
        self.tasks = TaskService()
        self._step_functions = self.tasks.client()
        self.workflow = Workflow(self.over(self.memory.client))

    def over(self, client: Any) -> LockTable:
        """The table, through a given client."""
        return LockTable(
            "locks", client=client, step_functions=self._step_functions, clocks=self.clock, sleep=self.clock.sleep
        )

    def execution(self, name: str) -> "Execution":
        return Execution(self, f"{ARN}:execution:serialize:{name}")


@dataclass
class Execution:
    """One execution, and the events that its functions get."""

    table: Table
    arn: str
    turn: Any = None

    def ticket_event(self, request: Any, **more: Any) -> dict[str, Any]:
        return ticket_event(self.arn, request, targets=[FUNCTION, TARGET], **more)

    def event(self, state: str, token: str = "", retry: int = 0) -> dict[str, Any]:
        return step_event(state, self.turn, token, retry=retry)

    def end_event(self, request: Any, status: str = "ABORTED") -> dict[str, Any]:
        detail = {"executionArn": self.arn, "stateMachineArn": MACHINE, "status": status, "input": json.dumps(request)}
        # Long past, by any clock.
        return {"detail": detail | {"stopDate": 10**13}}

    # The steps, by the library's own calls.

    def asks(self, entity: str, task: Any = None) -> "Execution":
        request = {"entity": entity, "task": task or {"functionArn": FUNCTION}}
        self.turn = self.table.workflow.take_ticket(self.ticket_event(request)).reply["lock"]["turn"]
        return self

    def parks(self, token: str) -> "Execution":
        self.table.workflow.wait_for_wake_up(self.event("WaitForWakeUp", token))
        return self

    def beats(self, token: str, retry: int = 0) -> Any:
        return self.table.workflow.heartbeat(self.event("Heartbeat", token, retry))

    def finishes(self) -> Any:
        return self.table.workflow.release(self.event("Release"))
