"""The targets that may run under the lock."""

from typing import Any, cast

import pytest
from aws_cdk import Aws, Fn, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from ticketlock_cdk import TicketLock

pytestmark = pytest.mark.verify("stacks of its own, each synthesised")

FUNCTION = "arn:aws:lambda:eu-west-1:123456789012:function:pay"
MACHINE = "arn:aws:states:eu-west-1:123456789012:stateMachine:Orders"
IN_CHINA = "arn:aws-cn:states:cn-north-1:123456789012:stateMachine:Orders"


def as_list(value):
    return value if isinstance(value, list) else [value]


def machine(stack, kind):
    body = sfn.DefinitionBody.from_chainable(sfn.Pass(stack, f"Nothing{kind}"))
    return sfn.StateMachine(stack, f"Workflow{kind}", state_machine_type=kind, definition_body=body)


def allowed(found, lock):
    """The targets that the definition allows, and those that the machine's role may invoke and start."""
    targets = found.definition(lock.state_machine)["States"]["TakeTicket"]["Parameters"]["Payload"]["targets"]
    granted = {
        action: [
            resource
            for statement in found.statements(lock.state_machine)
            if statement["Action"] == action
            for resource in as_list(statement["Resource"])
            if isinstance(resource, str)
        ]
        for action in ("lambda:InvokeFunction", "states:StartExecution")
    }
    return targets, *granted.values()


@pytest.mark.parametrize("arn", [FUNCTION, f"{FUNCTION}:live", f"{FUNCTION}:3"])
def test_a_function_is_allowed_by_exactly_its_arn(arn, stack, synthesise):
    lock = TicketLock(stack, "Lock", targets=[arn])
    assert allowed(synthesise(stack), lock) == ([arn], [arn], [])


@pytest.mark.parametrize("arn", [MACHINE, IN_CHINA])
def test_a_state_machine_is_allowed_by_its_arn(arn, stack, synthesise):
    lock = TicketLock(stack, "Lock", targets=[arn])
    found = synthesise(stack)
    assert allowed(found, lock) == ([arn], [], [arn])
    for user in (lock.state_machine, lock.clean_up, lock.release):
        stopped = [
            resource
            for one in found.statements(user)
            if "states:StopExecution" in as_list(one["Action"])
            for resource in as_list(one["Resource"])
        ]
        assert arn.replace(":stateMachine:", ":execution:") + ":lock-*" in stopped


@pytest.mark.parametrize("qualifier", ["PROD", "3"])
def test_a_state_machines_alias_or_version_is_granted_by_the_machines_arn(qualifier, stack, synthesise):
    lock = TicketLock(stack, "Lock", targets=[f"{MACHINE}:{qualifier}"])
    assert allowed(synthesise(stack), lock) == ([f"{MACHINE}:{qualifier}"], [], [MACHINE])


def test_imported_ones_are_allowed(stack, synthesise):
    function = lambda_.Function.from_function_arn(stack, "Function", FUNCTION)
    workflow = sfn.StateMachine.from_state_machine_arn(stack, "Workflow", MACHINE)
    lock = TicketLock(stack, "Lock", targets=[function, workflow])
    assert allowed(synthesise(stack), lock) == ([FUNCTION, MACHINE], [FUNCTION], [MACHINE])


def test_a_functions_alias_is_allowed_by_its_own_arn(stack, synthesise):
    function = lambda_.Function(
        stack,
        "Work",
        runtime=lambda_.Runtime.PYTHON_3_14,
        handler="index.handler",
        code=lambda_.Code.from_inline("def handler(event, _context): ..."),
    )
    alias = lambda_.Alias(stack, "Live", alias_name="live", version=function.current_version)
    lock = TicketLock(stack, "Lock", targets=[alias])
    found = synthesise(stack)
    assert allowed(found, lock)[0] == [f"<{found.id_of(alias)}>"]
    [invoke] = [one for one in found.statements(lock.state_machine) if one["Action"] == "lambda:InvokeFunction"]
    assert {"Ref": found.id_of(alias)} in invoke["Resource"]
    assert {"Fn::GetAtt": [found.id_of(function), "Arn"]} not in invoke["Resource"]


