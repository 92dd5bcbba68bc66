"""Lambda functions, each with its own role and log group, in the user's network."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from ticketlock_cdk.nag import acknowledge_wildcard
from ticketlock_cdk.network import Network, let_join

# Chosen by the processor time of a step: docs/decisions/0009-a-cold-process-asks-for-the-time.md.
MEMORY_MB = 512
_LEAST_MEMORY_MB = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosting:
    """What Lambda runs functions on, and how their logs are kept.

    Attributes:
        memory_mb: the memory of each function, which also sets its share of a processor.
        architecture: that of their processors.
        network: the user's network in which they run; None for no VPC.
        log_retention: how long logs are kept.
        removal_policy: what happens to the logs when they leave the stack.
        encryption_key: the key of the logs; None for the service's own.
    """

    memory_mb: int
    architecture: lambda_.Architecture
    network: Network | None
    log_retention: logs.RetentionDays
    removal_policy: RemovalPolicy
    encryption_key: kms.IKey | None

    def __post_init__(self) -> None:
        check_bound("memory_size", self.memory_mb, _LEAST_MEMORY_MB, 10_240)


def check_bound(name: str, value: object, least: int, most: int) -> None:
    """Check that a value is a whole number within its bounds.

    Raises:
        ValueError: names it.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} is {value!r}; allowed: a whole number from {least} to {most:,}")


def new_function(
    scope: Construct,
    id: str,
    *,
    code: lambda_.Code,
    handler: str,
    timeout: Duration,
    environment: Mapping[str, str],
    hosting: Hosting,
    **more: Any,
) -> lambda_.Function:
    """Make a function, its log group and its role, which may write only to that group."""
    log_group = logs.LogGroup(
        scope,
        f"{id}Logs",
        retention=hosting.log_retention,
        removal_policy=hosting.removal_policy,
        encryption_key=hosting.encryption_key,
    )
    # The managed policy of the CDK's default role would let it write to every log group.
    role = iam.Role(scope, f"{id}Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    log_group.grant_write(role)
    network = hosting.network
    if network is not None:
        let_join(role)
    acknowledge_wildcard(role, reason="X-Ray, and EC2 where Lambda makes network interfaces, name no resources.")
    return lambda_.Function(
        scope,
        id,
        code=code,
        handler=f"{handler}.handler",
        runtime=lambda_.Runtime.PYTHON_3_14,
        architecture=hosting.architecture,
        memory_size=hosting.memory_mb,
        timeout=timeout,
        tracing=lambda_.Tracing.ACTIVE,
        log_group=log_group,
        role=role,
        environment=dict(environment),
        **({} if network is None else network.function_properties),
        **more,
    )
