"""The functions' permissions on state machines and executions, which grow with every machine and target.

They are separate policies: functions wait for the default policies of their roles, the state machines for the
functions, and these policies for the state machines. In the default policies that would be a circle, which cannot be
deployed.
"""

import json
from collections.abc import Sequence

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from ticketlock_cdk.lock import grants
from ticketlock_cdk.lock.lock_functions import LockFunctions
from ticketlock_cdk.policies import INLINE_OF_A_FUNCTION, LONGEST_MACHINE_ARN, MOST_MANAGED, Policies, Room
from ticketlock_cdk.references import named_in
from ticketlock_cdk.tables import TO_SEND


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

    def let_wake(self, place: Construct, function_arn: str, what: str) -> None:
        """Allow waking the executions of a durable function, of any of its versions.

        Lambda authorises against the ARN of the execution, which begins with that of a version:
        https://docs.aws.amazon.com/lambda/latest/dg/durable-security.html
        """
        for role in self._answering:
            role.allow(place, [grants.WAKES_DURABLE], f"{function_arn}:*", what)

    def let_use_key(self, place: Construct, key_arn: str, what: str) -> None:
        """Let those who answer tasks use the key of a machine, with which the service encrypts what they tell.

        https://docs.aws.amazon.com/step-functions/latest/apireference/API_SendTaskFailure.html
        """
        for role in self._answering:
            role.allow(place, TO_SEND, key_arn, what)

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


class _StepRole:
    """The role of one function: inline policies while there is room, then managed ones."""

    def __init__(self, function: lambda_.Function) -> None:
        assert function.role is not None
        self.function = function
        self._role: iam.IRole = function.role
        room = Room(inline=INLINE_OF_A_FUNCTION, managed=MOST_MANAGED)
        self._policies = Policies(self._role, function.node.id, room)
        self._allowed: set[str] = set()

    def allow(self, place: Construct, actions: Sequence[str], arn: str, what: str) -> None:
        # With what it names: resources of two stacks may have the same logical id.
        named = sorted(each.node.path for each in named_in(place, arn))
        asked = json.dumps([*actions, Stack.of(place).resolve(arn), *named])
        if asked in self._allowed:
            return
        self._allowed.add(asked)
        if not self._policies.allow(place, actions, arn, asked, LONGEST_MACHINE_ARN):
            raise ValueError(
                f"{what}: the role {self._role.node.path} has no room for it in its inline and "
                f"{MOST_MANAGED} managed policies; allowed: fewer state machines for one TicketLock"
            )
