"""DynamoDB tables: our own new ones, and users' tables by name or as constructs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import Annotations, RemovalPolicy, Stack, Token
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from ticketlock.units._records import KEY, OPEN_INDEX
from ticketlock_cdk.checks import check_construct
from ticketlock_cdk.environment import Environment, environment_of_arn, environment_of_table
from ticketlock_cdk.nag import acknowledge

# What a principal needs to use a table with such a key, without DynamoDB's wildcards. Creating the table needs
# kms:CreateGrant too, which only the deployment needs:
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/encryption.usagenotes.html
TO_READ = ("kms:Decrypt", "kms:DescribeKey")
TO_WRITE = (
    *TO_READ,
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)
TO_SEND = ("kms:Decrypt", "kms:GenerateDataKey")

TTL_ATTRIBUTE = "expiresAt"
ALLOWED = "a table as a construct, the name of one in this account and Region, or its ARN"
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html
_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_LONGEST_NAME = 255
_MADE_UNIQUE = 14 * "x"
# In the partitions and Regions with the longest names.
_BEFORE_A_NAME = len("arn:aws-us-gov:dynamodb:us-isof-south-1:123456789012:table/")
_NO_ALIAS = "the key itself, such as Key.from_lookup(self, id, alias_name=...)"
LONGEST_KEY_ARN = len("arn:aws-us-gov:kms:us-isof-south-1:123456789012:key/") + 36


def let_use(grantee: iam.IGrantable, key: kms.IKey, actions: Sequence[str]) -> iam.Grant:
    """Let a principal use a key.

    Raises:
        ValueError: it is an alias, imported by its name, so that nothing was granted.
    """
    grant = key.grant(grantee, *actions)
    if not grant.success and hasattr(key, "alias_name"):
        raise ValueError(
            f"the key {key.node.path} is {key.alias_name}, whose key is not known here, so that nothing would be "
            f"granted; allowed: {_NO_ALIAS}"
        )
    return grant


def let_read(grantee: iam.IGrantable, key: kms.IKey) -> iam.Grant:
    """Let a principal read a table that this key encrypts."""
    return let_use(grantee, key, TO_READ)


def let_write(grantee: iam.IGrantable, key: kms.IKey) -> iam.Grant:
    """Let a principal read and write a table that this key encrypts."""
    return let_use(grantee, key, TO_WRITE)


def let_send(grantee: iam.IGrantable, key: kms.IKey) -> iam.Grant:
    """Let a principal send messages to a queue that this key encrypts.

    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-key-management.html
    """
    return let_use(grantee, key, TO_SEND)


def let_logs_use(key: kms.IKey, scope: Construct) -> None:
    """Let CloudWatch Logs encrypt the log groups of this account and Region.

    The policy has a pattern: a group's own name is known only after it is made, and it needs the key before.
    https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/encrypt-log-data-kms.html
    """
    stack = Stack.of(scope)
    let_service_use(
        key,
        scope,
        name="CloudWatch Logs",
        service=f"logs.{stack.region}.amazonaws.com",
        actions=TO_WRITE,
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
    let_service_use(
        key,
        scope,
        name="EventBridge",
        service="events.amazonaws.com",
        actions=TO_SEND,
        conditions={
            "ArnLike": {"aws:SourceArn": f"arn:{stack.partition}:events:{stack.region}:{stack.account}:rule/*"}
        },
    )


def let_service_use(
    key: kms.IKey,
    scope: Construct,
    *,
    name: str,
    service: str,
    actions: Sequence[str],
    conditions: Mapping[str, object] | None = None,
) -> None:
    """Let an AWS service use a key, or warn that an imported key's policy must."""
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
            f"the encryption key is an imported one: its policy must let {name} use it (docs/permissions.md says how)",
        )


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a table of ours is like.

    Attributes:
        keys: the partition key and the sort key, both text.
        index: its index, as in CreateTable, with one key, which is text, and only keys projected; None for none.
        where: where to use a table with replicas.
    """

    keys: tuple[str, str]
    index: Mapping[str, Any] | None
    where: str


LOCKS = _Kind(("pk", "sk"), None, "use one lock in one Region only")
UNITS = _Kind(KEY, OPEN_INDEX, "run units in one Region only")


def new_or_given(
    scope: Construct,
    id: str,
    kind: _Kind,
    given: dynamodb.ITable | str | None,
    *,
    environment: Environment,
    removal_policy: RemovalPolicy,
    encryption_key: kms.IKey | None,
) -> dynamodb.ITable:
    """The table that the construct's property ``table`` gives; if that is None, a new one.

    Raises:
        ValueError: it is not a table, or in another Region or account, or its keys, its time to live or its index are
            known and wrong; or the key is an alias.
    """
    if hasattr(encryption_key, "alias_name"):
        raise ValueError(f"encryption_key is an alias, which CloudWatch Logs does not take; allowed: {_NO_ALIAS}")
    if given is None:
        made = _new(scope, id, kind, removal_policy=removal_policy, encryption_key=encryption_key)
        acknowledge(made, "DynamoDBInBackupPlan")
        return made
    found = given_table(scope, id, given, "table", environment)
    _check(scope, found, kind)
    return found


def _check(scope: Construct, table: dynamodb.ITable, kind: _Kind) -> None:
    check_has_transactions(table)
    resource = _resource(table)
    if resource is None:
        return  # nothing is known of an imported table here
    partition_key, sort_key = kind.keys
    keys = _keys(resource, resource.key_schema)
    if keys != {partition_key: ("HASH", "S"), sort_key: ("RANGE", "S")}:
        raise ValueError(
            f"table {table.node.path} has the keys {_shown(keys)}; allowed: the partition key {partition_key} and the "
            f"sort key {sort_key}, both of type S"
        )
    ttl: Any = _resolved(resource, resource.time_to_live_specification) or {}
    if not (ttl.get("enabled") and ttl.get("attributeName") == TTL_ATTRIBUTE):
        shown = f"time to live on {ttl['attributeName']}" if ttl.get("enabled") else "no time to live"
        raise ValueError(
            f"table {table.node.path} has {shown}; allowed: time to live on {TTL_ATTRIBUTE}, or expired items stay"
        )
    if kind.index is not None:
        _check_index(table, resource, kind.index)
    if has_replicas(table):
        Annotations.of(scope).add_warning_v2(
            "ticketlock:tableWithReplicas",
            f"table {table.node.path} has replicas: each Region judges conditions by itself, so {kind.where}",
        )


def _check_index(table: dynamodb.ITable, resource: Any, wanted: Mapping[str, Any]) -> None:
    name, [key] = wanted["IndexName"], wanted["KeySchema"]
    shown = f"no index {name}"
    for index in _resolved(resource, resource.global_secondary_indexes) or ():
        if index["indexName"] == name:
            keys, projected = _keys(resource, index["keySchema"]), index["projection"].get("projectionType")
            if keys == {key["AttributeName"]: ("HASH", "S")} and projected == "KEYS_ONLY":
                return
            shown = f"an index {name} with the keys {_shown(keys)} and the projection {projected}"
    raise ValueError(
        f"table {table.node.path} has {shown}; allowed: a global index {name} with the partition key "
        f"{key['AttributeName']} of type S alone, and the projection KEYS_ONLY"
    )


def _resource(table: dynamodb.ITable) -> Any:
    """The resource of a table; None of one that is imported."""
    resource = table.node.default_child
    return resource if isinstance(resource, dynamodb.CfnTable | dynamodb.CfnGlobalTable) else None


def _resolved(resource: Any, value: Any) -> Any:
    return Stack.of(resource).resolve(value)


def _keys(resource: Any, schema: Any) -> Mapping[str, tuple[str, str | None]]:
    attributes = _resolved(resource, resource.attribute_definitions) or []
    types = {attribute["attributeName"]: attribute["attributeType"] for attribute in attributes}
    keys = _resolved(resource, schema) or []
    return {key["attributeName"]: (key["keyType"], types.get(key["attributeName"])) for key in keys}


def _shown(keys: Mapping[str, tuple[str, str | None]]) -> str:
    return ", ".join(f"{name} ({role}, {kind})" for name, (role, kind) in keys.items())


def _new(
    scope: Construct, id: str, kind: _Kind, *, removal_policy: RemovalPolicy, encryption_key: kms.IKey | None
) -> dynamodb.Table:
    """A table billed on demand, with time to live and point-in-time recovery.

    Not a TableV2: that is a global table, and a replica in another Region judges conditions by itself, which would
    break exclusion:
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/V2globaltables_HowItWorks.html
    """
    partition_key, sort_key = map(_text, kind.keys)
    table = dynamodb.Table(
        scope,
        id,
        partition_key=partition_key,
        sort_key=sort_key,
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        time_to_live_attribute=TTL_ATTRIBUTE,
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=True
        ),
        # A rollback could not delete a table that is protected.
        removal_policy=RemovalPolicy.DESTROY if removal_policy == RemovalPolicy.DESTROY else RemovalPolicy.RETAIN,
        # A user who keeps the table after the stack does not want it deleted by hand either.
        deletion_protection=removal_policy != RemovalPolicy.DESTROY,
        encryption_key=encryption_key,
    )
    if kind.index is not None:
        [key] = kind.index["KeySchema"]
        table.add_global_secondary_index(
            index_name=kind.index["IndexName"],
            partition_key=_text(key["AttributeName"]),
            projection_type=dynamodb.ProjectionType.KEYS_ONLY,
        )
    return table


def _text(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)


def given_table(
    scope: Construct, id: str, table: dynamodb.ITable | str, name: str, environment: Environment
) -> dynamodb.ITable:
    """The table that a property gives, as a construct, by name or by ARN.

    Args:
        scope, id: those of a table that is imported by name or ARN.
        table: the property's value.
        name: the property's name.
        environment: where it must be.

    Raises:
        ValueError: it is not a table, or in another Region or account; the message says what is allowed.
    """
    if not isinstance(table, str):
        check_table(table, name, environment, ALLOWED)
        return table
    text = table.strip()
    # A token within a part of an ARN is fine.
    if re.fullmatch(r"arn:[^:]+:dynamodb:[^:]+:[^:]+:table/[^/:]+", text):
        environment.check(name, repr(table), environment_of_arn(text))
        return dynamodb.Table.from_table_arn(scope, id, text)
    if Token.is_unresolved(text):
        raise ValueError(
            f"{name} is text that is known only at deploy time; allowed: {ALLOWED} "
            "(import it by Table.from_table_name or Table.from_table_arn)"
        )
    if not _NAME.fullmatch(text):
        raise ValueError(f"{name} is {table!r}; allowed: {ALLOWED}")
    return dynamodb.Table.from_table_name(scope, id, text)


def check_table(
    table: dynamodb.ITable, name: str, environment: Environment, allowed: str = "a table as a construct"
) -> None:
    """Check that a value is a table of this environment.

    Raises:
        ValueError: names the property.
    """
    if isinstance(table, dynamodb.CfnTable):
        allowed = "a construct with its attr_arn: Table.from_table_arn(...)"
    check_construct(name, table, "table_arn", allowed)
    environment.check(name, table.node.path, environment_of_table(table))


def has_replicas(table: dynamodb.ITable) -> bool:
    """Whether a table is known to be in several Regions."""
    resource = _resource(table)
    return isinstance(resource, dynamodb.CfnGlobalTable) and len(_resolved(resource, resource.replicas)) > 1


def check_has_transactions(table: dynamodb.ITable) -> None:
    """Refuse a table that is known to have no transactions.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/V2globaltables_HowItWorks.html

    Raises:
        ValueError: it is a global table with strong consistency.
    """
    resource = _resource(table)
    if isinstance(resource, dynamodb.CfnGlobalTable) and resource.multi_region_consistency == "STRONG":
        raise ValueError(
            f"table {table.node.path} is a global table with strong consistency, which has no transactions; allowed: a "
            "table of one Region"
        )


def may_have_indexes(table: dynamodb.ITable) -> bool:
    """Whether a table has indexes, or may have: of an imported one nothing is known."""
    resource = _resource(table)
    if resource is None:
        return True
    kinds = (resource.global_secondary_indexes, resource.local_secondary_indexes)
    return any(_resolved(resource, indexes) for indexes in kinds)


def longest_arn(table: dynamodb.ITable) -> int:
    """The most characters that a table's ARN may have; a name that CloudFormation makes is known after it is made.

    https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-properties-name.html
    """
    resource, name = _resource(table), table.table_name
    if resource is not None:
        logical_id = _resolved(resource, resource.logical_id)
        name = (
            _resolved(resource, resource.table_name) or f"{Stack.of(resource).stack_name}-{logical_id}-{_MADE_UNIQUE}"
        )
    is_known = isinstance(name, str) and not Token.is_unresolved(name)
    return _BEFORE_A_NAME + (min(len(name), _LONGEST_NAME) if is_known else _LONGEST_NAME)
