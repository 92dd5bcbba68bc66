"""The policies of one role, user or group that collect its permissions: an inline one, then managed ones.

IAM counts the characters of all inline policies of a principal together, and those of each managed policy, without
white space: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from ticketlock_cdk.either_stack import scopes_of
from ticketlock_cdk.nag import acknowledge_wildcard

MOST_MANAGED = 10
"""How many managed policies a role may have."""
INLINE_OF_A_FUNCTION = 7_500
"""The characters of a function's inline policies, of 10,240 that a role may have, for what grows: the rest is for the
table, its key, the logs and a network."""
LONGEST_MACHINE_ARN = 147
"""Also that of a machine's executions, with the longest names, in any Region."""

_A_POLICY = 40
_A_STATEMENT = 45
# The quotes and the comma around a text.
_AROUND = 3
_A_MANAGED_POLICY = 6_144


@dataclass
class _CharactersLeft:
    """The characters that are left of one managed policy, or of all inline policies of a principal."""

    left: float


class Room:
    """What the policies of one principal may still take, for all of its ``Policies``.

    Args:
        inline: how many characters of its inline policies.
        managed: how many managed policies.
    """

    def __init__(self, *, inline: int, managed: int) -> None:
        self.inline = _CharactersLeft(inline)
        self.managed = managed


@dataclass
class _PolicyWithRoom:
    """The policy that gets the next permission, if it has room: one in each scope of its place."""

    made: Sequence[iam.Policy | iam.ManagedPolicy]
    room: _CharactersLeft
    statements: set[tuple[str, ...]] = field(default_factory=set)

    def take(self, actions: tuple[str, ...], characters: int) -> bool:
        """Keep room for a resource; return whether there was."""
        needed = characters + _AROUND + (0 if actions in self.statements else _statement(actions))
        if self.room.left < needed:
            return False
        self.room.left -= needed
        self.statements.add(actions)
        return True


class Policies:
    """The policies of one principal.

    Args:
        principal: the role, user or group.
        id: what the inline policy is called in each place; managed ones have a number after it.
        room: what the principal has left.
    """

    def __init__(self, principal: Any, id: str, room: Room) -> None:
        self._principal = principal
        self._id = id
        self._room = room
        self._managed = 0
        self._filling: dict[str, _PolicyWithRoom] = {}
        self._kept: dict[tuple[str, str, tuple[str, ...]], Sequence[iam.Policy | iam.ManagedPolicy]] = {}

    def inline(self, place: Construct) -> Sequence[iam.Policy]:
        """The inline policies for what else there is, one in each scope of the place."""
        return list(self._inline_in(place))

    def with_room(
        self, place: Construct, actions: Sequence[str], resource: str, characters: int
    ) -> Sequence[iam.Policy | iam.ManagedPolicy]:
        """The policies that get a permission, one in each scope of the place; none if no policy has room.

        Args:
            place: the scope of the policies; perhaps in either of two stacks.
            actions: those of the statement, which all resources with the same actions share.
            resource: what tells the resource from others, such as its path; room is kept for it once.
            characters: how long its ARN may be.
        """
        asked = tuple(actions)
        kept = (place.node.path, resource, asked)
        if kept not in self._kept:
            filling = self._filling.get(place.node.path)
            if filling is None or not filling.take(asked, characters):
                filling = self._new(place, is_first=filling is None, needed=_statement(asked) + characters + _AROUND)
                if filling is None:
                    return ()
                filling.take(asked, characters)
                self._filling[place.node.path] = filling
            self._kept[kept] = filling.made
        return self._kept[kept]

    def allow(self, place: Construct, actions: Sequence[str], arn: str, resource: str, characters: int) -> bool:
        """Allow actions on a state machine, or on its executions, unless no policy has room: return whether one had.

        Args:
            arn: what is allowed.
            place, actions, resource, characters: as for ``with_room``.
        """
        policies = self.with_room(place, actions, resource, characters)
        for policy in policies:
            policy.add_statements(iam.PolicyStatement(actions=list(actions), resources=[arn]))
            if arn.endswith("*"):
                acknowledge_wildcard(policy, "executions", arn)
        return bool(policies)

    def _new(self, place: Construct, *, is_first: bool, needed: int) -> _PolicyWithRoom | None:
        room = self._room
        if is_first and room.inline.left >= _A_POLICY + needed:
            room.inline.left -= _A_POLICY
            inline = self.inline(place)
            # A principal that is not to be changed takes no policy, which is then not deployed.
            return _PolicyWithRoom(inline, room.inline if is_attached(inline[0]) else _CharactersLeft(math.inf))
        if room.managed == 0:
            return None
        room.managed -= 1
        self._managed += 1
        return _PolicyWithRoom(list(self._managed_in(place)), _CharactersLeft(_A_MANAGED_POLICY - _A_POLICY))

    def _inline_in(self, place: Construct) -> Iterator[iam.Policy]:
        for scope in scopes_of(place):
            policy = scope.node.try_find_child(self._id)
            if policy is None:
                # One statement for many ARNs, under any settings of the app.
                policy = iam.Policy(scope, self._id, document=iam.PolicyDocument(minimize=True))
                self._principal.attach_inline_policy(policy)
            assert isinstance(policy, iam.Policy)
            yield policy

    def _managed_in(self, place: Construct) -> Iterator[iam.ManagedPolicy]:
        id = f"{self._id}{self._managed}"
        for scope in scopes_of(place):
            policy = scope.node.try_find_child(id)
            if policy is None:
                policy = iam.ManagedPolicy(scope, id, document=iam.PolicyDocument(minimize=True))
                # The policy names the principal, not the principal the policy: nothing waits for it.
                _attach(policy, self._principal)
            assert isinstance(policy, iam.ManagedPolicy)
            yield policy


def _statement(actions: Sequence[str]) -> int:
    return _A_STATEMENT + sum(len(action) + _AROUND for action in actions)


def is_attached(policy: iam.Policy) -> bool:
    """Whether a role, user or group has taken a policy."""
    resource = policy.node.default_child
    assert isinstance(resource, iam.CfnPolicy)
    return any(map(Stack.of(policy).resolve, (resource.roles, resource.users, resource.groups)))


def _attach(policy: iam.ManagedPolicy, principal: Any) -> None:
    if hasattr(principal, "role_name"):
        policy.attach_to_role(principal)
    elif hasattr(principal, "user_name"):
        policy.attach_to_user(principal)
    else:
        policy.attach_to_group(principal)
