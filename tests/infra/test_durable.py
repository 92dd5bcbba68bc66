"""Durable functions of Lambda: what they may do, who may wake them, and whose ends are cleaned up after."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from kit.stacks import allowed, durable, function
from ticketlock_cdk import TicketLock, ended_executions

WAKES = "lambda:SendDurableExecutionCallbackSuccess"
FUNCTIONS_A_RULE = 10
ANSWERING = ("take_ticket", "wait_for_wake_up", "check_position", "heartbeat", "release", "clean_up")


@pytest.fixture(scope="module")
def attached(outdir: str, synthesise: Callable[[Stack], Any]) -> tuple[Any, TicketLock, list[lambda_.Function]]:
    stack = Stack(App(outdir=outdir), "Test")
    lock, functions = TicketLock(stack, "Lock"), [durable(stack), durable(stack, "Another")]
    for each in functions:
        lock.attach_durable(each)
        lock.attach_durable(each)
    passes = sfn.DefinitionBody.from_chainable(sfn.Pass(stack, "Pass"))
    lock.attach(sfn.StateMachine(stack, "Books", definition_body=passes))
    return synthesise(stack), lock, functions


Attached = tuple[Any, TicketLock, list[lambda_.Function]]


def test_every_step_and_every_durable_function_may_wake_each_of_them(attached: Attached) -> None:
    found, lock, functions = attached
    versions = {f"<{found.id_of(each)}>:*" for each in functions}
    for one in [*(getattr(lock, name) for name in ANSWERING), *functions]:
        may = allowed(found, one)
        assert versions <= {resource for resource, actions in may.items() if WAKES in actions}, one.node.path
    for each in functions:
        assert all("lambda:GetDurableExecution" in allowed(found, each)[version] for version in versions)


def test_a_durable_function_may_hold_locks_write_its_sessions_and_wake_workflows(attached: Attached) -> None:
    found, lock, (one, _) = attached
    may = allowed(found, one)
    assert {f"dynamodb:{each}" for each in ("PutItem", "Query", "UpdateItem", "ConditionCheckItem")} <= may[
        f"<{found.id_of(lock.table)}>"
    ]
    attached_later = Stack.of(lock).node.find_child("Books")
    for machine in (lock.state_machine, attached_later):
        assert "states:SendTaskSuccess" in may[f"<{found.id_of(machine)}>"]
    of_sessions = [set(each["Action"]) for each in found.statements(one) if "Condition" not in each]
    assert {f"dynamodb:{each}" for each in ("ConditionCheckItem", "GetItem", "Query", "UpdateItem")} in of_sessions


def test_the_clean_up_hears_of_every_end_also_of_a_success(attached: Attached) -> None:
    found, _, functions = attached
    patterns = [each["EventPattern"] for each in found.of_type("AWS::Events::Rule").values()]
    (mine,) = (each for each in patterns if each["source"] == ["aws.lambda"])
    assert mine["detail"]["status"] == ["SUCCEEDED", "FAILED", "TIMED_OUT", "STOPPED"]
    assert {found.text(each["prefix"]) for each in mine["detail"]["functionArn"]} == {
        f"<{found.id_of(function)}>:" for function in functions
    }


def test_many_functions_share_rules_and_one_too_many_is_refused_by_name(
    stack: Stack, synthesise: Callable[[Stack], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_executions, "_MOST_RULES", 3)
    lock = TicketLock(stack, "Lock")
    for number in range(2 * FUNCTIONS_A_RULE):
        lock.attach_durable(durable(stack, f"Durable{number}"))
    with pytest.raises(ValueError, match="Extra, whose clean-up would need one rule more than 3; allowed"):
        lock.attach_durable(durable(stack, "Extra"))
    rules = synthesise(stack).of_type("AWS::Events::Rule").values()
    of_durable = [each["EventPattern"] for each in rules if each["EventPattern"]["source"] == ["aws.lambda"]]
    assert [len(each["detail"]["functionArn"]) for each in of_durable] == [FUNCTIONS_A_RULE] * 2
    assert all(len(json.dumps(each)) < 2_048 for each in of_durable)


def test_functions_of_several_stacks_wake_those_of_their_own_and_of_the_locks(
    outdir: str, synthesise: Callable[[Stack], Any]
) -> None:
    app = App(outdir=outdir)
    locks, one, other = (Stack(app, name) for name in ("Locks", "One", "Other"))
    lock = TicketLock(locks, "Lock")
    places = (locks, one, one, other)
    functions = [durable(stack, f"Durable{number}") for number, stack in enumerate(places)]
    for each in functions:
        lock.attach_durable(each)
    app.synth()
    may = [allowed(synthesise(stack), each) for stack, each in zip(places, functions, strict=True)]
    assert [sum(WAKES in actions for actions in on.values()) for on in may] == [1, 3, 3, 2]


def test_the_key_of_a_function_is_granted_to_all_who_wake_its_executions(
    stack: Stack, synthesise: Callable[[Stack], Any]
) -> None:
    """https://docs.aws.amazon.com/lambda/latest/dg/durable-configuration.html"""
    lock, key = TicketLock(stack, "Lock"), kms.Key(stack, "Key")
    encrypted, other = durable(stack), durable(stack, "Another")
    resource = encrypted.node.default_child
    assert isinstance(resource, lambda_.CfnFunction)
    resource.durable_config = lambda_.CfnFunction.DurableConfigProperty(execution_timeout=60, kms_key_arn=key.key_arn)
    for each in (encrypted, other):
        lock.attach_durable(each)
    found = synthesise(stack)
    for one in [*(getattr(lock, name) for name in ANSWERING), encrypted, other]:
        assert {"kms:Decrypt", "kms:GenerateDataKey"} <= allowed(found, one)[f"<{found.id_of(key)}>"], one.node.path


def test_a_function_that_is_not_durable_is_refused(stack: Stack) -> None:
    lock = TicketLock(stack, "Lock")
    with pytest.raises(ValueError, match="which is not durable; allowed: a function of this app with durable_config"):
        lock.attach_durable(function(stack))


def test_a_function_of_another_region_is_refused(outdir: str) -> None:
    app = App(outdir=outdir)
    here, there = (
        Stack(app, region, env=Environment(account="111122223333", region=region))
        for region in ("eu-west-1", "eu-west-2")
    )
    with pytest.raises(ValueError, match="eu-west"):
        TicketLock(here, "Lock").attach_durable(durable(there))
