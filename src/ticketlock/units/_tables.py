"""The tables that units write to: what their keys are called, and of which types."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ticketlock._expressions._sizes import Schema
from ticketlock.errors import InvalidUnitRequest
from ticketlock.wire._attributes import Item
from ticketlock.wire._item_requests import DescribeTable
from ticketlock.wire._requests import Steps


@dataclass(frozen=True, slots=True)
class UnitTable:
    """A table, as ``Units.table`` knows it.

    Attributes:
        name: its name.
        schema: its keys, and those of its indexes, with their types.
        has_local_indexes: whether a collection of items may be too large for it.
    """

    name: str
    schema: Schema
    has_local_indexes: bool = False

    @property
    def key_names(self) -> tuple[str, ...]:
        """The attributes of its key."""
        return tuple(self.schema.key)

    def key_of(self, field: str, given: Item) -> Item:
        """The key in an item or a key.

        Raises:
            InvalidUnitRequest: an attribute of it is missing, or of another type.
        """
        for name, kind in self.schema.key.items():
            if set(given.get(name, {})) != {kind}:
                raise InvalidUnitRequest(
                    f"{field}.{name}", given.get(name), f"a value of type {kind}: {self.name}'s key"
                )
        return {name: given[name] for name in self.schema.key}

    def only_key_of(self, given: Item) -> Item:
        """The key, of what is nothing else.

        Raises:
            InvalidUnitRequest: an attribute of it is missing, of another type, or more is given.
        """
        key = self.key_of("key", given)
        if len(given) > len(key):
            raise InvalidUnitRequest("key", sorted(given), f"the key of {self.name} and nothing else: {list(key)}")
        return key


class Tables:
    """The tables of one ``Units``, each described once."""

    def __init__(self) -> None:
        self._known: dict[str, UnitTable] = {}

    def table(self, name: str) -> Steps[UnitTable]:
        """A table by its name.

        Raises:
            TableNotFound: there is none.
        """
        if name not in self._known:
            description: Any = (yield DescribeTable(name)).item
            self._known[name] = _described(description)
        return self._known[name]

    def check_own(self, table: Any) -> UnitTable:
        """Refuse what ``Units.table`` of the same ``Units`` has not returned."""
        if not isinstance(table, UnitTable) or self._known.get(table.name) is not table:
            raise InvalidUnitRequest("table", table, "what `table` of the same Units has returned")
        return table


def _described(table: Mapping[str, Any]) -> UnitTable:
    types = {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}
    local = table.get("LocalSecondaryIndexes", [])
    indexes = [*table.get("GlobalSecondaryIndexes", []), *local]
    index_keys = tuple(_key(index["KeySchema"], types) for index in indexes)
    return UnitTable(table["TableName"], Schema(_key(table["KeySchema"], types), index_keys), bool(local))


def _key(elements: Any, types: Mapping[str, str]) -> Mapping[str, str]:
    """The partition key first."""
    ordered = sorted(elements, key=lambda each: str(each["KeyType"]))
    return {each["AttributeName"]: types[each["AttributeName"]] for each in ordered}
