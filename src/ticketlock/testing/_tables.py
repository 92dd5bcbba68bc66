"""The tables, and the transactions on their items."""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Any

from ticketlock._expressions import MAX_ITEM_BYTES, MAX_NAME_BYTES, Attributes, Expressions, Value, canonical, size_of
from ticketlock.testing._indexes import (
    Described,
    IndexDelay,
    SecondaryIndex,
    check_created,
    check_vectors,
    described_throughput,
    searched_in,
)
from ticketlock.testing._parameters import ARN, SETTINGS, bare_name
from ticketlock.testing._refusals import Refused, invalid, mismatched
from ticketlock.testing._stored import Key, KeyPart, Partitions, key_part

_TOKEN_VALID_MS = 600_000

_MOST_BYTES_A_CHARACTER = 4
_MOST_BYTES_IN_TRANSACTION = 4 * 1_024 * 1_024

WRONG_KEY = "The provided key element does not match the schema"

Parameters = Mapping[str, Any]
Reply = dict[str, Any]
ItemId = tuple[str, Key]
"""The name of a table, and a key in it."""


Change = tuple[str, Attributes | None, Attributes | None]


@dataclass(frozen=True, slots=True)
class _Known:
    """The transaction of a token.

    Attributes:
        said: a copy of the parameters of its request, which later changes by the sender do not affect.
        at_ms: when it was applied, if that is known.
        changes: of each item the name of its table as the request has it, and the item before and after.
    """

    said: str
    at_ms: float
    changes: Sequence[Change] = ()


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

    def applied(self, token: str, items: Any) -> Sequence[Change] | None:
        """What a transaction with the token has changed; None if none was applied in the last ten minutes."""
        known = self._known.get(token)
        now_ms = self._wall_ms()
        if known is None or now_ms >= known.at_ms + _TOKEN_VALID_MS:
            return None
        if known.said != _said(items):
            message = "The request was sent before, with the same token and other parameters"
            raise Refused("IdempotentParameterMismatchException", message)
        if now_ms < known.at_ms:
            message = "The transaction with the given request token is already in progress."
            raise Refused("TransactionInProgressException", message)
        return known.changes

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

    def note_completion(self, token: str | None, changes: Sequence[Change]) -> None:
        """A transaction has finished all of its items."""
        now_ms = self._wall_ms()
        if self._take_ms > 0:
            self._at_work_until_ms = {item: at_ms for item, at_ms in self._at_work_until_ms.items() if at_ms > now_ms}
        if token is None:
            return
        said = self._known.pop(token).said
        self._known[token] = _Known(said, now_ms + self._take_ms, changes)
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
        settings: what CreateTable and UpdateTable have set that changes no answer to reads and writes.
        tags: their values, by their keys.
        on_demand_ms: when its billing mode became PAY_PER_REQUEST for the last time, milliseconds since the epoch; None
            if it never was.
        recovery_days: how many days point-in-time recovery goes back; None while that is off.
        created_ms: when it was created, milliseconds since the epoch.
    """

    def __init__(
        self,
        name: str,
        key_names: tuple[str, ...],
        ttl_attribute: str | None = None,
        key_kinds: tuple[str, ...] = ("S", "S"),
        created_ms: int = 0,
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
        self.settings: dict[str, Any] = {"BillingMode": "PAY_PER_REQUEST"}
        self.tags: dict[str, str] = {}
        self.recovery_days: int | None = None
        self.created_ms = created_ms
        self.on_demand_ms: int | None = created_ms
        self._stored = Partitions()

    @classmethod
    def created(cls, name: str, parameters: Mapping[str, Any], created_ms: int) -> "Table":
        """Make the table of a CreateTable, whose definition was checked."""
        names = tuple(each["AttributeName"] for each in parameters["KeySchema"])
        types = {each["AttributeName"]: each["AttributeType"] for each in parameters["AttributeDefinitions"]}
        made = cls(name, names, key_kinds=tuple(types[name] for name in names), created_ms=created_ms)
        made.settings = {"BillingMode": "PROVISIONED"}
        made.settings |= {setting: parameters[setting] for setting in SETTINGS if setting in parameters}
        made.on_demand_ms = created_ms if made.settings["BillingMode"] == "PAY_PER_REQUEST" else None
        made.tags = {tag["Key"]: tag["Value"] for tag in parameters.get("Tags", ())}
        for index in parameters.get("GlobalSecondaryIndexes", ()):
            made.add_index(index, types)
        for index in parameters.get("LocalSecondaryIndexes", ()):
            made.add_index(index, types, is_local=True)
        for index in parameters.get("VectorIndexes", ()):
            made.add_vector_index(index, types)
        return made

    def add_index(self, index: Described, kinds: Mapping[str, str], *, is_local: bool = False) -> None:
        """Add a secondary index; it has all items at once that have its key.

        Args:
            kinds: the types of the attributes that the request defines.
            is_local: whether it is a local one; otherwise it is a global one.
        """
        added = self.indexes[index["IndexName"]] = SecondaryIndex(index, kinds, self, is_local=is_local)
        for item in self.items():
            added.take(item, item)

    def global_index(self, name: str) -> SecondaryIndex:
        """One of its global secondary indexes."""
        if name not in self.indexes or self.indexes[name].is_local:
            raise Refused("ResourceNotFoundException", f"Requested resource not found: index {name} not found")
        return self.indexes[name]

    def remove_index(self, name: str) -> None:
        """Delete a global secondary index; it is gone at once."""
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

    @property
    def arn(self) -> str:
        """Its Amazon Resource Name."""
        return ARN + self.name

    @property
    def key_schema(self) -> list[dict[str, str]]:
        """As in CreateTable."""
        roles = zip(self.key_names, ("HASH", "RANGE"), strict=False)
        return [{"AttributeName": name, "KeyType": role} for name, role in roles]

    @property
    def start_names(self) -> frozenset[str]:
        """The attributes of a key after which a page begins."""
        return self._key_set

    @property
    def kinds(self) -> Mapping[str, str]:
        """The types of all attributes that are keys, of the table or of an index."""
        kinds = self.searched_kinds | dict(zip(self.key_names, self.key_kinds, strict=False))
        return kinds | {name: kind for index in self.indexes.values() for name, kind in index.kinds.items()}

    @property
    def global_indexes(self) -> list[SecondaryIndex]:
        """Its global secondary indexes."""
        return [index for index in self.indexes.values() if not index.is_local]

    @property
    def has_collections(self) -> bool:
        """Whether its partitions have a size of their own: it has local indexes."""
        return any(index.is_local for index in self.indexes.values())

    def description(self) -> dict[str, Any]:
        """The table's description, as in DescribeTable."""
        described: dict[str, list[Any]] = {}
        for index in self.indexes.values():
            kind = "LocalSecondaryIndexes" if index.is_local else "GlobalSecondaryIndexes"
            described.setdefault(kind, []).append(index.description())
        vectors = [{**index, "IndexStatus": "ACTIVE"} for index in self.vector_indexes.values()]
        items = list(self.items())
        return {
            "TableName": self.name,
            "TableStatus": "ACTIVE",
            "TableArn": self.arn,
            "TableId": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.arn}/{self.created_ms}")),
            "CreationDateTime": datetime.fromtimestamp(self.created_ms / 1_000, UTC),
            "KeySchema": self.key_schema,
            "AttributeDefinitions": [
                {"AttributeName": name, "AttributeType": kind} for name, kind in self.kinds.items()
            ],
            **described,
            **({"VectorIndexes": vectors} if vectors else {}),
            "ItemCount": len(items),
            "TableSizeBytes": sum(map(size_of, items)),
            **self._described_settings(),
        }

    def _described_settings(self) -> dict[str, Any]:
        described = {
            **described_throughput(self.settings),
            "DeletionProtectionEnabled": self.settings.get("DeletionProtectionEnabled", False),
        }
        if self.on_demand_ms is not None:
            described["BillingModeSummary"] = {
                "BillingMode": self.settings["BillingMode"],
                "LastUpdateToPayPerRequestDateTime": datetime.fromtimestamp(self.on_demand_ms / 1_000, UTC),
            }
        if "OnDemandThroughput" in self.settings:
            described["OnDemandThroughput"] = self.settings["OnDemandThroughput"]
        if "TableClass" in self.settings:
            described["TableClassSummary"] = {"TableClass": self.settings["TableClass"]}
        if self.settings.get("StreamSpecification", {}).get("StreamEnabled"):
            label = datetime.fromtimestamp(self.created_ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%S.000")
            described["StreamSpecification"] = self.settings["StreamSpecification"]
            described |= {"LatestStreamLabel": label, "LatestStreamArn": f"{self.arn}/stream/{label}"}
        encryption = self.settings.get("SSESpecification", {})
        if encryption.get("Enabled"):
            key = encryption.get("KMSMasterKeyId", "alias/aws/dynamodb")
            arn = key if key.startswith("arn:") else f"arn:aws:kms:us-east-1:123456789012:{key}"
            described["SSEDescription"] = {"Status": "ENABLED", "SSEType": "KMS", "KMSMasterKeyArn": arn}
        return described

    def key_of(self, given: Any, *, is_item: bool = False) -> Key:
        """Parse the key in a request, alone or within an item."""
        if not is_item and given.keys() != self._key_set:
            raise mismatched(WRONG_KEY)
        parts: list[KeyPart] = []
        for position, name in enumerate(self.key_names):
            if name not in given:
                raise mismatched(f"One or more parameter values were invalid: Missing the key {name} in the item")
            if given[name].keys() != {self.key_kinds[position]}:
                if not is_item:
                    raise mismatched(WRONG_KEY)
                raise mismatched(
                    "One or more parameter values were invalid: "
                    f"Type mismatch for key {name} expected: {self.key_kinds[position]} actual: {''.join(given[name])}"
                )
            parts.append(self._key_part(position, given[name], is_alone=not is_item))
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

    def _key_part(self, position: int, value: Value, *, is_alone: bool = False) -> KeyPart:
        return key_part(position, self.key_names[position], self.key_kinds[position], value, is_alone=is_alone)

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
        """Check an item, whose key and size were checked, for this table."""
        for index in self.indexes.values():
            index.check(item)
        check_vectors(item, self.vector_indexes.values(), self.searched_kinds)

    def check_scalars(self, expressions: Expressions) -> None:
        """Refuse paths that lead into an attribute of a key, which has no members."""
        for name in expressions.enters:
            for of_what, kinds in (("Key", self.key_names), *(("IndexKey", i.kinds) for i in self.indexes.values())):
                if name in kinds:
                    raise mismatched(
                        "Key attributes must be scalars; list random access '[]' and map lookup '.' are not allowed: "
                        f"{of_what}: {name}"
                    )

    def partition(
        self, pk: KeyPart, at_least: KeyPart | None = None, after: KeyPart | None = None, *, is_forward: bool = True
    ) -> Iterator[Attributes]:
        """The items of a partition in the order of their sort keys, from one on, or after one; or in reverse order."""
        return self._stored.partition(pk, at_least, after, is_forward=is_forward)

    def items(self, after: Key | None = None, part: int = 0, parts: int = 1) -> Iterator[Attributes]:
        """All items, or those of a segment, partition by partition, in an order unrelated to their keys."""
        return self._stored.items(after, part, parts)


def check_size(item: Attributes, message: str = "Item size has exceeded the maximum allowed size") -> None:
    """Refuse an item that is too large."""
    # Only text beyond ASCII is longer than its printed form, so most items need not be measured exactly.
    if len(repr(item)) * _MOST_BYTES_A_CHARACTER > MAX_ITEM_BYTES and size_of(item) > MAX_ITEM_BYTES:
        raise invalid(message)


def check_attribute_names(item: Attributes) -> None:
    """Refuse names of attributes that are empty or too long."""
    for name in item:
        if not name or len(name.encode()) > MAX_NAME_BYTES:
            raise invalid(
                f"One or more parameter values were invalid: an attribute name has 1 to {MAX_NAME_BYTES} bytes"
            )


class _Watch:
    """Compares by identity, not by content."""

    def __init__(self) -> None:
        self.changed: set[ItemId] = set()


class MemoryTables:
    """All tables, by name.

    Attributes:
        wall_ms: the service's time.
        transactions: what is remembered of the transactions on their items.
        delay: what delays the changes of their indexes.
    """

    def __init__(self, transactions: Transactions, wall_ms: Callable[[], int]) -> None:
        self._tables: dict[str, Table] = {}
        self._watches: list[_Watch] = []
        self.wall_ms = wall_ms
        self.transactions = transactions
        self.delay = IndexDelay()

    def __getitem__(self, name: str) -> Table:
        """The table of a name or an ARN."""
        found = self._tables.get(name) or self._tables.get(bare_name(name))
        if found is None:
            raise Refused("ResourceNotFoundException", "Requested resource not found")
        return found

    def create(self, parameters: Parameters) -> Table:
        """Create the table of a CreateTable, whose definition was checked."""
        return self.add(Table.created(bare_name(parameters["TableName"]), parameters, self.wall_ms()))

    def add(self, table: Table) -> Table:
        """Add a new table."""
        if table.name in self._tables:
            raise Refused("ResourceInUseException", f"Table already exists: {table.name}")
        self._tables[table.name] = table
        table.watches, table.delay = self._watches, self.delay
        return table

    def remove(self, table: Table) -> None:
        """Delete a table with its items."""
        del self._tables[table.name]

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


def check_size_of_transaction(count: int, items: Iterable[Attributes | None]) -> None:
    """Refuse a transaction that has too much data.

    Args:
        count: how many items there are.
        items: what is read, or what is sent to be written: whole items, or keys with the values of expressions.
    """
    # Usually they are too few to exceed it, even at the largest size.
    if count * MAX_ITEM_BYTES <= _MOST_BYTES_IN_TRANSACTION:
        return
    total = sum(size_of(item) for item in items if item is not None)
    if total > _MOST_BYTES_IN_TRANSACTION:
        raise invalid(f"Transaction payload size cannot exceed 4MB. Payload Size: {total}")
