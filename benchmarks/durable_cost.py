"""What a hold in a durable execution costs, counted on AWS's local runner, beside the state machine's; its wake-up.

    make bench, or: PYTHONPATH=tests:functions python benchmarks/durable_cost.py

Counted are ticketlock's own operations, its requests to the table, and the invocations that it adds.
"""

import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

from aws_durable_execution_sdk_python import DurableContext
from aws_durable_execution_sdk_python.config import Duration
from durable.executions import Executions, one_step, works
from frame import Run, main
from kit.places import until
from kit.prices import OfAMillion

ON_PAGES = Path(__file__).parents[1] / "docs/tables/durable_cost.json"
OF_WORKFLOWS = Path(__file__).parents[1] / "docs/tables/cost.json"
A_DAY_S = 24 * 3_600
_WRITES = {"UpdateItem": 1, "PutItem": 1, "DeleteItem": 1}
# Of a transaction, each item twice: https://aws.amazon.com/dynamodb/pricing/on-demand/
_OF_A_TRANSACTION = 2
_WAKE_UPS = 20


@dataclass(frozen=True)
class Cost:
    """Operations, write and read units of items below 1 KB, and invocations beyond the first."""

    operations: int
    writes: int
    reads: int
    invocations: int

    @property
    def dollars(self) -> float:
        """Of a million."""
        return (
            self.operations * OfAMillion.durable_operation
            + self.writes * OfAMillion.write_unit
            + self.reads * OfAMillion.read_unit
            + self.invocations * OfAMillion.call
        )


def counted(world: Executions, arn: str) -> Cost:
    """What an execution has cost since the world's requests were forgotten."""
    sent = [each.operation for each in world.memory.sent]
    in_transactions = sum(
        len(each.parameters["TransactItems"]) for each in world.memory.sent if each.operation == "TransactWriteItems"
    )
    return Cost(
        operations=sum(name.startswith("lock ") for name, _ in world.operations(arn)),
        writes=sum(_WRITES.get(each, 0) for each in sent) + _OF_A_TRANSACTION * in_transactions,
        reads=sum(each in ("Query", "GetItem") for each in sent),
        # Each awaited callback ends one; the runner, which skips waits, may go on in the same.
        invocations=sum(": turn" in name for name, _ in world.operations(arn)),
    )


def _made(handler: Callable[..., Any], **more: Any) -> Executions:
    world = Executions(handler, lease=60, resume_margin=timedelta(minutes=15), **more)
    # A new process asks for the table's time once.
    world.locks.table.now()
    world.memory.sent.clear()
    return world


def free() -> Cost:
    """No one else wants it."""
    world = _made(_holds)
    arn = world.start()
    world.result(arn)
    return counted(world, arn)


def free_with_a_step() -> Cost:
    """The same, and a body runs."""
    world = _made(one_step)
    arn = world.start()
    world.result(arn)
    return counted(world, arn)


def woken() -> Cost:
    """Another execution holds it, and its release wakes this one."""
    world = _made(_waits_for_an_answer)
    first = world.start("first")
    world.wait_until_suspended()
    world.memory.sent.clear()
    second = world.start("second")
    # What looks into the table would be counted.
    until(lambda: ("lock order: park 1", "SUCCEEDED") in world.operations(second))
    world.runner.send_callback_success(world.runner.wait_for_callback(first, name="answer"), b'"go on"')
    for arn in (first, second):
        world.result(arn)
    return counted(world, second)


def a_day_of_waiting() -> Cost:
    """Another holds it, whose lease ends after a day; its own looks, no wake-up."""
    world = _made(_holds, skip_time=True)
    with world.client() as locks:
        locks.acquire("order", lease=timedelta(days=1), heartbeat=False)
        world.memory.sent.clear()
        arn = world.start()
        world.result(arn)
    return counted(world, arn)


def a_day_of_holding() -> Cost:
    """It is suspended with the lock for a day."""
    world = _made(_sleeps, skip_time=True)
    arn = world.start()
    world.result(arn)
    return counted(world, arn)


def wake_ups_ms() -> list[float]:
    """From a client's release until the body of an execution runs that has waited, each."""
    taken = []
    for _ in range(_WAKE_UPS):
        world = _made(_tells_when)
        with world.client() as locks:
            held = locks.acquire("order")
            arn = world.start()
            world.wait_until_parked()
            began_s = time.perf_counter()
            held.release()
        world.result(arn)
        taken.append((world.order[0] - began_s) * 1_000)
        world.close()
    return taken


def _tells_when(world: Executions, _event: Any, context: DurableContext) -> None:
    with world.locks.hold(context, "order") as lease:
        lease.step(lambda _: world.order.append(time.perf_counter()))


def _holds(world: Executions, _event: Any, context: DurableContext) -> None:
    with world.locks.hold(context, "order"):
        pass


def _waits_for_an_answer(world: Executions, event: Any, context: DurableContext) -> None:
    with world.locks.hold(context, "order"):
        if event == "first":
            context.create_callback("answer").result()


def _sleeps(world: Executions, event: Any, context: DurableContext) -> None:
    with world.locks.hold(context, "order") as lease:
        lease.step(works(world, event))
        context.wait(Duration.from_seconds(A_DAY_S))
        lease.step(works(world, event))


CASES: Mapping[str, Callable[[], Cost]] = {
    "a free lock": free,
    "a free lock, and a step under it": free_with_a_step,
    "a wait, woken once": woken,
    "a wait of a day": a_day_of_waiting,
    "a hold of a day, suspended": a_day_of_holding,
}


def measure(run: Run) -> None:
    """Count each case, and compare with the figures of the pages."""
    # The runner warns of each time-out, and a day of waiting has some 70.
    logging.getLogger("aws_durable_execution_sdk_python_testing").setLevel(logging.ERROR)
    found = {name: case() for name, case in CASES.items()}
    columns = ("", "operations", "write units", "read units", "invocations", "a million, dollars")
    rows = [
        [
            name,
            *astuple(each),
            f"{each.dollars:,.2f}",
        ]
        for name, each in found.items()
    ]
    run.table("What a hold in a durable execution costs (counted)", columns, rows)
    of_workflows = json.loads(OF_WORKFLOWS.read_text())
    run.print(f"The state machine's execution, beside it: {of_workflows['a free lock']:,.2f} dollars a million.")
    taken_ms = wake_ups_ms()
    run.print(
        f"From a client's release until the body of a woken execution runs, {_WAKE_UPS} times: "
        f"{median(taken_ms):.0f} ms, at most {max(taken_ms):.0f} ms."
    )
    said = json.loads(ON_PAGES.read_text())
    for name, each in found.items():
        # In a day of looks, one may read or write once more.
        room = 0.01 * each.dollars if each.operations > 100 else 0.005
        run.check(f"docs/tables/durable_cost.json has {name}", abs(each.dollars - said[name]["dollars"]) <= room)
    run.check("a day of waiting is at most 160 operations", found["a wait of a day"].operations <= 160)


if __name__ == "__main__":
    sys.exit(main(measure, __doc__, "nothing: it takes seconds"))
