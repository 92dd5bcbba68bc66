"""Creates tables without the CDK, as the construct would."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.exceptions import ClientError

from ticketlock.wire._actions import TIME_TO_LIVE
from ticketlock.wire._sdk import check_is_client, needs_a_region


@dataclass(frozen=True, slots=True)
class TableKind:
    """One kind of our tables: two text keys, time to live on ``expiresAt``.

    Attributes:
        name: its name in messages, for example ``lock table``.
        keys: the partition key, then the sort key.
        is_ours: whether an item belongs to this kind of table.
        index: its global index, as in CreateTable, with one text key; None for none.
    """

    name: str
    keys: tuple[str, str]
    is_ours: Callable[[Any], bool]
    index: Mapping[str, Any] | None = None

    def definition(self, table_name: str, capacity: Mapping[str, int] | None = None) -> dict[str, Any]:
        """The arguments of CreateTable, with the capacity of the index, if the table is not billed on demand."""
        partition, sort = self.keys
        indexes = self._indexes(capacity)
        return {
            "TableName": table_name,
            "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": self._attributes,
            "KeySchema": [
                {"AttributeName": partition, "KeyType": "HASH"},
                {"AttributeName": sort, "KeyType": "RANGE"},
            ],
            **({"GlobalSecondaryIndexes": indexes} if indexes else {}),
        }

    def _indexes(self, capacity: Mapping[str, int] | None = None) -> list[dict[str, Any]]:
        more = {"ProvisionedThroughput": capacity} if capacity else {}
        return [] if self.index is None else [{**self.index, **more}]

    @property
    def _attributes(self) -> list[dict[str, str]]:
        of_index = () if self.index is None else (each["AttributeName"] for each in self.index["KeySchema"])
        return [{"AttributeName": name, "AttributeType": "S"} for name in (*self.keys, *of_index)]

    def create(self, table_name: str, client: Any, more: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Create a table of this kind, unless there is one of that name, and wait until it is active.

        Args:
            table_name: its name.
            client: a DynamoDB client with permission to create tables; None for one of its own.
            more: further arguments of CreateTable.

        Returns:
            What CreateTable answered; None if the table was there.

        Raises:
            InvalidLockRequest: no Region is set, or ``client`` is not a low-level client.
            ValueError: the table of that name is of another kind; nothing was changed.
        """
        dynamodb: Any = client if client is not None else _own_client()
        check_is_client(dynamodb)
        try:
            definition = self.definition(table_name, more.get("ProvisionedThroughput"))
            made: Mapping[str, Any] | None = dynamodb.create_table(**{**definition, **more})
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") != "ResourceInUseException":
                raise
            made = None
        dynamodb.get_waiter("table_exists").wait(TableName=table_name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
        found = dynamodb.describe_time_to_live(TableName=table_name)["TimeToLiveDescription"]
        if made is None:
            table = dynamodb.describe_table(TableName=table_name)["Table"]
            self._check(dynamodb, table, found)
            self._add_index(dynamodb, table)
        if found.get("TimeToLiveStatus", "DISABLED") == "DISABLED":
            dynamodb.update_time_to_live(
                TableName=table_name, TimeToLiveSpecification={"Enabled": True, "AttributeName": TIME_TO_LIVE}
            )
        return made

    def _add_index(self, dynamodb: Any, table: Any) -> None:
        """Add the index to a table that lacks it, for example after a restore without indexes; it is filled later."""
        names = [each["IndexName"] for each in table.get("GlobalSecondaryIndexes", ())]
        billed = table.get("ProvisionedThroughput", {})
        # 0 of a table that is billed on demand.
        capacity = {name: billed[name] for name in ("ReadCapacityUnits", "WriteCapacityUnits") if billed.get(name)}
        for index in self._indexes(capacity):
            if index["IndexName"] not in names:
                dynamodb.update_table(
                    TableName=table["TableName"],
                    AttributeDefinitions=self._attributes,
                    GlobalSecondaryIndexUpdates=[{"Create": index}],
                )

    def _check(self, dynamodb: Any, table: Any, time_to_live: Any) -> None:
        """Refuse a table of another kind, so that time to live does not delete its items."""
        wanted, no = self.definition(table["TableName"]), f"{table['TableName']} is no {self.name}"
        if _keys(table) != _keys(wanted):
            raise ValueError(f"{no}: its keys are {_keys(table)}, not {_keys(wanted)}")
        schemas = {each["IndexName"]: each["KeySchema"] for each in table.get("GlobalSecondaryIndexes", ())}
        for index in self._indexes():
            found = schemas.get(index["IndexName"], index["KeySchema"])
            if found != index["KeySchema"]:
                raise ValueError(f"{no}: the key of its index {index['IndexName']} is {found}")
        attribute = time_to_live.get("AttributeName", TIME_TO_LIVE)
        if attribute != TIME_TO_LIVE:
            raise ValueError(f"{no}: its time to live is on {attribute}")
        if "AttributeName" not in time_to_live:
            items = dynamodb.scan(TableName=table["TableName"], Limit=1)["Items"]
            if not all(map(self.is_ours, items)):
                raise ValueError(f"{no}: it has items of another kind")


def _own_client() -> Any:
    with needs_a_region():
        return boto3.client("dynamodb")


def _keys(table: Any) -> dict[str, tuple[str, str]]:
    types = {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}
    return {each["AttributeName"]: (each["KeyType"], types[each["AttributeName"]]) for each in table["KeySchema"]}
