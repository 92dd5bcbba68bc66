"""What a lock costs, counted, not timed: requests, capacity units and state transitions, for both kinds of hand-over.

    make bench, or: PYTHONPATH=tests:functions python benchmarks/cost.py

Requests and units are those of the workflow's own steps, run in this process against a table on the emulator.
Transitions are counted in the histories of executions of the definition on the tests' interpreter, since the emulator
writes none for the states inside a Parallel.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import boto3
from kit.capacity import Bill
from kit.engines import create_table
from kit.events import handed_over
from kit.interpreter.harness import Work, until
from kit.interpreter.stage import Stage, stage
from quick import options_of
from rich.console import Console
from rich.table import Table
from rounds import transitions
from ticketlock_cdk.lock.serialize_machine import serialize_definition
from ticketlock_cdk.lock.settings import HandOver, LockSettings
from ticketlock_local.cloud.deploy import client_arguments, client_environment
from ticketlock_local.engines.emulator import Emulator

from ticketlock import LockTable
from ticketlock.wire._sdk import make_client
from ticketlock.workflow import Workflow
from ticketlock.workflow import _turn as budget

MACHINE = "arn:aws:states:us-east-1:000000000000:stateMachine:Ticketlock-Serialize"
CONTINUE = "arn:aws:states:us-east-1:000000000000:stateMachine:Ticketlock-Continue"
FUNCTION = "arn:aws:lambda:us-east-1:000000000000:function:work"
LEASE_S = 60
SHORT_LEASE_S = 10
DEEP = 1_000

WRITES_UNCONTENDED = 4
TRANSITIONS_UNCONTENDED = 6
TRANSITIONS_WITHOUT_HEARTBEAT = 4

CYCLE = "= an uncontended cycle"
CYCLE_WITHOUT_HEARTBEAT = "= the same, without heartbeat"
BEAT = "a further heartbeat, each half lease"
PARKED = "a parked half lease: renew the queue row"
WOKEN = "woken: poll, and take the lock"
POLL = "a waiting poll behind 1"
POLL_DEEP = f"a waiting poll behind {DEEP:,}"
POLL_KEEP = "a waiting poll that also renews the queue row"
POLL_GRANTED = "the poll that takes the lock"


@dataclass(frozen=True)
class Cost:
    """What one step sent, and what DynamoDB and Step Functions bill for it.

    Attributes:
        requests: to DynamoDB.
        calls: to Step Functions, which are free.
        transitions: None if a step has none of its own.
    """

    step: str
    requests: int
    write_units: int
    read_units: float
    calls: int
    transitions: float | None = None


class StepFunctions:
    """Step Functions in which every answered callback task exists.

    The tokens of the emulator's own tasks are much shorter than AWS's, and an item's size counts.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        self.calls += 1
        return (lambda **_: {}) if name.startswith("send_task") else getattr(self._client, name)


