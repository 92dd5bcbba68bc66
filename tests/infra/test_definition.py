"""Properties that all states of the definition share."""

from collections.abc import Iterator
from typing import Any

import pytest
from ticketlock_cdk.lock.serialize_machine import serialize_definition
from ticketlock_cdk.lock.settings import LockSettings

pytestmark = pytest.mark.shows("one run per grant", "unreachable functions", "long waits and holds", "no heartbeat")

SETTINGS = LockSettings(lease_s=120, poll_s=7, default_record_wait=30, permits=3)
DEFINITION = serialize_definition(SETTINGS, ["arn:one", "arn:two"])


def states(machine: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, state in machine["States"].items():
        yield name, state
        for branch in state.get("Branches", []):
            yield from states(branch)


STATES = dict(states(DEFINITION))


def test_every_lock_function_is_retried_in_the_same_way() -> None:
    retries = [STATES[name]["Retry"] for name in ("TakeTicket", "CheckPosition", "Release", "ReleaseAfterFailure")]
    assert all(retry == retries[0] for retry in retries)


@pytest.mark.parametrize("name", [name for name, state in STATES.items() if state["Type"] == "Task"])
def test_every_task_has_a_time_out(name: str) -> None:
    assert STATES[name]["TimeoutSeconds"] > 0


@pytest.mark.parametrize("name", list(STATES))
def test_every_state_says_why_it_exists(name: str) -> None:
    assert STATES[name]["Comment"]


def test_the_settings_of_a_deployment_stand_where_the_functions_read_them() -> None:
    payload = STATES["TakeTicket"]["Parameters"]["Payload"]
    assert (payload["leaseSeconds"], payload["pollSeconds"], payload["defaultRecordWaitSeconds"]) == (120, 7, 30)
    assert payload["defaultPermits"] == 3
    assert payload["targets"] == ["arn:one", "arn:two"]


def test_the_heartbeat_comes_at_half_the_lease_and_gives_up_when_the_lease_ends() -> None:
    heartbeat = STATES["Heartbeat"]
    assert heartbeat["TimeoutSeconds"] == 60
    on_any_error = heartbeat["Retry"][-1]
    assert on_any_error["ErrorEquals"] == ["States.ALL"]
    assert on_any_error["IntervalSeconds"] * on_any_error["MaxAttempts"] == 60


def test_the_heartbeat_continues_for_as_long_as_the_work_and_never_past_a_lost_lock() -> None:
    on_loss, on_time_out, *_ = STATES["Heartbeat"]["Retry"]
    assert (on_loss["ErrorEquals"], on_loss["MaxAttempts"]) == (
        ["LockLost", "EventBudgetExceeded", "ContinueHolding"],
        0,
    )
    assert (on_time_out["BackoffRate"], on_time_out["MaxAttempts"]) == (1, 99_999_999)


# https://docs.aws.amazon.com/lambda/latest/dg/snapstart-troubleshooting.html for the two with snapshots.
NOT_STARTED = [
    "Lambda.ResourceNotReadyException",
    "Lambda.CodeArtifactUserPendingException",
    "Lambda.SnapStartNotReadyException",
]
ASLEEP = [*NOT_STARTED, "Lambda.SnapStartTimeoutException"]
OWN = ["TakeTicket", "CheckPosition", "Release", "ReleaseAfterFailure", "Heartbeat"]


# A restored function may have begun: protected work is retried only if it certainly did not start.
@pytest.mark.parametrize(("name", "errors"), [*((name, ASLEEP) for name in OWN), ("InvokeFunction", NOT_STARTED)])
def test_a_function_that_was_idle_for_weeks_has_two_minutes_to_wake(name: str, errors: list[str]) -> None:
    """https://docs.aws.amazon.com/lambda/latest/dg/functions-states.html"""
    [retrier] = [each for each in STATES[name]["Retry"] if each["ErrorEquals"] == errors]
    waits = [retrier["IntervalSeconds"] * retrier["BackoffRate"] ** number for number in range(retrier["MaxAttempts"])]
    # Without jitter, which could halve it.
    assert "JitterStrategy" not in retrier
    assert sum(min(wait, retrier.get("MaxDelaySeconds", wait)) for wait in waits) >= 120


@pytest.mark.parametrize("name", ["StartExecution", "ContinueWaiting", "ContinueHolding"])
def test_a_throttled_nested_start_is_retried_under_each_of_its_error_names(name: str) -> None:
    """https://docs.aws.amazon.com/step-functions/latest/dg/concepts-nested-workflows.html"""
    repeated = {error for retrier in STATES[name]["Retry"] for error in retrier["ErrorEquals"]}
    assert {
        "StepFunctions.ExecutionLimitExceeded",
        "StepFunctions.ExecutionLimitExceededException",
        "StepFunctions.AWSStepFunctionsException",
        "StepFunctions.ThrottlingException",
    } <= repeated
