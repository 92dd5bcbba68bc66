"""Stores items: tables of partitions, each in the order of its sort keys.

A vector index only refuses items, and cannot be searched here:
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/VectorSearchTroubleshooting.html
"""

import bisect
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from math import inf
from time import gmtime, strftime
from typing import Any

from ticketlock._expressions._values import MAX_ITEM_BYTES, Attributes, Value, canonical, canonical_item, size_of

_AT_WORK = "Transaction is ongoing for the item"
# "In most cases, a request must reach AWS within five minutes of the time stamp in the request":
# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html
_SIGNATURE_VALID_S = 300

ErrorResponse = dict[str, Any]
"""The reply of an error, as the SDK returns it."""
Reason = dict[str, Any]
"""The reason, for one of its items, why a transaction is cancelled."""

_TOKEN_VALID_MS = 600_000

Described = Mapping[str, Any]
_MOST_DIMENSIONS = 4_096

_MOST_BYTES_A_CHARACTER = 4
_MAX_KEY_BYTES = (2_048, 1_024)
_MOST_BYTES_IN_TRANSACTION = 4 * 1_024 * 1_024

KeyPart = str | bytes | Decimal
"""The value of a key attribute, ordered as in DynamoDB: text by its UTF-8 bytes, bytes, numbers."""
Key = tuple[KeyPart, KeyPart]
"""The parts of a key; the second is an empty text if the table has no sort key."""
Parameters = Mapping[str, Any]
Reply = dict[str, Any]
ItemId = tuple[str, Key]
"""The name of a table, and a key in it."""


class Fault(Enum):
    """A fault that is injected into one request.

    Attributes:
        REQUEST_LOST: the request is not applied; there was no connection.
        REPLY_LOST: the request is applied, or refused, but its reply does not arrive: reading it times out.
        THROTTLED: the request is not applied; there were too many.
        CONFLICT: the request is not applied, because a transaction was in progress on the same item. Affects the next
            write, or the next transaction that reads.
        SIGNATURE_EXPIRED: the request is not applied; it arrived more than five minutes after it was signed.
        TOKEN_FORGOTTEN: a request that was applied before is applied again: the service has forgotten its client
            request token, as it does after ten minutes. Affects the next TransactWriteItems.
    """

    REQUEST_LOST = "the request is lost"
    REPLY_LOST = "the reply is lost"
    THROTTLED = "the request is throttled"
    CONFLICT = "the request conflicts with a transaction"
    SIGNATURE_EXPIRED = "the request's signature has expired"
    TOKEN_FORGOTTEN = "the transaction's token is forgotten"


class Refused(Exception):
    """The service answers with an error.

    Attributes:
        code, message: those of the error.
        more: further members of the reply.
    """

    def __init__(self, code: str, message: str, **more: Any) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.more = more

    def failure(self) -> ErrorResponse:
        """The reply, without the parts that every reply has."""
        return {"Error": {"Code": self.code, "Message": self.message}, "message": self.message, **self.more}


def invalid(message: str) -> Refused:
    """The request itself is invalid."""
    return Refused("ValidationException", message)


def cancelled(reasons: list[Reason]) -> Refused:
    """A transaction that is not applied, with one reason for each write."""
    codes = ", ".join(reason["Code"] for reason in reasons)
    message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
    return Refused("TransactionCanceledException", message, CancellationReasons=reasons)


def throttled() -> Refused:
    """Too many requests."""
    return Refused("ThrottlingException", "Rate of requests exceeds the allowed throughput.")


def conflict() -> Refused:
    """A transaction is in progress on the item of a write."""
    return Refused("TransactionConflictException", _AT_WORK)


def conflict_reason() -> Reason:
    """Another transaction is in progress on an item of a transaction."""
    return {"Code": "TransactionConflict", "Message": _AT_WORK}


def signature_expired(now_s: int) -> Refused:
    """The request arrived a second too late, in DynamoDB's words (https://github.com/aws/aws-sdk-js-v3/issues/7605).

    Args:
        now_s: the service's time, seconds since the epoch.
    """
    signed, oldest, now = (_basic(now_s - ago_s) for ago_s in (_SIGNATURE_VALID_S + 1, _SIGNATURE_VALID_S, 0))
    message = f"Signature expired: {signed} is now earlier than {oldest} ({now} - 5 min.)"
    return Refused("InvalidSignatureException", message)


