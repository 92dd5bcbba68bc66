"""What users, functions and state machines may do with a lock: each exactly the requests that it sends.

The construct's grants are separate policies, which no resource waits for. With a grant in its role's default policy, a
function or state machine would wait for the lock's state machine, which waits for its targets: a circle that cannot be
deployed.

A state machine with states of the lock has its permissions in its role's default policy, which it waits for. The CDK
moves statements that do not fit in there into managed policies, one by one: so each statement names only a few
resources.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from aws_cdk import Names, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct, IConstruct

from ticketlock.locks._protocol import READ_TO_WAKE
from ticketlock_cdk.lock.lock_functions import Environment, environment_of
from ticketlock_cdk.nag import acknowledge_wildcard
from ticketlock_cdk.policies import Policies
from ticketlock_cdk.tables import let_read, let_write

_RESOURCES_A_STATEMENT = 12

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
SESSIONS = "session#*"
# ForAllValues is true for a request without keys, so Null has to demand them.
# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_condition-single-vs-multi-valued-context-keys.html
_LOCKS_ONLY: dict[str, dict[str, object]] = {
    "ForAllValues:StringNotLike": {"dynamodb:LeadingKeys": [SESSIONS]},
    "Null": {"dynamodb:LeadingKeys": "false"},
}
_TO_WAKE: dict[str, dict[str, object]] = {
    "ForAllValues:StringLike": {"dynamodb:LeadingKeys": [SESSIONS]},
    "ForAllValues:StringEquals": {"dynamodb:Attributes": list(READ_TO_WAKE)},
    "Null": {"dynamodb:LeadingKeys": "false", "dynamodb:Attributes": "false"},
    # Otherwise all attributes are returned, regardless of the list.
    "StringEquals": {"dynamodb:Select": "SPECIFIC_ATTRIBUTES"},
}
# Attributes of lock items and queue rows. Not those of sessions, whose task tokens allow answering for a workflow; and
# not those of holders, whose names cannot be listed in advance.
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

_LONGEST_MACHINE_ARN = 147
# Of 10, so that the principal may have others.
_MOST_MANAGED = 8


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


class Grantee:
    """A principal that wraps another one, for one grant.

    Args:
        grantee: the principal.
        construct: what grants: a TicketLock or a TransactionTables.
        grant: the grant's name.
        environment: the construct's environment.
        needed: the stacks that the construct's own stack needs, since a lock's targets are in them.

    Attributes:
        id: its name among those of the construct; None if the principal handles the grant itself.
        grantable: what to grant what does not grow.
    """

    def __init__(
        self,
        grantee: iam.IGrantable,
        *,
        construct: Construct,
        grant: str,
        environment: Environment,
        needed: Sequence[Stack],
    ) -> None:
        self.id: str | None = None
        self.grantable: iam.IGrantable = grantee
        self._construct = construct
        identity = _identity(grantee)
        if identity is None or environment.is_elsewhere(environment_of(identity)):
            return
        self._identity = identity
        self.id = f"{grant}-{Names.node_unique_id(identity.node)}"
        stack = Stack.of(identity)
        self._place = beside(construct, Stack.of(construct) if stack in needed else stack)
        self._policies = Policies(identity, self.id, inline=_inline_room(identity), managed=_MOST_MANAGED)
        self.grantable = self._policies.inline(self._place)

    def room_for(self, actions: Sequence[str], resource: IConstruct, characters: int) -> iam.IGrantable:
        """What to grant actions on a resource: an inline policy while it has room, then managed policies.

        Args:
            actions: the actions.
            resource: the resource.
            characters: how long its ARN may be.

        Raises:
            ValueError: there is no room left; names the principal and the resource.
        """
        if self.id is None:
            return self.grantable
        for policy in self._policies.with_room(self._place, actions, resource.node.path, characters):
            return policy
        raise ValueError(
            f"grantee is {self._identity.node.path}, which has no room for {resource.node.path} in its inline policy "
            f"and {_MOST_MANAGED} managed policies of {self._construct.node.path}; allowed: fewer resources for one "
            "role, user or group"
        )


def _identity(grantee: iam.IGrantable) -> Any:
    """The role, user or group that a policy can be attached to; None for any other principal."""
    for found in (grantee, grantee.grant_principal):
        if hasattr(found, "attach_inline_policy"):
            return found
    return None


def _inline_room(identity: Any) -> int:
    """The characters of inline policies for what grows: the rest is for the rest of a grant, and for other policies.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
    """
    if hasattr(identity, "role_name"):
        return 3_900  # of 10,240
    return 420 if hasattr(identity, "user_name") else 1_500  # of 2,048; of a group 5,120


def beside(lock: Construct, stack: Stack) -> Construct:
    """The scope, in a stack, for policies that name both a lock's own functions and other resources.

    It is outside the lock's construct and the others', so that a dependency on one of those does not include it.
    """
    id = f"{Names.unique_resource_name(lock, separator='-')}-Beside"
    found = stack.node.try_find_child(id) or Construct(stack, id)
    assert isinstance(found, Construct)
    return found


def grant_use(grantee: Grantee, *, table: dynamodb.ITable, machines: Sequence[sfn.IStateMachine]) -> iam.Grant:
    """Let a Python client take, renew and release locks, and wake the next one in line.

    It may not write sessions: with them it could end another owner's heartbeat, or make a clean-up stop another owner's
    work. It may read the tokens of sessions that wake waiters, but not those of heartbeats.
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/specifying-conditions.html
    """
    grant = _on_table(grantee, table, _USE, _LOCKS_ONLY)
    grant = grant.combine(_on_table(grantee, table, ("dynamodb:Query",), _TO_WAKE))
    wakes = ["states:SendTaskSuccess"]
    for machine in machines:
        room, arn = grantee.room_for(wakes, machine, _LONGEST_MACHINE_ARN), machine.state_machine_arn
        grant = grant.combine(iam.Grant.add_to_principal(grantee=room, actions=wakes, resource_arns=[arn]))
    return grant if table.encryption_key is None else grant.combine(let_write(grantee.grantable, table.encryption_key))


def grant_fence(grantee: Grantee, *, table: dynamodb.ITable) -> iam.Grant:
    """Let a task of a workflow check, in its own transactions, that a lock is held; and read or write no lock."""
    # A check always names its key, so that nothing has to demand it.
    no_session: dict[str, dict[str, object]] = {"ForAllValues:StringNotLike": {"dynamodb:LeadingKeys": [SESSIONS]}}
    grant = _on_table(grantee, table, ("dynamodb:ConditionCheckItem",), no_session)
    return grant if table.encryption_key is None else grant.combine(let_read(grantee.grantable, table.encryption_key))


def grant_read(grantee: Grantee, *, table: dynamodb.ITable) -> iam.Grant:
    """Let an operator read locks and queues, and list them, but no session.

    A Scan returns items with any key, so it is restricted to attributes that are named in the request.
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
    return grant if table.encryption_key is None else grant.combine(let_read(grantee.grantable, table.encryption_key))


def _on_table(
    grantee: Grantee,
    table: dynamodb.ITable,
    actions: Sequence[str],
    conditions: dict[str, dict[str, object]] | None = None,
) -> iam.Grant:
    return iam.Grant.add_to_principal(
        grantee=grantee.grantable, actions=list(actions), resource_arns=[table.table_arn], conditions=conditions
    )
