"""The recipe for EventBridge, by the command line and by the CDK: what the rule starts is a request of the workflow."""

import json
import re
import shlex
import uuid
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template
from kit.pages import python_blocks, text
from kit.places import until
from ticketlock_cdk import TicketLock
from ticketlock_local.engines.emulator import Emulator

from ticketlock.workflow._turn import LockRequest

SHIP_ORDER = "arn:aws:states:us-east-1:000000000000:stateMachine:ship-order"
ORDERS = pytest.mark.parametrize("order", [42, "42"], ids=["number", "text"])


class Bus:
    """The emulator's EventBridge, and a state machine that does nothing in place of the lock's."""

    def __init__(self, endpoint: str) -> None:
        self.client = partial(boto3.client, endpoint_url=endpoint, region_name="us-east-1")
        self._name = f"lock-{uuid.uuid4().hex}"
        nothing = {"StartAt": "End", "States": {"End": {"Type": "Succeed"}}}
        self._states: Any = self.client("stepfunctions")
        role = "arn:aws:iam::000000000000:role/machine"
        self.machine: str = self._states.create_state_machine(
            name=self._name, definition=json.dumps(nothing), roleArn=role
        )["stateMachineArn"]

    def started_by(self, event: Mapping[str, Any]) -> LockRequest:
        """What an event starts, as the workflow reads it."""
        entry = {"Source": "shop", "DetailType": "order placed", "Detail": json.dumps(event)}
        assert self.client("events").put_events(Entries=[entry])["FailedEntryCount"] == 0
        until(self._executions, "an execution")
        (arn,) = (each["executionArn"] for each in self._executions())
        given = json.loads(self._states.describe_execution(executionArn=arn)["input"])
        return LockRequest.parse(given, targets=[SHIP_ORDER], default_record_wait="Infinity", default_permits=1)

    def _executions(self) -> list[Any]:
        executions: list[Any] = self._states.list_executions(stateMachineArn=self.machine)["executions"]
        return executions


@pytest.fixture
def bus(emulator: Emulator) -> Bus:
    return Bus(emulator.endpoint)


def commands(**variables: str) -> list[list[str]]:
    """The commands of the recipe, each as words."""
    fenced = re.split(r"^```.*\n", text("docs/workflows.md"), flags=re.MULTILINE)[1::2]
    (block,) = (each for each in fenced if "put-rule" in each)
    for name, value in variables.items():
        block = block.replace(f"${name}", value)
    words = shlex.split(block)
    begins = [number for number, word in enumerate(words) if word == "aws"]
    return [words[begin:end] for begin, end in zip(begins, [*begins[1:], None], strict=True)]


def run(bus: Bus, command: list[str]) -> Any:
    """Do what the AWS CLI does with a command: its service and operation, and options by the service's own names."""
    _, service, operation, *options = command
    client: Any = bus.client(service)
    method = operation.replace("-", "_")
    shape = client.meta.service_model.operation_model(client.meta.method_to_api_mapping[method]).input_shape
    given: dict[str, Any] = {}
    for option, value in zip(options[::2], options[1::2], strict=True):
        name = option.removeprefix("--").title().replace("-", "")
        given[name] = value if shape.members[name].type_name == "string" else json.loads(value)
    return getattr(client, method)(**given)


@ORDERS
def test_what_the_recipe_of_the_command_line_starts_is_a_request_for_the_order(bus: Bus, order: Any) -> None:
    unique = uuid.uuid4().hex
    names = {"start-ship-order": f"start-{unique}", "order-placed": f"placed-{unique}"}
    variables = {
        "STATE_MACHINE_ARN": bus.machine,
        "SHIP_ORDER_ARN": SHIP_ORDER,
        "ROLE_ARN": f"arn:aws:iam::000000000000:role/start-{unique}",
    }
    for command in commands(**variables):
        run(bus, [names.get(word, word) for word in command])
    event = {"orderId": order, "sku": "tea"}
    request = bus.started_by(event)
    assert (request.lock.entity, request.task["arn"], request.task["input"]) == ("42", SHIP_ORDER, event)


def test_the_role_of_the_recipe_may_start_the_locks_machine_and_nothing_else() -> None:
    machine = "arn:aws:states:us-east-1:000000000000:stateMachine:lock"
    documents = [
        json.loads(value)["Statement"]
        for command in commands(STATE_MACHINE_ARN=machine)
        for option, value in zip(command[3::2], command[4::2], strict=True)
        if option.endswith("-policy-document") or option == "--policy-document"
    ]
    assert documents == [
        [{"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}, "Action": "sts:AssumeRole"}],
        [{"Effect": "Allow", "Action": "states:StartExecution", "Resource": machine}],
    ]


@pytest.mark.verify("a stack")
@ORDERS
def test_what_the_rule_of_the_cdk_starts_is_a_request_for_the_order(bus: Bus, tmp_path: Path, order: Any) -> None:
    stack = Stack(App(outdir=str(tmp_path)), "Page")
    body = sfn.DefinitionBody.from_chainable(sfn.Pass(stack, "Ship"))
    ship_order = sfn.StateMachine(stack, "ShipOrder", definition_body=body)
    (block,) = (source for _, source in python_blocks("docs/workflows.md") if "aws_events" in source)
    exec(block, {"self": stack, "TicketLock": TicketLock, "ship_order": ship_order})
    template = Template.from_stack(stack)
    (rule,) = template.find_resources(
        "AWS::Events::Rule", {"Properties": {"EventPattern": {"source": ["shop"]}}}
    ).values()
    (target,) = rule["Properties"]["Targets"]
    statements = [
        statement
        for policy in template.find_resources("AWS::IAM::Policy").values()
        if {"Ref": target["RoleArn"]["Fn::GetAtt"][0]} in policy["Properties"]["Roles"]
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
    ]
    assert statements == [{"Action": "states:StartExecution", "Effect": "Allow", "Resource": target["Arn"]}]
    transformer = json.loads(json.dumps(target["InputTransformer"]))
    joined = transformer["InputTemplate"]["Fn::Join"][1]
    transformer["InputTemplate"] = "".join(part if isinstance(part, str) else SHIP_ORDER for part in joined)
    name = f"placed-{uuid.uuid4().hex}"
    events: Any = bus.client("events")
    events.put_rule(Name=name, EventPattern=json.dumps(rule["Properties"]["EventPattern"]))
    events.put_targets(Rule=name, Targets=[{"Id": "lock", "Arn": bus.machine, "InputTransformer": transformer}])
    event = {"orderId": order, "sku": "tea"}
    request = bus.started_by(event)
    assert (request.lock.entity, request.task["arn"], request.task["input"]) == ("42", SHIP_ORDER, event)
