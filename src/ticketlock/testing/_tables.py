"""The tables, and the transactions on their items."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any

from ticketlock._expressions._values import MAX_ITEM_BYTES, Attributes, Value, canonical, size_of
from ticketlock.testing._indexes import (
    Described,
    IndexDelay,
    SecondaryIndex,
    check_created,
    check_vectors,
    searched_in,
)
from ticketlock.testing._refusals import Refused, invalid
from ticketlock.testing._stored import Key, KeyPart, Partitions, key_part

_TOKEN_VALID_MS = 600_000

_MOST_BYTES_A_CHARACTER = 4
_MOST_BYTES_IN_TRANSACTION = 4 * 1_024 * 1_024

Parameters = Mapping[str, Any]
Reply = dict[str, Any]
ItemId = tuple[str, Key]
"""The name of a table, and a key in it."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The transaction of a token.

    Attributes:
        said: a copy of the parameters of its request, which later changes by the sender do not affect.
        at_ms: when it was applied, if that is known.
    """

    said: str
    at_ms: float


def _the_first(_left: int) -> int:
    return 0


class Transactions:
    """The transactions of a service: which were applied, by their tokens, and which are in progress.

    As documented, a token is valid for ten minutes after its first request is completed
    (https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html), and an item that a
    transaction is in progress on refuses other writes
    (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html#transaction-conflict-handling).

    Args:
        wall_ms: the service's time.
        take_ms: for how long each stays in progress after it has changed its items. Its sender is answered at once, and
            meets a conflict as well if it writes again too early.

    Attributes:
        comes_next: from the number of items left, the position of the one that is changed next.
    """

    def __init__(self, wall_ms: Callable[[], int], take_ms: int = 0) -> None:
        self._wall_ms = wall_ms
        self._take_ms = take_ms
        self.comes_next: Callable[[int], int] = _the_first
        self._known: dict[str, _Known] = {}
        self._at_work_until_ms: dict[Any, float] = {}

    def was_applied(self, token: str, items: Any) -> bool:
        """Whether a transaction with the token was applied; known for ten minutes."""
        known = self._known.get(token)
        now_ms = self._wall_ms()
        if known is None or now_ms >= known.at_ms + _TOKEN_VALID_MS:
            return False
        if known.said != _said(items):
            message = "The request was sent before, with the same token and other parameters"
            raise Refused("IdempotentParameterMismatchException", message)
        if now_ms < known.at_ms:
            message = "The transaction with the given request token is already in progress."
            raise Refused("TransactionInProgressException", message)
        return True

    def is_at_work(self, item: Any) -> bool:
        """Whether a transaction is in progress on this item."""
        # Usually none is.
        return bool(self._at_work_until_ms) and self._at_work_until_ms.get(item, 0) > self._wall_ms()

    def begins(self, token: str | None, items: Any) -> None:
        """Note that a transaction is in progress."""
        if token is not None:
            # A token that is used again after ten minutes moves to the end.
            self._known.pop(token, None)
            self._known[token] = _Known(_said(items), inf)

    def takes(self, item: Any) -> None:
        """Reserve an item for a transaction, for as long as it is in progress."""
        self._at_work_until_ms[item] = inf

    def note_refusal(self, token: str | None, taken: Iterable[Any]) -> None:
        """Forget a transaction that was not applied."""
        self.forgets(token)
        for item in taken:
            del self._at_work_until_ms[item]

    def note_change(self, item: Any) -> None:
        """A transaction has finished one of its items, and continues with the others."""
        if self._take_ms > 0:
            self._at_work_until_ms[item] = self._wall_ms() + self._take_ms
        else:
            del self._at_work_until_ms[item]

    def note_completion(self, token: str | None) -> None:
        """A transaction has finished all of its items."""
        now_ms = self._wall_ms()
        if self._take_ms > 0:
            self._at_work_until_ms = {item: at_ms for item, at_ms in self._at_work_until_ms.items() if at_ms > now_ms}
        if token is None:
            return
        said = self._known.pop(token).said
        self._known[token] = _Known(said, now_ms + self._take_ms)
        while (oldest := next(iter(self._known))) != token and now_ms >= self._known[oldest].at_ms + _TOKEN_VALID_MS:
            del self._known[oldest]

    def forgets(self, token: str | None) -> None:
        """Forget a token, as if it had never been used."""
        if token is not None:
            self._known.pop(token, None)


def _said(items: Any) -> str:
    return json.dumps(items, sort_keys=True, default=repr)


class Table:
    """One table. It returns its own items, not copies: they are never changed, only replaced.

    Attributes:
        name: the table's.
        key_names: the partition key's attribute and, where there is one, the sort key's.
        key_kinds: their types, ``"S"``, ``"N"`` or ``"B"``.
        ttl_attribute: the attribute of time to live; None while that is off.
        watches: collect which items are changed.
        indexes: its secondary indexes, by name.
        vector_indexes: their descriptions, by name.
        searched_kinds: the types of the attributes in their search schemas.
        delay: what delays the changes of its indexes.
    """

    def __init__(
        self,
        name: str,
        key_names: tuple[str, ...],
        ttl_attribute: str | None = None,
        key_kinds: tuple[str, ...] = ("S", "S"),
    ) -> None:
        self.name = name
        self.key_names = key_names
        self.key_kinds = key_kinds
        self._key_set = frozenset(key_names)
        self.ttl_attribute = ttl_attribute
        self.watches: list[_Watch] = []
        self.indexes: dict[str, SecondaryIndex] = {}
        self.vector_indexes: dict[str, Described] = {}
        self.searched_kinds: dict[str, str] = {}
        self.delay = IndexDelay()
        self._stored = Partitions()

    @classmethod
    def created(cls, parameters: Mapping[str, Any]) -> "Table":
        """Make the table of a CreateTable."""
        roles = {element["KeyType"]: element["AttributeName"] for element in parameters["KeySchema"]}
        names = tuple(roles[role] for role in ("HASH", "RANGE") if role in roles)
        types = {each["AttributeName"]: each["AttributeType"] for each in parameters["AttributeDefinitions"]}
        kinds_of_indexes = ("VectorIndexes", "GlobalSecondaryIndexes", "LocalSecondaryIndexes")
        vectors, global_ones, local_ones = (parameters.get(kind, ()) for kind in kinds_of_indexes)
        searched = {name for index in vectors for name in searched_in(index)}
        of_indexes = (each["AttributeName"] for index in (*global_ones, *local_ones) for each in index["KeySchema"])
        keys = {*names, *of_indexes}
        if keys | (searched & types.keys()) != types.keys() or "HASH" not in roles:
            raise invalid(
                "One or more parameter values were invalid: Some AttributeDefinitions are not used. "
                f"AttributeDefinitions: {sorted(types)}, keys used: {sorted(keys)}"
            )
        if not set(types.values()) <= {"S", "N", "B"}:
            raise invalid(f"Member must satisfy enum value set: [B, N, S], and is {sorted(types.values())}")
        made = cls(parameters["TableName"], names, key_kinds=tuple(types[name] for name in names))
        for index in global_ones:
            made.add_index(index, types)
        for index in local_ones:
            made.add_index(index, types, is_local=True)
        for index in vectors:
            made.add_vector_index(index, types)
        return made

    def add_index(self, index: Described, kinds: Mapping[str, str], *, is_local: bool = False) -> None:
        """Add a secondary index; it has all items at once that have its key.

        Args:
            kinds: the types of the attributes that the request defines.
            is_local: whether it is a local one; otherwise it is a global one.
        """
        name = index["IndexName"]
        if name in self.indexes:
            raise invalid(f"Attempting to create an index which already exists: {name}")
        added = self.indexes[name] = SecondaryIndex(index, kinds, self, is_local=is_local)
        for item in self.items():
            added.take(item, item)

    def remove_index(self, name: str) -> None:
        """Delete a global secondary index; it is gone at once."""
        if name not in self.indexes:
            raise Refused("ResourceNotFoundException", f"Requested resource not found: index {name} not found")
        del self.indexes[name]

    def read_through(self, index: str | None) -> "Table | SecondaryIndex":
        """What a Query or a Scan reads: the table itself, or one of its indexes."""
        if index is None:
            return self
        if index not in self.indexes:
            raise invalid(f"The table does not have the specified index: {index}")
        return self.indexes[index]

    def add_vector_index(self, index: Described, kinds: Mapping[str, str]) -> None:
        """Add a vector index; it is there at once. Items that it would refuse stay as they are.

        Args:
            kinds: the types of the attributes that the request defines.
        """
        check_created(index, kinds)
        if index["IndexName"] in self.vector_indexes:
            raise invalid(f"Attempting to create an index which already exists: {index['IndexName']}")
        self.vector_indexes[index["IndexName"]] = index
        self.searched_kinds |= {name: kinds[name] for name in searched_in(index)}

    def remove_vector_index(self, name: str) -> None:
        """Delete a vector index; it is gone at once."""
        if name not in self.vector_indexes:
            raise Refused("ResourceNotFoundException", f"Requested resource not found: index {name} not found")
        del self.vector_indexes[name]
        used = {each for index in self.vector_indexes.values() for each in searched_in(index)}
        self.searched_kinds = {each: kind for each, kind in self.searched_kinds.items() if each in used}

    def description(self) -> dict[str, Any]:
        """The table's description, as in DescribeTable."""
        roles = zip(self.key_names, ("HASH", "RANGE"), strict=False)
        kinds = self.searched_kinds | dict(zip(self.key_names, self.key_kinds, strict=False))
        kinds |= {name: kind for index in self.indexes.values() for name, kind in index.kinds.items()}
        described: dict[str, list[Any]] = {}
        for index in self.indexes.values():
            kind = "LocalSecondaryIndexes" if index.is_local else "GlobalSecondaryIndexes"
            described.setdefault(kind, []).append(index.description())
        vectors = [{**index, "IndexStatus": "ACTIVE"} for index in self.vector_indexes.values()]
        return {
            "TableName": self.name,
            "TableStatus": "ACTIVE",
            "TableArn": f"arn:aws:dynamodb:us-east-1:123456789012:table/{self.name}",
            "KeySchema": [{"AttributeName": name, "KeyType": role} for name, role in roles],
            "AttributeDefinitions": [{"AttributeName": name, "AttributeType": kind} for name, kind in kinds.items()],
            **described,
            **({"VectorIndexes": vectors} if vectors else {}),
            "BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"},
            "ItemCount": sum(1 for _ in self.items()),
        }

    def key_of(self, given: Any, *, is_item: bool = False) -> Key:
        """Parse the key in a request, alone or within an item."""
        if not is_item and given.keys() != self._key_set:
            raise invalid("The provided key element does not match the schema")
        parts: list[KeyPart] = []
        for position, name in enumerate(self.key_names):
            if name not in given:
                raise invalid(f"One or more parameter values were invalid: Missing the key {name} in the item")
            if given[name].keys() != {self.key_kinds[position]}:
                raise invalid(
                    "One or more parameter values were invalid: "
                    f"Type mismatch for key {name} expected: {self.key_kinds[position]} actual: {''.join(given[name])}"
                )
            parts.append(self._key_part(position, given[name]))
        return parts[0], parts[1] if len(parts) > 1 else ""

    @property
    def partition_kinds(self) -> Mapping[str, str]:
        """The type of the attribute of its partition key."""
        return {self.key_names[0]: self.key_kinds[0]}

    @property
    def sort_kinds(self) -> Mapping[str, str]:
        """The same of its sort key; it may have none."""
        return dict(zip(self.key_names[1:], self.key_kinds[1:], strict=True))

    def partition_of(self, values: Sequence[Value]) -> KeyPart:
        """Parse the value of its partition key."""
        return self._key_part(0, values[0])

    def sort_part(self, value: Value) -> KeyPart:
        """Parse a value of its sort key."""
        return self._key_part(1, value)

    def _key_part(self, position: int, value: Value) -> KeyPart:
        return key_part(position, self.key_names[position], self.key_kinds[position], value)

    def key_item(self, item: Attributes) -> Attributes:
        """The key of an item, in the form of a request."""
        return {name: canonical(item[name]) for name in self.key_names}

    def start_of(self, given: Any) -> Key:
        """The key after which a page begins."""
        return self.key_of(given)

    def get(self, key: Key) -> Attributes | None:
        """The item of a key."""
        return self._stored.get(key)

    def put(self, key: Key, item: Attributes | None) -> None:
        """Store an item under a key; None deletes what is stored there."""
        for watch in self.watches:
            watch.changed.add((self.name, key))
        before = self.get(key) if self.indexes else None
        self._stored.put(key, item)
        for index in self.indexes.values():
            index.note(before, item)

    def check(self, item: Attributes) -> None:
        """Check an item, whose key was checked, for this table."""
        # Only text beyond ASCII is longer than its printed form, so most items need not be measured exactly.
        if len(repr(item)) * _MOST_BYTES_A_CHARACTER > MAX_ITEM_BYTES and size_of(item) > MAX_ITEM_BYTES:
            raise invalid("Item size has exceeded the maximum allowed size")
        for index in self.indexes.values():
            index.check(item)
        check_vectors(item, self.vector_indexes.values(), self.searched_kinds)

    def partition(
        self, pk: KeyPart, at_least: KeyPart | None = None, after: KeyPart | None = None, *, is_forward: bool = True
    ) -> Iterator[Attributes]:
        """The items of a partition in the order of their sort keys, from one on, or after one; or in reverse order."""
        return self._stored.partition(pk, at_least, after, is_forward=is_forward)

    def items(self, after: Key | None = None, part: int = 0, parts: int = 1) -> Iterator[Attributes]:
        """All items, or those of a segment, partition by partition, in an order unrelated to their keys."""
        return self._stored.items(after, part, parts)


