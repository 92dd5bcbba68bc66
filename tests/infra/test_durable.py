"""Durable functions of Lambda: what they may do, who may wake them, and whose ends are cleaned up after."""

from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from kit.stacks import allowed, durable, function
from ticketlock_cdk import TicketLock

WAKES = "lambda:SendDurableExecutionCallbackSuccess"
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
    mine = [each for each in patterns if each["source"] == ["aws.lambda"]]
    assert [each["detail"]["status"] for each in mine] == [["SUCCEEDED", "FAILED", "TIMED_OUT", "STOPPED"]] * 2
    assert {found.text(each["detail"]["functionArn"][0]["prefix"]) for each in mine} == {
        f"<{found.id_of(function)}>:" for function in functions
    }


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
