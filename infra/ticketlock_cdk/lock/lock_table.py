"""The lock table: a new one, or an existing one that is checked."""

from typing import Any

from aws_cdk import Annotations, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from constructs import Construct

from ticketlock_cdk.tables import TTL_ATTRIBUTE, given_table, has_replicas, new_table

_KEYS = {"pk": "HASH", "sk": "RANGE"}


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
