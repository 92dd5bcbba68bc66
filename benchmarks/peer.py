"""Side by side with another lock for Step Functions: the construct state-machine-semaphore, as published.

Ten executions on one entity, started 50 ms apart, with 0.3 s of work each: the same function, on the same emulator, a
cloud of its own for each. First rounds are not measured: one execution of the peer, whose only function is the task,
and a few rounds of ours, which start the functions' workers.

The peer's counter is created by hand, since its first use would run without the lock. The emulator does not perform in
one step the task with which the peer counts, so overlaps of the peer's may be the emulator's: only ours are judged.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from installed import installed
from quick import options_of
from rich.console import Console
from rich.table import Table
from rounds import (
    deployed,
    gaps_s,
    history,
    keeps_ticket_order,
    run_round,
    starter,
    succeeded,
    took_s,
    transitions,
    warm_up,
)
from ticketlock_local.checkout import BUILD
from ticketlock_local.cloud.deploy import client_arguments, deploy
from ticketlock_local.demo.checks import overlaps, overtakings
from ticketlock_local.demo.executions import Execution
from ticketlock_local.engines.emulator import Emulator
from ticketlock_local.errors import LocalCloudError

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

EXECUTIONS = 10
EVERY_S = 0.05
WORK_S = 0.3
POLL_S = 1
LOCK = "lock"
FOLDER = BUILD / "peer"
"""Where it is installed: it works with this project's own CDK, and only this benchmark needs it."""

_TIMEOUT_S = 400.0
_APP = Path(__file__).with_name("peer_app.py")
_REQUIREMENTS = Path(__file__).with_name("peer-requirements.txt")
# Inside the Parallel that holds our lock, beside its tasks: ChooseWork.
_UNTOLD_OF_A_HOLD = 1
# Inside the Parallel that takes the peer's lock, after each read of its counter: a Choice, and a Wait or a Pass.
_UNREPORTED_OF_A_POLL = 2


@dataclass(frozen=True, slots=True)
class Side:
    """The figures of one lock.

    Attributes:
        overtakings: how many pairs held the lock in another order than that of their starts.
        by_ticket: whether the order was that of the tickets; None without tickets.
        transitions: of one execution on average, with those of its task.
    """

    name: str
    took_s: float
    largest_gap_s: float
    overtakings: int
    by_ticket: bool | None
    overlaps: int
    transitions: float


def peer(executions: int) -> Side:
    """Measure the peer."""
    with Emulator() as emulator:
        outputs = deploy(emulator, app=_APP)
        counter = {"LockName": {"S": LOCK}, "currentlockcount": {"N": "0"}}
        dynamodb = boto3.client("dynamodb", **client_arguments(emulator.endpoint))
        dynamodb.put_item(TableName=outputs["CounterTableName"], Item=counter)
        client = boto3.client("stepfunctions", **client_arguments(emulator.endpoint))
        machine = outputs["StateMachineArn"]

        def begin(_number: int) -> str:
            # The function requires the lock in its input.
            text = f'{{"entity": "{LOCK}", "seconds": {WORK_S}, "lock": {{"entity": "{LOCK}"}}}}'
            return client.start_execution(stateMachineArn=machine, input=text)["executionArn"]

        succeeded(run_round(client, begin, 1, every_s=EVERY_S, timeout_s=_TIMEOUT_S))
        done = succeeded(run_round(client, begin, executions, every_s=EVERY_S, timeout_s=_TIMEOUT_S))
        polls = [_polls_of_the_peer(history(client, arn)) for arn in done]
        made = _transitions(client, done) + _UNREPORTED_OF_A_POLL * sum(polls)
    runs = done.values()
    by_work = sorted(runs, key=attrgetter("work_started_ms"))
    # It has no tokens: its holds are in the order of their tasks.
    return _side("peer", [replace(run, fencing_token=number + 1) for number, run in enumerate(by_work)], made)


def ours(way: str, executions: int) -> Side:
    """Measure one kind of hand-over of our lock."""
    with deployed(way, poll_s=POLL_S) as (client, outputs):
        warm_up(client, starter(client, outputs, "warm-up", WORK_S), executions, timeout_s=_TIMEOUT_S)
        begin = starter(client, outputs, LOCK, WORK_S)
        done = succeeded(run_round(client, begin, executions, every_s=EVERY_S, timeout_s=_TIMEOUT_S))
        made = _transitions(client, done) + _UNTOLD_OF_A_HOLD * len(done)
    runs = list(done.values())
    return replace(_side(way, runs, made), by_ticket=keeps_ticket_order(runs))


def _transitions(client: "SFNClient", arns: Iterable[str]) -> int:
    return sum(transitions(history(client, arn)) for arn in arns)


def _polls_of_the_peer(events: Sequence[Mapping[str, Any]]) -> int:
    scheduled = [event["taskScheduledEventDetails"] for event in events if event["type"] == "TaskScheduled"]
    return sum("getItem" in details["resource"] for details in scheduled)


def _side(name: str, runs: Sequence[Execution], made: int) -> Side:
    arrived = sorted(runs, key=attrgetter("started_ms"))
    by_arrival = [replace(run, ticket=number + 1) for number, run in enumerate(arrived)]
    return Side(
        name=name,
        took_s=took_s(runs),
        largest_gap_s=max(gaps_s(runs)),
        overtakings=overtakings(by_arrival).total(),
        by_ticket=None,
        overlaps=len(overlaps(runs)),
        transitions=made / len(runs),
    )


def main() -> int:
    """Measure and print; 1 if the peer cannot be installed, or ours breaks a promise."""
    executions = 3 if options_of(__doc__, "three executions").parse_args().quick else EXECUTIONS
    try:
        installed(FOLDER.name, _REQUIREMENTS)
        sides = [peer(executions), *(ours(way, executions) for way in ("callback", "poll"))]
    except LocalCloudError as error:
        print(error, file=sys.stderr)
        return 1
    console = Console(width=110)
    work = f"{executions} executions on one entity, started {EVERY_S * 1_000:.0f} ms apart, {WORK_S} s of work each"
    console.print(f"{_REQUIREMENTS.read_text().split()[-1]} and ticketlock on the emulator: {work}", highlight=False)
    console.print(_table(*sides))
    return 0 if all(side.by_ticket and not side.overlaps for side in sides[1:]) else 1


def _table(theirs: Side, *own: Side) -> Table:
    table = Table()
    table.add_column("figure")
    for name in (theirs.name, *(side.name for side in own), *(f"peer / {side.name}" for side in own)):
        table.add_column(name, justify="right")

    def row(name: str, figure: Callable[[Side], float], form: str) -> None:
        values = [figure(side) for side in (theirs, *own)]
        ratios = [f"{values[0] / value:.1f}" if value > 0 else "-" for value in values[1:]]
        table.add_row(name, *(form.format(value) for value in values), *ratios)

    def words(name: str, figure: Callable[[Side], str]) -> None:
        table.add_row(name, *(figure(side) for side in (theirs, *own)), *("" for _ in own))

    row("first start to last task's end", attrgetter("took_s"), "{:.1f} s")
    row("largest gap between two tasks", attrgetter("largest_gap_s"), "{:.2f} s")
    row("transitions an execution, with retries", attrgetter("transitions"), "{:.1f}")
    words("pairs not in the order of their starts", lambda side: f"{side.overtakings}")
    words("in the order of their tickets", lambda side: {None: "-", True: "yes", False: "NO"}[side.by_ticket])
    words("overlaps", lambda side: f"{side.overlaps}")
    return table


if __name__ == "__main__":
    sys.exit(main())
