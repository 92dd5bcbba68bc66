"""A deployment over running executions: they keep the definition that they began with, and permissions are today's."""

import json
from typing import Any

import pytest
from aws_cdk import App, Stack
from kit.stacks import as_list, machine
from ticketlock_cdk import HandOver, TicketLock, TicketlockStack

pytestmark = pytest.mark.verify("stacks of its own, each synthesised")

FUNCTION = "arn:aws:lambda:eu-west-1:123456789012:function:pay"
MACHINE = "arn:aws:states:eu-west-1:123456789012:stateMachine:Orders"
OTHERS: list[dict[str, Any]] = [
    {"heartbeat": False},
    {"hand_over": HandOver.POLL},
    {"heartbeat": False, "hand_over": HandOver.POLL},
    {"snap_start": True},
]


def allowed(found, principal):
    """Each action with each of its resources and its condition."""
    return {
        (action, found.text(resource), json.dumps(statement.get("Condition")))
        for statement in found.statements(principal)
        for action in as_list(statement["Action"])
        for resource in as_list(statement["Resource"])
    }


class Deployed:
    """A lock with these settings."""

    def __init__(self, outdir, synthesise, **settings):
        stack = Stack(App(outdir=outdir), "Test")
        self.lock = TicketLock(stack, "Lock", **settings)
        self.found = synthesise(stack)

    def machine(self, id):
        return self.lock.node.find_child("Serialize").node.find_child(id)

    def aliases(self):
        return self.found.of_type("AWS::Lambda::Alias")

    def continuing(self):
        return self.found.definition(self.machine("Continue"))


@pytest.fixture(scope="module")
def before(outdir, synthesise):
    """The permissions as executions that still run expect them."""
    return Deployed(outdir, synthesise)


@pytest.fixture(scope="module", params=OTHERS, ids=str)
def after(request, outdir, synthesise):
    return Deployed(outdir, synthesise, **request.param)


def test_a_setting_takes_no_permission_from_a_function_or_from_executions_that_began_before_it(before, after):
    for user in ("take_ticket", "wait_for_wake_up", "check_position", "heartbeat", "release", "clean_up"):
        then, now = (allowed(each.found, getattr(each.lock, user)) for each in (before, after))
        assert then - now == set()
    for id in ("StateMachine", "Continue"):
        then, now = (allowed(each.found, each.machine(id)) for each in (before, after))
        assert then - now == set()
    # Waits and holds continue in a machine that supports both.
    assert after.continuing()["States"].keys() == before.continuing()["States"].keys()
    assert after.continuing()["StartAt"] == before.continuing()["StartAt"]


def test_a_setting_takes_no_permission_from_a_workflow_that_is_attached(outdir, synthesise):
    granted = []
    settings: dict[str, Any]
    for settings in ({}, *OTHERS):
        stack = Stack(App(outdir=outdir), "Test")
        lock = TicketLock(stack, "Lock", **settings)
        workflow = machine(stack)
        lock.attach(workflow)
        granted.append(allowed(synthesise(stack), workflow))
    assert [granted[0] - others for others in granted[1:]] == [set()] * len(OTHERS)


@pytest.mark.parametrize("then", [True, False], ids=["switched off", "switched on"])
def test_functions_that_running_executions_call_outlive_snap_start(then, outdir, synthesise):
    were, are = (Deployed(outdir, synthesise, snap_start=snap_start) for snap_start in (then, not then))
    assert were.aliases().keys() == are.aliases().keys()
    for id in ("StateMachine", "Continue"):
        assert allowed(were.found, were.machine(id)) == allowed(are.found, are.machine(id))


def test_a_retired_target_is_refused_to_new_executions_and_kept_for_accepted_ones(outdir, synthesise):
    were = Deployed(outdir, synthesise, targets=[FUNCTION, MACHINE])
    are = Deployed(outdir, synthesise, retired_targets=[FUNCTION, MACHINE])
    take_ticket = are.found.definition(are.lock.state_machine)["States"]["TakeTicket"]
    assert take_ticket["Parameters"]["Payload"]["targets"] == []
    for name in ("state_machine", "release", "clean_up"):
        then, now = (allowed(each.found, getattr(each.lock, name)) for each in (were, are))
        assert then == now


def test_another_number_of_permits_changes_the_definition_alone(outdir, synthesise):
    """Running executions keep their definition, and so their number and when they started."""
    were, are = (Deployed(outdir, synthesise, permits=permits) for permits in (1, 3))
    payloads = [
        each.found.definition(each.lock.state_machine)["States"]["TakeTicket"]["Parameters"]["Payload"]
        for each in (were, are)
    ]
    assert [payload["defaultPermits"] for payload in payloads] == [1, 3]
    assert {payload["started.$"] for payload in payloads} == {"$$.Execution.StartTime"}
    for kind in ("AWS::Lambda::Function", "AWS::Lambda::Version", "AWS::Lambda::Alias", "AWS::IAM::Policy"):
        assert were.found.of_type(kind) == are.found.of_type(kind)


def test_a_target_cannot_be_retired_and_allowed(stack):
    with pytest.raises(ValueError, match=r"retired_targets\[1\] is '.*:pay', which is among targets; allowed: in one"):
        TicketLock(stack, "Lock", targets=[FUNCTION], retired_targets=[MACHINE, FUNCTION])


def test_the_ready_made_stack_retires_targets_too(outdir, synthesise):
    app = App(outdir=outdir, context={"retired_targets": f"{FUNCTION},{MACHINE}"})
    found = synthesise(TicketlockStack(app, "Ticketlock"))
    machines = found.of_type("AWS::StepFunctions::StateMachine")
    (serialising,) = [each for id, each in machines.items() if "StateMachine" in id]
    assert FUNCTION not in found.text(serialising["DefinitionString"])
    invoked = [one for one in found.statements() if one["Action"] == "lambda:InvokeFunction"]
    assert FUNCTION in str(invoked)
