"""DynamoDB tables: our own new ones, and users' tables by name or as constructs."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import Annotations, RemovalPolicy, Stack, Token
from aws_cdk import aws_dynamodb as dynamodb
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

_KEYS = {"pk": "HASH", "sk": "RANGE"}

TTL_ATTRIBUTE = "expiresAt"
ALLOWED = "a table as a construct, the name of one in this account and Region, or its ARN"
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html
_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")


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


def new_lock_table(
    scope: Construct, id: str, *, removal_policy: RemovalPolicy, encryption_key: kms.IKey | None
) -> dynamodb.Table:
    """A table billed on demand, with time to live and point-in-time recovery."""
    return new_table(scope, id, keys=("pk", "sk"), removal_policy=removal_policy, encryption_key=encryption_key)


def given_lock_table(scope: Construct, id: str, table: dynamodb.ITable | str) -> dynamodb.ITable:
    """The table that the construct's property ``table`` names.

    Raises:
        ValueError: it is not a table, or its keys or its time to live are known and wrong.
    """
    found = given_table(scope, id, table, "table")
    _check(scope, found)
    return found


def _check(scope: Construct, table: dynamodb.ITable) -> None:
    resource: Any = table.node.default_child
    if not isinstance(resource, dynamodb.CfnTable | dynamodb.CfnGlobalTable):
        return  # the keys of an imported table are not known here
    stack = Stack.of(resource)
    schema: Any = stack.resolve(resource.key_schema) or []
    attributes: Any = stack.resolve(resource.attribute_definitions) or []
    types = {attribute["attributeName"]: attribute["attributeType"] for attribute in attributes}
    keys = {key["attributeName"]: (key["keyType"], types.get(key["attributeName"])) for key in schema}
    if keys != {name: (role, "S") for name, role in _KEYS.items()}:
        shown = ", ".join(f"{name} ({role}, {kind})" for name, (role, kind) in keys.items())
        raise ValueError(
            f"table {table.node.path} has the keys {shown}; allowed: the partition key pk and the sort key sk, "
            "both of type S"
        )
    ttl: Any = stack.resolve(resource.time_to_live_specification) or {}
    if not (ttl.get("enabled") and ttl.get("attributeName") == TTL_ATTRIBUTE):
        shown = f"time to live on {ttl['attributeName']}" if ttl.get("enabled") else "no time to live"
        raise ValueError(
            f"table {table.node.path} has {shown}; allowed: time to live on {TTL_ATTRIBUTE}, or expired items stay"
        )
    if has_replicas(table):
        Annotations.of(scope).add_warning_v2(
            "ticketlock:tableWithReplicas",
            f"table {table.node.path} has replicas: each Region judges conditions by itself, so use one lock in one "
            "Region only",
        )


def new_table(
    scope: Construct,
    id: str,
    *,
    keys: tuple[str, str],
    removal_policy: RemovalPolicy,
    encryption_key: kms.IKey | None,
) -> dynamodb.Table:
    """A table billed on demand, with two strings as its key, time to live and point-in-time recovery.

    Not a TableV2: that is a global table, and a replica in another Region judges conditions by itself, which would
    break exclusion:
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/V2globaltables_HowItWorks.html
    """
    partition_key, sort_key = (dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING) for name in keys)
    return dynamodb.Table(
        scope,
        id,
        partition_key=partition_key,
        sort_key=sort_key,
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        time_to_live_attribute=TTL_ATTRIBUTE,
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=True
        ),
        removal_policy=removal_policy,
        # A user who keeps the table after the stack does not want it deleted by hand either.
        deletion_protection=removal_policy != RemovalPolicy.DESTROY,
        encryption_key=encryption_key,
    )


def given_table(scope: Construct, id: str, table: dynamodb.ITable | str, name: str) -> dynamodb.ITable:
    """The table that a property gives, as a construct, by name or by ARN.

    Args:
        scope, id: those of a table that is imported by name or ARN.
        table: the property's value.
        name: the property's name.

    Raises:
        ValueError: it is not a table; the message says what is allowed.
    """
    if not isinstance(table, str):
        check_table(table, name, ALLOWED)
        return table
    text = table.strip()
    # A token within a part of an ARN is fine.
    if re.fullmatch(r"arn:[^:]+:dynamodb:[^:]+:[^:]+:table/[^/:]+", text):
        return dynamodb.Table.from_table_arn(scope, id, text)
    if Token.is_unresolved(text):
        raise ValueError(
            f"{name} is text that is known only at deploy time; allowed: {ALLOWED} "
            "(import it by Table.from_table_name or Table.from_table_arn)"
        )
    if not _NAME.fullmatch(text):
        raise ValueError(f"{name} is {table!r}; allowed: {ALLOWED}")
    return dynamodb.Table.from_table_name(scope, id, text)


def check_table(table: object, name: str, allowed: str = "a table as a construct") -> None:
    """Check that a value is a table.

    Raises:
        ValueError: names the property.
    """
    if not hasattr(table, "table_name"):
        raise ValueError(f"{name} is {table!r}; allowed: {allowed}")


def has_replicas(table: dynamodb.ITable) -> bool:
    """Whether a table is known to be in several Regions."""
    resource: Any = table.node.default_child
    if not isinstance(resource, dynamodb.CfnGlobalTable):
        return False
    replicas: Any = Stack.of(resource).resolve(resource.replicas)
    return len(replicas) > 1
