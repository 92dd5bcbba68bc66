"""What a table and its indexes demand of an item: a write accepted here is not refused for its contents.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

from ticketlock._expressions._values import (
    MAX_ITEM_BYTES,
    MAX_LEVELS,
    MAX_NAME_BYTES,
    Attributes,
    ItemInvalid,
    ItemTooBig,
    Value,
    levels_of,
    size_of,
    size_of_value,
)

_MOST_BYTES = {"HASH": 2_048, "RANGE": 1_024, "INLINE_FILTER": 1_024}
"""Of a filter attribute the documentation gives no limit, and treats it as a key otherwise: as of a sort key."""
_ROLES = {"HASH": "partition key", "RANGE": "sort key", "INLINE_FILTER": "inline filter"}
_INDEXES = ("GlobalSecondaryIndexes", "LocalSecondaryIndexes", "VectorIndexes")
_LARGEST_FLOAT = Decimal(2**128 - 2**104)
"""The largest 32-bit floating-point number: the elements of vectors are such numbers."""


@dataclass(frozen=True, slots=True)
class KeyAttribute:
    """An attribute that is a key, or part of one.

    Attributes:
        kind: its type, ``"S"``, ``"N"`` or ``"B"``.
        role: ``"HASH"`` or ``"RANGE"``; in the search schema of a vector index ``"HASH"`` or ``"INLINE_FILTER"``.
        index: the index that it is a key of; None for the table.
    """

    name: str
    kind: str
    role: str
    index: str | None = None

    def __str__(self) -> str:
        return f"the {_ROLES[self.role]} of {'the table' if self.index is None else f'the index {self.index!r}'}"


@dataclass(frozen=True, slots=True)
class Index:
    """A secondary index.

    Attributes:
        keys: the attributes of its partition key, and then those of its sort key, each in their order: a global
            index has up to four of each.
        is_local: whether its entries share the table's 400 KB an item.
        key_names: its keys, and the table's.
        projected: the other attributes that it has; None for all.
    """

    name: str
    keys: tuple[KeyAttribute, ...]
    is_local: bool
    key_names: frozenset[str]
    projected: frozenset[str] | None

    def lacks(self, names: Iterable[str]) -> list[str]:
        """Those of these attributes that it does not have."""
        has = self.projected
        return [] if has is None else [name for name in names if name not in self.key_names | has]

    def entry_of(self, item: Attributes) -> Attributes:
        """The part of an item that is in the index."""
        if not self.key_names <= item.keys():
            return {}
        if self.projected is None:
            return item
        return {name: value for name, value in item.items() if name in self.key_names | self.projected}


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """A vector index, with the attributes of its search schema."""

    name: str
    vector: str
    dimensions: int
    searched: tuple[KeyAttribute, ...]


@dataclass(frozen=True)
class Schema:
    """The keys of a table and of its indexes.

    Attributes:
        keys: its partition key and, where there is one, its sort key.
        unknown: what its description has that this version does not know, and that may refuse items; None for nothing.
    """

    table: str
    keys: tuple[KeyAttribute, ...]
    indexes: tuple[Index, ...] = ()
    vectors: tuple[VectorIndex, ...] = ()
    unknown: str | None = None

    @classmethod
    def described(cls, table: Mapping[str, Any]) -> "Schema":
        """The schema in a reply of DescribeTable: its member ``Table``."""
        kinds = {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}

        def keys_of(thing: Mapping[str, Any], index: str | None = None) -> tuple[KeyAttribute, ...]:
            found = (
                KeyAttribute(each["AttributeName"], kinds[each["AttributeName"]], each["KeyType"], index)
                for each in thing["KeySchema"]
            )
            return tuple(sorted(found, key=lambda key: key.role))

        keys = keys_of(table)
        indexes = tuple(
            _index(each, keys, keys_of(each, each["IndexName"]), is_local=which == "Local")
            for which in ("Global", "Local")
            for each in table.get(f"{which}SecondaryIndexes", ())
        )
        vectors = tuple(_vector_index(each, kinds) for each in table.get("VectorIndexes", ()))
        made = cls(table["TableName"], keys, indexes, vectors)
        return replace(made, unknown=_unknown(table, made))

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """The attributes of the table's key, the partition key first."""
        return tuple(key.name for key in self.keys)

    @cached_property
    def index_keys(self) -> tuple[KeyAttribute, ...]:
        return tuple(key for index in self.indexes for key in index.keys)

    @cached_property
    def index_attributes(self) -> frozenset[str]:
        """The attributes of items that its indexes accept only in some form."""
        vectors = (name for index in self.vectors for name in (index.vector, *(key.name for key in index.searched)))
        return frozenset([*(key.name for key in self.index_keys), *vectors])

    @cached_property
    def local_indexes(self) -> tuple[Index, ...]:
        return tuple(index for index in self.indexes if index.is_local)


