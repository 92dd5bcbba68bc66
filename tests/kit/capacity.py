"""Capacity units by DynamoDB's published rules, from the items themselves: engines on a laptop count them wrongly.

Rules: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html
Sizes: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ticketlock._expressions._values import canonical_item, size_of

_READS = ("BatchGetItem", "GetItem", "Query")
_WRITE_UNIT_BYTES = 1_024
_READ_UNIT_BYTES = 4_096


@dataclass(frozen=True)
class Billed:
    """One request.

    Attributes:
        by_rule: its units by the published rules.
        by_engine: what the engine reports; None if it reports nothing.
    """

    operation: str
    refused: bool
    by_rule: float
    by_engine: float | None

    @property
    def reads(self) -> bool:
        return self.operation in _READS


@dataclass
class Bill:
    """The requests of a client, and the units that DynamoDB bills for them.

    Register it on a client with ``watch``; it reads each item before and after a write, with a client of its own,
    since the larger of the two is billed.

    Attributes:
        asks: whether the engine is asked for its count.
    """

    plain_client: Any
    asks: bool = False
    billed: list[Billed] = field(default_factory=list)

    @property
    def requests(self) -> int:
        return len(self.billed)

    @property
    def write_units(self) -> float:
        return sum(each.by_rule for each in self.billed if not each.reads)

    @property
    def read_units(self) -> float:
        return sum(each.by_rule for each in self.billed if each.reads)

    def watch(self, client: Any) -> None:
        """Count what ``client`` sends from now on."""
        client.meta.events.register("provide-client-params.dynamodb", self._before)
        client.meta.events.register("after-call.dynamodb", self._after)

    def _before(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        if self.asks:
            params["ReturnConsumedCapacity"] = "TOTAL"
        self._params = params
        self._sizes = [self._size(write) for write in _writes(model.name, params)]

    def _after(self, parsed: Mapping[str, Any], model: Any, **_: Any) -> None:
        consumed = parsed.get("ConsumedCapacity", [])
        each = [table["CapacityUnits"] for table in ([consumed] if isinstance(consumed, Mapping) else consumed)]
        by_rule = self._units(model.name, parsed)
        self.billed.append(Billed(model.name, "Error" in parsed, by_rule, sum(each) if each else None))

    def _units(self, operation: str, parsed: Mapping[str, Any]) -> float:
        if operation == "BatchGetItem":
            # Each item is rounded up by itself; one that does not exist costs a unit too.
            asked = sum(len(table["Keys"]) for table in self._params["RequestItems"].values())
            found = [item for items in parsed["Responses"].values() for item in items]
            return asked - len(found) + sum(_rounded(item_bytes(item), _READ_UNIT_BYTES) for item in found)
        if operation in _READS:
            items = parsed["Items"] if operation == "Query" else [parsed.get("Item", {})]
            units = _rounded(sum(map(item_bytes, items)), _READ_UNIT_BYTES)
            # An eventually consistent read costs half.
            return units if self._params.get("ConsistentRead") else units / 2
        # A write that its condition refuses is billed like one that is applied; in a transaction twice.
        factor = 2 if operation == "TransactWriteItems" else 1
        pairs = zip(self._sizes, _writes(operation, self._params), strict=True)
        return factor * sum(_rounded(max(before, self._size(write)), _WRITE_UNIT_BYTES) for before, write in pairs)

    def _size(self, write: Mapping[str, Any]) -> int:
        whole = write.get("Key") or write["Item"]
        key = {name: whole[name] for name in ("pk", "sk")}
        found = self.plain_client.get_item(TableName=write["TableName"], Key=key, ConsistentRead=True)
        return item_bytes(found["Item"]) if "Item" in found else 0


def _writes(operation: str, params: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    if operation in _READS:
        return []
    if operation == "TransactWriteItems":
        return [write for entry in params["TransactItems"] for write in entry.values()]
    return [params]


def _rounded(size: int, unit: int) -> int:
    return max(1, -(-size // unit))


def item_bytes(item: Mapping[str, Any]) -> int:
    return size_of(canonical_item(item))
