"""In which Region and account a thing is, as far as that is known when the template is synthesised."""

from collections.abc import Mapping
from typing import Any

from aws_cdk import Stack, Token


def environment_of_arn(arn: str) -> Mapping[str, str]:
    """What an ARN says, whose parts may be known only at deploy time."""
    _, _, _, region, account, *_ = arn.split(":", 5)
    return _known({"Region": region, "account": account})


def environment_of(resource: Any) -> Mapping[str, str]:
    """Where a resource is: that of its stack, or what the ARN says by which it was imported."""
    return _known({"Region": resource.env.region, "account": resource.env.account})


def _known(environment: Mapping[str, str]) -> Mapping[str, str]:
    return {part: value for part, value in environment.items() if not Token.is_unresolved(value)}


class Environment:
    """The Region and the account of a TicketLock: its stack's, or what the first thing says of which it is known.

    In a stack for any account and Region it is not known where it will be, but that all must be in one place.
    """

    def __init__(self, stack: Stack) -> None:
        found = _known({"Region": stack.region, "account": stack.account})
        self._known = {part: (value, f"the stack's own, {value}") for part, value in found.items()}

    def check(self, name: str, shown: str, found: Mapping[str, str]) -> None:
        """Refuse what is elsewhere: nothing runs a nested execution to its end there, nor stops it.

        https://docs.aws.amazon.com/step-functions/latest/dg/concepts-access-cross-acct-resources.html

        Args:
            name: the property's.
            shown: its value.
            found: where it is.

        Raises:
            ValueError: it is in another Region or account; says in which, and what is allowed.
        """
        for part, value in found.items():
            here, allowed = self._known.setdefault(part, (value, f"that of {name}, {value}"))
            if value != here:
                raise ValueError(f"{name} is {shown}, in the {part} {value}; allowed: {allowed}")

    def is_elsewhere(self, found: Mapping[str, str]) -> bool:
        """Whether a thing is known to be in another Region or account."""
        return any(part in self._known and self._known[part][0] != value for part, value in found.items())
