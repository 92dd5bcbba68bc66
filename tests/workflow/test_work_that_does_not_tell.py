"""A nested execution whose failure does not say whether it has ended: it is described before the lock is freed."""

from typing import Any

import pytest
from kit.events import execution_arn, turn_of
from kit.step_functions import TaskService
from kit.world import Process

from ticketlock import LockName
from ticketlock.workflow import Workflow

CHILD = "arn:aws:states:us-east-1:123456789012:stateMachine:child"
UNTOLD = [
    {"Error": "States.TaskFailed", "Cause": '{"ExecutionArn": "arn:aws:sta'},
    {"Error": "StepFunctions.AWSStepFunctionsException", "Cause": "Rate exceeded"},
    {"Error": "StepFunctions.ExecutionLimitExceeded", "Cause": "Rate exceeded"},
]


@pytest.mark.parametrize("failure", UNTOLD, ids=lambda failure: failure["Error"])
@pytest.mark.parametrize(
    ("status", "closes", "left"),
    [
        ("FAILED", True, 0),
        # Its start may have been refused at a second try, after the answer to the first was lost.
        ("RUNNING", True, 0),
        ("RUNNING", False, 1),
    ],
    ids=["closed", "running", "does not close"],
)
def test_the_execution_is_closed_before_the_lock_is_freed_or_the_lock_is_left_to_its_lease(
    workflow: Workflow,
    alice: Process,
    service: TaskService,
    lock: LockName,
    failure: dict[str, str],
    status: str,
    closes: bool,
    left: int,
) -> None:
    turn, work = held(workflow, lock)
    service.described[work] = {"status": status}
    if not closes:
        service.never_close.add(work)
    assert released(workflow, turn, failure) == ({"AbandonedHolds": 1} if left else {})
    assert set(service.closings) == ({work} if status == "RUNNING" else set())
    assert holders(alice, lock) == left


@pytest.mark.parametrize(
    ("error", "left"),
    [
        ("StepFunctions.ExecutionLimitExceeded", 0),
        ("StepFunctions.ExecutionLimitExceededException", 0),
        ("StepFunctions.StateMachineDoesNotExistException", 0),
        ("StepFunctions.AWSStepFunctionsException", 1),
        ("States.TaskFailed", 1),
    ],
)
def test_an_unknown_execution_never_began_only_if_its_start_was_refused(
    workflow: Workflow, alice: Process, lock: LockName, error: str, left: int
) -> None:
    turn, _ = held(workflow, lock)
    released(workflow, turn, {"Error": error, "Cause": "Rate exceeded"})
    assert holders(alice, lock) == left


def held(workflow: Workflow, lock: LockName) -> tuple[dict[str, Any], str]:
    asked = {"entity": lock.entity, "namespace": lock.namespace, "task": {"stateMachineArn": CHILD}}
    turn = turn_of(workflow, execution_arn(), asked, targets=[CHILD])
    assert turn["status"] == "granted"
    return turn, f"{CHILD.replace('stateMachine', 'execution')}:{turn['workName']}"


def released(workflow: Workflow, turn: dict[str, Any], failure: dict[str, str]) -> dict[str, float]:
    step = workflow.release({"turn": turn, "kind": "execution", "work": CHILD, "failure": failure})
    return {name: value for name, value in step.metrics.items() if name == "AbandonedHolds"}


def holders(process: Process, lock: LockName) -> int:
    item = process.table.inspect(lock).item
    return len(item.holders) if item is not None else 0
