"""Permissions for a customer managed key: for principals that use what it encrypts, and for services."""

from collections.abc import Mapping, Sequence

from aws_cdk import Annotations, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

# What a principal needs to use a table with such a key, without DynamoDB's wildcards. Creating the table needs
# kms:CreateGrant too, which only the deployment needs:
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/encryption.usagenotes.html
_READS = ("kms:Decrypt", "kms:DescribeKey")
_WRITES = (
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)
_SENDS = ("kms:Decrypt", "kms:GenerateDataKey")


def let_read(grantee: iam.IGrantable, key: kms.IKey) -> iam.Grant:
    """Let a principal read a table that this key encrypts."""
    return key.grant(grantee, *_READS)


def let_write(grantee: iam.IGrantable, key: kms.IKey) -> iam.Grant:
    """Let a principal read and write a table that this key encrypts."""
    return key.grant(grantee, *_READS, *_WRITES)


def let_send(grantee: iam.IGrantable, key: kms.IKey) -> iam.Grant:
    """Let a principal send messages to a queue that this key encrypts.

    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-key-management.html
    """
    return key.grant(grantee, *_SENDS)


def let_logs_use(key: kms.IKey, scope: Construct) -> None:
    """Let CloudWatch Logs encrypt the log groups of this account and Region.

    The policy has a pattern: a group's own name is known only after it is made, and it needs the key before.
    https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/encrypt-log-data-kms.html
    """
    stack = Stack.of(scope)
    _let_service_use(
        key,
        scope,
        name="CloudWatch Logs",
        service=f"logs.{stack.region}.amazonaws.com",
        actions=(*_READS, *_WRITES),
        conditions={
            "ArnLike": {
                "kms:EncryptionContext:aws:logs:arn": f"arn:{stack.partition}:logs:{stack.region}:{stack.account}:*"
            }
        },
    )


def let_rules_use(key: kms.IKey, scope: Construct) -> None:
    """Let the EventBridge rules of this account and Region put events into a queue that this key encrypts.

    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-key-management.html
    """
    stack = Stack.of(scope)
    _let_service_use(
        key,
        scope,
        name="EventBridge",
        service="events.amazonaws.com",
        actions=_SENDS,
        conditions={
            "ArnLike": {"aws:SourceArn": f"arn:{stack.partition}:events:{stack.region}:{stack.account}:rule/*"}
        },
    )


def _let_service_use(
    key: kms.IKey,
    scope: Construct,
    *,
    name: str,
    service: str,
    actions: Sequence[str],
    conditions: Mapping[str, object],
) -> None:
    added = key.add_to_resource_policy(
        iam.PolicyStatement(
            principals=[iam.ServicePrincipal(service)],
            actions=list(actions),
            # In a key's own policy this is the key.
            resources=["*"],
            conditions=conditions,
        )
    )
    if not added.statement_added:
        Annotations.of(scope).add_warning_v2(
            f"ticketlock:keyPolicy:{name.replace(' ', '')}",
            f"the encryption key is an imported one: its policy must let {name} use it (docs/operations.md says how)",
        )
