"""Golden histories: what an execution has recorded is replayed by every later version, from each prefix of it on.

``python -m durable.test_histories`` (with ``tests`` on the path) records the histories that are missing.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from aws_durable_execution_sdk_python import DurableContext, durable_execution
from aws_durable_execution_sdk_python.config import Duration
from aws_durable_execution_sdk_python.execution import (
    DurableExecutionInvocationInput,
    DurableExecutionInvocationInputWithClient,
)
from aws_durable_execution_sdk_python.lambda_service import CheckpointOutput, CheckpointUpdatedExecutionState
from aws_durable_execution_sdk_python_testing.invoker import create_test_lambda_context
from kit.places import until

from durable.executions import Executions, works
from ticketlock import LockLost, LockName, RecordWaitExceeded

Make = Callable[..., Executions]
FOLDER = Path(__file__).with_name("histories")


def free(world: Executions, event: Any, context: DurableContext) -> str:
    with world.locks.hold(context, "order") as lease:
        lease.step(works(world, event))
        context.wait(Duration.from_seconds(1))
        lease.check()
    return "over"


def refused(world: Executions, _event: Any, context: DurableContext) -> str:
    try:
        with world.locks.hold(context, "order", record_wait=1):
            return "held"
    except RecordWaitExceeded:
        return "refused"


def lost(world: Executions, _event: Any, context: DurableContext) -> str:
    try:
        with world.locks.hold(context, "order") as lease:
            context.create_callback("answer").result()
            lease.check()
    except LockLost:
        return "lost"
    return "held"


def in_a_branch(world: Executions, event: Any, context: DurableContext) -> str:
    def branch(inner: DurableContext) -> None:
        with world.locks.hold(inner, "order") as lease:
            lease.step(works(world, event))

    context.parallel([branch])
    with world.locks.hold(context, "order") as outer, world.locks.hold(context, "another"):
        outer.step(works(world, event))
    return "over"


def a_free_lock(world: Executions) -> str:
    return world.start("first")


def a_wait(world: Executions) -> str:
    with world.client() as locks, locks.acquire("order"):
        arn = world.start("second")
        world.wait_until_parked()
    return arn


def a_refusal(world: Executions) -> str:
    with world.client() as locks, locks.acquire("order"):
        arn = world.start("second")
        until(lambda: world.runner._store.load(arn).is_complete)
    return arn


def a_loss(world: Executions) -> str:
    arn = world.start("first")
    held = world.wait_until_suspended()
    world.locks.table.force_release(LockName("order"), held.fencing_token)
    world.runner.send_callback_success(world.runner.wait_for_callback(arn), b'"yes"')
    return arn


PATHS: Mapping[str, tuple[Any, Callable[[Executions], str]]] = {
    "a free lock": (free, a_free_lock),
    "a wait": (free, a_wait),
    "a refusal": (refused, a_refusal),
    "a loss": (lost, a_loss),
    "a branch, and one in another": (in_a_branch, a_free_lock),
}


class Recorded:
    """A service that takes each checkpoint, and ends the invocation with it, as a paused one does."""

    def checkpoint(self, *_: Any, **__: Any) -> CheckpointOutput:
        return CheckpointOutput(None, CheckpointUpdatedExecutionState())


@pytest.mark.parametrize("path", PATHS)
def test_every_prefix_of_a_recorded_history_is_replayed(executions: Make, path: str) -> None:
    handler, _ = PATHS[path]
    history = json.loads((FOLDER / f"{path}.json").read_text())
    for length in range(1, len(history) + 1):
        told = replayed(executions(handler), handler, history[:length])
        assert "NonDeterministic" not in json.dumps(told), (path, length, told)
        assert told["Status"] == ("SUCCEEDED" if length == len(history) else "PENDING"), (path, length, told)


def test_a_changed_order_of_operations_is_found(executions: Make) -> None:
    history = json.loads((FOLDER / "a free lock.json").read_text())

    def changed(world: Executions, _event: Any, context: DurableContext) -> str:
        with world.locks.hold(context, "order"):
            context.wait(Duration.from_seconds(1))
        return "over"

    told = replayed(executions(changed), changed, history)
    assert told["Status"] == "FAILED"
    assert "NonDeterministic" in told["Error"]["ErrorType"]


@pytest.mark.parametrize("path", PATHS)
def test_an_execution_records_what_the_golden_history_has(executions: Make, path: str) -> None:
    handler, begin = PATHS[path]
    world = executions(handler)
    arn = begin(world)
    world.result(arn)
    golden = json.loads((FOLDER / f"{path}.json").read_text())
    # How often a waiter looks depends on how fast the machine is.
    assert _shape(_history(world, arn)) == _shape(golden)


def replayed(world: Executions, handler: Any, history: list[Any]) -> Mapping[str, Any]:
    """What an invocation tells that begins with this history."""
    given = {
        "DurableExecutionArn": "11111111-2222-3333-4444-555555555555/inv-1",
        "CheckpointToken": "a token",
        "InitialExecutionState": {"Operations": history, "NextMarker": ""},
    }
    recorded: Any = Recorded()
    asked = DurableExecutionInvocationInputWithClient.from_durable_execution_invocation_input(
        DurableExecutionInvocationInput.from_json_dict(given),
        recorded,
    )
    entry = durable_execution(lambda event, context: handler(world, event, context))
    told: Mapping[str, Any] = entry(asked, create_test_lambda_context())
    return told


def _shape(history: list[Any]) -> set[tuple[str, ...]]:
    return {tuple(str(each.get(field)) for field in ("Type", "SubType", "Name", "Status")) for each in history}


def _history(world: Executions, arn: str) -> list[Any]:
    found: list[Any] = [each.to_json_dict() for each in world.runner._store.load(arn).operations]
    return found


def record() -> None:
    """Record the histories that are missing."""
    FOLDER.mkdir(exist_ok=True)
    for path, (handler, begin) in PATHS.items():
        file = FOLDER / f"{path}.json"
        if not file.exists():
            world = Executions(handler)
            arn = begin(world)
            world.result(arn)
            file.write_text(json.dumps(_history(world, arn), indent=1) + "\n")
            world.close()


if __name__ == "__main__":
    record()
