"""A table of units' own and one of a user's, for tests of what stands around units."""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from kit.engines import Engine

from ticketlock.units import Units, create_units_table


@dataclass
class OwnTables:
    """The two tables.

    Attributes:
        engine: where they are.
        client: a plain client, for what is done beside units.
        units_name, accounts: the names of the tables; of an account the key is ``id``.
    """

    engine: Engine
    client: Any
    units_name: str
    accounts: str

    def units(self, **options: Any) -> Units:
        return Units(self.units_name, client=self.engine.client(), **options)

    def write(self, item: Mapping[str, Any]) -> None:
        """Put an item by hand."""
        self.client.put_item(TableName=self.accounts, Item=dumped(item))

    def stored(self, name: str) -> dict[str, Any] | None:
        """An item as a plain reader finds it."""
        found = self.client.get_item(TableName=self.accounts, Key={"id": {"S": name}}, ConsistentRead=True)
        return loaded(found["Item"]) if "Item" in found else None

    def balance(self, name: str) -> Any:
        item = self.stored(name)
        return None if item is None else item["balance"]


def dumped(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: TypeSerializer().serialize(value) for name, value in item.items()}


def loaded(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: TypeDeserializer().deserialize(value) for name, value in item.items()}


def some_name() -> str:
    return f"account-{uuid.uuid4().hex[:8]}"


@contextmanager
def own_tables(engine: Engine) -> Iterator[OwnTables]:
    """Both, gone afterwards."""
    client, suffix = engine.client(), uuid.uuid4().hex[:8]
    tables = OwnTables(engine, client, f"units-{suffix}", f"accounts-{suffix}")
    create_units_table(tables.units_name, client=client)
    client.create_table(
        TableName=tables.accounts,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
    )
    client.get_waiter("table_exists").wait(TableName=tables.accounts)
    try:
        yield tables
    finally:
        for name in (tables.units_name, tables.accounts):
            client.delete_table(TableName=name)
