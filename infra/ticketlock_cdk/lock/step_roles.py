"""The functions' permissions on state machines and executions, which grow with every machine and target.

They are separate policies: functions wait for the default policies of their roles, the state machines for the
functions, and these policies for the state machines. In the default policies that would be a circle, which cannot be
deployed.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from ticketlock_cdk.lock.lock_functions import LockFunctions
from ticketlock_cdk.nag import acknowledge_wildcard

# In characters, with the longest names, in any Region: names known only at deploy time must fit as well.
# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
_AN_ARN = 150
_A_STATEMENT = 100
_A_POLICY = 40
_MANAGED_POLICY = 6_144
_MOST_MANAGED_POLICIES = 10
# Of the 10,240 characters of a role's inline policies: the rest is for the table, its key, the logs and a network.
_INLINE_POLICIES = 7_500


class StepRoles:
    """The roles of the functions, with methods for their permissions beyond the table.

    Every method takes the construct in which policies are made, and the beginning of the message of the ValueError that
    it raises if a role has no room left.
    """

    def __init__(self, functions: LockFunctions) -> None:
        self._answering = [_StepRole(function) for function in functions.answering]
        self._failing = [role for role in self._answering if role.function in functions.failing]
        self._clean_up, self._release = (
            next(role for role in self._answering if role.function is function)
            for function in (functions.clean_up, functions.release)
        )

    def let_answer(self, place: Construct, machine_arn: str, what: str) -> None:
        """Allow answering the callback tasks of a machine: to wake its parked waiters and end its heartbeats.

        The resource is the same as in the CDK's ``grant_task_response``.
        """
        for role in self._answering:
            actions = ["states:SendTaskSuccess"]
            if role in self._failing:
                actions.append("states:SendTaskFailure")
            role.allow(place, actions, machine_arn, what)

    def let_describe(self, place: Construct, executions: str, what: str) -> None:
        """Let the clean-up describe the executions of a machine."""
        self._clean_up.allow(place, ["states:DescribeExecution"], executions, what)

    def let_clean_up_close(self, place: Construct, executions: str, what: str) -> None:
        """Let the clean-up stop executions, and see that they have ended."""
        self._clean_up.allow(place, ["states:DescribeExecution", "states:StopExecution"], executions, what)

    def let_close(self, place: Construct, executions: str, what: str) -> None:
        """Let the clean-up and the release stop the executions of protected work, and see that they have ended."""
        self.let_clean_up_close(place, executions, what)
        self._release.allow(place, ["states:DescribeExecution", "states:StopExecution"], executions, what)


@dataclass
class _Room:
    """The characters that are left of one managed policy, or of all inline policies of a role."""

    left: int


@dataclass
class _Filling:
    """The policy that gets the next permission, if it has room."""

    policy: iam.Policy | iam.ManagedPolicy
    room: _Room
    statements: set[tuple[str, ...]] = field(default_factory=set)

    def take(self, statement: tuple[str, ...]) -> bool:
        """Add an ARN if there is room; return whether there was."""
        needed = _AN_ARN + (0 if statement in self.statements else _A_STATEMENT)
        if self.room.left < needed:
            return False
        self.room.left -= needed
        self.statements.add(statement)
        return True


class _StepRole:
    """The role of one function: inline policies while there is room, then managed ones."""

    def __init__(self, function: lambda_.Function) -> None:
        assert function.role is not None
        self.function = function
        self._role: iam.IRole = function.role
        self._inline = _Room(_INLINE_POLICIES)
        self._managed = 0
        self._filling: dict[str, _Filling] = {}
        self._allowed: set[str] = set()

    def allow(self, place: Construct, actions: Sequence[str], arn: str, what: str) -> None:
        asked = json.dumps([*actions, Stack.of(place).resolve(arn)])
        if asked in self._allowed:
            return
        self._allowed.add(asked)
        statement = tuple(actions)
        filling = self._filling.get(place.node.path)
        if filling is None or not filling.take(statement):
            filling = self._filling[place.node.path] = self._new_policy(place, what)
            filling.take(statement)
        filling.policy.add_statements(iam.PolicyStatement(actions=list(actions), resources=[arn]))
        if arn.endswith("*"):
            reason = "Executions have names of their own; the machine is named."
            acknowledge_wildcard(filling.policy, arn, reason=reason)

    def _new_policy(self, place: Construct, what: str) -> _Filling:
        step = self.function.node.id
        # One statement for many ARNs, under any settings of the app.
        document = iam.PolicyDocument(minimize=True)
        if place.node.path not in self._filling and self._inline.left >= _A_POLICY + _A_STATEMENT + _AN_ARN:
            self._inline.left -= _A_POLICY
            policy = iam.Policy(place, step, document=document)
            policy.attach_to_role(self._role)
            return _Filling(policy, self._inline)
        if self._managed == _MOST_MANAGED_POLICIES:
            raise ValueError(
                f"{what}: the role {self._role.node.path} has no room for it in its inline and {self._managed} managed "
                "policies; allowed: fewer state machines for one TicketLock"
            )
        self._managed += 1
        managed = iam.ManagedPolicy(place, f"{step}{self._managed}", document=document)
        # The policy names the role, not the role the policy: nothing waits for it.
        managed.attach_to_role(self._role)
        return _Filling(managed, _Room(_MANAGED_POLICY - _A_POLICY))
