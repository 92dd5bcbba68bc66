"""What users, functions and state machines may do with a lock: each exactly the requests that it sends.

The construct's grants are separate policies, which no resource waits for. With a grant in its role's default policy, a
function or state machine would wait for the lock's state machine, which waits for its targets: a circle that cannot be
deployed. They are in the role's stack, where another resource may wait for them; in the construct's stack, if that
waits for the role's stack, for example since a target or the given table is there.

A state machine with states of the lock has its permissions in its role's default policy, which it waits for. The CDK
moves statements that do not fit in there into managed policies, one by one: so each statement names only a few
resources.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

from aws_cdk import Names, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct, IConstruct

from ticketlock.locks import READ_TO_WAKE
from ticketlock_cdk.checks import check_construct
from ticketlock_cdk.either_stack import either_stack
from ticketlock_cdk.environment import Environment, environment_of
from ticketlock_cdk.machine_keys import key_arn_of, key_arn_of_durable
from ticketlock_cdk.nag import acknowledge_wildcard
from ticketlock_cdk.policies import LONGEST_MACHINE_ARN, Policies, Room, is_attached
from ticketlock_cdk.tables import TO_SEND, let_read, let_write

# Actions on a resource, and its ARN.
_Named = tuple[Sequence[str], IConstruct, str]

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
# Also in one transaction with a lock's items: so no condition tells the two apart.
_ALSO_OF_SESSIONS = ("dynamodb:ConditionCheckItem", "dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem")
SESSIONS = "session#*"
WAKES_DURABLE = "lambda:SendDurableExecutionCallbackSuccess"
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

_BY_HAND = "no such call, and the policies that docs/permissions.md lists, by hand"
_OF_THIS_APP = f"a function, state machine, role, user or group of this app, or {_BY_HAND}"
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
        acknowledge_wildcard(machine, "executions", arn)


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

    Raises:
        ValueError: it has no policies that the app can change.

    Attributes:
        id: its name among those of the construct; None if the principal handles the grant itself.
    """

    def __init__(self, grantee: iam.IGrantable, *, construct: Construct, grant: str, environment: Environment) -> None:
        check_construct("grantee", grantee, "grant_principal", _OF_THIS_APP)
        self.id: str | None = None
        self._grantee = grantee
        self._construct = construct
        identity = _identity(grantee)
        if isinstance(grantee.grant_principal, iam.PrincipalWithConditions | iam.SessionTagsPrincipal):
            raise ValueError(
                f"grantee is {grantee!r}, which hides whether its policies can be changed; allowed: the role, user or "
                "group in it"
            )
        if isinstance(grantee.grant_principal, iam.UnknownPrincipal):
            # The CDK takes what is granted to it for added.
            raise _no_policies(grantee)
        if identity is None:
            return
        check_takes_policies(f"grantee is {identity.node.path}", identity, f", or {_BY_HAND}")
        if environment.is_elsewhere(environment_of(identity)):
            return
        self._identity = identity
        self.id = f"{grant}-{Names.node_unique_id(identity.node)}"
        stack = Stack.of(identity)
        # Two stacks of grantees have each a scope of its own in the construct's stack.
        id = f"Grants-{Names.unique_resource_name(stack)}"
        self._place = either_stack(beside(construct, stack), id, beside(construct, Stack.of(construct)))
        self._policies = Policies(identity, self.id, _room_of(identity))

    @property
    def grantables(self) -> Sequence[iam.IGrantable]:
        """What to grant what does not grow, to each of them: of policies in two stacks one is deployed."""
        # Made for a statement only: the CDK refuses a policy without one if its role has another, too.
        return [self._grantee] if self.id is None else self._policies.inline(self._place)

    def room_for(self, actions: Sequence[str], resource: IConstruct, characters: int) -> Sequence[iam.IGrantable]:
        """What to grant actions on a resource, to each of them: inline policies with room, then managed policies.

        Args:
            actions: the actions.
            resource: the resource.
            characters: how long its ARN may be.

        Raises:
            ValueError: there is no room left; names the principal and the resource.
        """
        if self.id is None:
            return self.grantables
        policies = self._policies.with_room(self._place, actions, resource.node.path, characters)
        if not policies:
            raise ValueError(
                f"grantee is {self._identity.node.path}, which has no room for {resource.node.path} in its inline "
                f"policies and {_MOST_MANAGED} managed policies, for which {self._construct.node.path} asks; allowed: "
                "fewer resources for one role, user or group"
            )
        return policies


