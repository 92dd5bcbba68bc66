"""DynamoDB tables: our own new ones, and users' tables by name or as constructs."""

import re
from typing import Any

from aws_cdk import RemovalPolicy, Stack, Token
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from constructs import Construct

TTL_ATTRIBUTE = "expiresAt"
ALLOWED = "a table as a construct, the name of one in this account and Region, or its ARN"
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html
_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")


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
