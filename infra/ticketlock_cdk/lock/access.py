"""What the construct lets others do: each grant is the requests that its user sends, and no others."""

from collections.abc import Sequence

from aws_cdk import Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ticketlock.locks._hand_over import CALLED
from ticketlock_cdk.encryption import let_read, let_write
from ticketlock_cdk.nag import acknowledge_wildcard

# A transaction needs the actions of its writes, and ConditionCheckItem for a check beside them:
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis-iam.html
_USE = (
    "dynamodb:ConditionCheckItem",
    "dynamodb:DeleteItem",
    "dynamodb:GetItem",
    "dynamodb:PutItem",
    "dynamodb:Query",
    "dynamodb:UpdateItem",
)
_SESSIONS = "session#*"
# Of a request without keys ForAllValues is true, so that Null has to demand them.
# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_condition-single-vs-multi-valued-context-keys.html
_LOCKS_ONLY: dict[str, dict[str, object]] = {
    "ForAllValues:StringNotLike": {"dynamodb:LeadingKeys": [_SESSIONS]},
    "Null": {"dynamodb:LeadingKeys": "false"},
}
_CALLS: dict[str, dict[str, object]] = {
    "ForAllValues:StringLike": {"dynamodb:LeadingKeys": [_SESSIONS]},
    "ForAllValues:StringEquals": {"dynamodb:Attributes": list(CALLED)},
    "Null": {"dynamodb:LeadingKeys": "false", "dynamodb:Attributes": "false"},
    # Otherwise all attributes come back, whatever the list says.
    "StringEquals": {"dynamodb:Select": "SPECIFIC_ATTRIBUTES"},
}
# Of lock items and queue rows. Not those of sessions, with whose task tokens anybody could answer for a workflow; and
# not a holder's, whose names no list can tell beforehand.
_LISTED = (
    "pk",
    "sk",
    "createdAtMs",
    "dataLeft",
    "expiresAt",
    "fencingToken",
    "format",
    "held",
    "heldShared",
    "issued",
    "leaseUntilMs",
    "meanHoldMs",
    "owner",
    "permits",
    "permitsKeptUntil",
    "shared",
    "ticketAtMs",
    "voidUpTo",
    "waiting",
)


def grant_use(grantee: iam.IGrantable, *, table: dynamodb.ITable, machines: Sequence[sfn.IStateMachine]) -> iam.Grant:
    """Let a Python client take, renew and release locks, and call the next one in line.

    It writes no session: with one it could end another's heartbeat, or have a clean-up stop another's work. Of those
    it reads the tokens by which waiters are called, and not those of heartbeats.
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/specifying-conditions.html
    """
    grant = _on_table(grantee, table, _USE, _LOCKS_ONLY)
    grant = grant.combine(_on_table(grantee, table, ("dynamodb:Query",), _CALLS))
    grant = grant.combine(
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["states:SendTaskSuccess"],
            resource_arns=[machine.state_machine_arn for machine in machines],
        )
    )
    return grant if table.encryption_key is None else grant.combine(let_write(grantee, table.encryption_key))


def grant_read(grantee: iam.IGrantable, *, table: dynamodb.ITable) -> iam.Grant:
    """Let an operator read locks and queues, and list them, but no session.

    A Scan returns all items whatever their keys, so that it is held to attributes that are named in the request.
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/specifying-conditions.html
    """
    grant = _on_table(
        grantee,
        table,
        ("dynamodb:GetItem", "dynamodb:Query"),
        _LOCKS_ONLY,
    )
    grant = grant.combine(
        _on_table(
            grantee,
            table,
            ("dynamodb:Scan",),
            {
                "ForAllValues:StringEquals": {"dynamodb:Attributes": list(_LISTED)},
                "Null": {"dynamodb:Attributes": "false"},
                "StringEquals": {"dynamodb:Select": "SPECIFIC_ATTRIBUTES"},
            },
        )
    )
    return grant if table.encryption_key is None else grant.combine(let_read(grantee, table.encryption_key))


def _on_table(
    grantee: iam.IGrantable,
    table: dynamodb.ITable,
    actions: Sequence[str],
    conditions: dict[str, dict[str, object]] | None = None,
) -> iam.Grant:
    return iam.Grant.add_to_principal(
        grantee=grantee, actions=list(actions), resource_arns=[table.table_arn], conditions=conditions
    )


