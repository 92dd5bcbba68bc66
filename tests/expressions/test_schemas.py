"""What DynamoDB refuses for its contents is refused before: just below, at and above each bound."""

from typing import Any

import pytest
from expressions.asked import item_of, nested, wire

from ticketlock._expressions._schemas import Index, KeyAttribute, Schema, check_item, size_of_update
from ticketlock._expressions._values import MAX_ITEM_BYTES, ItemInvalid, ItemTooBig, size_of

pytestmark = pytest.mark.shows("bad input")


def index(name: str, partition: str, sort: str, projection: dict[str, Any]) -> dict[str, Any]:
    keys = [{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}]
    return {"IndexName": name, "KeySchema": keys, "Projection": projection}


DESCRIPTION = {
    "TableName": "orders",
    "KeySchema": [{"AttributeName": "sk", "KeyType": "RANGE"}, {"AttributeName": "pk", "KeyType": "HASH"}],
    "AttributeDefinitions": [
        {"AttributeName": "pk", "AttributeType": "S"},
        {"AttributeName": "sk", "AttributeType": "B"},
        {"AttributeName": "customer", "AttributeType": "S"},
        {"AttributeName": "price", "AttributeType": "N"},
        {"AttributeName": "grade", "AttributeType": "S"},
    ],
    "GlobalSecondaryIndexes": [
        index("by-customer", "customer", "price", {"ProjectionType": "ALL"}),
        index("by-grade", "customer", "grade", {"ProjectionType": "KEYS_ONLY"}),
    ],
}
SCHEMA = Schema.described(DESCRIPTION)
PLAIN = Schema("plain", (KeyAttribute("pk", "S", "HASH"),))
KEY = {"pk": "order-42", "sk": b"\x01"}


def refusal(item: dict[str, Any], schema: Schema = SCHEMA) -> str:
    with pytest.raises(ItemInvalid) as caught:
        check_item(item, schema)
    return caught.value.message


def test_a_schema_is_read_from_a_description_of_the_table() -> None:
    assert SCHEMA.key_names == ("pk", "sk")
    assert [str(key) for key in SCHEMA.keys] == ["the partition key of the table", "the sort key of the table"]
    assert [(key.name, key.kind, key.index) for key in SCHEMA.index_keys] == [
        ("customer", "S", "by-customer"),
        ("price", "N", "by-customer"),
        ("customer", "S", "by-grade"),
        ("grade", "S", "by-grade"),
    ]
    assert SCHEMA.local_indexes == ()


def test_an_item_needs_its_keys_and_no_key_of_an_index_and_other_attributes_may_be_empty() -> None:
    check_item(item_of(**KEY), SCHEMA)
    check_item(item_of(**KEY, customer="c", price=1, grade="a", other=[], a="", b=b"", d={}), SCHEMA)
    assert refusal(item_of(sk=b"\x01")) == (
        "a value of type S: 'pk' is the partition key of the table 'orders', and is missing"
    )
    assert "a value of type B: 'sk' is the sort key of the table 'orders', and is missing" in refusal(item_of(pk="x"))


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("pk", 1, "a value of type S: 'pk' is the partition key of the table, and this one is of type N"),
        ("sk", "x", "a value of type B: 'sk' is the sort key of the table, and this one is of type S"),
        ("customer", None, "a value of type S: 'customer' is the partition key of the index 'by-customer', and this"),
        ("price", "12", "a value of type N: 'price' is the sort key of the index 'by-customer', and this one is of"),
        ("pk", "", "1 to 2,048 bytes: 'pk' is the partition key of the table, and this one has 0: ''"),
        ("sk", b"", "1 to 1,024 bytes: 'sk' is the sort key of the table, and this one has 0: b''"),
        ("grade", "", "1 to 1,024 bytes: 'grade' is the sort key of the index 'by-grade', and this one has 0: ''"),
    ],
)
def test_a_key_of_the_table_or_of_an_index_has_its_type_and_is_not_empty(name: str, value: Any, why: str) -> None:
    assert why in refusal(item_of(**{**KEY, name: value}))