class Steps:
    """The workflow's steps in this process, with every request counted."""

    def __init__(self, endpoint: str, way: HandOver) -> None:
        self.way = way
        client = make_client(**client_arguments(endpoint))
        self._bill = Bill(make_client(**client_arguments(endpoint)))
        table_name = create_table(client)
        self._bill.watch(client)
        self._states = boto3.client("stepfunctions", **client_arguments(endpoint))
        self._calls = StepFunctions(self._states)
        step_functions: Any = self._calls
        self._workflow = Workflow(LockTable(table_name, client=client, step_functions=step_functions))
        waits = {"StartAt": "Wait", "States": {"Wait": {"Type": "Wait", "Seconds": 60, "End": True}}}
        self._began = datetime.now(UTC).isoformat()
        self._work_machine = self._states.create_state_machine(
            name=f"work-{way}", definition=json.dumps(waits), roleArn="arn:aws:iam::000000000000:role/work"
        )["stateMachineArn"]

    def take(self, entity: str, execution: str, *, lease_s: int = LEASE_S, nested: bool = False) -> Mapping[str, Any]:
        """One execution takes a ticket. Returns its turn."""
        request = self._request(entity, nested=nested)
        given = {"$": request, "$$.Execution.Id": arn(execution), "$$.Execution.StartTime": self._began}
        step = self._workflow.take_ticket(self._payload("TakeTicket", given, lease_s))
        turn: Mapping[str, Any] = step.reply["lock"]["turn"]
        return turn

    def park(self, turn: Mapping[str, Any], retry: int = 0) -> None:
        """One waiter parks, or renews its row while it is parked."""
        parked = self._workflow.wait_for_wake_up(self._payload("WaitForWakeUp", self._of_a_task(turn, retry)))
        assert parked.keys["stays"], parked

    def poll(self, turn: Mapping[str, Any], *, granted: bool = False) -> None:
        """One waiter polls."""
        found = self._workflow.check_position(self._payload("CheckPosition", self._of_a_task(turn))).reply
        assert (found["status"] == "granted") is granted, found

    def beat(self, turn: Mapping[str, Any], retry: int = 0) -> None:
        """One holder's heartbeat."""
        beaten = self._workflow.heartbeat(self._payload("Heartbeat", self._of_a_task(turn, retry)))
        assert "lost" not in beaten.keys, beaten

    def release(self, turn: Mapping[str, Any]) -> None:
        """One holder's release."""
        self._workflow.release(self._payload("Release", self._of_a_task(turn)))

    def start_work(self, turn: Mapping[str, Any]) -> None:
        """The nested execution that is the task of a grant."""
        self._states.start_execution(stateMachineArn=self._work_machine, name=turn["workName"])

    def clean_up(self, turn: Mapping[str, Any], entity: str, *, nested: bool = False) -> None:
        """The clean-up after an execution was stopped."""
        request = json.dumps(self._request(entity, nested=nested))
        detail = {"executionArn": turn["session"]["execution"], "stateMachineArn": MACHINE, "status": "ABORTED"}
        event = {"detail": {**detail, "input": request, "stopDate": time.time_ns() // 1_000_000}}
        self._workflow.clean_up(event, state_machine=MACHINE, lease_ms=LEASE_S * 1_000)

    def counted(self, step: str, do: Callable[[], object]) -> Cost:
        """Do something, and count what it sends."""
        before = self._counts()
        do()
        requests, write_units, read_units, calls = (
            now - then for now, then in zip(self._counts(), before, strict=True)
        )
        return Cost(step, int(requests), int(write_units), read_units, int(calls))

    def _counts(self) -> tuple[float, ...]:
        return self._bill.requests, self._bill.write_units, self._bill.read_units, self._calls.calls

    def _of_a_task(self, turn: Mapping[str, Any], retry: int = 0) -> Mapping[str, Any]:
        """The values of the payloads' paths, once there is a turn."""
        return {
            "$.lock.turn": turn,
            "$$.Execution.Id": turn["session"]["execution"],
            "$$.Task.Token": "x" * 1_000,
            "$$.State.EnteredTime": self._began,
            "$$.State.RetryCount": retry,
        }

    def _payload(self, state: str, given: Mapping[str, Any], lease_s: int | None = None) -> Mapping[str, Any]:
        """What the definition passes to a state's function.

        Args:
            state: its name.
            given: the value of each of its paths.
            lease_s: the deployment's; by default that of the turn.
        """
        lease_s = lease_s or given["$.lock.turn"]["claim"]["leaseMs"] // 1_000
        settings = LockSettings(lease_s=lease_s, poll_s=5, hand_over=self.way)
        states = serialize_definition(settings, [FUNCTION, self._work_machine])["States"]
        for branch in states["Hold"]["Branches"]:
            states |= branch["States"]
        return handed_over(states[state], given.__getitem__)

    def _request(self, entity: str, *, nested: bool) -> Mapping[str, Any]:
        task = {"stateMachineArn": self._work_machine} if nested else {"functionArn": FUNCTION}
        return {"entity": entity, "task": task}


def arn(execution: str) -> str:
    """An execution's ARN of realistic length."""
    return f"arn:aws:states:us-east-1:000000000000:execution:Ticketlock-Serialize:{execution:-<36}"


def uncontended(steps: Steps) -> list[Cost]:
    """A lock without other users."""
    turns: list[Mapping[str, Any]] = []
    cycle = [
        steps.counted("acquire", lambda: turns.append(steps.take("alone", "a"))),
        steps.counted("first heartbeat: leave its task token", lambda: steps.beat(turns[0])),
        steps.counted("release: say finished, free, end the heartbeat", lambda: steps.release(turns[0])),
    ]
    lean = [
        steps.counted("", lambda: turns.append(steps.take("lean", "b"))),
        steps.counted("", lambda: steps.release(turns[1])),
    ]
    return [*cycle, total(CYCLE, cycle), total(CYCLE_WITHOUT_HEARTBEAT, lean)]


def contended(steps: Steps, kept: Cost) -> list[Cost]:
    """A queue: the costs of joining, waiting, renewing the row, waking and being granted."""
    woken = steps.way is HandOver.CALLBACK
    held = steps.take("wanted", "holder")
    steps.beat(held)
    turns: list[Mapping[str, Any]] = []
    costs = [steps.counted("join the queue", lambda: turns.append(steps.take("wanted", "waiter")))]
    if woken:
        costs.append(steps.counted("park: leave the task token, poll", lambda: steps.park(turns[0])))
    else:
        costs += [steps.counted(POLL, lambda: steps.poll(turns[0])), deep(steps)]
    costs.append(kept)
    freed = "release, and wake the next" if woken else "release, and check whether to wake"
    costs.append(steps.counted(freed, lambda: steps.release(held)))
    costs.append(steps.counted(WOKEN if woken else POLL_GRANTED, lambda: steps.poll(turns[0], granted=True)))
    return costs


def deep(steps: Steps) -> Cost:
    """A poll from far behind."""
    steps.take("deep", "holder")
    last = [steps.take("deep", f"waiter-{waiter}") for waiter in range(DEEP)][-1]
    return steps.counted(POLL_DEEP, lambda: steps.poll(last))


def half_a_lease_later(steps: Steps) -> tuple[Cost, Cost]:
    """A holder renews its lease, and a waiter renews its row."""
    holder = steps.take("kept", "holder", lease_s=SHORT_LEASE_S)
    waiter = steps.take("kept", "waiter", lease_s=SHORT_LEASE_S)
    steps.beat(holder)
    woken = steps.way is HandOver.CALLBACK
    if woken:
        steps.park(waiter)
    # The table's time is real here: after half a lease, a step renews the lease.
    time.sleep(SHORT_LEASE_S / 2)
    beat = steps.counted(BEAT, lambda: steps.beat(holder, 1))
    if woken:
        return beat, steps.counted(PARKED, lambda: steps.park(waiter, 1))
    return beat, steps.counted(POLL_KEEP, lambda: steps.poll(waiter))


def clean_ups(steps: Steps) -> list[Cost]:
    """Executions that were stopped; each time two others are waiting."""
    return [
        clean_up(steps, "clean-up of a waiter: leave the queue", "waiter"),
        clean_up(steps, "clean-up of a holder: end its heartbeat", "holder"),
        clean_up(steps, "clean-up of a holder of an execution: free", "holder", nested=True),
    ]


def clean_up(steps: Steps, step: str, stopped: str, *, nested: bool = False) -> Cost:
    """One event: the task of a stopped holder is a function, which is left to its lease, or an execution."""
    entity = step.replace(" ", "-")
    turns = {"holder": steps.take(entity, f"{entity[-8:]}-holder-{nested}", nested=nested)}
    steps.beat(turns["holder"])
    if nested:
        steps.start_work(turns["holder"])
    for waiter in ("waiter", "other"):
        turns[waiter] = steps.take(entity, f"{entity[-8:]}-{waiter}-{nested}")
        if steps.way is HandOver.CALLBACK:
            steps.park(turns[waiter])
    return steps.counted(step, lambda: steps.clean_up(turns[stopped], entity, nested=nested))


def cold(steps: Steps) -> Cost:
    """What the first step of a function's container sends in addition: it asks for the table's time."""
    first = steps.counted("", lambda: steps.take("cold", "a"))
    again = steps.counted("", lambda: steps.take("colder", "a"))
    return Cost("a cold function asks for the time", first.requests - again.requests, 0, first.read_units, 0)


def total(step: str, costs: Sequence[Cost]) -> Cost:
    """Several steps as one."""
    return Cost(
        step,
        requests=sum(cost.requests for cost in costs),
        write_units=sum(cost.write_units for cost in costs),
        read_units=sum(cost.read_units for cost in costs),
        calls=sum(cost.calls for cost in costs),
    )


def transitions_by_step(endpoint: str, way: HandOver) -> Mapping[str, float]:
    """State transitions, as AWS bills them: with retries, without those of the task itself."""
    work = Work(seconds=60)
    waiting = "WaitForWakeUp" if way is HandOver.CALLBACK else "CheckPosition"
    with stage(endpoint, {"work": work, "quick": Work()}, hand_over=way) as opened:
        cycle, _ = made(opened, finished(opened, opened.start("alone", function="quick")))
        holder = opened.start("wanted")
        assert work.started.wait(10)
        waiter = opened.start("wanted", function="quick")
        until(lambda: len(opened.engine.invocations_of(waiting)) >= 3, 60, lambda: f"3 times {waiting}")
        until(lambda: len(opened.engine.invocations_of("Heartbeat")) >= 3, 60, lambda: "a further heartbeat")
        work.finish.set()
        _, beats = made(opened, finished(opened, holder))
        waited, again = made(opened, finished(opened, waiter))
        further_beats = len(opened.engine.invocations_of("Heartbeat")) - 3
        times = len(opened.engine.invocations_of(waiting))
    with stage(endpoint, {"quick": Work()}, hand_over=way, heartbeat=False, work_timeout_s=3) as opened:
        lean, _ = made(opened, finished(opened, opened.start("alone", function="quick")))
    by_step = {CYCLE: cycle, CYCLE_WITHOUT_HEARTBEAT: lean, BEAT: beats / further_beats}
    if way is HandOver.CALLBACK:
        return {**by_step, PARKED: again / (times - 1), WOKEN: waited - cycle}
    return {**by_step, **dict.fromkeys((POLL, POLL_DEEP, POLL_KEEP, POLL_GRANTED), (waited - cycle) / times)}


def finished(opened: Stage, execution: str) -> str:
    """The same execution, after its end."""
    outcome = opened.machine.wait(execution)
    assert outcome.status == "SUCCEEDED", outcome
    return execution


def made(opened: Stage, execution: str) -> tuple[int, int]:
    """How many states an execution entered, without those of its task, and how many tries of its tasks were retries."""
    entered = opened.machine.entered(execution)
    retries = transitions(opened.machine.history(execution)) - entered.total()
    return entered.total() - entered["InvokeFunction"], retries


def costs_of(endpoint: str, way: HandOver) -> list[Cost]:
    """All costs of one kind of hand-over."""
    steps = Steps(endpoint, way)
    first = cold(steps)
    beat, kept = half_a_lease_later(steps)
    costs = [first, *uncontended(steps), beat, *contended(steps, kept), *clean_ups(steps)]
    by_step = transitions_by_step(endpoint, way)
    return [replace(cost, transitions=by_step.get(cost.step)) for cost in costs]


def main() -> int:
    """Count and print; 1 if an uncontended cycle costs more than it should."""
    chosen = options_of(__doc__, "one of the two kinds of hand-over").parse_args()
    console = Console(width=115)
    kept = True
    with Emulator() as emulator:
        os.environ |= client_environment(emulator.endpoint)
        for way in (HandOver.CALLBACK,) if chosen.quick else (HandOver.CALLBACK, HandOver.POLL):
            costs = costs_of(emulator.endpoint, way)
            console.print(table(way, costs))
            kept &= is_lean(costs)
    console.print(NOTES, highlight=False)
    if not kept:
        print("FAILED: an uncontended cycle costs more than it should", file=sys.stderr)
    return 0 if kept else 1


def is_lean(costs: Sequence[Cost]) -> bool:
    """Whether an uncontended cycle costs what it should, with and without heartbeat."""
    by_step = {cost.step: cost for cost in costs}
    cycle, lean = by_step[CYCLE], by_step[CYCLE_WITHOUT_HEARTBEAT]
    return (cycle.requests, cycle.read_units) == (WRITES_UNCONTENDED, 0) and (cycle.transitions, lean.transitions) == (
        TRANSITIONS_UNCONTENDED,
        TRANSITIONS_WITHOUT_HEARTBEAT,
    )


def table(way: HandOver, costs: Sequence[Cost]) -> Table:
    """One kind of hand-over."""
    made = Table(title=f"What a lock costs, hand-over by {way} (counted)", title_justify="left")
    made.add_column("step")
    for column in ("requests", "write units", "read units", "Step Functions", "transitions"):
        made.add_column(column, justify="right")
    for cost in costs:
        figures = (cost.requests, cost.write_units, cost.read_units, cost.calls, cost.transitions)
        made.add_row(cost.step, *("" if figure is None else f"{figure:g}" for figure in figures))
        if cost.step == BEAT:
            made.add_section()
    return made


NOTES = f"""\
Requests are those to DynamoDB; calls to the API of Step Functions have no price. Write units are counted with
task tokens of 1,000 characters. A transition is a state entered or a task retried, as AWS bills them; those of
a wait with a wake-up are its own, the park and the poll, and those of a polling wait the sleep and the poll.

Events, of an execution's 25,000: a poll {budget.EVENTS_PER_POLL}, a beat {budget.EVENTS_PER_BEAT}, a parked half \
lease {budget.EVENTS_PER_PARK}; a poll of one that parks,
with the {budget.PARKS_PER_POLL} half leases before it, {budget.EVENTS_PER_PARKED_POLL} at most; to continue in \
another execution {budget.EVENTS_PER_WAITING_CONTINUATION} (waiting)
or {budget.EVENTS_PER_HOLDING_CONTINUATION} (holding)."""


if __name__ == "__main__":
    sys.exit(main())