class _Watch:
    """Compares by identity, not by content."""

    def __init__(self) -> None:
        self.changed: set[ItemId] = set()


class MemoryTables:
    """All tables, by name.

    Attributes:
        transactions: what is remembered of the transactions on their items.
        delay: what delays the changes of their indexes.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._tables: dict[str, Table] = {}
        self._watches: list[_Watch] = []
        self.transactions = transactions
        self.delay = IndexDelay()

    def __getitem__(self, name: str) -> Table:
        if name not in self._tables:
            raise Refused("ResourceNotFoundException", f"Requested resource not found: Table: {name} not found")
        return self._tables[name]

    def add(self, table: Table) -> Table:
        """Add a new table."""
        if table.name in self._tables:
            raise Refused("ResourceInUseException", f"Table already exists: {table.name}")
        self._tables[table.name] = table
        table.watches, table.delay = self._watches, self.delay
        return table

    def remove(self, name: str) -> Table:
        """Delete a table with its items."""
        table = self[name]
        del self._tables[name]
        return table

    def all(self) -> Sequence[Table]:
        """Every one of them."""
        return list(self._tables.values())

    @contextmanager
    def watched(self) -> Iterator[set[ItemId]]:
        """Collects which items are stored or deleted within the block."""
        watch = _Watch()
        self._watches.append(watch)
        try:
            yield watch.changed
        finally:
            self._watches.remove(watch)


def check_size_of_transaction(items: Iterable[Sequence[Attributes | None]]) -> None:
    """Refuse a transaction that has too much data.

    Args:
        items: each item before and after the transaction; the larger one counts.
    """
    found = list(items)
    # Usually they are too few to exceed it, even at the largest size.
    if len(found) * MAX_ITEM_BYTES <= _MOST_BYTES_IN_TRANSACTION:
        return
    total = sum(max(size_of(item) for item in each if item is not None) for each in found if any(each))
    if total > _MOST_BYTES_IN_TRANSACTION:
        raise invalid(f"Transaction items have at most {_MOST_BYTES_IN_TRANSACTION} bytes in total, and have {total}")
