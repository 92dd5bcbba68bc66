"""Managed policies in place of inline ones, for organisations that forbid these."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jsii
from aws_cdk import Aspects, IAspect, IStableAnyProducer, Lazy, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct, IConstruct, IValidation

from ticketlock_cdk.references import named_in

# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
_A_POLICY = 6_144
_MOST_POLICIES = 10
# The longest ARN that is known only at deploy time, with its quotes: of a table, and of anything else.
_A_TABLE, _ANOTHER = 315, 153
# After what the CDK itself changes at synthesis, and before what only reads.
_PRIORITY = 900


def use_managed_policies(scope: Construct) -> None:
    """Make every inline policy in a scope a managed one, or several if it is too long for one.

    Those of your own resources in this scope too. What a role has in its property ``inline_policies`` stays.

    Args:
        scope: an app, a stage or a stack; of a construct alone, the grants that it makes in stacks would stay inline.

    Raises:
        RuntimeError: not here, but by the synthesis: a role, user or group gets more than 10 managed policies, with
            those that it has already, or one statement is too long for a policy; the message names it.
    """
    Aspects.of(scope).add(_ManagedPolicies(), priority=_PRIORITY)
    scope.node.add_validation(_WithinQuotas(scope))


@jsii.implements(IAspect)
class _ManagedPolicies:
    def visit(self, node: IConstruct) -> None:
        """Replace the resource of an inline policy."""
        if not isinstance(node, iam.Policy):
            return
        inline = node.node.default_child
        if not isinstance(inline, iam.CfnPolicy):
            return
        parts = list(_parts(Stack.of(node), _statements(node)))
        for number, (first, end) in enumerate(parts):
            # What is granted even later, such as a new index, is in the last one.
            part = _SomeStatements(node, first, None if number == len(parts) - 1 else end)
            # In the policy's scope: what waits for the policy waits for these.
            iam.CfnManagedPolicy(
                node,
                f"Managed{number or ''}",
                policy_document=Lazy.any(part),
                roles=inline.roles,
                users=inline.users,
                groups=inline.groups,
            )
        if parts:
            node.node.try_remove_child(inline.node.id)


@jsii.implements(IStableAnyProducer)
class _SomeStatements:
    """Some of a policy's statements, as of the synthesis."""

    def __init__(self, policy: iam.Policy, first: int, end: int | None) -> None:
        self._policy = policy
        self._some = slice(first, end)

    def produce(self) -> Any:
        """A document that has them alone."""
        some = _statements(self._policy)[self._some]
        return iam.PolicyDocument(minimize=True, statements=list(map(iam.PolicyStatement.from_json, some)))


def _statements(policy: iam.Policy) -> list[Mapping[str, Any]]:
    document = policy.document.to_json()
    return list(document["Statement"]) if document else []


def _parts(stack: Stack, statements: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int]]:
    """The first of each part that one policy has room for, and the first that is no more in it."""
    first = 0
    for end in range(1, len(statements) + 1):
        if end == len(statements) or _longest(stack, statements[first : end + 1]) > _A_POLICY:
            yield first, end
            first = end


def _longest(stack: Stack, statements: Sequence[Mapping[str, Any]]) -> int:
    """The most characters of a policy of these statements, without white space, which IAM does not count."""
    around = len('{"Version":"2012-10-17","Statement":[]}') - 1
    resolved = stack.resolve(list(statements))
    return around + sum(1 + _characters(each, _A_TABLE if "dynamodb:" in str(each) else _ANOTHER) for each in resolved)


def _characters(node: Any, unknown: int) -> int:
    # Each part has a comma, of which the last one is the second bracket.
    if isinstance(node, list):
        return 1 + sum(_characters(each, unknown) + 1 for each in node)
    if not isinstance(node, dict):
        return len(json.dumps(node))
    if any(key == "Ref" or key.startswith("Fn::") for key in node):
        return unknown
    return 1 + sum(len(key) + len('"":') + _characters(value, unknown) + 1 for key, value in node.items())


@jsii.implements(IValidation)
class _WithinQuotas:
    def __init__(self, scope: Construct) -> None:
        self._scope = scope

    def validate(self) -> list[str]:
        """One error message for each role, user or group with too many policies, and for each policy that is too
        long.
        """
        number: Counter[str] = Counter()
        with_ours: set[str] = set()
        messages = []
        for policy in self._scope.node.find_all():
            if isinstance(policy, iam.CfnRole | iam.CfnUser | iam.CfnGroup):
                number[_shown(policy)] += len(Stack.of(policy).resolve(policy.managed_policy_arns) or ())
            if not isinstance(policy, iam.CfnManagedPolicy):
                continue
            attached = (policy.roles, policy.users, policy.groups)
            names = [_shown(each) for identities in attached for each in named_in(policy, identities)]
            number.update(names)
            if isinstance(policy.node.scope, iam.Policy):
                with_ours.update(names)
                stack = Stack.of(policy)
                characters = _longest(stack, stack.resolve(policy.policy_document)["Statement"])
                if characters > _A_POLICY:
                    messages.append(
                        f"policy {policy.node.scope.node.path} has a statement of up to {characters:,} characters, too "
                        f"long for a managed policy; allowed: {_A_POLICY:,}"
                    )
        messages += [
            f"{name} has {number[name]} managed policies with those in place of inline ones; allowed: "
            f"{_MOST_POLICIES}, so fewer state machines, targets or tables for one construct"
            for name in sorted(with_ours)
            if number[name] > _MOST_POLICIES
        ]
        return messages


def _shown(identity: IConstruct) -> str:
    kind = "user" if isinstance(identity, iam.CfnUser) else "group" if isinstance(identity, iam.CfnGroup) else "role"
    return f"{kind} {identity.node.path.removesuffix('/Resource')}"
