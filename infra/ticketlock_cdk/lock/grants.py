"""What the construct lets others do: each grant is the requests that its user sends, and no others.

In policies of their own, for which nobody waits. By its role's default policy a function or a state machine that is
granted something would wait for the lock's state machine, which waits for its targets: nobody can deploy such a circle.
"""

from collections.abc import Sequence
from typing import Any

from aws_cdk import Names, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ticketlock.locks._hand_over import CALLED
from ticketlock_cdk.encryption import let_read, let_write
from ticketlock_cdk.lock.environment import Environment, environment_of

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
# Of a request without keys ForAllValues is true, so that Null has to demand them.
# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_condition-single-vs-multi-valued-context-keys.html
_LOCKS_ONLY: dict[str, dict[str, object]] = {
    "ForAllValues:StringNotLike": {"dynamodb:LeadingKeys": [SESSIONS]},
    "Null": {"dynamodb:LeadingKeys": "false"},
}
_CALLS: dict[str, dict[str, object]] = {
    "ForAllValues:StringLike": {"dynamodb:LeadingKeys": [SESSIONS]},
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


# Of the longest names, with room for the rest of the policy and for what else the role may do.
_MACHINES_INLINE = 25
_MACHINES_A_MANAGED_POLICY = 38


class Grantee:
    """A principal, as the one that one grant is for.

    Args:
        grantee: the principal.
        lock: whose grant it is.
        grant: its name.
        environment: the lock's.
        needed: the stacks without which the lock's own cannot be deployed, since its targets are in them.
    """

    def __init__(
        self, grantee: iam.IGrantable, *, lock: Construct, grant: str, environment: Environment, needed: Sequence[Stack]
    ) -> None:
        self._id = grant
        self._identity = _identity(grantee)
        self._place: Construct | None = None
        self.grantable: iam.IGrantable = grantee
        if self._identity is None or environment.is_elsewhere(environment_of(self._identity)):
            return  # it says itself what becomes of a grant
        self._id += "-" + Names.node_unique_id(self._identity.node)
        stack = Stack.of(self._identity)
        self._place = beside(lock, Stack.of(lock) if stack in needed else stack)
        policy = self._place.node.try_find_child(self._id)
        if policy is None:
            policy = iam.Policy(self._place, self._id, document=iam.PolicyDocument(minimize=True))
            self._identity.attach_inline_policy(policy)
        assert isinstance(policy, iam.Policy)
        self.grantable = policy

    def grant_on_machines(self, action: str, machines: Sequence[sfn.IStateMachine]) -> iam.Grant:
        """One action on state machines: as many as an inline policy has room for, the others in managed policies."""
        arns = [machine.state_machine_arn for machine in machines]
        if self._place is None or not hasattr(self._identity, "role_name"):
            return _grant(self.grantable, action, arns)
        grant = _grant(self.grantable, action, arns[:_MACHINES_INLINE])
        for first in range(_MACHINES_INLINE, len(arns), _MACHINES_A_MANAGED_POLICY):
            id = f"{self._id}-From{first}"
            managed = self._place.node.try_find_child(id)
            if managed is None:
                managed = iam.ManagedPolicy(self._place, id, document=iam.PolicyDocument(minimize=True))
                managed.attach_to_role(self._identity)
            assert isinstance(managed, iam.ManagedPolicy)
            grant = grant.combine(_grant(managed, action, arns[first : first + _MACHINES_A_MANAGED_POLICY]))
        return grant


def _identity(grantee: iam.IGrantable) -> Any:
    """The role, the user or the group that a policy can be attached to; None if it is something else."""
    for found in (grantee, grantee.grant_principal):
        if hasattr(found, "attach_inline_policy"):
            return found
    return None


def _grant(grantee: iam.IGrantable, action: str, arns: Sequence[str]) -> iam.Grant:
    return iam.Grant.add_to_principal(grantee=grantee, actions=[action], resource_arns=list(arns))


def beside(lock: Construct, stack: Stack) -> Construct:
    """Where a lock keeps, in a stack, what names both its own functions and others' resources.

    Beside the lock, and beside the others: whoever waits for the one or the other whole does not wait for this.
    """
    id = f"{Names.unique_resource_name(lock, separator='-')}-Beside"
    found = stack.node.try_find_child(id) or Construct(stack, id)
    assert isinstance(found, Construct)
    return found


def grant_use(grantee: Grantee, *, table: dynamodb.ITable, machines: Sequence[sfn.IStateMachine]) -> iam.Grant:
    """Let a Python client take, renew and release locks, and call the next one in line.

    It writes no session: with one it could end another's heartbeat, or have a clean-up stop another's work. Of those
    it reads the tokens by which waiters are called, and not those of heartbeats.
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/specifying-conditions.html
    """
    grant = _on_table(grantee, table, _USE, _LOCKS_ONLY)
    grant = grant.combine(_on_table(grantee, table, ("dynamodb:Query",), _CALLS))
    grant = grant.combine(grantee.grant_on_machines("states:SendTaskSuccess", machines))
    return grant if table.encryption_key is None else grant.combine(let_write(grantee.grantable, table.encryption_key))


def grant_fence(grantee: Grantee, *, table: dynamodb.ITable) -> iam.Grant:
    """Let a task of a workflow check, in its own transactions, that a lock is held; and read or write no lock."""
    grant = _on_table(grantee, table, ("dynamodb:ConditionCheckItem",), _LOCKS_ONLY)
    return grant if table.encryption_key is None else grant.combine(let_read(grantee.grantable, table.encryption_key))


def grant_read(grantee: Grantee, *, table: dynamodb.ITable) -> iam.Grant:
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