def let_write_sessions(machine: sfn.StateMachine, table: dynamodb.ITable) -> None:
    """The one write of the machine itself, in its state LeaveToHeartbeat: sessions, never a lock.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/specifying-conditions.html
    """
    machine.add_to_role_policy(
        iam.PolicyStatement(
            actions=["dynamodb:UpdateItem"],
            resources=[table.table_arn],
            # An update always names its key, so that nothing has to demand it.
            conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [_SESSIONS]}},
        )
    )
    if table.encryption_key is not None:
        let_write(machine, table.encryption_key)


def let_invoke(machine: sfn.StateMachine, function_arns: Sequence[str]) -> None:
    """Let a machine invoke functions by these very ARNs."""
    machine.add_to_role_policy(iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=list(function_arns)))


def let_nest(machine: sfn.StateMachine, nested: Sequence[tuple[str, str]]) -> None:
    """What running nested executions to their ends needs.

    A version or an alias is authorised by its state machine's ARN.
    https://docs.aws.amazon.com/step-functions/latest/dg/connect-stepfunctions.html
    https://docs.aws.amazon.com/step-functions/latest/dg/auth-version-alias.html

    Args:
        machine: the one that runs them.
        nested: for each state machine its ARN, and that of its executions.
    """
    executions = [executions_arn for _, executions_arn in nested]
    rule = Stack.of(machine).format_arn(
        service="events", resource="rule", resource_name="StepFunctionsGetEventsForStepFunctionsExecutionRule"
    )
    for statement in (
        iam.PolicyStatement(actions=["states:StartExecution"], resources=[arn for arn, _ in nested]),
        iam.PolicyStatement(actions=["states:DescribeExecution", "states:StopExecution"], resources=executions),
        iam.PolicyStatement(actions=["events:DescribeRule", "events:PutRule", "events:PutTargets"], resources=[rule]),
    ):
        machine.add_to_role_policy(statement)
    for arn in executions:
        acknowledge_wildcard(machine, arn, reason="An execution's name follows from its grant, or from its owner.")


def let_describe(scope: Construct, functions: Sequence[lambda_.Function], executions: Sequence[str]) -> None:
    """Let functions look executions up, by the ARNs of all that a state machine may have."""
    _let(scope, "DescribeExecutions", functions, ["states:DescribeExecution"], executions)


def let_close(scope: Construct, functions: Sequence[lambda_.Function], executions: Sequence[str]) -> None:
    """Let functions stop nested executions, and see them closed."""
    _let(scope, "CloseExecutions", functions, ["states:DescribeExecution", "states:StopExecution"], executions)


def _let(
    scope: Construct,
    id: str,
    functions: Sequence[lambda_.Function],
    actions: Sequence[str],
    executions: Sequence[str],
) -> None:
    statement = iam.PolicyStatement(actions=list(actions), resources=list(executions))
    policy = iam.Policy(scope, id, statements=[statement])
    for function in functions:
        assert function.role is not None
        policy.attach_to_role(function.role)
    for arn in executions:
        acknowledge_wildcard(policy, arn, reason="Executions have names of their own; the machine is named.")


def let_answer(
    scope: Construct,
    machine: sfn.IStateMachine,
    *,
    calling: Sequence[lambda_.Function],
    failing: Sequence[lambda_.Function],
) -> None:
    """Let functions answer the callback tasks of a machine: call its parked waiters, end its heartbeats.

    In policies of their own: the functions wait for the policies of their roles, the machine for the functions, and
    these for the machine. In the roles' own policies it would close a circle that cannot be deployed. The resource is
    the one that the CDK's own ``grant_task_response`` names.

    Args:
        scope: of the policies.
        machine: whose tasks they are.
        calling: may answer with success.
        failing: may fail a task too.
    """
    for id, action, functions in (
        ("AnswerTasks", "states:SendTaskSuccess", calling),
        ("FailTasks", "states:SendTaskFailure", failing),
    ):
        statement = iam.PolicyStatement(actions=[action], resources=[machine.state_machine_arn])
        policy = iam.Policy(scope, id, statements=[statement])
        for function in functions:
            assert function.role is not None
            policy.attach_to_role(function.role)
