"""What a lock costs, counted, not timed: requests, capacity units and state transitions.

    make bench, or: PYTHONPATH=tests:functions python benchmarks/cost.py

Requests and units are those of the workflow's own steps, run in this process against a table on the emulator.
Transitions are counted in the histories of executions of the definition on the tests' interpreter, since the emulator
writes none for the states inside a Parallel.
"""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import boto3
from capacity import Bill
from contract.engines import create_table
from rich.console import Console
from rich.table import Table
from statemachines.harness import Work
from statemachines.stage import stage
from ticketlock_local.cloud import client_arguments, client_environment
from ticketlock_local.emulator import Emulator

from ticketlock import LockTable
from ticketlock._budget import EVENTS_PER_BEAT, EVENTS_PER_POLL
from ticketlock._sdk import make_client
from ticketlock.workflow import Workflow

TARGET = "arn:aws:lambda:us-east-1:000000000000:function:work"
DEEP = 1_000


@dataclass(frozen=True)
class Cost:
    """What one step sent, and what DynamoDB bills for it."""

    step: str
    requests: int
    write_units: int
    read_units: int


class Steps:
    """The workflow's steps in this process, with every request counted."""

    def __init__(self, endpoint: str) -> None:
        client = make_client(**client_arguments(endpoint))
        self._bill = Bill(make_client(**client_arguments(endpoint)))
        self._bill.watch(client)
        step_functions = boto3.client("stepfunctions", **client_arguments(endpoint))
        self._workflow = Workflow(LockTable(create_table(endpoint), client=client, step_functions=step_functions))

    def take(self, entity: str, execution: str) -> Mapping[str, Any]:
        """One execution takes a ticket; returns its turn."""
        event = {
            "request": {"entity": entity, "task": {"functionArn": TARGET}},
            "execution": arn(execution),
            "targets": [TARGET],
            "defaultRecordWaitSeconds": "Infinity",
            "leaseSeconds": 60,
            "pollSeconds": 5,
        }
        turn: Mapping[str, Any] = self._workflow.take_ticket(event).reply["lock"]["turn"]
        return turn

    def look(self, turn: Mapping[str, Any]) -> Mapping[str, Any]:
        """One waiter looks; returns its turn."""
        return self._workflow.check_position({"turn": turn}).reply

    def beat(self, turn: Mapping[str, Any], execution: str, number: int) -> None:
        """One holder's heartbeat."""
        event = {"turn": turn, "execution": arn(execution), "taskToken": "x" * 1_000, "beat": number}
        self._workflow.heartbeat(event)

    def release(self, turn: Mapping[str, Any], execution: str) -> None:
        """One holder's release."""
        self._workflow.release({"turn": turn, "execution": arn(execution)})

    def counted(self, step: str, do: Callable[[], object]) -> Cost:
        """Do something, and count what it sends."""
        bill = self._bill
        before = (bill.requests, bill.write_units, bill.read_units)
        do()
        after = (bill.requests, bill.write_units, bill.read_units)
        return Cost(step, *(now - then for now, then in zip(after, before, strict=True)))


def arn(execution: str) -> str:
    """An execution's ARN, as long as they are."""
    return f"arn:aws:states:us-east-1:000000000000:execution:Ticketlock-Serialize:{execution:-<36}"


def uncontended(steps: Steps) -> list[Cost]:
    """A lock that nobody else wants."""
    turns: list[Mapping[str, Any]] = []
    return [
        steps.counted("acquire", lambda: turns.append(steps.take("alone", "a"))),
        steps.counted("first beat (leaves its task token)", lambda: steps.beat(turns[0], "a", 0)),
        steps.counted("a further beat (renews)", lambda: steps.beat(turns[0], "a", 1)),
        steps.counted("release (says finished, frees)", lambda: steps.release(turns[0], "a")),
    ]


def contended(steps: Steps) -> list[Cost]:
    """A queue: what joining, looking and being granted cost, at both ends of it."""
    held = steps.take("wanted", "holder")
    turns: list[Mapping[str, Any]] = []
    joined = steps.counted("join the queue", lambda: turns.append(steps.take("wanted", "waiter-0")))
    near = steps.counted("a look behind 1", lambda: steps.look(turns[0]))
    for waiter in range(1, DEEP):
        turns.append(steps.take("wanted", f"waiter-{waiter}"))
    far = steps.counted(f"a look behind {DEEP:,}", lambda: steps.look(turns[-1]))
    steps.release(held, "holder")
    granted = steps.counted("the look that is granted", lambda: steps.look(turns[0]))
    return [joined, near, far, granted]


def transitions(endpoint: str) -> tuple[int, int]:
    """State transitions of an uncontended execution beside its work's own, and of one waiting poll."""
    work = Work(seconds=60)
    with stage(endpoint, {"work": work, "quick": Work()}) as opened:
        alone = opened.start("alone", function="quick")
        opened.machine.wait(alone)
        entered = opened.machine.entered(alone)
        holder = opened.start("wanted")
        work.started.wait(10)
        waiter = opened.start("wanted", function="quick")
        opened.machine.wait_until_entered(waiter, "WaitForTurn")
        work.finish.set()
        opened.machine.wait(holder)
        opened.machine.wait(waiter)
        waited = opened.machine.entered(waiter)
    polls = waited["CheckPosition"]
    return entered.total() - entered["InvokeFunction"], (waited.total() - entered.total()) // polls


def main() -> int:
    """Count and print."""
    with Emulator() as emulator:
        os.environ |= client_environment(emulator.endpoint)
        steps = Steps(emulator.endpoint)
        costs = [*uncontended(steps), *contended(steps)]
        alone, poll = transitions(emulator.endpoint)
    table = Table(title="What a lock costs (counted)")
    table.add_column("step")
    for column in ("requests", "write units", "read units"):
        table.add_column(column, justify="right")
    for cost in costs:
        table.add_row(cost.step, str(cost.requests), str(cost.write_units), str(cost.read_units))
    console = Console(width=100)
    console.print(table)
    console.print(f"Transitions of an uncontended execution, beside its work's own: {alone}")
    console.print(f"Transitions of a waiting poll: {poll}")
    console.print(f"Events: {EVENTS_PER_POLL} a poll, {EVENTS_PER_BEAT} a beat, of an execution's 25,000")
    console.print("A further beat is a retry of its state, which AWS bills as a transition.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