def _index(
    described: Mapping[str, Any], of_table: tuple[KeyAttribute, ...], keys: tuple[KeyAttribute, ...], *, is_local: bool
) -> Index:
    names = frozenset(key.name for key in (*of_table, *keys))
    projection = described["Projection"]
    everything = projection["ProjectionType"] == "ALL"
    projected = None if everything else frozenset(projection.get("NonKeyAttributes", ()))
    return Index(described["IndexName"], keys, is_local, names, projected)


def _vector_index(described: Mapping[str, Any], kinds: Mapping[str, str]) -> VectorIndex:
    name = described["IndexName"]
    searched = tuple(
        KeyAttribute(each["AttributeName"], kinds[each["AttributeName"]], each["SearchSchemaElementType"], name)
        for each in described.get("SearchSchema", ())
    )
    return VectorIndex(name, described["VectorAttribute"]["AttributeName"], described["Dimensions"], searched)


def _unknown(table: Mapping[str, Any], schema: Schema) -> str | None:
    """What a description has that this version does not know, and that may refuse items.

    An SDK leaves out members that are newer than itself. But the attributes that an index defines are in a list of
    their own, which every SDK knows.
    """
    for member, value in table.items():
        if member.endswith("Indexes") and member not in _INDEXES and value:
            return f"the member {member} of its description"
    keys = (*schema.keys, *schema.index_keys, *(key for index in schema.vectors for key in index.searched))
    for key in keys:
        if key.role not in _ROLES:
            return f"{key.name!r}, an attribute with the role {key.role}"
    for defined in table["AttributeDefinitions"]:
        if defined["AttributeName"] not in {key.name for key in keys}:
            return f"{defined['AttributeName']!r}, an attribute that is defined, and that no index which it knows uses"
    return None


def check_item(item: Attributes, schema: Schema, most_bytes: int = MAX_ITEM_BYTES) -> None:
    """Check that DynamoDB will accept an item.

    Args:
        item: in its canonical form.
        most_bytes: less than DynamoDB's 400 KB if something will still be added to the item.

    Raises:
        ItemInvalid: an attribute is missing, of the wrong type, empty, too long or too deep; it names the attribute,
            what it has, and what is allowed.
        ItemTooBig: the item as a whole is too big.
    """
    for key in schema.keys:
        check_key(item, key, schema.table)
    for key in schema.index_keys:
        if key.name in item:
            _check_key(item[key.name], key)
    for index in schema.vectors:
        _check_vector(item, index)
    for name, value in item.items():
        _check_name(name, name)
        if "M" in value or "L" in value:
            _check_nested(value, name)
    _check_size(item, schema, most_bytes)


def check_key(item: Attributes, key: KeyAttribute, table: str) -> None:
    """Check that DynamoDB will accept an attribute of a table's key."""
    if key.name not in item:
        raise ItemInvalid(f"a value of type {key.kind}: {key.name!r} is {key} {table!r}, and is missing")
    _check_key(item[key.name], key)


