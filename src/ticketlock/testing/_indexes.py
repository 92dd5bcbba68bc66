"""Secondary indexes of a table, and vector indexes, which only refuse items.

A vector index cannot be searched here:
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/VectorSearchTroubleshooting.html
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ticketlock._expressions import Attributes, Value, canonical, size_of
from ticketlock.testing._refusals import Refused, invalid, mismatched
from ticketlock.testing._stored import Key, KeyPart, Partitions, key_part

Described = Mapping[str, Any]
_MOST_DIMENSIONS = 4_096


def searched_in(index: Described) -> list[str]:
    """The attributes of its search schema."""
    return [each["AttributeName"] for each in index.get("SearchSchema", ())]


def check_created(index: Described, kinds: Mapping[str, str]) -> None:
    """Refuse an index that cannot be created."""
    if not set(searched_in(index)) <= kinds.keys():
        raise invalid("One element in SearchSchema is not defined in attribute definitions")
    if not 1 <= index["Dimensions"] <= _MOST_DIMENSIONS:
        raise invalid(f"Dimensions is 1 to {_MOST_DIMENSIONS}, and is {index['Dimensions']}")


def check_vectors(item: Attributes, indexes: Iterable[Described], kinds: Mapping[str, str]) -> None:
    """Refuse an item that one of the indexes cannot take."""
    for index in indexes:
        name, dimensions = index["VectorAttribute"]["AttributeName"], index["Dimensions"]
        vector = item.get(name, {"L": [{"N": "0"}] * dimensions})
        if vector.keys() != {"L"} or any(each.keys() != {"N"} for each in vector["L"]):
            raise mismatched(f"One or more parameter values were invalid: Invalid type for parameter {name}")
        if len(vector["L"]) != dimensions:
            raise mismatched(
                f"One or more parameter values were invalid: the vector {name} has {len(vector['L'])} dimensions, and "
                f"the index {index['IndexName']} has {dimensions}"
            )
        for searched in searched_in(index):
            if searched in item and item[searched].keys() != {kinds[searched]}:
                raise mismatched(
                    "One or more parameter values were invalid: "
                    f"Type mismatch for Index Key {searched} Expected: {kinds[searched]}"
                )


def described_throughput(settings: Described) -> dict[str, Any]:
    """The throughput of a table or an index in a description."""
    asked = settings.get("ProvisionedThroughput", {"ReadCapacityUnits": 0, "WriteCapacityUnits": 0})
    throughput = {"ProvisionedThroughput": {"NumberOfDecreasesToday": 0, **asked}}
    if "WarmThroughput" in settings:
        throughput["WarmThroughput"] = {**settings["WarmThroughput"], "Status": "ACTIVE"}
    return throughput


def _all_at_once(pending: int) -> int:
    return pending


@dataclass
class IndexDelay:
    """When the changes of items reach the indexes: eventually, in their order.

    Attributes:
        arrive: from the number of changes that have not reached an index, how many reach it before it is read next.
    """

    arrive: Callable[[int], int] = _all_at_once


class KeyedTable(Protocol):
    """What an index needs to know of its table."""

    key_names: tuple[str, ...]
    delay: IndexDelay

    @property
    def arn(self) -> str: ...

    def key_of(self, given: Any, *, is_item: bool = False) -> Key: ...

    def get(self, key: Key) -> Attributes | None: ...

    def items(self) -> Iterator[Attributes]: ...


class SecondaryIndex:
    """A secondary index. Its entries are ordered by its own sort key, and then by the key of the table.

    Attributes:
        described: as in CreateTable.
        shown: the attributes of an item that it has; None for all.
        is_local: whether it has the table's partition key, and is never behind the table.
        partition_kinds: the types of the attributes of its partition key, up to four, in its order.
        sort_kinds: the same of its sort key; it may have none.
        kinds: the types of all attributes of its key.
    """

    def __init__(self, described: Described, kinds: Mapping[str, str], table: KeyedTable, *, is_local: bool) -> None:
        keys = [(each["KeyType"], each["AttributeName"]) for each in described["KeySchema"]]
        self.partition_kinds = {name: kinds[name] for role, name in keys if role == "HASH"}
        self.sort_kinds = {name: kinds[name] for role, name in keys if role == "RANGE"}
        self.kinds = {**self.partition_kinds, **self.sort_kinds}
        self.name: str = described["IndexName"]
        self.described, self._table, self.is_local = dict(described), table, is_local
        projection = described["Projection"]
        shown = (*self.kinds, *table.key_names, *projection.get("NonKeyAttributes", ()))
        self.shown = None if projection["ProjectionType"] == "ALL" else frozenset(shown)
        self._stored = Partitions()
        self._pending: deque[tuple[Attributes | None, Attributes | None]] = deque()

    def description(self) -> dict[str, Any]:
        """As in DescribeTable."""
        entries = [entry for item in self._table.items() if (entry := self.entry_of(item)) is not None]
        return {
            **self.described,
            "IndexArn": f"{self._table.arn}/index/{self.name}",
            "IndexSizeBytes": sum(map(size_of, entries)),
            "ItemCount": len(entries),
            **({} if self.is_local else {"IndexStatus": "ACTIVE", **described_throughput(self.described)}),
        }

    def lacks(self, names: Iterable[str]) -> list[str]:
        """Those of these attributes that it does not have."""
        return [name for name in names if self.shown is not None and name not in self.shown]

    def item_of(self, entry: Attributes) -> Attributes:
        """The item of the table that an entry belongs to."""
        found = self._table.get(self._table.key_of({name: entry[name] for name in self._table.key_names}))
        return found if found is not None else entry

    def entry_of(self, item: Attributes | None) -> Attributes | None:
        """What it has of an item; None if it has nothing of it."""
        if item is None or self.place_of(item) is None:
            return None
        return item if self.shown is None else {name: item[name] for name in item if name in self.shown}

    def place_of(self, item: Attributes | None) -> Any:
        """Under which key it stores an item; None if it has nothing of it, as of items that it could not take."""
        try:
            return None if item is None else self._place(item)
        except Refused:
            return None

    def check(self, item: Attributes) -> None:
        """Refuse an item whose attributes cannot be keys of this index."""
        for name, kind in self.kinds.items():
            if item.get(name) in ({"S": ""}, {"B": b""}):
                raise mismatched(
                    "One or more parameter values are not valid. A value specified for a secondary index key is not "
                    "supported. The AttributeValue for a key attribute cannot contain an empty "
                    f"{'string' if kind == 'S' else 'binary'} value. "
                    f"IndexName: {self.name}, IndexKey: {name}"
                )
            if name in item and item[name].keys() != {kind}:
                raise mismatched(
                    "One or more parameter values were invalid: "
                    f"Type mismatch for Index Key {name} Expected: {kind} Actual: {''.join(item[name])} "
                    f"IndexName: {self.name}"
                )
        self._place(item)

    def note(self, before: Attributes | None, after: Attributes | None) -> None:
        """An item of the table was stored, changed or deleted: the index follows, at once or later."""
        if self._has(before) or self._has(after):
            self._pending.append((before, after))

    def take(self, before: Attributes | None, after: Attributes | None) -> None:
        """Replace the entry of an item."""
        if (place := self.place_of(before)) is not None:
            self._stored.put(place, None)
        if (place := self.place_of(after)) is not None:
            self._stored.put(place, self.entry_of(after))

    def partition_of(self, values: Sequence[Value]) -> Any:
        """Parse the values of its partition key, in its order."""
        return tuple(
            key_part(0, *each, value) for each, value in zip(self.partition_kinds.items(), values, strict=True)
        )

    def sort_part(self, value: Value) -> KeyPart:
        """Parse a value of the first attribute of its sort key."""
        return key_part(1, *next(iter(self.sort_kinds.items())), value)

    @property
    def start_names(self) -> frozenset[str]:
        """The attributes of a key after which a page begins."""
        return frozenset((*self.kinds, *self._table.key_names))

    def start_of(self, given: Any) -> Key:
        """The key after which a page begins: that of the index, and that of the table."""
        place: Key | None = self._place(given)
        if place is None:
            raise invalid("The provided starting key is invalid")
        return place

    def key_item(self, entry: Attributes) -> Attributes:
        """Its own key and that of the table, in the form of a request."""
        return {name: canonical(entry[name]) for name in (*self.kinds, *self._table.key_names)}

    def partition(self, pk: Any, at_least: Any = None, after: Any = None, *, is_forward: bool = True) -> Any:
        """The entries of a partition in the order of their sort keys, from one on, or after one; or in reverse."""
        self._catch_up()
        return self._stored.partition(pk, None if at_least is None else (at_least,), after, is_forward=is_forward)

    def items(self, after: Key | None = None, part: int = 0, parts: int = 1) -> Iterator[Attributes]:
        """All entries, or those of a segment, as of a table."""
        self._catch_up()
        return self._stored.items(after, part, parts)

    def _catch_up(self) -> None:
        pending = len(self._pending)
        for _ in range(pending if self.is_local else self._table.delay.arrive(pending)):
            self.take(*self._pending.popleft())

    def _has(self, item: Attributes | None) -> bool:
        if item is None:
            return False
        return all(kind in item.get(name, ()) for name, kind in self.kinds.items())

    def _place(self, item: Attributes) -> Any:
        """Under which key the index stores an item; None if it has none of it."""
        if not self._has(item):
            return None
        sk = (key_part(1, name, kind, item[name]) for name, kind in self.sort_kinds.items())
        pk = self.partition_of([item[name] for name in self.partition_kinds])
        return pk, (*sk, *self._table.key_of({name: item[name] for name in self._table.key_names}))
