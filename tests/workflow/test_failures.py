"""What a failed task says about the work; the errors are those of AWS's documentation."""

import json

import pytest

from ticketlock.workflow._failures import Failure, Kind

pytestmark = pytest.mark.shows("early release", "one run per grant", "names of errors")

CHILD = {
    "ExecutionArn": "arn:aws:states:us-east-1:123456789012:execution:child:lock-1",
    "Input": "{}",
    "Name": "lock-1",
    "StartDate": 1_700_000_000_000,
    "StateMachineArn": "arn:aws:states:us-east-1:123456789012:stateMachine:child",
    "StopDate": 1_700_000_001_000,
}


def nested(**more: str) -> Failure:
    return Failure("States.TaskFailed", json.dumps(CHILD | more), "execution")


def function_failed(error: str) -> Failure:
    return Failure(error, json.dumps({"errorType": error, "errorMessage": "no tea", "stackTrace": []}), "function")


def failures(*each: Failure) -> pytest.MarkDecorator:
    """Parametrise a test over all of them, with distinct ids."""
    return pytest.mark.parametrize("failure", each, ids=lambda one: f"{one.kind} {one.error} {one.cause[:8]}")


def test_a_nested_executions_failure_is_reported_as_its_own() -> None:
    failure = nested(Status="FAILED", Error="StockMissing", Cause="no tea")
    assert failure.to_report() == Failure("StockMissing", "no tea", "execution")


def test_a_nested_execution_that_failed_without_a_cause_has_none() -> None:
    assert nested(Status="FAILED", Error="StockMissing").to_report() == Failure("StockMissing", "", "execution")


def test_a_nested_execution_without_an_error_of_its_own_keeps_the_description() -> None:
    failure = nested(Status="ABORTED")
    assert failure.to_report() == Failure("Work.TaskFailed", failure.cause, "execution")


def test_a_nested_executions_description_that_did_not_arrive_whole_is_kept_as_it_is() -> None:
    failure = Failure("States.TaskFailed", nested(Status="FAILED", Error="StockMissing").cause[:100], "execution")
    assert not failure.work_has_ended()
    assert failure.to_report() == Failure("Work.TaskFailed", failure.cause, "execution")


def test_a_functions_failure_keeps_its_name_and_its_cause() -> None:
    failure = function_failed("StockMissing")
    assert failure.to_report() == failure


def test_a_reserved_name_is_replaced() -> None:
    assert Failure("States.Timeout", "", "function").to_report() == Failure("Work.Timeout", "", "function")


@pytest.mark.parametrize("status", ["FAILED", "TIMED_OUT", "ABORTED"])
def test_a_closed_nested_execution_has_ended(status: str) -> None:
    assert nested(Status=status).work_has_ended()


@failures(
    function_failed("StockMissing"),
    function_failed("Runtime.ExitError"),
    Failure("Lambda.Unknown", "Lambda did not return an error type.", "function"),
    Failure("Lambda.TooManyRequestsException", "Rate exceeded", "function"),
    Failure("Lambda.ResourceNotReadyException", "The function is inactive", "function"),
    Failure("Lambda.CodeArtifactUserPendingException", "The function is inactive", "function"),
    Failure("Lambda.SnapStartNotReadyException", "Lambda is initializing your function", "function"),
    Failure("States.DataLimitExceeded", "the result is too large", "execution"),
)
def test_work_that_returned_its_own_error_or_never_began_has_ended(failure: Failure) -> None:
    assert failure.work_has_ended()


@failures(
    Failure("States.Timeout", "", "function"),
    Failure("States.Timeout", "", "execution"),
    Failure("Lambda.SdkClientException", "Read timed out", "function"),
    Failure("Lambda.ServiceException", "", "function"),
    Failure("Lambda.SnapStartTimeoutException", "Lambda could not restore the snapshot in time", "function"),
    Failure("Lambda.ServiceException", "not JSON", "function"),
    Failure("States.TaskFailed", "[1]", "function"),
    Failure("StepFunctions.ExecutionAlreadyExistsException", "", "execution"),
    Failure("StepFunctions.ExecutionLimitExceeded", "Rate exceeded", "execution"),
    Failure("StepFunctions.ExecutionLimitExceededException", "Rate exceeded", "execution"),
    Failure("StepFunctions.AWSStepFunctionsException", "Rate exceeded", "execution"),
    Failure("States.TaskFailed", "", "execution"),
    Failure("States.TaskFailed", '{"Status": "RUNNING"}', "execution"),
)
def test_work_that_may_still_be_running_has_not_certainly_ended(failure: Failure) -> None:
    assert not failure.work_has_ended()


@failures(
    Failure("StockMissing", "no tea", "chain"),
    Failure("DynamoDB.ConditionalCheckFailedException", "The conditional request failed", "chain"),
    Failure("Lambda.TooManyRequestsException", "Rate exceeded", "chain"),
    Failure("States.DataLimitExceeded", "the result is too large", "chain"),
    Failure("Runtime.ExitError", json.dumps({"errorType": "Runtime.ExitError"}), "chain"),
    Failure("States.TaskFailed", json.dumps(CHILD | {"Status": "FAILED"}), "chain"),
)
def test_a_chain_whose_state_failed_with_its_own_error_has_ended(failure: Failure) -> None:
    assert failure.work_has_ended()


@failures(
    Failure("States.Timeout", "", "chain"),
    Failure("States.HeartbeatTimeout", "", "chain"),
    Failure("States.TaskFailed", "Activity worker failed", "chain"),
    Failure("Lambda.SdkClientException", "Read timed out", "chain"),
    Failure("ECS.SdkClientException", "Read timed out", "chain"),
    Failure("StepFunctions.AWSStepFunctionsException", "Rate exceeded", "chain"),
    Failure("Lambda.ServiceException", "", "chain"),
)
def test_a_chain_whose_state_may_still_be_running_has_not_certainly_ended(failure: Failure) -> None:
    assert not failure.work_has_ended()


@pytest.mark.parametrize(
    "error", ["StockMissing", "States.DataLimitExceeded", "Lambda.TooManyRequestsException", "States.TaskFailed"]
)
def test_concurrent_states_have_never_certainly_ended(error: str) -> None:
    failure = Failure(error, json.dumps({"errorType": error, "Status": "FAILED"}), "concurrent")
    assert not failure.work_has_ended()


@pytest.mark.parametrize("kind", ["chain", "concurrent"])
def test_a_chain_reports_the_error_of_the_nested_execution_that_failed_it(kind: Kind) -> None:
    failure = Failure("States.TaskFailed", json.dumps(CHILD | {"Status": "FAILED", "Error": "StockMissing"}), kind)
    assert failure.to_report() == Failure("StockMissing", "", kind)


@pytest.mark.parametrize("kind", ["chain", "concurrent"])
def test_a_chains_own_failure_keeps_its_name_and_its_cause(kind: Kind) -> None:
    failure = Failure("OutOfPaint", "no more red", kind)
    assert failure.to_report() == failure
