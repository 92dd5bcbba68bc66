"""A stack of its own for each test, and its template as plain JSON; the stacks that many tests read."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from aws_cdk import App, Stack, Tags
from aws_cdk.assertions import Template
from aws_cdk.aws_ec2 import SubnetConfiguration, SubnetType, Vpc
from aws_cdk.aws_iam import Role, ServicePrincipal
from aws_cdk.aws_kms import Key
from aws_cdk.aws_lambda import Function
from aws_cdk.aws_sns import Topic
from aws_cdk.aws_stepfunctions import StateMachine
from kit.stacks import function, machine
from ticketlock_cdk import TicketLock, TicketlockStack


class Synthesised:
    """A synthesised stack.

    Attributes:
        template: as JSON.
        resources: by logical id.
    """

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.template: Mapping[str, Any] = Template.from_stack(stack).to_json()
        self.resources: Mapping[str, Any] = self.template["Resources"]

    def of_type(self, kind: str) -> Mapping[str, Any]:
        return {id: found.get("Properties", {}) for id, found in self.resources.items() if found["Type"] == kind}

    def one(self, construct: Any) -> Any:
        """The resource of a construct, whole."""
        return self.resources[self.id_of(construct)]

    def id_of(self, construct: Any) -> str:
        id: str = self.stack.resolve(self.stack.get_logical_id(construct.node.default_child))
        return id

    @staticmethod
    def text(value: Any) -> str:
        """A value with ``<logical id>`` for each reference in it."""
        text = Synthesised.text
        if isinstance(value, str):
            return value
        if "Fn::Join" in value:
            return "".join(map(text, value["Fn::Join"][1]))
        if "Ref" in value:
            return f"<{value['Ref']}>"
        if "Fn::GetAtt" in value:
            return f"<{value['Fn::GetAtt'][0]}>"
        if "Fn::ImportValue" in value:
            return f"<{value['Fn::ImportValue']}>"
        index, parts = value["Fn::Select"]
        return f"<part {index} of {text(parts['Fn::Split'][1])}>"

    def function(self, function: Function) -> Mapping[str, Any]:
        properties: Mapping[str, Any] = self.one(function)["Properties"]
        return properties

    def statements(self, construct: Any = None) -> Iterator[Mapping[str, Any]]:
        """The statements of every policy, or of those that are attached to a role, or a function's or a machine's."""
        role = None if construct is None else self.id_of(getattr(construct, "role", construct))
        for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
            for policy in self.of_type(kind).values():
                if role is None or {"Ref": role} in policy.get("Roles", []):
                    yield from policy["PolicyDocument"]["Statement"]

    def definition(self, machine: StateMachine) -> dict[str, Any]:
        """The definition with ``<logical id>`` in place of what is known only at deploy time."""
        parsed: dict[str, Any] = json.loads(self.text(self.one(machine)["Properties"]["DefinitionString"]))
        return parsed


Synthesise = Callable[[Stack], Synthesised]


@pytest.fixture(scope="session")
def outdir(tmp_path_factory: pytest.TempPathFactory) -> str:
    # One for all, since each holds the functions' asset.
    return str(tmp_path_factory.mktemp("assembly"))


@pytest.fixture
def stack(outdir: str) -> Stack:
    return Stack(App(outdir=outdir), "Test")


@pytest.fixture(scope="session")
def synthesise() -> Synthesise:
    return Synthesised


class Typical:
    """A TicketLock with a function and a state machine as targets, synthesised once for the tests that only read it."""

    def __init__(self, outdir: str) -> None:
        stack = Stack(App(outdir=outdir), "Typical")
        self.target_function, self.target_machine = function(stack), machine(stack)
        self.lock = TicketLock(stack, "Lock", targets=[self.target_function, self.target_machine])
        self.functions = {
            "take_ticket": self.lock.take_ticket,
            "wait_for_wake_up": self.lock.wait_for_wake_up,
            "check_position": self.lock.check_position,
            "heartbeat": self.lock.heartbeat,
            "release": self.lock.release,
            "clean_up": self.lock.clean_up,
        }
        self.synthesised = Synthesised(stack)
        self.definition = self.synthesised.definition(self.lock.state_machine)


@pytest.fixture(scope="session")
def typical(outdir: str) -> Typical:
    return Typical(outdir)


class Everything:
    """A TicketLock with every optional resource, and principals with each of its grants."""

    def __init__(self, outdir: str) -> None:
        stack = Stack(App(outdir=outdir), "Everything")
        self.key = Key(stack, "Key")
        self.vpc = Vpc(
            stack,
            "Vpc",
            nat_gateways=0,
            subnet_configuration=[SubnetConfiguration(name="Inside", subnet_type=SubnetType.PRIVATE_ISOLATED)],
        )
        self.topic = Topic(stack, "OnCall")
        self.lock = TicketLock(
            stack,
            "Lock",
            targets=[f"arn:aws:states:eu-west-1:123456789012:stateMachine:{name}" for name in ("Orders", "Refunds")],
            encryption_key=self.key,
            vpc=self.vpc,
            dashboard=True,
            alarms=True,
            alarm_topic=self.topic,
        )
        Tags.of(self.lock).add("team", "shipping")
        self.functions = [each for each in self.lock.node.find_all() if isinstance(each, Function)]
        self.starter, self.client, self.operator, self.task = (
            Role(stack, name, assumed_by=ServicePrincipal("ecs-tasks.amazonaws.com"))
            for name in ("Starter", "Client", "Operator", "Task")
        )
        self.lock.grant_start_execution(self.starter)
        self.lock.grant_use(self.client)
        self.lock.grant_read(self.operator)
        self.lock.grant_fence(self.task)
        self.synthesised = Synthesised(stack)


@pytest.fixture(scope="session")
def everything(outdir: str) -> Everything:
    return Everything(outdir)


@pytest.fixture(scope="session")
def ready_made(stack_with: Callable[..., Synthesised]) -> Synthesised:
    return stack_with(alarms=True, dashboard=True)


@pytest.fixture(scope="session")
def stack_with(outdir: str) -> Callable[..., Synthesised]:
    """The ready-made stack with these settings in its context: each is synthesised once."""
    made: dict[str, Synthesised] = {}

    def synthesised(**context: Any) -> Synthesised:
        key = repr(sorted(context.items()))
        if key not in made:
            made[key] = Synthesised(TicketlockStack(App(outdir=outdir, context=context), "Ticketlock"))
        return made[key]

    return synthesised
