"""The CDK code in the pages synthesises, each block in a stack of its own, with what the page speaks of around it."""

import ast
import builtins
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from aws_cdk.assertions import Template
from kit.pages import python_blocks
from ticketlock_cdk import TicketLock, TransactionTables

pytestmark = pytest.mark.verify("each example is a stack")

PAGES = ("README.md", "docs/construct.md", "docs/workflows.md", "docs/operations.md", "docs/deploying.md")
_OF_THE_CLIENT = "from ticketlock import"
_OF_UNITS = "from ticketlock.units import"


def blocks() -> list[Any]:
    return [
        pytest.param(source, id=f"{Path(page).name}:{line}")
        for page in PAGES
        for line, source in python_blocks(page)
        if _OF_THE_CLIENT not in source and _OF_UNITS not in source
    ]


def function(stack: Stack, name: str) -> lambda_.Function:
    code = lambda_.Code.from_inline("def handler(event, context): return event")
    return lambda_.Function(stack, name, runtime=lambda_.Runtime.PYTHON_3_13, handler="index.handler", code=code)


class AroundIt(dict[str, Any]):
    """The names that a block uses and the page only speaks of, each made when it is used."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(self=stack, Duration=Duration, sfn=sfn, tasks=tasks, TicketLock=TicketLock)
        self._stack = stack

    def __missing__(self, name: str) -> Any:
        if name == "lock":
            made: Any = TicketLock(self._stack, "Lock")
        elif name == "topic":
            made = sns.Topic(self._stack, "Topic")
        elif name == "units":
            made = TransactionTables(self._stack, "Units")
        elif name in ("ship_order", "charge_workflow", "booking_workflow"):
            body = sfn.DefinitionBody.from_chainable(sfn.Pass(self._stack, f"{name}Pass"))
            made = sfn.StateMachine(self._stack, name, definition_body=body)
        elif name in ("accounts", "orders"):
            key = dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
            made = dynamodb.Table(self._stack, name, partition_key=key)
        elif name.endswith("function") or name == "caller":
            made = function(self._stack, name)
        elif hasattr(builtins, name):
            raise KeyError(name)
        else:
            made = sfn.Pass(self._stack, name)
        self[name] = made
        return made


def with_values(source: str) -> Any:
    """The block, in which what a line makes and gives no name gets one."""
    tree = ast.parse(source.replace("message=...", 'message=sfn.TaskInput.from_text("paid")'))
    for number, statement in enumerate(tree.body):
        if isinstance(statement, ast.Expr):
            target = ast.Name(f"unnamed{number}", ast.Store())
            tree.body[number] = ast.copy_location(ast.Assign([target], statement.value), statement)
    return compile(ast.fix_missing_locations(tree), "page", "exec")


@pytest.mark.parametrize("source", blocks())
def test_the_cdk_code_of_a_page_synthesises(source: str) -> None:
    app = App()
    stack = Stack(app, "Page")
    around = AroundIt(stack)
    exec(with_values(source), around)
    if "OrdersStack" in around:
        stack = around["OrdersStack"](app, "Orders")
    # What is not chained to anything yet can be.
    loose = {id(made): made for name, made in around.items() if name.startswith("unnamed")}
    for number, made in enumerate(loose.values()):
        if isinstance(made, sfn.StateMachineFragment | sfn.State | sfn.Chain):
            body = sfn.DefinitionBody.from_chainable(made)
            machine = sfn.StateMachine(stack, f"Of{number}", definition_body=body)
            if "lock" in around:
                around["lock"].attach(machine)
    kind = "AWS::DynamoDB::Table" if "TransactionTables" in source else "AWS::StepFunctions::StateMachine"
    assert Template.from_stack(stack).find_resources(kind)


def test_the_pages_have_many_blocks_of_cdk_code() -> None:
    assert len(blocks()) > 10
