"""The table of the locks: a new one, or the check that a given one fits."""

from typing import Any

from aws_cdk import Annotations, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

_KEYS = {"pk": "HASH", "sk": "RANGE"}
_TTL_ATTRIBUTE = "expiresAt"


def new_lock_table(scope: Construct, id: str, *, removal_policy: RemovalPolicy) -> dynamodb.Table:
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
    )


def check_given_table(scope: Construct, table: dynamodb.ITable) -> None:
    """Refuse a table whose keys are known and do not fit; warn of one that would keep what is over.

    Raises:
        ValueError: says which keys it has, and which it should have.
    """
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
        Annotations.of(scope).add_warning_v2(
            "ticketlock:tableWithoutTimeToLive",
            f"table {table.node.path} has no time to live on {_TTL_ATTRIBUTE}: locks and sessions that are over stay",
        )