def _check_key(value: Value, key: KeyAttribute) -> None:
    if key.role not in _ROLES:
        return
    ((kind, content),) = value.items()
    if kind != key.kind:
        raise ItemInvalid(f"a value of type {key.kind}: {key.name!r} is {key}, and this one is of type {kind}")
    if kind == "N":
        return
    size, most = size_of_value(value), _MOST_BYTES[key.role]
    if not 1 <= size <= most:
        shown = content[:40]
        raise ItemInvalid(
            f"1 to {most:,} bytes: {key.name!r} is {key}, and this one has {size:,}: {shown!r}"
            f"{'...' if len(content) > len(shown) else ''}"
        )


def _check_vector(item: Attributes, index: VectorIndex) -> None:
    """Check what a vector index takes of an item, which need not have any of it.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/VectorSearchTroubleshooting.html
    """
    for key in index.searched:
        if key.name in item:
            _check_key(item[key.name], key)
    if index.vector not in item:
        return
    value, allowed = item[index.vector], f"a list of {index.dimensions:,} numbers"
    why = f"{allowed}: {index.vector!r} is the vector of the index {index.name!r}"
    if "L" not in value:
        raise ItemInvalid(f"{why}, and this one is of type {''.join(value)}")
    if len(value["L"]) != index.dimensions:
        raise ItemInvalid(f"{why}, and this one has {len(value['L']):,}")
    for at, element in enumerate(value["L"]):
        if "N" not in element:
            raise ItemInvalid(f"{why}, and its element {at} is of type {''.join(element)}")
        if abs(Decimal(element["N"])) > _LARGEST_FLOAT:
            raise ItemInvalid(f"{why}, each of 32 bits, and its element {at} is {element['N']}")


def _check_nested(value: Value, attribute: str) -> None:
    _check_names_in(value, attribute)
    levels = levels_of(value)
    if levels > MAX_LEVELS:
        raise ItemInvalid(f"the attribute {attribute!r} has {levels} levels of nested values; allowed: {MAX_LEVELS}")


def _check_name(name: str, attribute: str) -> None:
    size = len(name.encode())
    if not 1 <= size <= MAX_NAME_BYTES:
        raise ItemInvalid(
            f"a name in the attribute {attribute[:40]!r} has {size:,} bytes; allowed: 1 to {MAX_NAME_BYTES:,}"
        )


def _check_names_in(value: Value, attribute: str) -> None:
    for name, member in value.get("M", {}).items():
        _check_name(name, attribute)
        _check_names_in(member, attribute)
    for element in value.get("L", ()):
        _check_names_in(element, attribute)


def _check_size(item: Attributes, schema: Schema, most_bytes: int) -> None:
    size = size_of(item)
    entries = {index.name: size_of(index.entry_of(item)) for index in schema.local_indexes}
    total = size + sum(entries.values())
    if total <= most_bytes:
        return
    largest = max(item, key=lambda name: size_of({name: item[name]}))
    beside = f", its entries in local indexes {total - size:,} ({', '.join(sorted(entries))})" if entries else ""
    raise ItemTooBig(
        f"the item has {size:,} bytes{beside}; allowed: {most_bytes:,}. Its largest attribute is {largest[:40]!r} with "
        f"{size_of({largest: item[largest]}):,}",
        size_bytes=total,
        most_bytes=most_bytes,
    )


def size_of_update(written: Attributes, removed: int) -> int:
    """The size of an UpdateItem itself, which has the same limit of 400 KB as the item that it makes.

    Not documented: public measurements (``dynamodb-conformance``) found that it is the size of the attributes written,
    19 bytes for each of them, 2 for each attribute removed, and 3. PutItem and TransactWriteItems measure only items.

    Args:
        written: the whole attributes that SET or ADD write.
        removed: how many attributes REMOVE removes.
    """
    return 3 + size_of(written) + 19 * len(written) + 2 * removed
