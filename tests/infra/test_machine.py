"""The state machine: the definition's properties, and how it is deployed."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from ticketlock_cdk import TicketLock
from ticketlock_cdk.assets import source_folder
from ticketlock_cdk.lock.serialize_machine import serialize_definition
from ticketlock_cdk.lock.settings import HandOver, LockSettings
from ticketlock_cdk.lock.targets import parse_target

from ticketlock import errors

pytestmark = pytest.mark.shows("one run per grant", "unreachable functions", "long waits and holds", "no heartbeat")

SETTINGS = LockSettings(lease_s=120, row_lease_s=900, poll_s=7, default_record_wait=30, permits=3)


def states(machine: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, state in machine["States"].items():
        yield name, state
        for branch in state.get("Branches", []):
            yield from states(branch)


FUNCTION = "arn:aws:lambda:eu-central-1:123456789012:function:work"
MACHINE = "arn:aws:states:eu-central-1:123456789012:stateMachine:work"


def defined(*targets: str, settings: LockSettings = SETTINGS) -> dict[str, Any]:
    return serialize_definition(settings, [parse_target("target", arn) for arn in targets])


STATES = dict(states(defined(FUNCTION, MACHINE)))


def test_the_functions_that_take_check_and_release_are_retried_in_the_same_way() -> None:
    retries = [STATES[name]["Retry"] for name in ("TakeTicketAgain", "CheckPosition", "Release", "ReleaseAfterFailure")]
    assert all(retry == retries[0] for retry in retries)


def test_every_task_has_a_time_out() -> None:
    assert [name for name, state in STATES.items() if state["Type"] == "Task" and not state["TimeoutSeconds"] > 0] == []


def test_every_state_says_why_it_exists() -> None:
    assert [name for name, state in STATES.items() if not state.get("Comment")] == []


def test_the_settings_of_a_deployment_stand_where_the_functions_read_them() -> None:
    payload = STATES["TakeTicket"]["Parameters"]["Payload"]
    assert (payload["leaseSeconds"], payload["pollSeconds"], payload["defaultRecordWaitSeconds"]) == (120, 7, 30)
    assert (payload["defaultPermits"], payload["targets"]) == (3, [FUNCTION, MACHINE])
    polls = STATES["CheckPosition"]["Parameters"]["Payload"]
    assert polls["rowLeaseSeconds"] == payload["rowLeaseSeconds"] == 900


def test_a_parked_waiter_polls_at_half_the_lease_far_behind_at_half_its_rows() -> None:
    parked = [STATES[name] for name in ("WaitForWakeUp", "WaitForWakeUpBehind", "WaitForWakeUpBriefly")]
    assert [state["TimeoutSeconds"] for state in parked] == [60, 450, 7]
    for state in parked:
        assert state["Parameters"] == parked[0]["Parameters"]
        assert state["Catch"] == parked[0]["Catch"]
    assert parked[0]["Retry"] == parked[1]["Retry"]


@pytest.mark.parametrize("lease_s", [10, 30, 60, 120, 3_600])
def test_the_heartbeat_comes_at_half_the_lease_and_gives_up_when_the_lease_ends(lease_s: int) -> None:
    heartbeat = dict(states(defined(settings=replace(SETTINGS, lease_s=lease_s, poll_s=1))))["Heartbeat"]
    assert heartbeat["TimeoutSeconds"] == lease_s / 2
    on_any_error = heartbeat["Retry"][-1]
    assert (on_any_error["ErrorEquals"], on_any_error["BackoffRate"]) == (["States.ALL"], 1)
    assert lease_s / 3 <= on_any_error["IntervalSeconds"] * on_any_error["MaxAttempts"] <= lease_s * 2 / 3


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
        "StepFunctions.KmsThrottlingException",
        "StepFunctions.ThrottlingException",
    } <= repeated


# The state machine as it is deployed.

# Names that Step Functions, Lambda and its sandbox give to errors of their own.
SERVICE_ERRORS = ("States.", "Lambda.", "Sandbox.", "StepFunctions.")


@pytest.fixture
def machine(typical):
    return typical.synthesised.one(typical.lock.state_machine)["Properties"]


def test_the_machine_is_a_traced_standard_one_that_logs_every_event_without_what_the_events_carry(machine, typical):
    assert (machine["StateMachineType"], machine["TracingConfiguration"]) == ("STANDARD", {"Enabled": True})
    logging = machine["LoggingConfiguration"]
    assert (logging["Level"], logging["IncludeExecutionData"]) == ("ALL", False)
    [destination] = logging["Destinations"]
    id, _ = destination["CloudWatchLogsLogGroup"]["LogGroupArn"]["Fn::GetAtt"]
    assert typical.synthesised.resources[id]["Properties"]["RetentionInDays"] == 30


def test_the_machines_placeholders_are_all_substituted(machine, typical):
    used = {part.split("}")[0] for part in json.dumps(typical.definition).split("${")[1:]}
    assert used == set(machine["DefinitionSubstitutions"])


def test_the_machines_definition_has_the_states_of_the_file_but_for_settings_and_kinds_of_work(typical):
    written = json.loads((source_folder("statemachines") / "serialize.asl.json").read_text())
    of_file, found = dict(states(written)), dict(states(typical.definition))
    targets = [f"<{typical.synthesised.id_of(target)}>" for target in (typical.target_function, typical.target_machine)]
    assert found["TakeTicket"]["Parameters"]["Payload"].pop("targets") == targets
    assert of_file["TakeTicket"]["Parameters"]["Payload"].pop("targets") == []
    changed = ("TakeTicket", "MyTurn?", "Hold", "StartExecution")
    # Nulls too: a ResultPath that is null is not a ResultPath that is missing.
    assert {name: found[name] for name in of_file if name not in changed} == {
        name: state for name, state in of_file.items() if name not in changed
    }
    assert found["TakeTicket"]["Parameters"] == of_file["TakeTicket"]["Parameters"]
    assert found["Hold"]["Branches"][1] == of_file["Hold"]["Branches"][1]


def _runs(state: dict[str, Any]) -> tuple[str, set[str]]:
    """The first state of the work's branch, and the tasks in it."""
    branch = state["Branches"][0]
    return branch["StartAt"], {name for name, each in branch["States"].items() if each["Type"] == "Task"}