@pytest.mark.parametrize(
    ("name", "one", "most"),
    [("pk", "é", 2_048), ("sk", b"xx", 1_024), ("customer", "xx", 2_048), ("grade", "xx", 1_024)],
)
def test_a_key_has_as_many_bytes_as_its_role_allows(name: str, one: Any, most: int) -> None:
    for text in (one, one * (most // 2 - 1), one * (most // 2)):
        check_item(item_of(**{**KEY, name: text}), SCHEMA)
    more = one * (most // 2) + (b"x" if isinstance(one, bytes) else "x")
    refused = refusal(item_of(**{**KEY, name: more}))
    assert refused.startswith(f"1 to {most:,} bytes: ")
    assert f"this one has {most + 1:,}: " in refused


def test_names_have_1_to_65535_bytes_on_every_level() -> None:
    for size in (1, 65_534, 65_535):
        check_item(item_of(**KEY, **{"n" * size: 1}, m=[{"n" * size: 1}]), SCHEMA)
    assert "has 0 bytes; allowed: 1 to 65,535" in refusal(item_of(**KEY, **{"": 1}))
    assert "a name in the attribute 'm' has 0 bytes" in refusal(item_of(**KEY, m=[{"": 1}]))
    assert "has 65,536 bytes" in refusal(item_of(**KEY, m={"n" * 65_536: 1}))


def test_an_attribute_has_32_levels() -> None:
    for levels in (1, 31, 32):
        check_item({**item_of(**KEY), "deep": nested(levels)}, SCHEMA)
    assert refusal({**item_of(**KEY), "deep": nested(33)}) == (
        "the attribute 'deep' has 33 levels of nested values; allowed: 32"
    )


def of_bytes(size: int, **attributes: Any) -> dict[str, Any]:
    item = item_of(pk="x", **attributes, data="")
    return {**item, "data": wire("d" * (size - size_of(item)))}


def test_an_item_has_409600_bytes_or_as_many_as_are_left() -> None:
    for size in (MAX_ITEM_BYTES - 1, MAX_ITEM_BYTES):
        check_item(of_bytes(size, n=7), PLAIN)
    with pytest.raises(ItemTooBig) as caught:
        check_item(of_bytes(MAX_ITEM_BYTES + 1), PLAIN)
    assert (caught.value.size_bytes, caught.value.most_bytes) == (409_601, 409_600)
    assert caught.value.message == (
        "the item has 409,601 bytes; allowed: 409,600. Its largest attribute is 'data' with 409,598"
    )
    check_item(of_bytes(MAX_ITEM_BYTES - 128), PLAIN, MAX_ITEM_BYTES - 128)
    with pytest.raises(ItemTooBig, match="allowed: 409,472"):
        check_item(of_bytes(MAX_ITEM_BYTES - 127), PLAIN, MAX_ITEM_BYTES - 128)


@pytest.mark.parametrize(
    ("projection", "counted"),
    [
        ({"ProjectionType": "ALL"}, 2),
        ({"ProjectionType": "INCLUDE", "NonKeyAttributes": ["data"]}, 2),
        ({"ProjectionType": "KEYS_ONLY"}, 1),
    ],
)
def test_entries_in_local_indexes_count_with_the_item(projection: dict[str, Any], counted: int) -> None:
    description = {
        "TableName": "orders",
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": kind} for name, kind in (("pk", "S"), ("sk", "S"), ("grade", "S"))
        ],
        "LocalSecondaryIndexes": [index("by-grade", "pk", "grade", projection)],
    }
    schema = Schema.described(description)
    assert [type(each) for each in schema.local_indexes] == [Index]
    keys = {"pk": "x", "sk": "y", "grade": "a"}
    beside = size_of(item_of(**keys))
    # Of all but the keys, as much as fits beside the keys twice.
    most = (MAX_ITEM_BYTES - 2 * beside) // counted - len("data")
    check_item(item_of(**keys, data="d" * most), schema)
    with pytest.raises(ItemTooBig, match=r"its entries in local indexes .* \(by-grade\); allowed: 409,600"):
        check_item(item_of(**keys, data="d" * (most + 1)), schema)
    check_item(item_of(pk="x", sk="y", data="d" * (MAX_ITEM_BYTES - 10)), schema)


def test_an_update_is_measured_by_what_it_writes() -> None:
    base, each_written, each_removed = 3, 19, 2
    assert size_of_update(item_of(b="value"), 0) == base + each_written + len("bvalue")
    assert size_of_update(item_of(b="v", c="w"), 0) == base + 2 * each_written + len("bvcw")
    assert size_of_update(item_of(b="v"), 1) == base + each_written + len("bv") + each_removed
    assert size_of_update({}, 2) == base + 2 * each_removed
