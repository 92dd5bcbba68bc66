"""The permissions of a state machine with states of the lock: in its role's default policy, which it waits for.

The CDK moves statements that do not fit in there into managed policies, one by one: so each statement names only a few
resources.
"""

from collections.abc import Iterator, Sequence

from aws_cdk import Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn

from ticketlock_cdk.encryption import let_write
from ticketlock_cdk.lock.grants import SESSIONS
from ticketlock_cdk.nag import acknowledge_wildcard

_RESOURCES_A_STATEMENT = 12


def let_write_sessions(machine: sfn.StateMachine, table: dynamodb.ITable) -> None:
    """Allow the machine's own write, in its state LeaveToHeartbeat: to sessions, never to a lock.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/specifying-conditions.html
    """
    machine.add_to_role_policy(
        iam.PolicyStatement(
            actions=["dynamodb:UpdateItem"],
            resources=[table.table_arn],
            # An update always names its key, so the condition need not demand it.
            conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [SESSIONS]}},
        )
    )
    if table.encryption_key is not None:
        let_write(machine, table.encryption_key)


def let_invoke(machine: sfn.StateMachine, function_arns: Sequence[str]) -> None:
    """Let a machine invoke functions by exactly these ARNs."""
    for arns in _few(function_arns):
        machine.add_to_role_policy(iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=arns))


def let_nest(machine: sfn.StateMachine, nested: Sequence[tuple[str, str]]) -> None:
    """The permissions to run nested executions and wait for their ends.

    A version or an alias is authorised by its state machine's ARN.
    https://docs.aws.amazon.com/step-functions/latest/dg/connect-stepfunctions.html
    https://docs.aws.amazon.com/step-functions/latest/dg/auth-version-alias.html

    Args:
        machine: the machine that runs them.
        nested: for each nested state machine its ARN, and that of its executions.
    """
    rule = Stack.of(machine).format_arn(
        service="events", resource="rule", resource_name="StepFunctionsGetEventsForStepFunctionsExecutionRule"
    )
    executions = [executions_arn for _, executions_arn in nested]
    for actions, resources in (
        (["states:StartExecution"], [arn for arn, _ in nested]),
        (["states:DescribeExecution", "states:StopExecution"], executions),
        (["events:DescribeRule", "events:PutRule", "events:PutTargets"], [rule]),
    ):
        for arns in _few(resources):
            machine.add_to_role_policy(iam.PolicyStatement(actions=actions, resources=arns))
    for arn in executions:
        acknowledge_wildcard(machine, arn, reason="An execution's name follows from its grant, or from its owner.")


def _few(resources: Sequence[str]) -> Iterator[list[str]]:
    for first in range(0, len(resources), _RESOURCES_A_STATEMENT):
        yield list(resources[first : first + _RESOURCES_A_STATEMENT])
