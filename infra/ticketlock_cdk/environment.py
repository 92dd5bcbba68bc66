"""The Region and the account that a construct works in, and those of the resources that it is given."""

from collections.abc import Mapping
from typing import Any

from aws_cdk import Stack, Token
from aws_cdk import aws_dynamodb as dynamodb


def environment_of_arn(arn: str) -> Mapping[str, str]:
    """The environment in an ARN, whose parts may be known only at deploy time."""
    _, _, _, region, account, *_ = arn.split(":", 5)
    return _known({"Region": region, "account": account})


def environment_of(resource: Any) -> Mapping[str, str]:
    """The environment of a resource: that of its stack, or that in the ARN by which it was imported."""
    return _known({"Region": resource.env.region, "account": resource.env.account})


def environment_of_table(table: dynamodb.ITable) -> Mapping[str, str]:
    """The environment of a table: for the CDK one that is imported by its ARN is in the stack's own."""
    arn = table.table_arn
    return {**environment_of(table), **(environment_of_arn(arn) if arn.startswith("arn:") else {})}


def _known(environment: Mapping[str, str]) -> Mapping[str, str]:
    return {part: value for part, value in environment.items() if not Token.is_unresolved(value)}


class Environment:
    """The Region and the account of a construct: its stack's, or those of the first resource that has known ones.

    An environment-agnostic stack does not know its Region and account, but all its resources must be in the same ones.
    """

    def __init__(self, stack: Stack) -> None:
        found = _known({"Region": stack.region, "account": stack.account})
        self._known = {part: (value, f"the stack's own, {value}") for part, value in found.items()}

    def check(self, name: str, shown: str, found: Mapping[str, str]) -> None:
        """Refuse a resource in another Region or account: functions look for their table in their own, and nested
        executions elsewhere cannot be awaited or stopped.

        https://docs.aws.amazon.com/step-functions/latest/dg/concepts-access-cross-acct-resources.html

        Args:
            name: the property's name.
            shown: its value, for the message.
            found: the resource's environment.

        Raises:
            ValueError: it is in another Region or account; the message says in which, and what is allowed.
        """
        for part, value in found.items():
            here, allowed = self._known.setdefault(part, (value, f"that of {name}, {value}"))
            if value != here:
                raise ValueError(f"{name} is {shown}, in the {part} {value}; allowed: {allowed}")

    def is_elsewhere(self, found: Mapping[str, str]) -> bool:
        """Whether a resource is known to be in another Region or account."""
        return any(part in self._known and self._known[part][0] != value for part, value in found.items())