def test_an_arn_may_leave_the_account_to_the_deployment(stack, synthesise):
    arn = f"arn:{Aws.PARTITION}:lambda:{Aws.REGION}:{Aws.ACCOUNT_ID}:function:pay"
    lock = TicketLock(stack, "Lock", targets=[arn])
    assert allowed(synthesise(stack), lock)[0] == [
        "arn:<AWS::Partition>:lambda:<AWS::Region>:<AWS::AccountId>:function:pay"
    ]


def test_a_target_of_another_stack_is_allowed(stack, synthesise):
    other = machine(Stack(stack.node.root, "Other"), sfn.StateMachineType.STANDARD)
    lock = TicketLock(stack, "Lock", targets=[other])
    assert len(allowed(synthesise(stack), lock)[0]) == 1


def test_a_target_that_is_given_twice_counts_once(stack, synthesise):
    lock = TicketLock(stack, "Lock", targets=[MACHINE, MACHINE])
    assert allowed(synthesise(stack), lock)[0] == [MACHINE]


def test_without_targets_nothing_may_be_started(stack, synthesise):
    lock = TicketLock(stack, "Lock")
    assert allowed(synthesise(stack), lock) == ([], [], [])


def test_an_express_state_machine_is_refused(stack):
    with pytest.raises(ValueError, match=r"targets\[0\] is Test/WorkflowStateMachineType.EXPRESS, an Express"):
        TicketLock(stack, "Lock", targets=[machine(stack, sfn.StateMachineType.EXPRESS)])


def test_a_state_machine_that_is_made_express_behind_the_constructs_back_is_refused(stack):
    workflow = machine(stack, sfn.StateMachineType.STANDARD)
    workflow.node.default_child.state_machine_type = "EXPRESS"
    with pytest.raises(ValueError, match="an Express state machine"):
        TicketLock(stack, "Lock", targets=[workflow])


@pytest.mark.parametrize(
    ("arn", "message"),
    [
        ("arn:aws:states:eu-west-1:123456789012:express:Orders:a:b", "an execution of an Express state machine"),
        ("arn:aws:states:eu-west-1:123456789012:execution:Orders:a", "which is states execution"),
        ("arn:aws:states:eu-west-1:123456789012:activity:Orders", "which is states activity"),
        ("arn:aws:lambda:eu-west-1:123456789012:layer:pay:1", "which is lambda layer"),
        ("arn:aws:sqs:eu-west-1:123456789012:queue", "which is sqs queue"),
        ("arn:aws:lambda:eu-west-1:123456789012:function:", "which is lambda function"),
        ("arn:aws:lambda:::function:pay", "which is lambda function"),
        ("arn:aws:s3:::bucket", "which is s3 bucket"),
        ("pay", "targets[0] is 'pay'"),
        ("", "targets[0] is ''"),
    ],
)
def test_an_arn_of_another_kind_is_refused(arn, message, stack):
    with pytest.raises(ValueError, match="allowed: ") as refused:
        TicketLock(stack, "Lock", targets=[arn])
    assert str(refused.value).startswith("targets[0] is ")
    assert message in str(refused.value)


def test_the_message_says_which_target_it_is(stack):
    with pytest.raises(ValueError, match=r"targets\[1\] is 'pay'; allowed: a Lambda function or a Standard state"):
        TicketLock(stack, "Lock", targets=[FUNCTION, "pay"])


def test_an_arn_that_is_known_only_at_deploy_time_is_refused(stack):
    with pytest.raises(ValueError, match=r"known only at deploy time; .*import it by from_function_arn"):
        TicketLock(stack, "Lock", targets=[Fn.import_value("TheFunction")])


def test_another_construct_is_refused(stack):
    with pytest.raises(ValueError, match=r"targets\[0\] is .*Queue.*; allowed: a Lambda function"):
        TicketLock(stack, "Lock", targets=[cast(Any, sqs.Queue(stack, "Queue"))])


def test_an_arn_without_its_list_is_refused(stack):
    with pytest.raises(ValueError, match=r"targets is 'arn.*allowed: a list"):
        TicketLock(stack, "Lock", targets=FUNCTION)
