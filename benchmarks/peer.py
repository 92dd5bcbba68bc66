"""Side by side with another lock for Step Functions: the construct state-machine-semaphore, as published.

Ten executions on one entity, started 50 ms apart, with 0.3 s of work each: the same function, on the same emulator, a
cloud of its own for each. First rounds are not measured: one execution of the peer, whose only function is the task,
and a few rounds of ours, which start the functions' workers.

The peer's counter is created by hand, since its first use would run without the lock. The emulator does not perform in
one step the task with which the peer counts, so overlaps of the peer's may be the emulator's: only ours are judged.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import boto3
from executions import deployed, gaps_s, keeps_order, succeeded, took_s
from frame import Run, main
from peers.building import BENCHMARKS, installed
from ticketlock_local.checkout import BUILD
from ticketlock_local.cloud.deploy import client_arguments
from ticketlock_local.demo.checks import overlaps, overtakings
from ticketlock_local.demo.executions import Execution

EXECUTIONS = 10
EVERY_S = 0.05
WORK_S = 0.3
LOCK = "lock"
FOLDER = BUILD / "peer"
"""Where it is installed: it works with this project's own CDK, and only this benchmark needs it."""

_TIMEOUT_S = 400.0
_APP = BENCHMARKS / "peers" / "semaphore_app.py"
_REQUIREMENTS = BENCHMARKS / "peer-requirements.txt"
# Inside the Parallel that takes the peer's lock, after each read of its counter: a Choice, and a Wait or a Pass.
_UNREPORTED_OF_A_POLL = 2


@dataclass(frozen=True, slots=True)
class Side:
    """One lock: its executions, with tickets in the order of their starts; whether the order was that of its own
    tickets, or None without tickets; and the transitions of all executions, with those of their tasks.
    """

    runs: Sequence[Execution]
    in_order: bool | None
    transitions: int


def peer(executions: int) -> Side:
    """Measure the peer."""
    with deployed(app=_APP) as cloud:
        counter = {"LockName": {"S": LOCK}, "currentlockcount": {"N": "0"}}
        dynamodb = boto3.client("dynamodb", **client_arguments(cloud.emulator.endpoint))
        dynamodb.put_item(TableName=cloud.outputs["CounterTableName"], Item=counter)
        machine = cloud.outputs["StateMachineArn"]

        def begin(_number: int) -> str:
            # The function requires the lock in its input.
            text = f'{{"entity": "{LOCK}", "seconds": {WORK_S}, "lock": {{"entity": "{LOCK}"}}}}'
            return cloud.client.start_execution(stateMachineArn=machine, input=text)["executionArn"]

        succeeded(cloud.run_all(begin, 1, every_s=EVERY_S, timeout_s=_TIMEOUT_S))
        done = succeeded(cloud.run_all(begin, executions, every_s=EVERY_S, timeout_s=_TIMEOUT_S))
        polls = [_polls_of_the_peer(cloud.history(arn)) for arn in done]
        made = cloud.transitions_of(done) + _UNREPORTED_OF_A_POLL * sum(polls)
    by_work = sorted(done.values(), key=attrgetter("work_started_ms"))
    # It has no tokens: its holds are in the order of their tasks.
    return Side(_by_arrival(replace(run, fencing_token=1 + number) for number, run in enumerate(by_work)), None, made)


def ours(way: str, executions: int) -> Side:
    """Measure one kind of hand-over of our lock."""
    with deployed(way) as cloud:
        cloud.warm_up(cloud.starter("warm-up", WORK_S), executions, timeout_s=_TIMEOUT_S)
        begin = cloud.starter(LOCK, WORK_S)
        done = succeeded(cloud.run_all(begin, executions, every_s=EVERY_S, timeout_s=_TIMEOUT_S))
        made = cloud.transitions_of(done)
    return Side(_by_arrival(done.values()), keeps_order([*done.values()]), made)


def _polls_of_the_peer(events: Sequence[Mapping[str, Any]]) -> int:
    scheduled = [event["taskScheduledEventDetails"] for event in events if event["type"] == "TaskScheduled"]
    return sum("getItem" in details["resource"] for details in scheduled)


def _by_arrival(runs: Iterable[Execution]) -> list[Execution]:
    arrived = sorted(runs, key=attrgetter("started_ms"))
    return [replace(run, ticket=number + 1) for number, run in enumerate(arrived)]


def measure(run: Run) -> None:
    """The peer, and both kinds of our hand-over."""
    executions = 3 if run.quick else EXECUTIONS
    installed(FOLDER.name, _REQUIREMENTS)
    sides = {"peer": peer(executions), **{way: ours(way, executions) for way in ("callback", "poll")}}
    name = _REQUIREMENTS.read_text().split()[-1]
    work = f"{executions} executions on one entity, started {EVERY_S * 1_000:.0f} ms apart, {WORK_S} s of work each"
    run.print(f"{name} and ticketlock on the emulator: {work}")
    rows: list[list[object]] = []
    for figure, form, values in (
        ("first start to last task's end", "{:.1f} s", [took_s(side.runs) for side in sides.values()]),
        ("largest gap between two tasks", "{:.2f} s", [max(gaps_s(side.runs)) for side in sides.values()]),
        (
            "transitions an execution, with retries",
            "{:.1f}",
            [side.transitions / len(side.runs) for side in sides.values()],
        ),
    ):
        ratios = [f"{values[0] / value:.1f}" if value > 0 else "-" for value in values[1:]]
        rows.append([figure, *map(form.format, values), *ratios])
    order = {None: "-", True: "yes", False: "NO"}
    rows += [
        ["pairs not in the order of their starts", *(overtakings(side.runs).total() for side in sides.values())],
        ["in the order of their tickets", *(order[side.in_order] for side in sides.values())],
        ["overlaps", *(len(overlaps(side.runs)) for side in sides.values())],
    ]
    run.table("", ["figure", *sides, "peer / callback", "peer / poll"], rows)
    for way in ("callback", "poll"):
        run.check(f"{way}: the order is that of the tickets", bool(sides[way].in_order))
        run.check(f"{way}: no two tasks overlap", not overlaps(sides[way].runs))


if __name__ == "__main__":
    sys.exit(main(measure, __doc__, "three executions"))
