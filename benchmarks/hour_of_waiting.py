"""What an hour of waiting costs, counted: transitions, calls of functions, requests, capacity units, and their price.

    make bench, or: PYTHONPATH=tests python benchmarks/hour_of_waiting.py

One execution holds the lock for the whole hour, and ten wait for it, at the default settings. The steps are the
workflow's own, over a table in memory; the states that lead from one to the next are those of the definitions, walked
in virtual time, in which steps and requests take no time. The task tokens have 1,000 characters.
"""

import heapq
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kit.capacity import Bill
from kit.events import CONTINUE_MACHINE, execution_arn, handed_over
from quick import options_of
from rich.console import Console
from rich.table import Table
from ticketlock_cdk.lock.serialize_machine import continue_definition, serialize_definition
from ticketlock_cdk.lock.settings import HandOver, LockSettings

from ticketlock import LockTable
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.wire._sdk import make_client
from ticketlock.workflow import Workflow

HOUR_S = 3_600
LEASE_S, POLL_S = 60, 5
WAITERS = 10
FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:work"
REQUEST = {"entity": "wanted", "task": {"functionArn": FUNCTION}}
ARGUMENTS = {"region_name": "us-east-1", "aws_access_key_id": "test", "aws_secret_access_key": "test"}

# us-east-1, for one each: https://aws.amazon.com/step-functions/pricing/, https://aws.amazon.com/lambda/pricing/ and
# https://aws.amazon.com/dynamodb/pricing/on-demand/
TRANSITION_USD, CALL_USD, WRITE_UNIT_USD, READ_UNIT_USD = 25e-6, 0.2e-6, 0.625e-6, 0.125e-6
HOURS_PRICED = 1_000


@dataclass(frozen=True)
class Cost:
    """What one hour of one waiter costs.

    Attributes:
        calls: of the lock's functions.
        requests: to DynamoDB.
    """

    transitions: int
    calls: int
    requests: int
    write_units: int
    read_units: float

    @property
    def usd(self) -> float:
        """Dollars, without the duration of the functions, logs, traces and metrics."""
        of_units = self.write_units * WRITE_UNIT_USD + self.read_units * READ_UNIT_USD
        return self.transitions * TRANSITION_USD + self.calls * CALL_USD + of_units


class World:
    """A table in memory, and the executions that use it, in virtual time."""

    def __init__(self, way: HandOver) -> None:
        self.clock = ManualClock()
        self.memory = MemoryDynamoDB(clock=self.clock)
        settings = LockSettings(lease_s=LEASE_S, poll_s=POLL_S, hand_over=way)
        self.serialize = _deployed(serialize_definition(settings, [FUNCTION]))
        self.continues = _deployed(continue_definition(settings))

    def run(self, executions: Sequence["Execution"]) -> None:
        """Let them run for an hour; their steps come in the order of their times."""
        began_ms = self.clock.wall_ms
        walks = [each.walk() for each in executions]
        due = [(0.0, number) for number in range(len(walks))]
        while due[0][0] <= HOUR_S:
            at_s, number = due[0]
            self.clock.advance(max(0.0, at_s - (self.clock.wall_ms - began_ms) / 1_000))
            heapq.heapreplace(due, (at_s + next(walks[number]), number))


