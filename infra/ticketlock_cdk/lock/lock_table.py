"""The table of the locks: a new one, or one that is given and checked."""

import re
from typing import Any

from aws_cdk import Annotations, RemovalPolicy, Stack, Token
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from constructs import Construct

_KEYS = {"pk": "HASH", "sk": "RANGE"}
_TTL_ATTRIBUTE = "expiresAt"
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html
_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_ALLOWED = "a table as a construct, the name of one in this account and Region, or its ARN"


def new_lock_table(
    scope: Construct, id: str, *, removal_policy: RemovalPolicy, encryption_key: kms.IKey | None
) -> dynamodb.Table:
    """A table on demand, with time to live and point-in-time recovery.

    Not a TableV2: that is a global table, and one more replica of it, in which conditions are judged apart, would be
    the end of exclusion:
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/V2globaltables_HowItWorks.html
    """
    return dynamodb.Table(
        scope,
        id,
        partition_key=dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING),
        sort_key=dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.STRING),
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        time_to_live_attribute=_TTL_ATTRIBUTE,
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=True
        ),
        removal_policy=removal_policy,
        # Who wants to keep the table past the stack wants nobody to delete it by hand either.
        deletion_protection=removal_policy != RemovalPolicy.DESTROY,
        encryption_key=encryption_key,
    )


def given_lock_table(scope: Construct, id: str, table: dynamodb.ITable | str) -> dynamodb.ITable:
    """The table that the construct's property ``table`` names.

    Raises:
        ValueError: it is no table, or its keys or its time to live are known and do not fit.
    """
    if isinstance(table, str):
        return _imported(scope, id, table)
    if not hasattr(table, "table_name"):
        raise ValueError(f"table is {table!r}; allowed: {_ALLOWED}")
    _check(scope, table)
    return table


def _imported(scope: Construct, id: str, table: str) -> dynamodb.ITable:
    text = table.strip()
    # A token within a part of an ARN is as good as text.
    if re.fullmatch(r"arn:[^:]+:dynamodb:[^:]+:[^:]+:table/[^/:]+", text):
        return dynamodb.Table.from_table_arn(scope, id, text)
    if Token.is_unresolved(text):
        raise ValueError(
            f"table is text that is known only at deploy time; allowed: {_ALLOWED} "
            "(import it by Table.from_table_name or Table.from_table_arn)"
        )
    if not _NAME.fullmatch(text):
        raise ValueError(f"table is {table!r}; allowed: {_ALLOWED}")
    return dynamodb.Table.from_table_name(scope, id, text)


def _check(scope: Construct, table: dynamodb.ITable) -> None:
    resource: Any = table.node.default_child
    if not isinstance(resource, dynamodb.CfnTable | dynamodb.CfnGlobalTable):
        return  # an imported table: its keys are not known here
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
    if not (ttl.get("enabled") and ttl.get("attributeName") == _TTL_ATTRIBUTE):
        shown = f"time to live on {ttl['attributeName']}" if ttl.get("enabled") else "no time to live"
        raise ValueError(
            f"table {table.node.path} has {shown}; allowed: time to live on {_TTL_ATTRIBUTE}, or what is over stays"
        )
    replicas: Any = stack.resolve(resource.replicas) if isinstance(resource, dynamodb.CfnGlobalTable) else []
    if len(replicas) > 1:
        Annotations.of(scope).add_warning_v2(
            "ticketlock:tableWithReplicas",
            f"table {table.node.path} has replicas: conditions are judged in each Region apart, so use one lock in one "
            "Region only",
        )
