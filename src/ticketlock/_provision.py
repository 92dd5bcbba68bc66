"""A lock table, made by hand: what the construct makes, for those who do not use the CDK."""

from typing import TYPE_CHECKING, Any

import boto3
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TIME_TO_LIVE = "expiresAt"


def table_definition(table_name: str) -> dict[str, Any]:
    """The arguments of CreateTable for a lock table."""
    return {
        "TableName": table_name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    }


def create_table(table_name: str, *, client: "DynamoDBClient | None" = None, **more: Any) -> bool:
    """Make a lock table, unless there is one of that name, and wait until it can be used.

    Args:
        table_name: its name.
        client: a DynamoDB client that may create tables.
        more: further arguments of CreateTable, for example ``Tags`` or ``DeletionProtectionEnabled``.

    Returns:
        Whether it was made.
    """
    dynamodb: Any = client if client is not None else boto3.client("dynamodb")
    try:
        dynamodb.create_table(**{**table_definition(table_name), **more})
        made = True
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") != "ResourceInUseException":
            raise
        made = False
    dynamodb.get_waiter("table_exists").wait(TableName=table_name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    found = dynamodb.describe_time_to_live(TableName=table_name)["TimeToLiveDescription"]
    if found.get("TimeToLiveStatus", "DISABLED") == "DISABLED":
        dynamodb.update_time_to_live(
            TableName=table_name, TimeToLiveSpecification={"Enabled": True, "AttributeName": TIME_TO_LIVE}
        )
    return made
