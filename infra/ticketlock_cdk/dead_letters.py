"""A dead-letter queue for events that could not be delivered, or whose function failed for good."""

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from ticketlock_cdk.encryption import let_rules_use, let_send
from ticketlock_cdk.nag import acknowledge


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
    # Lambda refuses a destination to which the role may not send. The dependency is explicit: whether a function waits
    # for its role's policies depends on the app's feature flag createNewPoliciesWithAddToRolePolicy.
    invoke_config.node.add_dependency(may_send)