class Execution:
    """One execution: it has taken the lock or its ticket, and what comes then is counted."""

    def __init__(self, world: World) -> None:
        self._world = world
        client = make_client(**ARGUMENTS)
        world.memory.serve(client)
        # No waiter is woken in this hour, so Step Functions gets no request.
        self._workflow = Workflow(LockTable("locks", client=client, clocks=world.clock, sleep=world.clock.sleep))
        self._execution = execution_arn()
        started = datetime.fromtimestamp(world.clock.wall_ms / 1_000, UTC).isoformat()
        given = {"$": REQUEST, "$$.Execution.Id": self._execution, "$$.Execution.StartTime": started}
        payload = handed_over(world.serialize["States"]["TakeTicket"], given.__getitem__)
        self._turn: Mapping[str, Any] = self._workflow.take_ticket(payload).reply["lock"]["turn"]
        self._bill = Bill(world.memory.client)
        self._bill.watch(client)
        self._transitions = self._calls = 0

    @property
    def cost(self) -> Cost:
        """What it has cost since its ticket."""
        bill = self._bill
        return Cost(self._transitions, self._calls, bill.requests, bill.write_units, bill.read_units)

    def walk(self) -> Iterator[float]:
        """Pass from state to state, from ``MyTurn?`` on; yields for how many seconds it stays in one."""
        if self._turn["status"] == "granted":
            _, heartbeat = self._world.serialize["States"]["Hold"]["Branches"]
            yield from self._walk(heartbeat, heartbeat["StartAt"], self._execution)
        yield from self._walk(self._world.serialize, "MyTurn?", self._execution)

    def _walk(self, machine: Mapping[str, Any], name: str, execution: str) -> Iterator[float]:
        while True:
            state = machine["States"][name]
            self._transitions += 1
            kind = state["Resource"].partition(":::")[2] if state["Type"] == "Task" else state["Type"]
            if kind == "Choice":
                name = self._chosen(state)
                continue
            if kind == "Pass":
                return
            if kind == "Wait":
                yield self._turn["waitSeconds"]
            elif kind == "states:startExecution.sync:2":
                continuation = execution_arn()
                yield from self._walk(self._world.continues, self._world.continues["StartAt"], continuation)
            elif kind == "lambda:invoke.waitForTaskToken":
                yield from self._parked(name, state, execution)
                name = next(catch["Next"] for catch in state["Catch"] if "States.Timeout" in catch["ErrorEquals"])
                continue
            else:
                self._turn = self._invoked(name, state, execution)
            name = state["Next"]

    def _chosen(self, state: Mapping[str, Any]) -> str:
        for choice in state["Choices"]:
            if choice["Variable"] == "$.lock.turn.status" and choice["StringEquals"] == self._turn["status"]:
                return str(choice["Next"])
        return str(state["Default"])

    def _parked(self, name: str, state: Mapping[str, Any], execution: str) -> Iterator[float]:
        """A callback task without an answer, and its retries after time-outs."""
        retries = next((each for each in state.get("Retry", ()) if "States.Timeout" in each["ErrorEquals"]), None)
        entered = datetime.fromtimestamp(self._world.clock.wall_ms / 1_000, UTC).isoformat()
        for retry in range(1 + (retries["MaxAttempts"] if retries else 0)):
            if retry:
                self._transitions += 1
                yield retries["IntervalSeconds"]  # type: ignore[index]
            self._invoked(name, state, execution, entered, retry)
            yield state["TimeoutSeconds"]

    def _invoked(
        self, name: str, state: Mapping[str, Any], execution: str, entered: str = "", retry: int = 0
    ) -> Mapping[str, Any]:
        given = {
            "$.lock.turn": self._turn,
            "$$.Execution.Id": execution,
            "$$.Task.Token": "x" * 1_000,
            "$$.State.EnteredTime": entered,
            "$$.State.RetryCount": retry,
        }
        self._calls += 1
        event = handed_over(state, given.__getitem__)
        if name == "CheckPosition":
            return self._workflow.check_position(event).reply
        if name == "Heartbeat":
            self._workflow.heartbeat(event)
        else:
            parked = self._workflow.wait_for_wake_up(event)
            assert parked.keys["stays"], parked
        return self._turn


def _deployed(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    machine: Mapping[str, Any] = json.loads(json.dumps(definition).replace("${ContinueArn}", CONTINUE_MACHINE))
    return machine


def costs_of(way: HandOver) -> list[Cost]:
    """What the waiters of one lock cost for an hour, the first in line first."""
    world = World(way)
    holder, *waiters = [Execution(world) for _ in range(1 + WAITERS)]
    world.run([holder, *waiters])
    return [each.cost for each in waiters]


def table(costs: Mapping[str, Cost]) -> Table:
    """The figures of some waiters, to print."""
    made = Table(title=f"An hour of waiting, lease {LEASE_S} s, poll {POLL_S} s (counted)", title_justify="left")
    for column in ("waiter", "transitions", "calls", "requests", "write units", "read units", "US dollars"):
        made.add_column(column, justify="left" if column == "waiter" else "right")
    for name, cost in costs.items():
        counted = (cost.transitions, cost.calls, cost.requests, cost.write_units, cost.read_units)
        made.add_row(name, *(f"{figure:g}" for figure in counted), f"{cost.usd:.4f}")
    return made


def counted() -> Mapping[str, Cost]:
    """An hour with each way to hand over: what a waiter costs that is woken, and two that poll."""
    # A waiter that polls behind others sleeps for random times.
    random.seed(1)
    woken, polling = costs_of(HandOver.CALLBACK), costs_of(HandOver.POLL)
    # Their position makes no difference.
    assert len(set(woken)) == 1, woken
    return {"woken": woken[0], "polls, first": polling[0], "polls, tenth": polling[-1]}


def main() -> int:
    """Count and print."""
    options_of(__doc__, "the same: its hour is virtual").parse_args()
    Console(width=100).print(table(counted()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
