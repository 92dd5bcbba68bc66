"""The tables of the simulated world of units, and the contents of their items."""

from collections.abc import Mapping
from typing import Any

from property.units.checker import Key

from ticketlock.testing import MemoryDynamoDB
from ticketlock.units._marks import Marks

UNITS, LOCKS = "units", "locks"
TABLES: Mapping[str, tuple[str, ...]] = {
    UNITS: ("unit", "row"),
    "accounts": ("id",),
    "lines": ("pk", "sk"),
    LOCKS: ("pk",),
}
MARKS = Marks("_tlu")
OWNERS = ("owner 1", "owner 2")
ELEMENTS = "list"


def create_tables(memory: MemoryDynamoDB) -> None:
    """Create all of them in a new database."""
    for name, keys in TABLES.items():
        memory.create_table(
            TableName=name,
            KeySchema=[
                {"AttributeName": key, "KeyType": role} for key, role in zip(keys, ("HASH", "RANGE"), strict=False)
            ],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
            BillingMode="PAY_PER_REQUEST",
        )
    memory.update_time_to_live(TableName=UNITS, TimeToLiveSpecification={"Enabled": True, "AttributeName": "expiresAt"})


def key_of(key: Key) -> dict[str, str]:
    """The key attributes of an item, in Python values."""
    return {"id": key[1]} if key[0] == "accounts" else {"pk": "p", "sk": key[1]}


def elements(item: Mapping[str, Any]) -> tuple[int, ...]:
    """The list in an item, from AttributeValues."""
    return tuple(int(each["N"]) for each in item[ELEMENTS]["L"])