class Grantees:
    """The principals that one construct grants to.

    Args:
        construct: a TicketLock or a TransactionTables.
        environment: its environment.
    """

    def __init__(self, construct: Construct, environment: Environment) -> None:
        self._construct = construct
        self._environment = environment
        self._made: dict[str, Grantee] = {}

    def of(self, grantee: iam.IGrantable, grant: str) -> Grantee:
        """A principal for one grant: the same each time, since it knows for what it has room."""
        made = Grantee(grantee, construct=self._construct, grant=grant, environment=self._environment)
        return made if made.id is None else self._made.setdefault(made.id, made)


def to_each(grantables: Sequence[iam.IGrantable], grant: Callable[[iam.IGrantable], iam.Grant]) -> iam.Grant:
    """Grant the same to each of these.

    Raises:
        ValueError: one has no policies, so that nothing was granted.
    """
    made = [(to, grant(to)) for to in grantables]
    for to, granted in made:
        if not granted.success:
            raise _no_policies(to)
    return reduce(lambda one, other: one.combine(other), [granted for _, granted in made])


def _no_policies(grantee: iam.IGrantable) -> ValueError:
    shown = getattr(getattr(grantee, "node", None), "path", repr(grantee))
    return ValueError(
        f"grantee is {shown}, which has no policies here, as an imported function or state machine without its role "
        f"has none; allowed: {_OF_THIS_APP}"
    )


def check_takes_policies(what: str, identity: Any, or_else: str = "") -> None:
    """Refuse a role, user or group whose policies the app cannot change: the CDK takes what is granted for added.

    Such as a role that was imported with ``mutable=False``, or from another account.

    Args:
        what: the beginning of the message.
        identity: the role, user or group.
        or_else: what is allowed besides.

    Raises:
        ValueError: it is one.
    """
    stack = Stack.of(identity)
    # Without statements it would never be in the template; and it is taken away again.
    probe = iam.Policy(stack, f"Probe-{Names.node_unique_id(identity.node)}")
    identity.attach_inline_policy(probe)
    takes = is_attached(probe)
    stack.node.try_remove_child(probe.node.id)
    if not takes:
        raise ValueError(
            f"{what}, whose policies this app cannot change, so that nothing would be granted; allowed: one whose "
            f"policies it can change{or_else}"
        )


def _identity(grantee: iam.IGrantable) -> Any:
    """The role, user or group that a policy can be attached to; None for any other principal."""
    for found in (grantee, grantee.grant_principal):
        if hasattr(found, "attach_inline_policy"):
            return found
    return None


class _KeptRoom(Construct):
    """The room of a role, user or group for the grants of all constructs, kept in its stack."""

    def __init__(self, scope: Construct, id: str, room: Room) -> None:
        super().__init__(scope, id)
        self.room = room


def _room_of(identity: Any) -> Room:
    stack, id = Stack.of(identity), f"RoomForGrants-{Names.node_unique_id(identity.node)}"
    found = stack.node.try_find_child(id)
    found = found or _KeptRoom(stack, id, Room(inline=_inline_room(identity), managed=_MOST_MANAGED))
    assert isinstance(found, _KeptRoom)
    return found.room


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


