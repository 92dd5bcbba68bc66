"""What a hold costs: operations of the execution, and requests to the table."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from aws_durable_execution_sdk_python import DurableContext
from aws_durable_execution_sdk_python.config import Duration
from kit.places import until

from durable.executions import Executions, one_step, works

Make = Callable[..., Executions]


def ours(world: Executions, arn: str) -> int:
    """The operations that a hold adds to those of its user."""
    return sum(name.startswith("lock ") for name, _ in world.operations(arn))


def test_a_free_lock_costs_two_operations_and_two_writes(executions: Make) -> None:
    world = executions(one_step, lease=60)
    world.locks.table.now()
    world.memory.sent.clear()
    arn = world.start()
    world.result(arn)
    assert ours(world, arn) == 2
    assert [each.operation for each in world.memory.sent] == ["UpdateItem", "UpdateItem"]


def test_a_wait_that_is_woken_once_costs_five_operations(executions: Make) -> None:
    world = executions(one_step, lease=60)
    with world.client() as locks, locks.acquire("order"):
        arn = world.start()
        world.wait_until_parked()
    world.result(arn)
    assert ours(world, arn) == 5


def test_a_day_in_suspension_costs_no_operation_and_six_writes(executions: Make) -> None:
    def handler(world: Executions, event: Any, context: DurableContext) -> None:
        with world.locks.hold(context, "order") as lease:
            lease.step(works(world, event))
            context.wait(Duration.from_days(1))
            lease.step(works(world, event))

    world = executions(handler, skip_time=True, lease=60, resume_margin=timedelta(minutes=15))
    arn = world.start()
    world.result(arn)
    assert ours(world, arn) == 2
    assert sum(each.operation == "UpdateItem" for each in world.memory.sent) <= 6


def test_a_day_of_waiting_costs_at_most_160_operations(executions: Make) -> None:
    world = executions(one_step, skip_time=True, lease=60)
    with world.client() as locks:
        held = locks.acquire("order", lease=timedelta(days=3), heartbeat=False)
        began_ms = world.local.read().wall_ms
        arn = world.start()
        until(lambda: world.local.read().wall_ms - began_ms > 24 * 3_600_000)
        held.release()
    world.result(arn)
    hours = (world.local.read().wall_ms - began_ms) / 3_600_000
    assert hours >= 24
    # Each park waits for a tenth of the wait so far.
    assert ours(world, arn) <= 160 * hours / 24