@pytest.mark.parametrize(
    ("targets", "kind", "work"),
    [((FUNCTION,), "function", "InvokeFunction"), ((MACHINE,), "execution", "StartExecution")],
)
def test_with_targets_of_one_kind_the_first_step_goes_straight_on_to_their_work(
    targets: tuple[str, ...], kind: str, work: str
) -> None:
    found = defined(*targets)["States"]
    assert (found["TakeTicket"]["Parameters"]["Payload"]["goesOn"], found["TakeTicket"]["Next"]) == (kind, "Hold")
    tasks = {work, "Release", "ReleaseAfterFailure", "LeaveToHeartbeat"}
    assert _runs(found["Hold"]) == (work, tasks)
    assert {"Granted", "HoldOfExecution"}.isdisjoint(found)


def test_with_targets_of_both_kinds_an_execution_is_held_by_states_of_its_own() -> None:
    found = defined(MACHINE, FUNCTION)["States"]
    assert found["TakeTicket"]["Parameters"]["Payload"]["goesOn"] == "function"
    assert found["Granted"]["Next"] == "HoldOfExecution"
    assert _runs(found["HoldOfExecution"])[0] == "StartExecution"
    first, *others = found["MyTurn?"]["Choices"]
    assert (first["Next"], [each["Next"] for each in others if each["StringEquals"] == "granted"]) == (
        "HoldOfExecution",
        ["Hold"],
    )


@pytest.mark.parametrize("heartbeat", [True, False])
@pytest.mark.parametrize("hand_over", HandOver)
@pytest.mark.parametrize("targets", [(), (FUNCTION,), (MACHINE,), (FUNCTION, MACHINE)])
def test_each_state_is_reached_and_each_next_one_is_there(
    targets: tuple[str, ...], hand_over: HandOver, heartbeat: bool
) -> None:
    def check(machine: dict[str, Any]) -> None:
        there, reached = machine["States"], {machine["StartAt"]}
        for state in there.values():
            routed = [state, *state.get("Catch", ()), *state.get("Choices", ())]
            reached |= {each[field] for each in routed for field in ("Next", "Default") if field in each}
            for branch in state.get("Branches", ()):
                check(branch)
        assert reached == there.keys()

    settings = replace(SETTINGS, hand_over=hand_over, heartbeat=heartbeat, work_timeout_s=0 if heartbeat else 60)
    check(defined(*targets, settings=settings))


def test_the_machines_errors_and_failing_statuses_are_classes_of_the_errors_module(typical):
    own = set()
    for _, state in states(typical.definition):
        rules = [*state.get("Retry", []), *state.get("Catch", [])]
        own |= {name for rule in rules for name in rule["ErrorEquals"]}
        own |= {state["Error"]} if "Error" in state else set()
    own = {name for name in own if not name.startswith(SERVICE_ERRORS)}
    # No errors: how the last beat of an execution makes the next one take over, and how the first step goes on.
    own -= {"ContinueHolding", "AnswerTooLong", "Granted", "NotYet", "Parked"}
    assert own >= {
        "InvalidLockRequest",
        "TaskNotAllowed",
        "PermitsMismatch",
        "RecordWaitExceeded",
        "LockLost",
        "EventBudgetExceeded",
    }
    choices = typical.definition["States"]["MyTurn?"]["Choices"]
    routes = {choice["StringEquals"]: choice["Next"] for choice in choices if "StringEquals" in choice}
    going_on = ("granted", "grantedMeanwhile", "parked", "parkedBehind", "parkedBriefly", "waiting", "continued")
    failing = {status: state for status, state in routes.items() if status not in going_on}
    assert all(status == state for status, state in failing.items())
    assert own | set(failing) <= set(errors.__all__)


@pytest.mark.verify("a stack of its own, synthesised")
def test_two_locks_in_one_stack_have_nothing_in_common(stack, synthesise):
    first, second = TicketLock(stack, "First"), TicketLock(stack, "Second")
    found = synthesise(stack)
    assert found.id_of(first.table) != found.id_of(second.table)
    assert first.service_name != second.service_name
    machines = set(found.of_type("AWS::StepFunctions::StateMachine"))
    assert len(machines) == 4
    for lock, name in ((first, "First"), (second, "Second")):
        answers = [one for one in found.statements(lock.release) if "states:SendTaskSuccess" in one["Action"]]
        answered = {resource["Ref"] for one in answers for resource in one["Resource"]}
        assert answered == {id for id in machines if id.startswith(name)}
        # The dimension of its metrics.
        assert lock.metric_grants().dimensions == {"service": lock.service_name}
        variables = found.function(lock.release)["Environment"]["Variables"]
        assert variables["POWERTOOLS_SERVICE_NAME"] == lock.service_name