def _basic(at_s: int) -> str:
    return strftime("%Y%m%dT%H%M%SZ", gmtime(at_s))


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
            raise invalid(f"One or more parameter values were invalid: Invalid type for parameter {name}")
        if len(vector["L"]) != dimensions:
            raise invalid(
                f"One or more parameter values were invalid: the vector {name} has {len(vector['L'])} dimensions, and "
                f"the index {index['IndexName']} has {dimensions}"
            )
        for searched in searched_in(index):
            if searched in item and item[searched].keys() != {kinds[searched]}:
                raise invalid(
                    "One or more parameter values were invalid: "
                    f"Type mismatch for Index Key {searched} Expected: {kinds[searched]}"
                )


class Table:
    """One table. It returns its own items, not copies: they are never changed, only replaced.

    Attributes:
        name: the table's.
        key_names: the partition key's attribute and, where there is one, the sort key's.
        key_kinds: their types, ``"S"``, ``"N"`` or ``"B"``.
        ttl_attribute: the attribute of time to live; None while that is off.
        watches: collect which items are changed.
        vector_indexes: their descriptions, by name.
        searched_kinds: the types of the attributes in their search schemas.
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
        self.vector_indexes: dict[str, Described] = {}
        self.searched_kinds: dict[str, str] = {}
        self._partitions: dict[KeyPart, _Partition] = {}

    @classmethod
    def created(cls, parameters: Mapping[str, Any]) -> "Table":
        """Make the table of a CreateTable."""
        roles = {element["KeyType"]: element["AttributeName"] for element in parameters["KeySchema"]}
        names = tuple(roles[role] for role in ("HASH", "RANGE") if role in roles)
        types = {each["AttributeName"]: each["AttributeType"] for each in parameters["AttributeDefinitions"]}
        indexes = parameters.get("VectorIndexes", ())
        searched = {name for index in indexes for name in searched_in(index)}
        if set(names) | (searched & types.keys()) != types.keys() or "HASH" not in roles:
            raise invalid(
                "One or more parameter values were invalid: Some AttributeDefinitions are not used. "
                f"AttributeDefinitions: {sorted(types)}, keys used: {sorted(names)}"
            )
        if not set(types.values()) <= {"S", "N", "B"}:
            raise invalid(f"Member must satisfy enum value set: [B, N, S], and is {sorted(types.values())}")
        made = cls(parameters["TableName"], names, key_kinds=tuple(types[name] for name in names))
        for index in indexes:
            made.add_vector_index(index, types)
        return made

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
        vectors = [{**index, "IndexStatus": "ACTIVE"} for index in self.vector_indexes.values()]
        return {
            "TableName": self.name,
            "TableStatus": "ACTIVE",
            "TableArn": f"arn:aws:dynamodb:us-east-1:123456789012:table/{self.name}",
            "KeySchema": [{"AttributeName": name, "KeyType": role} for name, role in roles],
            "AttributeDefinitions": [{"AttributeName": name, "AttributeType": kind} for name, kind in kinds.items()],
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
            parts.append(self.key_part(position, given[name]))
        return parts[0], parts[1] if len(parts) > 1 else ""

    def key_part(self, position: int, value: Value) -> KeyPart:
        """Parse a value of the partition key (position 0) or the sort key (1)."""
        kind = self.key_kinds[position]
        content = canonical(value)[kind]
        if kind == "N":
            return Decimal(content)
        part: str | bytes = content
        size, most = len(part.encode() if isinstance(part, str) else part), _MAX_KEY_BYTES[position]
        if not 1 <= size <= most:
            raise invalid(
                "One or more parameter values are not valid. "
                f"The key {self.key_names[position]} has 1 to {most} bytes, and this has {size}"
            )
        return part

    def key_item(self, item: Attributes) -> Attributes:
        """The key of an item, in the form of a request."""
        return {name: canonical(item[name]) for name in self.key_names}

    def get(self, key: Key) -> Attributes | None:
        """The item of a key."""
        partition = self._partitions.get(key[0])
        return partition.items.get(key[1]) if partition is not None else None

    def put(self, key: Key, item: Attributes | None) -> None:
        """Store an item under a key; None deletes what is stored there."""
        pk, sk = key
        for watch in self.watches:
            watch.changed.add((self.name, key))
        if item is not None:
            self._partitions.setdefault(pk, _Partition()).put(sk, item)
        elif pk in self._partitions:
            self._partitions[pk].remove(sk)
            if not self._partitions[pk].items:
                del self._partitions[pk]

    def checked(self, item: Attributes) -> Attributes:
        """Check an item for this table."""
        self.key_of(item, is_item=True)
        # Only text beyond ASCII is longer than its printed form, so most items need not be measured exactly.
        if len(repr(item)) * _MOST_BYTES_A_CHARACTER > MAX_ITEM_BYTES and size_of(item) > MAX_ITEM_BYTES:
            raise invalid("Item size has exceeded the maximum allowed size")
        check_vectors(item, self.vector_indexes.values(), self.searched_kinds)
        return item

    def partition(
        self, pk: KeyPart, at_least: KeyPart | None = None, after: KeyPart | None = None, *, is_forward: bool = True
    ) -> Iterator[Attributes]:
        """The items of a partition in the order of their sort keys, from one on, or after one; or in reverse order."""
        if pk not in self._partitions:
            return iter(())
        found = self._partitions[pk]
        return found.from_(at_least, after) if is_forward else found.down_from(after)

    def items(self, after: Key | None = None, part: int = 0, parts: int = 1) -> Iterator[Attributes]:
        """All items, or those of a segment, partition by partition, in an order unrelated to their keys."""
        for pk in sorted(self._partitions, key=_scattered):
            if int.from_bytes(_scattered(pk)[0]) % parts != part:
                continue
            if after is None or _scattered(pk) > _scattered(after[0]):
                yield from self.partition(pk)
            elif pk == after[0]:
                yield from self.partition(pk, after=after[1])


class _Partition:
    def __init__(self) -> None:
        self.items: dict[KeyPart, Attributes] = {}
        # All have one type; Python orders text by code points, which is the order of its UTF-8 bytes.
        self._order: list[Any] = []

    def put(self, sk: KeyPart, item: Attributes) -> None:
        if sk not in self.items:
            bisect.insort(self._order, sk)
        self.items[sk] = item

    def remove(self, sk: KeyPart) -> None:
        if self.items.pop(sk, None) is not None:
            del self._order[bisect.bisect_left(self._order, sk)]

    def from_(self, at_least: KeyPart | None, after: KeyPart | None) -> Iterator[Attributes]:
        begin = bisect.bisect_left(self._order, at_least) if at_least is not None else 0
        if after is not None:
            begin = max(begin, bisect.bisect_right(self._order, after))
        for position in range(begin, len(self._order)):
            yield self.items[self._order[position]]

    def down_from(self, after: KeyPart | None) -> Iterator[Attributes]:
        end = bisect.bisect_left(self._order, after) if after is not None else len(self._order)
        for position in reversed(range(end)):
            yield self.items[self._order[position]]


def _scattered(pk: Any) -> tuple[bytes, Any]:
    """The sort key of a partition within its table, where all keys have one type."""
    return hashlib.sha256(pk if isinstance(pk, bytes) else str(pk).encode()).digest(), pk


class _Watch:
    """Compares by identity, not by content."""

    def __init__(self) -> None:
        self.changed: set[ItemId] = set()


class MemoryTables:
    """All tables, by name.

    Attributes:
        transactions: what is remembered of the transactions on their items.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._tables: dict[str, Table] = {}
        self._watches: list[_Watch] = []
        self.transactions = transactions

    def __getitem__(self, name: str) -> Table:
        if name not in self._tables:
            raise Refused("ResourceNotFoundException", f"Requested resource not found: Table: {name} not found")
        return self._tables[name]

    def add(self, table: Table) -> Table:
        """Add a new table."""
        if table.name in self._tables:
            raise Refused("ResourceInUseException", f"Table already exists: {table.name}")
        self._tables[table.name] = table
        table.watches = self._watches
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


def item_of(table: Table, given: Any) -> Attributes:
    """Parse and check the item in a request."""
    return table.checked(canonical_item(given))


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
