"""A units table and a user's table, for tests that use ``Units`` as users do."""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kit.engines import Engine
from kit.units import KEYS, dumped, loaded, make_table

from ticketlock.units import Units, create_units_table


@dataclass
class OwnTables:
    """The two tables.

    Attributes:
        engine: where they are.
        client: a plain client, for reads and writes without units.
        units_name, accounts: the names of the tables; the key of an account is ``id``.
    """

    engine: Engine
    client: Any
    units_name: str
    accounts: str

    def units(self, **options: Any) -> Units:
        return Units(self.units_name, client=self.engine.client(), **options)

    def write(self, item: Mapping[str, Any]) -> None:
        """Put an item with the plain client."""
        self.client.put_item(TableName=self.accounts, Item=dumped(item))

    def stored(self, name: str) -> dict[str, Any] | None:
        """An item as a plain reader finds it."""
        found = self.client.get_item(TableName=self.accounts, Key={"id": {"S": name}}, ConsistentRead=True)
        return loaded(found["Item"]) if "Item" in found else None

    def there(self, name: str) -> dict[str, Any]:
        """The same of an item that exists."""
        item = self.stored(name)
        assert item is not None, name
        return item

    def balance(self, name: str) -> Any:
        item = self.stored(name)
        return None if item is None else item["balance"]


@contextmanager
def own_tables(engine: Engine) -> Iterator[OwnTables]:
    """Both; deleted afterwards."""
    client, suffix = engine.client(), uuid.uuid4().hex[:8]
    tables = OwnTables(engine, client, f"units-{suffix}", f"accounts-{suffix}")
    create_units_table(tables.units_name, client=client)
    make_table(client, tables.accounts, KEYS["accounts"])
    try:
        yield tables
    finally:
        for name in (tables.units_name, tables.accounts):
            client.delete_table(TableName=name)
