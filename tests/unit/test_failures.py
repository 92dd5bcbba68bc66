"""What a failed task says about the work; the shapes are those of AWS's documentation."""

import json

import pytest

from ticketlock._failures import Failure

CHILD = {
    "ExecutionArn": "arn:aws:states:us-east-1:123456789012:execution:child:lock-1",
    "Input": "{}",
    "Name": "lock-1",
    "StartDate": 1_700_000_000_000,
    "StateMachineArn": "arn:aws:states:us-east-1:123456789012:stateMachine:child",
    "StopDate": 1_700_000_001_000,
}


def nested(**more: str) -> Failure:
    return Failure("States.TaskFailed", json.dumps(CHILD | more))


def function_failed(error: str) -> Failure:
    return Failure(error, json.dumps({"errorType": error, "errorMessage": "no tea", "stackTrace": []}))


def test_a_nested_executions_failure_is_reported_as_its_own() -> None:
    failure = nested(Status="FAILED", Error="StockMissing", Cause="no tea")
    assert failure.to_report() == Failure("StockMissing", "no tea")


def test_a_nested_execution_that_failed_without_a_cause_has_none() -> None:
    assert nested(Status="FAILED", Error="StockMissing").to_report() == Failure("StockMissing", "")


def test_a_nested_execution_without_an_error_of_its_own_keeps_the_description() -> None:
    failure = nested(Status="ABORTED")
    assert failure.to_report() == Failure("Work.TaskFailed", failure.cause)


def test_a_functions_failure_keeps_its_name_and_its_cause() -> None:
    failure = function_failed("StockMissing")
    assert failure.to_report() == failure


def test_a_reserved_name_is_replaced() -> None:
    assert Failure("States.Timeout", "").to_report() == Failure("Work.Timeout", "")


@pytest.mark.parametrize("status", ["FAILED", "TIMED_OUT", "ABORTED"])
def test_a_closed_nested_execution_has_ended(status: str) -> None:
    assert nested(Status=status).work_has_ended()


@pytest.mark.parametrize(
    "failure",
    [
        function_failed("StockMissing"),
        function_failed("Runtime.ExitError"),
        Failure("Lambda.Unknown", "The cause could not be determined because Lambda did not return an error type."),
        Failure("Lambda.TooManyRequestsException", "Rate exceeded"),
        Failure("States.DataLimitExceeded", "the result is too large"),
    ],
    ids=lambda failure: failure.error,
)
def test_work_whose_own_end_came_back_or_that_never_began_has_ended(failure: Failure) -> None:
    assert failure.work_has_ended()


@pytest.mark.parametrize(
    "failure",
    [
        Failure("States.Timeout", ""),
        Failure("States.HeartbeatTimeout", ""),
        Failure("Lambda.SdkClientException", "Read timed out"),
        Failure("Lambda.ServiceException", ""),
        Failure("StepFunctions.ExecutionAlreadyExistsException", ""),
        Failure("States.TaskFailed", "not JSON"),
        Failure("States.TaskFailed", "[1]"),
        nested(Status="RUNNING"),
    ],
    ids=lambda failure: f"{failure.error} {failure.cause[:8]}",
)
def test_work_that_may_be_running_still_has_not_surely_ended(failure: Failure) -> None:
    assert not failure.work_has_ended()
