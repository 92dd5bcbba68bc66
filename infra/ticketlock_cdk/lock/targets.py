"""The targets, which may run under the lock: functions and Standard state machines, as constructs or ARNs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from aws_cdk import ArnFormat, Stack, Token
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn

from ticketlock_cdk.environment import Environment, environment_of, environment_of_arn

TargetKind = Literal["function", "stateMachine"]

_ALLOWED = "a Lambda function or a Standard state machine, as a construct or as its ARN"
# Wildcards, and placeholders of templates. A target is compared as a whole, so such a one would be no target.
_IN_NO_ARN = re.compile(r"[*?{}<>\[\]\s%]")
# tests/infra/test_sizes.py computes it, with the longest names.
_MOST = 200
_KINDS: tuple[tuple[str, TargetKind], ...] = (("lambda", "function"), ("states", "stateMachine"))

# https://docs.aws.amazon.com/step-functions/latest/dg/choosing-workflow-type.html
EXPRESS = (
    "an Express state machine; allowed: a Standard one, since an Express execution may run more than once "
    "and cannot be waited for"
)

TOKEN = re.compile(r"\$\{Token\[[^\]]*\]\}")
"""A part of a text that is known only at deploy time."""


@dataclass(frozen=True, slots=True)
class Target:
    """One function or state machine that may be run.

    Attributes:
        kind: which of the two it is.
        arn: the exact ARN that the input of an execution must name.
        machine_arn: for a state machine, its ARN without a version or an alias.
        is_qualified: whether it is known to be a version or an alias.
        environment: its Region and account, if they are known.
        shown: its name in messages.
    """

    kind: TargetKind
    arn: str
    machine_arn: str = ""
    is_qualified: bool = field(default=False, compare=False)
    environment: Mapping[str, str] = field(default_factory=dict, compare=False)
    shown: str = field(default="", compare=False)

    def executions_arn(self, stack: Stack) -> str:
        """The ARNs of the executions of a state machine that a TicketLock starts, as ``Workflow`` names them."""
        return executions_arn(stack, self.machine_arn, "lock-*")


def executions_arn(stack: Stack, machine_arn: str, names: str = "*") -> str:
    """The ARNs of a state machine's executions whose names have this pattern."""
    return _of_machine(stack, machine_arn, "execution", f":{names}")


def _of_machine(stack: Stack, arn: str, resource: str, more: str = "") -> str:
    """An ARN with the name of the state machine in another one, perhaps of a version or an alias."""
    parts = stack.split_arn(arn, ArnFormat.COLON_RESOURCE_NAME)
    return stack.format_arn(
        partition=parts.partition,
        service="states",
        region=parts.region,
        account=parts.account,
        resource=resource,
        resource_name=f"{parts.resource_name}{more}",
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )


def parse_targets(
    name: str, targets: "Sequence[lambda_.IFunction | sfn.IStateMachine | str]", environment: Environment
) -> tuple[Target, ...]:
    """Read the construct's property ``targets`` or a similar one.

    Raises:
        ValueError: one is not a target, or in another Region or account; the message says which, and what is allowed.
    """
    if isinstance(targets, str) or not isinstance(targets, Iterable):
        raise ValueError(f"{name} is {targets!r}; allowed: a list, of which each is {_ALLOWED}")
    parsed = [parse_target(f"{name}[{position}]", target) for position, target in enumerate(targets)]
    for position, target in enumerate(parsed):
        environment.check(f"{name}[{position}]", target.shown, target.environment)
    return tuple(dict.fromkeys(parsed))


def check_all(targets: Sequence[Target], retired: Sequence[Target]) -> None:
    """Check both lists together.

    Raises:
        ValueError: a target is in both; or there are more than the role of the state machine has room for.
    """
    for position, target in enumerate(retired):
        if target in targets:
            raise ValueError(
                f"retired_targets[{position}] is {target.shown}, which is among targets; allowed: in one of the two"
            )
    number = len(targets) + len(retired)
    if number > _MOST:
        raise ValueError(
            f"targets and retired_targets are {number:,}; allowed: at most {_MOST} of one TicketLock, by the sizes of "
            "policies"
        )


def parse_target(name: str, target: Any) -> Target:
    """Read one target, for the property of this name.

    Raises:
        ValueError: it is not a target; the message says what is allowed.
    """
    if isinstance(target, str):
        return _from_arn(name, target)
    if hasattr(target, "function_arn"):
        return _from_construct(name, "function", target, target.function_arn)
    if hasattr(target, "state_machine_arn"):
        if is_express(target):
            raise ValueError(f"{name} is {target.node.path}, {EXPRESS}")
        return _from_construct(name, "stateMachine", target, target.state_machine_arn)
    raise ValueError(f"{name} is {target!r}; allowed: {_ALLOWED}")


def _from_construct(name: str, kind: TargetKind, target: Any, arn: str) -> Target:
    if arn.startswith("arn:") or not Token.is_unresolved(arn):
        return _from_arn(name, arn)
    machine_arn = arn if kind == "stateMachine" else ""
    if machine_arn and target.node.default_child is None:
        # An imported one, perhaps by the ARN of a version or an alias.
        machine_arn = _of_machine(Stack.of(target), arn, "stateMachine")
    return Target(
        kind,
        arn,
        machine_arn,
        # As a version and an alias of a function have.
        is_qualified=hasattr(target, "lambda_"),
        environment=environment_of(target),
        shown=target.node.path,
    )


def is_express(machine: Any) -> bool:
    """Whether a state machine is known to be an Express one."""
    if getattr(machine, "state_machine_type", None) == sfn.StateMachineType.EXPRESS:
        return True
    resource = machine.node.default_child
    return isinstance(resource, sfn.CfnStateMachine) and resource.state_machine_type == "EXPRESS"


def _from_arn(name: str, arn: str) -> Target:
    # A token within a part is fine: only the kind of the resource must be known.
    parts = arn.strip().split(":")
    if len(parts) < 6 or parts[0] != "arn":
        known_later = Token.is_unresolved(arn)
        value = "an ARN that is known only at deploy time" if known_later else repr(arn)
        hint = " (import it by from_function_arn or from_state_machine_arn)" if known_later else ""
        raise ValueError(f"{name} is {value}; allowed: {_ALLOWED}{hint}")
    service, resource = parts[2], parts[5]
    if (service, resource) == ("states", "express"):
        raise ValueError(f"{name} is {arn!r}, an execution of {EXPRESS}")
    for kind_service, kind in _KINDS:
        # arn:partition:service:region:account:kind:name, and perhaps a version or an alias
        if (service, resource) == (kind_service, kind) and len(parts) in (7, 8) and all(parts[3:]):
            if strange := _IN_NO_ARN.search(TOKEN.sub("", ":".join(parts[3:]))):
                allowed = f"the whole ARN of one function or state machine; {strange.group()} is in none"
                raise ValueError(f"{name} is {arn!r}; allowed: {allowed}")
            machine_arn = ":".join(parts[:7]) if kind == "stateMachine" else ""
            known = environment_of_arn(arn.strip())
            return Target(kind, arn.strip(), machine_arn, len(parts) == 8, environment=known, shown=repr(arn))
    raise ValueError(f"{name} is {arn!r}, which is {service} {resource}; allowed: {_ALLOWED}")
