"""Capacity units by DynamoDB's published rules, from the items themselves: engines on a laptop count them wrongly.

Rules: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html
Sizes: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_READS = ("GetItem", "Query")
_WRITE_UNIT_BYTES = 1_024
_READ_UNIT_BYTES = 4_096


@dataclass
class Bill:
    """The requests of a client, and the units that DynamoDB bills for them.

    Register it on a client with ``watch``; it reads each item before and after a write, with a client of its own,
    since the larger of the two is billed.
    """

    plain_client: Any
    requests: int = 0
    write_units: int = 0
    read_units: float = 0

    def watch(self, client: Any) -> None:
        """Count what ``client`` sends from now on."""
        client.meta.events.register("provide-client-params.dynamodb", self._before)
        client.meta.events.register("after-call.dynamodb", self._after)

    def _before(self, params: Mapping[str, Any], model: Any, **_: Any) -> None:
        self.requests += 1
        self._operation, self._params = model.name, params
        self._sizes = [self._size(write) for write in self._writes()]

    def _after(self, parsed: Mapping[str, Any], **_: Any) -> None:
        if self._operation == "BatchGetItem":
            # Each item is rounded up by itself; one that does not exist costs a unit too.
            asked = sum(len(table["Keys"]) for table in self._params["RequestItems"].values())
            found = [item for items in parsed["Responses"].values() for item in items]
            self.read_units += asked - len(found) + sum(-(-item_bytes(item) // _READ_UNIT_BYTES) for item in found)
            return
        if self._operation in _READS:
            items = parsed["Items"] if self._operation == "Query" else [parsed.get("Item", {})]
            units = max(1, -(-sum(map(item_bytes, items)) // _READ_UNIT_BYTES))
            # An eventually consistent read costs half.
            self.read_units += units if self._params.get("ConsistentRead") else units / 2
            return
        # A write that its condition refuses is billed like one that is applied; in a transaction twice.
        factor = 2 if self._operation == "TransactWriteItems" else 1
        for before, write in zip(self._sizes, self._writes(), strict=True):
            size = max(before, self._size(write))
            self.write_units += factor * max(1, -(-size // _WRITE_UNIT_BYTES))

    def _writes(self) -> list[Mapping[str, Any]]:
        if self._operation in (*_READS, "BatchGetItem"):
            return []
        if self._operation == "TransactWriteItems":
            return [write for entry in self._params["TransactItems"] for write in entry.values()]
        return [self._params]

    def _size(self, write: Mapping[str, Any]) -> int:
        whole = write.get("Key") or write["Item"]
        key = {name: whole[name] for name in ("pk", "sk")}
        found = self.plain_client.get_item(TableName=write["TableName"], Key=key, ConsistentRead=True)
        return item_bytes(found["Item"]) if "Item" in found else 0


def item_bytes(item: Mapping[str, Any]) -> int:
    """The size of an item as DynamoDB counts it."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(value: Mapping[str, Any]) -> int:
    ((kind, content),) = value.items()
    if kind == "S":
        return len(content.encode())
    if kind == "N":
        return 1 + -(-len(content.strip("-0.")) // 2)
    if kind == "BOOL":
        return 1
    if kind == "M":
        return 3 + sum(1 + len(name.encode()) + _value_bytes(inner) for name, inner in content.items())
    raise ValueError(f"ticketlock stores no attributes of type {kind}")
