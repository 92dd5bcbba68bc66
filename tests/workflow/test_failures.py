"""What a failed task says about the work; the errors are those of AWS's documentation."""

import json
from typing import Any

import pytest
from kit.events import execution_arn, turn_of
from kit.step_functions import TaskService
from kit.world import Process

from ticketlock import LockName
from ticketlock.workflow import Workflow
from ticketlock.workflow._failures import WorkFailure, WorkKind

pytestmark = pytest.mark.shows("early release", "one run per grant", "names of errors")

CHILD = {
    "ExecutionArn": "arn:aws:states:us-east-1:123456789012:execution:child:lock-1",
    "Input": "{}",
    "Name": "lock-1",
    "StartDate": 1_700_000_000_000,
    "StateMachineArn": "arn:aws:states:us-east-1:123456789012:stateMachine:child",
    "StopDate": 1_700_000_001_000,
}


def nested(**more: str) -> WorkFailure:
    return WorkFailure("States.TaskFailed", json.dumps(CHILD | more), "execution")


def function_failed(error: str) -> WorkFailure:
    return WorkFailure(error, json.dumps({"errorType": error, "errorMessage": "no tea", "stackTrace": []}), "function")


def failures(*each: WorkFailure) -> pytest.MarkDecorator:
    """Parametrise a test over all of them, with distinct ids."""
    return pytest.mark.parametrize("failure", each, ids=lambda one: f"{one.kind} {one.error} {one.cause[:8]}")


@pytest.mark.parametrize("cause", ["no tea", ""])
def test_a_nested_executions_failure_is_reported_as_its_own(cause: str) -> None:
    failure = nested(Status="FAILED", Error="StockMissing", **({"Cause": cause} if cause else {}))
    assert failure.to_report() == WorkFailure("StockMissing", cause, "execution")


def test_a_nested_execution_without_an_error_of_its_own_keeps_the_description() -> None:
    failure = nested(Status="ABORTED")
    assert failure.to_report() == WorkFailure("Work.TaskFailed", failure.cause, "execution")


def test_a_nested_executions_description_that_did_not_arrive_whole_is_kept_as_it_is() -> None:
    failure = WorkFailure("States.TaskFailed", nested(Status="FAILED", Error="StockMissing").cause[:100], "execution")
    assert not failure.work_has_ended()
    assert failure.to_report() == WorkFailure("Work.TaskFailed", failure.cause, "execution")


def test_a_reserved_name_is_replaced() -> None:
    assert WorkFailure("States.Timeout", "", "function").to_report() == WorkFailure("Work.Timeout", "", "function")


def test_a_failure_without_a_name_gets_one_and_has_ended() -> None:
    failure = WorkFailure.parse({"Error": None, "Cause": None}, "chain")
    assert failure.to_report() == WorkFailure("Work.TaskFailed", "", "chain")
    assert failure.work_has_ended()


@failures(
    *(nested(Status=status) for status in ("FAILED", "TIMED_OUT", "ABORTED")),
    function_failed("StockMissing"),
    function_failed("Runtime.ExitError"),
    WorkFailure("Lambda.Unknown", "Lambda did not return an error type.", "function"),
    WorkFailure("Lambda.TooManyRequestsException", "Rate exceeded", "function"),
    WorkFailure("Lambda.ResourceNotReadyException", "The function is inactive", "function"),
    WorkFailure("Lambda.CodeArtifactUserPendingException", "The function is inactive", "function"),
    WorkFailure("Lambda.SnapStartNotReadyException", "Lambda is initializing your function", "function"),
    WorkFailure("States.DataLimitExceeded", "the result is too large", "execution"),
    WorkFailure("StockMissing", "no tea", "chain"),
    WorkFailure("DynamoDB.ConditionalCheckFailedException", "The conditional request failed", "chain"),
    WorkFailure("Lambda.TooManyRequestsException", "Rate exceeded", "chain"),
    WorkFailure("States.DataLimitExceeded", "the result is too large", "chain"),
    WorkFailure("States.QueryEvaluationError", "the expression returned nothing (undefined)", "chain"),
    WorkFailure("Runtime.ExitError", json.dumps({"errorType": "Runtime.ExitError"}), "chain"),
    WorkFailure("States.TaskFailed", json.dumps(CHILD | {"Status": "FAILED"}), "chain"),
)
def test_work_that_was_closed_failed_with_its_own_error_or_never_began_has_ended(failure: WorkFailure) -> None:
    assert failure.work_has_ended()


