"""Acknowledges the findings of cdk-nag that stay in the constructs: each rule with one reason, in all of its packs.

The acknowledgements are the CDK's own, so nothing here needs cdk-nag; a user's cdk-nag reads them too.
"""

import json
from collections.abc import Mapping
from typing import Any

import jsii
from aws_cdk import Acknowledgment, Stack, Validations
from constructs import IConstruct, IValidation

# A rule has the same name in each pack that has it.
_PACKS = ("AwsSolutions", "HIPAA.Security", "NIST.800.53.R4", "NIST.800.53.R5", "PCI.DSS.321", "Serverless")

_DEAD_LETTERS = "It is a dead-letter queue itself."
_TRACING = "Traced unless `tracing=False`: X-Ray bills traces, and has none of functions in China."

REASONS: Mapping[str, str] = {
    "DynamoDBInBackupPlan": (
        "It has point-in-time recovery. Restored under running work, locks would have two holders, and units half of "
        "their items."
    ),
    "LambdaAsyncFailureDestination": "The sweeper's next pass does all that a failed one has left.",
    "LambdaConcurrency": (
        "Reserved if asked for: a new account has nothing to reserve, and a bound on a step may end leases."
    ),
    "LambdaDLQ": (
        "State machines await a step and repeat it, who looks at a dashboard awaits it, the sweeper's next pass does "
        "what a failed one has left, and what rules invoke has a queue as its failure destination."
    ),
    "LambdaInsideVPC": "The example, which calls nothing; all others are in the `vpc` that is given.",
    "LambdaTracing": _TRACING,
    "SF1": "All events are logged unless `log_level` says less.",
    "SF2": _TRACING,
    "SQS3": _DEAD_LETTERS,
    "SQSRedrivePolicy": _DEAD_LETTERS,
    "StepFunctionStateMachineXray": _TRACING,
}
"""Why the findings of a rule stay, where these constructs have them."""

WILDCARDS: Mapping[str, str] = {
    "services": "X-Ray, the delivery of logs, and EC2 where Lambda makes network interfaces, name no resources.",
    "executions": "Executions have names of their own; their state machine or durable function is named.",
    "indexes": "An index shows what its table has, which may be read.",
}
"""Why a resource of a policy has a wildcard, by what it stands for."""


def acknowledge(construct: IConstruct, *rules: str) -> None:
    """Acknowledge the findings of rules, on a construct and its children."""
    Validations.of(construct).acknowledge(
        *(Acknowledgment(id=f"{pack}-{rule}", reason=REASONS[rule]) for rule in rules for pack in _PACKS)
    )


def acknowledge_wildcard(construct: IConstruct, what: str, resource: str = "*") -> None:
    """Acknowledge a resource with a wildcard in the policies of a construct.

    Args:
        construct: the role.
        what: what the wildcard stands for, of ``WILDCARDS``.
        resource: as in the policy; its tokens must be known when the template is synthesised.
    """
    construct.node.add_validation(_Wildcard(construct, resource, WILDCARDS[what]))


@jsii.implements(IValidation)
class _Wildcard:
    """Acknowledges a resource at synthesis, when references between stacks are as the template has them."""

    def __init__(self, construct: IConstruct, resource: str, reason: str) -> None:
        self._construct = construct
        self._resource = resource
        self._reason = reason

    def validate(self) -> list[str]:
        """No errors."""
        shown = _as_found(Stack.of(self._construct).resolve(self._resource))
        found = Acknowledgment(id=f"AwsSolutions-IAM5[Resource::{shown}]", reason=self._reason)
        Validations.of(self._construct).acknowledge(found)
        return []


def _as_found(value: Any) -> str:
    """A resource in the spelling that cdk-nag uses in the id of a finding."""
    match value:
        case str():
            return value
        case {"Fn::Join": [delimiter, parts]}:
            joined: str = delimiter.join(map(_as_found, parts))
            return joined
        case {"Fn::GetAtt": [resource, attribute]}:
            return f"<{resource}.{attribute}>"
        case {"Fn::ImportValue": name}:
            return _as_found(name)
        case {"Ref": name}:
            return f"<{name}>"
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
