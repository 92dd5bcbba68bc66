"""What a lock costs, counted, not timed: requests, capacity units and state transitions, for both kinds of hand-over.

    make bench, or: PYTHONPATH=tests:functions python benchmarks/cost.py

Requests and units are those of the workflow's own steps, run in this process against a table on the emulator.
Transitions are counted in the histories of executions of the definition on the tests' interpreter, since the emulator
writes none for the states inside a Parallel.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
from executions import billed_transitions
from frame import Run, engine, main
from kit.capacity import Bill
from kit.engines import create_table
from kit.events import handed_over
from kit.interpreter.harness import Work, until
from kit.interpreter.stage import Stage, stage
from kit.prices import OfAMillion
from ticketlock_cdk.lock.serialize_machine import serialize_definition
from ticketlock_cdk.lock.settings import ROW_LEASE_S, HandOver, LockSettings
from ticketlock_cdk.lock.targets import parse_target
from ticketlock_local.cloud.deploy import client_arguments

from ticketlock import LockTable
from ticketlock.wire._sdk import make_client
from ticketlock.workflow import Workflow
from ticketlock.workflow import _turn as budget

MACHINE = "arn:aws:states:us-east-1:000000000000:stateMachine:Ticketlock-Serialize"
FUNCTION = "arn:aws:lambda:us-east-1:000000000000:function:work"
# The ARN of an execution has a realistic length.
EXECUTION = "arn:aws:states:us-east-1:000000000000:execution:Ticketlock-Serialize"
ON_PAGES = Path(__file__).parents[1] / "docs/tables/cost.json"
LEASE_S = 60
SHORT_LEASE_S = 10
DEEP = 1_000

# Of the definition's callback tasks.
RETRY_AFTER_S = 1

WRITES_UNCONTENDED = 4
TRANSITIONS_UNCONTENDED = 4
TRANSITIONS_WITHOUT_HEARTBEAT = 2

ACQUIRE = "acquire"
RELEASE = "release: say finished, free, end the heartbeat"
CYCLE = "= an uncontended cycle"
CYCLE_WITHOUT_HEARTBEAT = "= the same, without heartbeat"
BEAT = "a further heartbeat, each half lease"
PARKED = "a parked half lease: renew the queue row"
JOIN = "join the queue"
PARK = "park: leave the task token, poll"
POLL_PARKED = f"a poll after {budget.PARKS_PER_POLL} parked half leases"
FREED = "release, and wake the next"
WOKEN = "woken: poll, and take the lock"
POLL = "a waiting poll behind 1"
POLL_DEEP = f"a waiting poll behind {DEEP:,}"
POLL_KEEP = "a waiting poll that also renews the queue row"
POLL_GRANTED = "the poll that takes the lock"


_OPERATIONS = ("send_task_success", "send_task_failure", "describe_execution", "stop_execution")


@dataclass(frozen=True)
class Cost:
    """What one step sends to DynamoDB, its units, its calls of Step Functions (they are free), and its transitions."""

    step: str
    requests: int
    write_units: int
    read_units: float
    calls: int
    transitions: float | None = None


class StepFunctions:
    """Step Functions in which every answered callback task exists: an item's size counts, and the emulator's own tokens
    are much shorter than AWS's.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.calls = 0
        self.answer: Mapping[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        # The SDK's own attributes are no calls.
        self.calls += name in _OPERATIONS
        return self._answered if name.startswith("send_task") else getattr(self._client, name)

    def _answered(self, **answer: Any) -> Mapping[str, Any]:
        self.answer = answer
        return {}


class Steps:
    """The workflow's steps in this process, with every request counted."""

    def __init__(self, endpoint: str, way: HandOver) -> None:
        self.wakes = way is HandOver.CALLBACK
        self._way = way
        client = make_client(**client_arguments(endpoint))
        self._bill = Bill(make_client(**client_arguments(endpoint)))
        table_name = create_table(client)
        self._bill.watch(client)
        self.states = boto3.client("stepfunctions", **client_arguments(endpoint))
        self._calls = StepFunctions(self.states)
        step_functions: Any = self._calls
        self._workflow = Workflow(LockTable(table_name, client=client, step_functions=step_functions))
        waits = {"StartAt": "Wait", "States": {"Wait": {"Type": "Wait", "Seconds": 60, "End": True}}}
        self._began = datetime.now(UTC).isoformat()
        self.work_machine = self.states.create_state_machine(
            name=f"work-{way}", definition=json.dumps(waits), roleArn="arn:aws:iam::000000000000:role/work"
        )["stateMachineArn"]

    def take(self, entity: str, execution: str, *, lease_s: int = LEASE_S, nested: bool = False) -> Mapping[str, Any]:
        """One execution takes a ticket. Returns its turn."""
        request = self._request(entity, nested=nested)
        given = {
            "$": request,
            "$$.Execution.Id": f"{EXECUTION}:{execution:-<36}",
            "$$.Execution.StartTime": self._began,
            "$$.Task.Token": "x" * 1_000,
        }
        self._workflow.take_ticket(self._payload("TakeTicket", given, lease_s))
        said = self._calls.answer
        turn: Mapping[str, Any] = json.loads(said["output"] if "output" in said else said["cause"])["lock"]["turn"]
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
        """What the definition passes to a state's function, with the value of each path; the lease is the turn's."""
        lease_s = lease_s or given["$.lock.turn"]["claim"]["leaseMs"] // 1_000
        settings = LockSettings(lease_s=lease_s, poll_s=5, hand_over=self._way)
        targets = [parse_target("target", arn) for arn in (FUNCTION, self.work_machine)]
        states = serialize_definition(settings, targets)["States"]
        for branch in states["Hold"]["Branches"]:
            states |= branch["States"]
        return handed_over(states[state], given.__getitem__)

    def _request(self, entity: str, *, nested: bool) -> Mapping[str, Any]:
        task = {"stateMachineArn": self.work_machine} if nested else {"functionArn": FUNCTION}
        return {"entity": entity, "task": task}


def uncontended(steps: Steps) -> list[Cost]:
    """A lock without other users."""
    turns: list[Mapping[str, Any]] = []
    cycle = [
        steps.counted(ACQUIRE, lambda: turns.append(steps.take("alone", "a"))),
        steps.counted("first heartbeat: leave its task token", lambda: steps.beat(turns[0])),
        steps.counted(RELEASE, lambda: steps.release(turns[0])),
    ]
    lean = steps.counted(CYCLE_WITHOUT_HEARTBEAT, lambda: steps.release(steps.take("lean", "b")))
    return [*cycle, total(CYCLE, cycle), lean]


def contended(steps: Steps, kept: Cost) -> list[Cost]:
    """A queue: the costs of joining, waiting, renewing the row, waking and being granted."""
    held = steps.take("wanted", "holder")
    steps.beat(held)
    turns: list[Mapping[str, Any]] = []
    costs = [steps.counted(JOIN, lambda: turns.append(steps.take("wanted", "waiter")))]
    if steps.wakes:
        costs.append(steps.counted(PARK, lambda: steps.park(turns[0])))
        costs.append(steps.counted(POLL_PARKED, lambda: steps.poll(turns[0])))
    else:
        costs.append(steps.counted(POLL, lambda: steps.poll(turns[0])))
        last = [steps.take("deep", f"waiter-{waiter}") for waiter in range(1 + DEEP)][-1]
        costs.append(steps.counted(POLL_DEEP, lambda: steps.poll(last)))
    freed = FREED if steps.wakes else "release, and check whether to wake"
    costs += [kept, steps.counted(freed, lambda: steps.release(held))]
    granted = WOKEN if steps.wakes else POLL_GRANTED
    return [*costs, steps.counted(granted, lambda: steps.poll(turns[0], granted=True))]


def half_a_lease_later(steps: Steps) -> tuple[Cost, Cost]:
    """A holder renews its lease, and a waiter renews its row."""
    holder, waiter = (steps.take("kept", each, lease_s=SHORT_LEASE_S) for each in ("holder", "waiter"))
    steps.beat(holder)
    if steps.wakes:
        steps.park(waiter)
    # The table's time is real here: after half a lease, a step renews the lease.
    time.sleep(SHORT_LEASE_S / 2)
    beat = steps.counted(BEAT, lambda: steps.beat(holder, 1))
    if steps.wakes:
        return beat, steps.counted(PARKED, lambda: steps.park(waiter, 1))
    return beat, steps.counted(POLL_KEEP, lambda: steps.poll(waiter))


def clean_up(steps: Steps, step: str, stopped: str, *, nested: bool = False) -> Cost:
    """The event of a stopped execution, beside two that wait.

    The task of a stopped holder is a function, which is left to its lease, or an execution.
    """
    entity = step.replace(" ", "-")
    turns = {"holder": steps.take(entity, f"{entity[-8:]}-holder-{nested}", nested=nested)}
    steps.beat(turns["holder"])
    if nested:
        # The nested execution that is the task of the grant.
        steps.states.start_execution(stateMachineArn=steps.work_machine, name=turns["holder"]["workName"])
    for waiter in ("waiter", "other"):
        turns[waiter] = steps.take(entity, f"{entity[-8:]}-{waiter}-{nested}")
        if steps.wakes:
            steps.park(turns[waiter])
    return steps.counted(step, lambda: steps.clean_up(turns[stopped], entity, nested=nested))


def cold(steps: Steps) -> Cost:
    """What the first step of a function's container sends in addition: it asks for the table's time."""
    first = steps.counted("", lambda: steps.take("cold", "a"))
    again = steps.counted("", lambda: steps.take("colder", "a"))
    return Cost("a cold function asks for the time", first.requests - again.requests, 0, first.read_units, 0)


def total(step: str, costs: Sequence[Cost]) -> Cost:
    """Several steps as one."""
    requests, write_units, read_units, calls = (sum(each) for each in list(zip(*map(astuple, costs), strict=True))[1:5])
    return Cost(step, requests, write_units, read_units, calls)


def transitions_by_step(endpoint: str, way: HandOver) -> Mapping[str, float]:
    """State transitions, as AWS bills them: with retries, without those of the task itself."""
    work = Work(seconds=60)
    waiting = "WaitForWakeUp" if way is HandOver.CALLBACK else "CheckPosition"
    with stage(endpoint, {"work": work, "quick": Work()}, hand_over=way) as opened:
        cycle, _ = made(opened, opened.start("alone", function="quick"))
        holder = opened.start("wanted")
        assert work.started.wait(10)
        waiter = opened.start("wanted", function="quick")
        until(lambda: len(opened.engine.invocations_of(waiting)) >= 3, 60, lambda: f"3 times {waiting}")
        until(lambda: len(opened.engine.invocations_of("Heartbeat")) >= 3, 60, lambda: "a further heartbeat")
        work.finish.set()
        _, beats = made(opened, holder)
        waited, again = made(opened, waiter)
        further_beats = len(opened.engine.invocations_of("Heartbeat")) - 3
        times = len(opened.engine.invocations_of(waiting))
    with stage(endpoint, {"quick": Work()}, hand_over=way, heartbeat=False, work_timeout_s=3) as opened:
        lean, _ = made(opened, opened.start("alone", function="quick"))
    by_step = {CYCLE: cycle, CYCLE_WITHOUT_HEARTBEAT: lean, BEAT: beats / further_beats}
    if way is HandOver.CALLBACK:
        # CheckPosition and MyTurn?.
        return {**by_step, PARKED: again / (times - 1), WOKEN: waited - cycle, POLL_PARKED: 2}
    return {**by_step, **dict.fromkeys((POLL, POLL_DEEP, POLL_KEEP, POLL_GRANTED), (waited - cycle) / times)}


def made(opened: Stage, execution: str) -> tuple[int, int]:
    """How many states an execution entered, without those of its task, and how many tries were retries."""
    outcome = opened.machine.wait(execution)
    assert outcome.status == "SUCCEEDED", outcome
    entered = opened.machine.entered(execution)
    retries = billed_transitions(opened.machine.history(execution)) - entered.total()
    return entered.total() - entered["InvokeFunction"], retries


def costs_of(endpoint: str, way: HandOver) -> list[Cost]:
    """All costs of one kind of hand-over."""
    steps = Steps(endpoint, way)
    first = cold(steps)
    beat, kept = half_a_lease_later(steps)
    costs = [
        *(first, *uncontended(steps), beat, *contended(steps, kept)),
        clean_up(steps, "clean-up of a waiter: leave the queue", "waiter"),
        clean_up(steps, "clean-up of a holder: end its heartbeat", "holder"),
        clean_up(steps, "clean-up of a holder of an execution: free", "holder", nested=True),
    ]
    by_step = transitions_by_step(endpoint, way)
    return [replace(cost, transitions=by_step.get(cost.step)) for cost in costs]


def measure(run: Run) -> None:
    """Count everything, and check what an uncontended cycle costs."""
    with engine("ministack") as (_, url):
        for way in (HandOver.CALLBACK,) if run.quick else (HandOver.CALLBACK, HandOver.POLL):
            costs = costs_of(url, way)
            columns = ("step", "requests", "write units", "read units", "Step Functions", "transitions")
            rows = [list(astuple(cost)) for cost in costs]
            # A line between an uncontended cycle with its heartbeats, and a queue.
            rows.insert(1 + [cost.step for cost in costs].index(BEAT), [])
            run.table(f"What a lock costs, hand-over by {way} (counted)", columns, rows)
            by_step = {cost.step: cost for cost in costs}
            cycle, lean = by_step[CYCLE], by_step[CYCLE_WITHOUT_HEARTBEAT]
            for text, counted, most in (
                ("requests", cycle.requests, WRITES_UNCONTENDED),
                ("read units", cycle.read_units, 0),
                ("transitions", cycle.transitions, TRANSITIONS_UNCONTENDED),
                ("transitions without heartbeat", lean.transitions, TRANSITIONS_WITHOUT_HEARTBEAT),
            ):
                run.check(f"{way}: an uncontended cycle is {most} {text}", counted == most)
            if way is HandOver.CALLBACK:
                rows = in_dollars(by_step)
                run.table("Of it, a million in dollars", ("", "transitions", "dollars"), rows)
                said = {name: f"{dollars:,.2f}" for name, dollars in json.loads(ON_PAGES.read_text()).items()}
                run.check("docs/tables/cost.json has these dollars", {row[0]: row[2] for row in rows} == said)
                of_queue = ("waiters", "row_lease, s", "row writes a second", "transitions an hour", "dollars an hour")
                run.table("An hour of waiting for one entity", of_queue, in_one_queue(by_step), texts=0)
    run.print(NOTES)


def parked(by_step: Mapping[str, Cost], row_lease_s: int) -> tuple[float, float, float]:
    """What an hour of waiting costs: renewals of the row, transitions, dollars of a million waiters."""
    renewals = 3_600 / (row_lease_s / 2 + RETRY_AFTER_S)
    transitions, dollars = priced(by_step, [(PARKED, renewals, 1), (POLL_PARKED, renewals / budget.PARKS_PER_POLL, 1)])
    return renewals, transitions, dollars


def in_one_queue(by_step: Mapping[str, Cost]) -> list[list[object]]:
    """What many waiters cost in an hour, in a partition that takes 1,000 writes a second.

    Turns last a lease: who is next in line within half of a row's lease renews its row by the lock's lease.
    """
    rows: list[list[object]] = []
    for waiters in (100, 1_000, 100_000):
        for row_lease_s in (LEASE_S, ROW_LEASE_S):
            near = min(waiters, 1 + row_lease_s // 2 // LEASE_S)
            parts = ((near, parked(by_step, LEASE_S)), (waiters - near, parked(by_step, row_lease_s)))
            writes, transitions, dollars = (sum(many * each[which] for many, each in parts) for which in range(3))
            counted = f"{writes / 3_600:,.1f}", f"{transitions:,.0f}", f"{dollars / 1_000_000:,.2f}"
            rows.append([f"{waiters:,}", row_lease_s, *counted])
    return rows


def priced(by_step: Mapping[str, Cost], parts: Sequence[tuple[str, float, int]]) -> tuple[float, float]:
    """Transitions, and dollars of a million: of steps, each with how often, and with how many calls of functions."""
    each = [(by_step[step], times, calls) for step, times, calls in parts]
    transitions = sum((cost.transitions or 0) * times for cost, times, _ in each)
    return transitions, transitions * OfAMillion.transition + sum(
        times
        * (cost.write_units * OfAMillion.write_unit + cost.read_units * OfAMillion.read_unit + calls * OfAMillion.call)
        for cost, times, calls in each
    )


def in_dollars(by_step: Mapping[str, Cost]) -> list[list[object]]:
    """What a lock and its waiter cost, for an execution's own steps: transitions, requests, calls of functions."""
    half_leases = 3_600 / (LEASE_S / 2 + RETRY_AFTER_S)
    parts: Mapping[str, Sequence[tuple[str, float, int]]] = {
        "a free lock": [(CYCLE, 1, 3)],
        "the same, without heartbeat": [(CYCLE_WITHOUT_HEARTBEAT, 1, 2)],
        "a waiter that is woken, beyond a free lock": [
            *((JOIN, 1, 0), (PARK, 1, 1), (FREED, 1, 0), (WOKEN, 1, 1)),
            *((ACQUIRE, -1, 0), (RELEASE, -1, 0)),
        ],
        "an hour of holding": [(BEAT, half_leases, 1)],
    }
    hours = {
        "an hour of waiting": parked(by_step, LEASE_S)[1:],
        "an hour of waiting, far behind": parked(by_step, ROW_LEASE_S)[1:],
    }
    found = {name: priced(by_step, part) for name, part in parts.items()} | hours
    return [[name, round(transitions, 1), f"{dollars:,.2f}"] for name, (transitions, dollars) in found.items()]


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
    sys.exit(main(measure, __doc__, "one of the two kinds of hand-over"))