@failures(
    WorkFailure("States.Timeout", "", "function"),
    WorkFailure("States.Timeout", "", "execution"),
    WorkFailure("Lambda.SdkClientException", "Read timed out", "function"),
    WorkFailure("Lambda.ServiceException", "", "function"),
    WorkFailure("Lambda.SnapStartTimeoutException", "Lambda could not restore the snapshot in time", "function"),
    WorkFailure("Lambda.ServiceException", "not JSON", "function"),
    WorkFailure("States.TaskFailed", "[1]", "function"),
    WorkFailure("StepFunctions.ExecutionAlreadyExistsException", "", "execution"),
    WorkFailure("StepFunctions.ExecutionLimitExceeded", "Rate exceeded", "execution"),
    WorkFailure("StepFunctions.ExecutionLimitExceededException", "Rate exceeded", "execution"),
    WorkFailure("StepFunctions.AWSStepFunctionsException", "Rate exceeded", "execution"),
    WorkFailure("States.TaskFailed", "", "execution"),
    WorkFailure("States.TaskFailed", '{"Status": "RUNNING"}', "execution"),
    WorkFailure("States.Timeout", "", "chain"),
    WorkFailure("States.HeartbeatTimeout", "", "chain"),
    WorkFailure("States.TaskFailed", "Activity worker failed", "chain"),
    WorkFailure("Lambda.SdkClientException", "Read timed out", "chain"),
    WorkFailure("ECS.SdkClientException", "Read timed out", "chain"),
    WorkFailure("StepFunctions.AWSStepFunctionsException", "Rate exceeded", "chain"),
    WorkFailure("Lambda.ServiceException", "", "chain"),
)
def test_work_that_may_still_be_running_has_not_certainly_ended(failure: WorkFailure) -> None:
    assert not failure.work_has_ended()


@pytest.mark.parametrize(
    "error", ["StockMissing", "States.DataLimitExceeded", "Lambda.TooManyRequestsException", "States.TaskFailed"]
)
def test_concurrent_states_have_never_certainly_ended(error: str) -> None:
    failure = WorkFailure(error, json.dumps({"errorType": error, "Status": "FAILED"}), "concurrent")
    assert not failure.work_has_ended()


@pytest.mark.parametrize("kind", ["chain", "concurrent"])
def test_a_chain_reports_the_error_of_the_nested_execution_that_failed_it(kind: WorkKind) -> None:
    failure = WorkFailure("States.TaskFailed", json.dumps(CHILD | {"Status": "FAILED", "Error": "StockMissing"}), kind)
    assert failure.to_report() == WorkFailure("StockMissing", "", kind)


@failures(
    function_failed("StockMissing"),
    WorkFailure("OutOfPaint", "no more red", "chain"),
    WorkFailure("OutOfPaint", "no more red", "concurrent"),
)
def test_the_works_own_failure_keeps_its_name_and_its_cause(failure: WorkFailure) -> None:
    assert failure.to_report() == failure


# A nested execution whose failure does not say whether it has ended is described before the lock is freed.

MACHINE = "arn:aws:states:us-east-1:123456789012:stateMachine:child"
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
        ("StepFunctions.KmsThrottlingException", 0),
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
    asked = {"entity": lock.entity, "namespace": lock.namespace, "task": {"stateMachineArn": MACHINE}}
    turn = turn_of(workflow, execution_arn(), asked, targets=[MACHINE])
    assert turn["status"] == "granted"
    return turn, f"{MACHINE.replace('stateMachine', 'execution')}:{turn['workName']}"


def released(workflow: Workflow, turn: dict[str, Any], failure: dict[str, str]) -> dict[str, float]:
    step = workflow.release({"turn": turn, "kind": "execution", "work": MACHINE, "failure": failure})
    return {name: value for name, value in step.metrics.items() if name == "AbandonedHolds"}


def holders(process: Process, lock: LockName) -> int:
    item = process.table.inspect(lock).item
    return len(item.holders) if item is not None else 0
