"""Lambda functions, each with its own role and log group, in the user's network."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aws_cdk import Duration, RemovalPolicy, Stack, Stage
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ticketlock_cdk.assets import Asset, stage_functions, stage_with_library
from ticketlock_cdk.checks import check_bound, check_flag
from ticketlock_cdk.nag import acknowledge, acknowledge_wildcard
from ticketlock_cdk.network import Network, let_join
from ticketlock_cdk.tables import let_rules_use, let_write

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
        tracing: whether X-Ray traces functions and state machines.
        log_level: which events of executions are logged.
    """

    memory_mb: int
    architecture: lambda_.Architecture
    network: Network | None
    log_retention: logs.RetentionDays
    removal_policy: RemovalPolicy
    encryption_key: kms.IKey | None
    tracing: bool = True
    log_level: sfn.LogLevel = sfn.LogLevel.ALL

    def __post_init__(self) -> None:
        check_bound("memory_size", self.memory_mb, _LEAST_MEMORY_MB, 10_240)
        check_flag("tracing", self.tracing)


def code_of(scope: Construct, asset: Asset) -> lambda_.Code:
    """The code of functions in this scope."""
    return lambda_.Code.from_asset(str(stage_functions(_assets_of(scope), asset)))


def code_with_ticketlock(scope: Construct, folder: str | Path) -> lambda_.Code:
    """The code of functions of yours and ticketlock beside it, which several of them may share.

    For Python 3.11 or newer. Ticketlock needs boto3 alone, which Lambda's runtimes have.

    Args:
        scope: where the functions are.
        folder: their code, with the packages that it imports, if any.

    Raises:
        ValueError: it is no folder, or has a ticketlock of its own.
    """
    return lambda_.Code.from_asset(str(stage_with_library(_assets_of(scope), Path(folder))))


def _assets_of(scope: Construct) -> Path:
    stage = Stage.of(scope)
    assert stage is not None  # a construct outside an app cannot be synthesised
    return Path(stage.asset_outdir)


def new_function(
    scope: Construct,
    id: str,
    *,
    code: lambda_.Code,
    handler: str,
    timeout: Duration,
    service_name: str,
    table: dynamodb.ITable,
    hosting: Hosting,
    actions: Sequence[str] = (),
    **more: Any,
) -> lambda_.Function:
    """Make a function, its log group and its role, which may write only to that group, and do this to the table.

    Without actions the caller lets it read the table.
    """
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
    acknowledge_wildcard(role, "services")
    function = lambda_.Function(
        scope,
        id,
        code=code,
        handler=f"{handler}.handler",
        runtime=lambda_.Runtime.PYTHON_3_14,
        architecture=hosting.architecture,
        memory_size=hosting.memory_mb,
        timeout=timeout,
        tracing=lambda_.Tracing.ACTIVE if hosting.tracing else lambda_.Tracing.DISABLED,
        log_group=log_group,
        role=role,
        environment={"TABLE_NAME": table.table_name, "POWERTOOLS_SERVICE_NAME": service_name},
        **({} if network is None else network.function_properties),
        **more,
    )
    if actions:
        function.add_to_role_policy(iam.PolicyStatement(actions=list(actions), resources=[table.table_arn]))
        if table.encryption_key is not None:
            let_write(function, table.encryption_key)
    if more.get("reserved_concurrent_executions") is None:
        acknowledge(function, "LambdaConcurrency")
    if not hosting.tracing:
        acknowledge(function, "LambdaTracing")
    return function


def new_dead_letter_queue(scope: Construct, id: str, hosting: Hosting) -> sqs.Queue:
    """A queue to which the rules of this account and Region may send."""
    encryption_key = hosting.encryption_key
    queue = sqs.Queue(
        scope,
        id,
        retention_period=Duration.days(14),
        enforce_ssl=True,
        removal_policy=hosting.removal_policy,
        encryption=sqs.QueueEncryption.SQS_MANAGED if encryption_key is None else sqs.QueueEncryption.KMS,
        encryption_master_key=encryption_key,
    )
    rules = Stack.of(scope).format_arn(service="events", resource="rule", resource_name="*")
    queue.add_to_resource_policy(
        iam.PolicyStatement(
            principals=[iam.ServicePrincipal("events.amazonaws.com")],
            actions=["sqs:SendMessage"],
            resources=[queue.queue_arn],
            # https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-rule-dlq.html
            conditions={"ArnLike": {"aws:SourceArn": rules}},
        )
    )
    acknowledge(queue, "SQS3", "SQSRedrivePolicy")
    if encryption_key is not None:
        let_rules_use(encryption_key, scope)
    return queue
