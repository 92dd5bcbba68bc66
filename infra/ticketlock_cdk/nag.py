"""Acknowledges the findings of cdk-nag that stay in the constructs, each with its reason.

The acknowledgements are the CDK's own, so nothing here needs cdk-nag; a user's cdk-nag reads them too.
"""

import json
from typing import Any

import jsii
from aws_cdk import Acknowledgment, Stack, Validations
from constructs import IConstruct, IValidation

SOLUTIONS = "AwsSolutions"
NIST = "NIST.800.53.R5"


def acknowledge(construct: IConstruct, rule: str, *, reason: str, pack: str = SOLUTIONS) -> None:
    """Acknowledge one finding of a rule pack, on a construct and its children."""
    Validations.of(construct).acknowledge(Acknowledgment(id=f"{pack}-{rule}", reason=reason))


def acknowledge_wildcard(construct: IConstruct, resource: str = "*", *, reason: str) -> None:
    """Acknowledge a resource with a wildcard in the policies of a construct.

    Args:
        construct: the role.
        resource: as in the policy; its tokens must be known when the template is synthesised.
        reason: why the policy cannot be narrower.
    """
    construct.node.add_validation(_Wildcard(construct, resource, reason))


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
        acknowledge(self._construct, f"IAM5[Resource::{shown}]", reason=self._reason)
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
