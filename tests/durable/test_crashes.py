"""An invocation dies at any checkpoint of the holder or of the waiter, before or after the checkpoint is applied."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aws_durable_execution_sdk_python import DurableContext
from aws_durable_execution_sdk_python.config import Duration
from aws_durable_execution_sdk_python.exceptions import CheckpointError
from kit.places import until

from durable.executions import Executions, works

Make = Callable[..., Executions]
EVERY = pytest.mark.verify("a world for each checkpoint; make test fails some of them")


class Dies:
    """The service client of a runner, whose n-th checkpoint fails: the invocation that has sent it is torn down."""

    def __init__(self, client: Any, number: int, *, is_applied: bool) -> None:
        self._checkpoint = client.checkpoint
        self._number, self._is_applied = number, is_applied
        self.sent = 0
        client.checkpoint = self

    def __call__(self, *args: Any, **more: Any) -> Any:
        self.sent += 1
        if self.sent != self._number:
            return self._checkpoint(*args, **more)
        if self._is_applied:
            self._checkpoint(*args, **more)
        raise CheckpointError("the connection is gone")


def two_steps(world: Executions, event: Any, context: DurableContext) -> list[int]:
    with world.locks.hold(context, "order") as lease:
        first = lease.step(works(world, event))
        context.wait(Duration.from_seconds(1))
        return [first, lease.step(works(world, event))]


def points(step: int) -> Iterator[int]:
    yield from range(1, 14, step)


@pytest.mark.parametrize("is_applied", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", [pytest.param(each, marks=[] if each % 6 == 3 else EVERY) for each in points(1)])
def test_two_executions_finish_one_at_a_time_whichever_checkpoint_fails(
    executions: Make, number: int, is_applied: bool
) -> None:
    world = executions(two_steps, lease=8)
    dies = Dies(world.runner._service_client, number, is_applied=is_applied)
    first = world.start("first")
    until(lambda: world.order)
    second = world.start("second")
    for arn in (first, second):
        before, after = world.result(arn)
        assert before == after
    assert dies.sent >= number
    assert world.most == 1
    # Only a body whose result was not recorded runs again.
    assert 4 <= len(world.order) <= 5
    assert world.order == sorted(world.order)
    assert (world.holder(), world.rows()) == (None, ())
