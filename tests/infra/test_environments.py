"""Resources of another account or Region are refused by name: no nested execution is followed or stopped there."""

from typing import Any

import pytest
from aws_cdk import App, Aws, Environment, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from ticketlock_cdk import TicketLock

pytestmark = pytest.mark.verify("stacks of its own, each synthesised")

HERE = {"account": "123456789012", "region": "eu-west-1"}
ELSEWHERE = [
    ({**HERE, "region": "us-east-1"}, "in the Region us-east-1; allowed: the stack's own, eu-west-1"),
    ({**HERE, "account": "210987654321"}, "in the account 210987654321; allowed: the stack's own, 123456789012"),
]


def stack_in(app, id, environment):
    return Stack(app, id, env=Environment(**environment))


def arn(kind, environment, name="theirs"):
    service = "lambda" if kind == "function" else "states"
    return f"arn:aws:{service}:{environment['region']}:{environment['account']}:{kind}:{name}"


def machine(scope, id="Workflow"):
    body = sfn.DefinitionBody.from_chainable(sfn.Pass(scope, f"{id}Passes"))
    return sfn.StateMachine(scope, id, definition_body=body)


@pytest.fixture
def app(outdir):
    return App(outdir=outdir)


@pytest.fixture
def here(app):
    return stack_in(app, "Here", HERE)


@pytest.mark.parametrize(("environment", "message"), ELSEWHERE)
@pytest.mark.parametrize("kind", ["function", "stateMachine"])
@pytest.mark.parametrize("name", ["targets", "retired_targets"])
def test_an_arn_of_another_account_or_region_is_refused(name, kind, environment, message, here):
    theirs = arn(kind, environment)
    given: dict[str, Any] = {name: [arn(kind, HERE), theirs]}
    with pytest.raises(ValueError, match="allowed: ") as refused:
        TicketLock(here, "Lock", **given)
    assert str(refused.value) == f"{name}[1] is {theirs!r}, {message}"


@pytest.mark.parametrize(("environment", "message"), ELSEWHERE)
def test_a_construct_of_another_account_or_region_is_refused(environment, message, app, here):
    theirs = machine(stack_in(app, "There", environment))
    with pytest.raises(ValueError, match="allowed: ") as refused:
        TicketLock(here, "Lock", targets=[theirs])
    assert str(refused.value) == f"targets[0] is There/Workflow, {message}"


@pytest.mark.parametrize(("environment", "message"), ELSEWHERE)
def test_an_import_from_another_account_or_region_is_refused_as_protected_work(environment, message, here):
    function = lambda_.Function.from_function_arn(here, "Theirs", arn("function", environment))
    lock = TicketLock(here, "Lock")
    with pytest.raises(ValueError, match="protected is ") as refused:
        lock.serialize(here, "Ship", function, entity="e")
    assert message in str(refused.value)


@pytest.mark.parametrize(("environment", "message"), ELSEWHERE)
def test_a_state_machine_of_another_account_or_region_cannot_be_attached(environment, message, app, here):
    theirs = machine(stack_in(app, "There", environment))
    with pytest.raises(ValueError, match="allowed: ") as refused:
        TicketLock(here, "Lock").attach(theirs)
    assert str(refused.value) == f"machine is There/Workflow, {message}"


def test_targets_of_the_same_account_and_region_are_accepted(app, here, synthesise):
    targets = [arn("function", HERE), machine(stack_in(app, "Beside", HERE)), machine(here)]
    unknown = f"arn:aws:lambda:{Aws.REGION}:{Aws.ACCOUNT_ID}:function:pay"
    lock = TicketLock(here, "Lock", targets=[*targets, unknown])
    payload = synthesise(here).definition(lock.state_machine)["States"]["TakeTicket"]["Parameters"]["Payload"]
    assert len(payload["targets"]) == 4


@pytest.mark.parametrize(("environment", "message"), ELSEWHERE)
def test_in_an_environment_agnostic_stack_all_targets_must_be_in_one_environment(environment, message, stack):
    part, _, _ = message.partition("; ")
    with pytest.raises(ValueError, match=r"allowed: that of targets\[0\]") as refused:
        TicketLock(stack, "Lock", targets=[arn("function", HERE), arn("function", environment)])
    assert part in str(refused.value)
