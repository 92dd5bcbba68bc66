"""Lambda functions, each with its own role and log group, in the user's network."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from ticketlock_cdk.checks import check_bound
from ticketlock_cdk.nag import NIST, acknowledge, acknowledge_wildcard
from ticketlock_cdk.network import Network, let_join
from ticketlock_cdk.tables import let_rules_use, let_send

# Chosen by the processor time of a step: docs/decisions/0009-a-cold-process-asks-for-the-time.md.
MEMORY_MB = 512
_LEAST_MEMORY_MB = 256


def new_dead_letter_queue(
    scope: Construct, id: str, *, removal_policy: RemovalPolicy, encryption_key: kms.IKey | None
) -> sqs.Queue:
    """A queue to which the rules of this account and Region may send."""
    queue = sqs.Queue(
        scope,
        id,
        retention_period=Duration.days(14),
        enforce_ssl=True,
        removal_policy=removal_policy,
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
    acknowledge(queue, "SQS3", reason="It is a dead-letter queue itself.")
    if encryption_key is not None:
        let_rules_use(encryption_key, scope)
    return queue


def send_failures(
    place: Construct,
    function: lambda_.Function,
    queue: sqs.IQueue,
    *,
    retry_attempts: int,
    max_event_age: Duration,
    encryption_key: kms.IKey | None,
) -> None:
    """Send the events of a function that has failed for good to a queue.

    Written by hand: the CDK's own destination also grants the function to read the queue's attributes, which Lambda
    does not need: https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-retain-records.html
    """
    function.configure_async_invoke(retry_attempts=retry_attempts, max_event_age=max_event_age)
    on_failure = lambda_.CfnEventInvokeConfig.OnFailureProperty(destination=queue.queue_arn)
    invoke_config = function.node.find_child("EventInvokeConfig").node.default_child
    assert isinstance(invoke_config, lambda_.CfnEventInvokeConfig)
    invoke_config.destination_config = lambda_.CfnEventInvokeConfig.DestinationConfigProperty(on_failure=on_failure)
    may_send = iam.Policy(place, "SendDeadLetters")
    may_send.add_statements(iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[queue.queue_arn]))
    if encryption_key is not None:
        let_send(may_send, encryption_key)
    assert function.role is not None
    may_send.attach_to_role(function.role)
    acknowledge(function, "LambdaDLQ", pack=NIST, reason="A queue gets what fails for good, with its error.")
    # Lambda refuses a destination to which the role may not send. The dependency is explicit: whether a function waits
    # for its role's policies depends on the app's feature flag createNewPoliciesWithAddToRolePolicy.
    invoke_config.node.add_dependency(may_send)


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
    function = lambda_.Function(
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
    if more.get("reserved_concurrent_executions") is None:
        reason = "Reserved if asked for: a new account has nothing to reserve, and a bound on a step may end leases."
        acknowledge(function, "LambdaConcurrency", pack=NIST, reason=reason)
    return function
