"""The state machine as it is deployed."""

import inspect
import json

import pytest
from aws_cdk import Duration
from ticketlock_cdk import TicketLock
from ticketlock_cdk.assets import source_folder

from ticketlock import errors

# Names that Step Functions, Lambda and its sandbox give to errors of their own.
SERVICE_ERRORS = ("States.", "Lambda.", "Sandbox.", "StepFunctions.")


@pytest.fixture
def machine(typical):
    return typical.synthesised.one(typical.lock.state_machine)["Properties"]


def all_states(definition):
    for name, state in definition["States"].items():
        yield name, state
        for branch in state.get("Branches", []):
            yield from all_states(branch)


def error_names(definition):
    for _, state in all_states(definition):
        for rule in [*state.get("Retry", []), *state.get("Catch", [])]:
            yield from rule["ErrorEquals"]
        if "Error" in state:
            yield state["Error"]


def test_it_is_a_standard_one(machine):
    assert machine["StateMachineType"] == "STANDARD"


def test_it_is_traced(machine):
    assert machine["TracingConfiguration"] == {"Enabled": True}


def test_it_logs_every_event_without_what_the_events_carry(machine, typical):
    logging = machine["LoggingConfiguration"]
    assert (logging["Level"], logging["IncludeExecutionData"]) == ("ALL", False)
    [destination] = logging["Destinations"]
    id, _ = destination["CloudWatchLogsLogGroup"]["LogGroupArn"]["Fn::GetAtt"]
    assert typical.synthesised.resources[id]["Properties"]["RetentionInDays"] == 30


def test_its_placeholders_are_all_substituted(machine, typical):
    used = {part.split("}")[0] for part in json.dumps(typical.definition).split("${")[1:]}
    assert used == set(machine["DefinitionSubstitutions"])


def test_its_definition_is_the_file_except_for_the_settings(typical):
    written = json.loads((source_folder("statemachines") / "serialize.asl.json").read_text())
    written["States"]["TakeTicket"]["Parameters"]["Payload"]["targets"] = [
        f"<{typical.synthesised.id_of(target)}>" for target in (typical.target_function, typical.target_machine)
    ]
    # Nulls too: a ResultPath that is null is not a ResultPath that is missing.
    assert typical.definition == written


def test_its_errors_are_classes_of_the_errors_module(typical):
    # No error: how the last beat of an execution makes the next one take over.
    control = {"ContinueHolding"}
    own = {name for name in error_names(typical.definition) if not name.startswith(SERVICE_ERRORS)} - control
    known = {name for name, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, Exception)}
    assert own <= known
    assert own >= {
        "InvalidLockRequest",
        "TaskNotAllowed",
        "PermitsMismatch",
        "RecordWaitExceeded",
        "LockLost",
        "EventBudgetExceeded",
    }


def test_its_failing_statuses_are_classes_of_the_errors_module(typical):
    routes = {choice["StringEquals"]: choice["Next"] for choice in typical.definition["States"]["MyTurn?"]["Choices"]}
    going_on = ("granted", "grantedMeanwhile", "parked", "parkedBriefly", "waiting", "continued")
    failing = {status: next for status, next in routes.items() if status not in going_on}
    assert all(status == next for status, next in failing.items())
    assert set(failing) <= set(errors.__all__)


def test_every_state_says_why_it_exists(typical):
    assert not [name for name, state in all_states(typical.definition) if not state.get("Comment")]


def test_every_task_has_an_end(typical):
    tasks = {name: state for name, state in all_states(typical.definition) if state["Type"] == "Task"}
    assert tasks
    assert not [name for name, state in tasks.items() if "TimeoutSeconds" not in state]


@pytest.mark.verify("a stack of its own, synthesised")
@pytest.mark.parametrize("lease_s", [10, 30, 60, 3_600])
def test_the_heartbeat_follows_the_lease(lease_s, stack, synthesise):
    lock = TicketLock(stack, "Lock", lease=Duration.seconds(lease_s))
    definition = synthesise(stack).definition(lock.state_machine)
    heartbeat = definition["States"]["Hold"]["Branches"][1]["States"]["Heartbeat"]
    assert heartbeat["TimeoutSeconds"] == lease_s / 2
    retry = heartbeat["Retry"][-1]
    assert retry["BackoffRate"] == 1
    assert retry["IntervalSeconds"] * retry["MaxAttempts"] <= lease_s * 2 / 3
    assert definition["States"]["TakeTicket"]["Parameters"]["Payload"]["leaseSeconds"] == lease_s


def test_the_steps_learn_the_settings(stack, synthesise):
    lock = TicketLock(
        stack,
        "Lock",
        lease=Duration.minutes(2),
        poll=Duration.seconds(7),
        default_record_wait=Duration.millis(1_500),
        permits=3,
    )
    payload = synthesise(stack).definition(lock.state_machine)["States"]["TakeTicket"]["Parameters"]["Payload"]
    assert (payload["leaseSeconds"], payload["pollSeconds"], payload["defaultRecordWaitSeconds"]) == (120, 7, 1.5)
    assert payload["defaultPermits"] == 3


@pytest.mark.verify("a stack of its own, synthesised")
def test_two_of_them_fit_in_one_stack(stack, synthesise):
    first, second = TicketLock(stack, "First"), TicketLock(stack, "Second")
    found = synthesise(stack)
    assert found.id_of(first.table) != found.id_of(second.table)
    machines = set(found.of_type("AWS::StepFunctions::StateMachine"))
    assert len(machines) == 4
    for lock, name in ((first, "First"), (second, "Second")):
        answers = [one for one in found.statements(lock.release) if "states:SendTaskSuccess" in one["Action"]]
        answered = {resource["Ref"] for one in answers for resource in one["Resource"]}
        assert answered == {id for id in machines if id.startswith(name)}
