"""A lock table, made by hand: what the construct makes, for those who do not use the CDK."""

from typing import TYPE_CHECKING, Any

import boto3
from botocore.exceptions import ClientError

from ticketlock.wire._sdk import check_is_client, needs_a_region

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

    Raises:
        InvalidLockRequest: no Region is set, or ``client`` is not a low-level client (for example a
            ``boto3.resource``).
        ValueError: there is a table of that name, and it is no lock table; nothing was changed.
    """
    dynamodb: Any = client if client is not None else _own_client()
    check_is_client(dynamodb)
    try:
        dynamodb.create_table(**{**table_definition(table_name), **more})
        made = True
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") != "ResourceInUseException":
            raise
        made = False
    dynamodb.get_waiter("table_exists").wait(TableName=table_name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    found = dynamodb.describe_time_to_live(TableName=table_name)["TimeToLiveDescription"]
    if not made:
        _check(dynamodb, dynamodb.describe_table(TableName=table_name)["Table"], found)
    if found.get("TimeToLiveStatus", "DISABLED") == "DISABLED":
        dynamodb.update_time_to_live(
            TableName=table_name, TimeToLiveSpecification={"Enabled": True, "AttributeName": TIME_TO_LIVE}
        )
    return made


def _own_client() -> Any:
    with needs_a_region():
        return boto3.client("dynamodb")


def _check(dynamodb: Any, table: Any, time_to_live: Any) -> None:
    """Refuse somebody else's table, before time to live deletes what is in it."""
    wanted = table_definition(table["TableName"])
    if _keys(table) != _keys(wanted):
        raise ValueError(f"{table['TableName']} is no lock table: its keys are {_keys(table)}, not {_keys(wanted)}")
    attribute = time_to_live.get("AttributeName", TIME_TO_LIVE)
    if attribute != TIME_TO_LIVE:
        raise ValueError(f"{table['TableName']} is no lock table: its time to live is on {attribute}")
    if "AttributeName" not in time_to_live:
        items = dynamodb.scan(TableName=table["TableName"], Limit=1)["Items"]
        if any("/" not in item["sk"]["S"] for item in items):
            raise ValueError(f"{table['TableName']} is no lock table: it has items of another kind")


def _keys(table: Any) -> dict[str, tuple[str, str]]:
    types = {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}
    return {each["AttributeName"]: (each["KeyType"], types[each["AttributeName"]]) for each in table["KeySchema"]}