def grant_use(grantee: Grantee, *, table: dynamodb.ITable, machines: Sequence[sfn.StateMachine]) -> iam.Grant:
    """Let a Python client take, renew and release locks, and wake the next one in line, also in encrypted machines.

    It may not write sessions: with them it could end another owner's heartbeat, or make a clean-up stop another owner's
    work. It may read the tokens of sessions that wake waiters, but not those of heartbeats.
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/specifying-conditions.html
    """
    grant = _on_table(grantee, table, _USE, _LOCKS_ONLY)
    grant = grant.combine(_on_table(grantee, table, ("dynamodb:Query",), _TO_WAKE))
    wakes = [(["states:SendTaskSuccess"], machine, machine.state_machine_arn) for machine in machines]
    keys = _keys(table, {key_arn_of(machine): machine for machine in machines})
    grant = _on_named(grant, grantee, [*wakes, *keys])
    return _with_key(grant, grantee, table, let_write)


def grant_durable(
    grantee: Grantee,
    *,
    table: dynamodb.ITable,
    machines: Sequence[sfn.StateMachine],
    functions: Sequence[lambda_.Function],
) -> iam.Grant:
    """Let a durable function hold locks, keep its own sessions, wake the next one in line, also of its own kind, and
    ask whether the execution has ended that holds the lock suspended.
    """
    grant = grant_use(grantee, table=table, machines=machines)
    grant = grant.combine(_on_table(grantee, table, _ALSO_OF_SESSIONS))
    tells = [WAKES_DURABLE, "lambda:GetDurableExecution"]
    executions = [(tells, function, f"{function.function_arn}:*") for function in functions]
    keys = _keys(table, {key_arn_of_durable(function): function for function in functions})
    return _on_named(grant, grantee, [*executions, *keys])


def grant_fence(grantee: Grantee, *, table: dynamodb.ITable) -> iam.Grant:
    """Let a task of a workflow check, in its own transactions, that a lock is held; and read or write no lock."""
    # A check always names its key, so that nothing has to demand it.
    no_session: dict[str, dict[str, object]] = {"ForAllValues:StringNotLike": {"dynamodb:LeadingKeys": [SESSIONS]}}
    grant = _on_table(grantee, table, ("dynamodb:ConditionCheckItem",), no_session)
    return _with_key(grant, grantee, table, let_read)


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
    return _with_key(grant, grantee, table, let_read)


def _on_table(
    grantee: Grantee,
    table: dynamodb.ITable,
    actions: Sequence[str],
    conditions: dict[str, dict[str, object]] | None = None,
) -> iam.Grant:
    return to_each(
        grantee.grantables,
        lambda to: iam.Grant.add_to_principal(
            grantee=to, actions=list(actions), resource_arns=[table.table_arn], conditions=conditions
        ),
    )


def _keys(table: dynamodb.ITable, encrypted: Mapping[str | None, IConstruct]) -> Sequence[_Named]:
    """What who answers callbacks needs on keys, by their ARNs, other than the table's, which it may use anyway."""
    of_table = None if table.encryption_key is None else table.encryption_key.key_arn
    return [(TO_SEND, resource, arn) for arn, resource in encrypted.items() if arn is not None and arn != of_table]


def _on_named(grant: iam.Grant, grantee: Grantee, named: Iterable[_Named]) -> iam.Grant:
    for actions, resource, arn in named:
        for room in grantee.room_for(actions, resource, LONGEST_MACHINE_ARN):
            told = iam.Grant.add_to_principal(grantee=room, actions=list(actions), resource_arns=[arn])
            grant = grant.combine(told)
            if arn.endswith("*") and isinstance(room, iam.Policy | iam.ManagedPolicy):
                acknowledge_wildcard(room, "executions", arn)
    return grant


def _with_key(
    grant: iam.Grant,
    grantee: Grantee,
    table: dynamodb.ITable,
    let: Callable[[iam.IGrantable, kms.IKey], iam.Grant],
) -> iam.Grant:
    key = table.encryption_key
    return grant if key is None else grant.combine(to_each(grantee.grantables, lambda to: let(to, key)))
