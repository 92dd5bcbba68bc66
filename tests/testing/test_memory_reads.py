"""The DynamoDB in memory: queries of keys that are numbers or bytes, and scans of parts of a table."""

from typing import Any

import pytest
from botocore.exceptions import ClientError
from kit.units import index, make_table
from testing.memory_requests import pages_of, refused

from ticketlock.testing import MemoryDynamoDB

TABLE = {"TableName": "readings"}


def create(memory: MemoryDynamoDB, pk: str, sk: str | None = None) -> None:
    make_table(memory, TABLE["TableName"], {"pk": pk, **({"sk": sk} if sk else {})})


def put(memory: MemoryDynamoDB, pk: Any, sk: Any) -> None:
    memory.put_item(**TABLE, Item={"pk": pk, "sk": sk})


def query(memory: MemoryDynamoDB, condition: str, limit: int | None = None, **values: Any) -> list[Any]:
    """The sort keys that are found."""
    given = {f":{name}": value for name, value in values.items()}
    request: dict[str, Any] = {**TABLE, "KeyConditionExpression": condition, "ExpressionAttributeValues": given}
    if limit is not None:
        request["Limit"] = limit
    return [next(iter(item["sk"].values())) for page in pages_of(memory.query, request) for item in page["Items"]]


def test_numbers_are_ordered_by_value_and_not_by_digits(memory: MemoryDynamoDB) -> None:
    create(memory, "S", "N")
    for text in ("10", "9", "-1.5", "0", "1e2", "-20"):
        put(memory, {"S": "x"}, {"N": text})
    pk = {"S": "x"}
    assert query(memory, "pk = :pk", pk=pk) == ["-20", "-1.5", "0", "9", "10", "100"]
    assert query(memory, "pk = :pk", 2, pk=pk) == ["-20", "-1.5", "0", "9", "10", "100"]
    assert query(memory, "pk = :pk AND sk >= :low", pk=pk, low={"N": "9"}) == ["9", "10", "100"]
    assert query(memory, "pk = :pk AND :low < sk", pk=pk, low={"N": "9.0"}) == ["10", "100"]
    assert query(memory, "sk BETWEEN :low AND :high AND pk = :pk", pk=pk, low={"N": "-2"}, high={"N": "9"}) == [
        "-1.5",
        "0",
        "9",
    ]


def test_bytes_are_ordered(memory: MemoryDynamoDB) -> None:
    create(memory, "N", "B")
    for octets in (b"\xff", b"a", b"\x00", b"ab", b"\x00\x00"):
        put(memory, {"N": "1"}, {"B": octets})
    pk = {"N": "1.00"}
    assert query(memory, ":pk = pk", pk=pk) == [b"\x00", b"\x00\x00", b"a", b"ab", b"\xff"]
    assert query(memory, "pk = :pk AND begins_with(sk, :a)", pk=pk, a={"B": b"a"}) == [b"a", b"ab"]


def test_one_number_is_one_key_however_it_is_written(memory: MemoryDynamoDB) -> None:
    create(memory, "N")
    memory.put_item(**TABLE, Item={"pk": {"N": "1e2"}, "a": {"S": "first"}})
    memory.update_item(**TABLE, Key={"pk": {"N": "100.0"}}, UpdateExpression="SET b = pk")
    assert memory.items("readings") == [{"pk": {"N": "100"}, "a": {"S": "first"}, "b": {"N": "100"}}]
    assert memory.get_item(**TABLE, Key={"pk": {"N": "0100"}})["Item"]["a"] == {"S": "first"}
    memory.delete_item(**TABLE, Key={"pk": {"N": "100.00"}})
    assert memory.items("readings") == []


def test_an_item_that_an_update_creates_has_its_key_in_the_usual_form(memory: MemoryDynamoDB) -> None:
    create(memory, "N")
    memory.update_item(
        **TABLE,
        Key={"pk": {"N": "2.50"}},
        UpdateExpression="REMOVE a SET b = list_append(:l, :l)",
        ExpressionAttributeValues={":l": {"L": []}},
    )
    assert memory.items("readings") == [{"pk": {"N": "2.5"}, "b": {"L": []}}]


def test_a_table_describes_the_types_of_its_keys(memory: MemoryDynamoDB) -> None:
    create(memory, "B", "N")
    assert memory.describe_table(**TABLE)["Table"]["AttributeDefinitions"] == [
        {"AttributeName": "pk", "AttributeType": "B"},
        {"AttributeName": "sk", "AttributeType": "N"},
    ]


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ({"pk": {"S": "x"}, "sk": {"S": "1"}}, "Type mismatch for key sk expected: N actual: S"),
        ({"pk": {"S": "x"}, "sk": {"N": "one"}}, "cannot be converted to a numeric value"),
        ({"pk": {"S": ""}, "sk": {"N": "1"}}, "cannot contain an empty string value. Key: pk"),
        ({"pk": {"S": "x" * 2_049}, "sk": {"N": "1"}}, "maximum size limit of 2048 bytes"),
    ],
)
def test_a_key_of_another_type_or_length_is_refused(memory: MemoryDynamoDB, key: Any, why: str) -> None:
    create(memory, "S", "N")
    assert why in refused(memory.put_item, **TABLE, Item=key)


@pytest.mark.parametrize(
    ("condition", "value", "why"),
    [
        ("pk = :pk AND sk = :v", {"S": "1"}, "Condition parameter type does not match schema type"),
        ("pk = :pk AND begins_with(sk, :v)", {"S": "1"}, "Condition parameter type does not match schema type"),
        ("pk = :pk AND sk.k = :v", {"N": "1"}, r"[sk, k] is not in the key"),
        ("pk = :pk AND sk IN (:v)", {"N": "1"}, "Invalid operator used in KeyConditionExpression"),
        ("pk = :pk AND sk > :v AND sk > :v", {"N": "1"}, "must only contain one condition per key"),
        ("pk = :pk AND size(sk) > :v", {"N": "1"}, "Invalid operator used in KeyConditionExpression"),
    ],
)
def test_an_invalid_sort_key_condition_is_refused(memory: MemoryDynamoDB, condition: str, value: Any, why: str) -> None:
    create(memory, "S", "N")
    assert why in refused(query, memory, condition, pk={"S": "x"}, v=value)


def test_the_key_of_a_table_is_a_text_a_number_or_bytes(memory: MemoryDynamoDB) -> None:
    assert "enum value set" in refused(create, memory, "BOOL")


KEYS = [{"pk": {"S": f"order-{number}"}, "sk": {"S": sk}} for number in range(20) for sk in ("a", "b")]


@pytest.fixture
def filled(memory: MemoryDynamoDB) -> MemoryDynamoDB:
    for key in KEYS:
        memory.put_item(TableName="locks", Item=key)
    return memory


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_the_parts_of_a_scan_have_every_item_once(filled: MemoryDynamoDB, parts: int) -> None:
    asked: dict[str, Any] = {"TableName": "locks", "TotalSegments": parts, "Limit": 3}
    pages = [page for part in range(parts) for page in pages_of(filled.scan, {**asked, "Segment": part})]
    assert sorted((item for page in pages for item in page["Items"]), key=str) == sorted(KEYS, key=str)


@pytest.mark.parametrize("asked", [{"Segment": 0}, {"TotalSegments": 2}, {"Segment": 2, "TotalSegments": 2}], ids=str)
def test_a_part_of_a_scan_that_does_not_exist_is_refused(filled: MemoryDynamoDB, asked: dict[str, int]) -> None:
    with pytest.raises(ClientError, match="Segment"):
        filled.scan(TableName="locks", **asked)


def test_an_index_shows_the_changes_that_have_reached_it_in_their_order(memory: MemoryDynamoDB) -> None:
    name, by_state = TABLE["TableName"], index("by-state", {"state": "HASH"}, ProjectionType="KEYS_ONLY")
    make_table(memory, name, {"pk": "S"}, {"state": "S"}, GlobalSecondaryIndexes=[by_state])

    def shown() -> list[tuple[str, str]]:
        found = memory.scan(**TABLE, IndexName="by-state")["Items"]
        return sorted((item["pk"]["S"], item["state"]["S"]) for item in found)

    memory.index_delay.arrive = lambda _: 0
    for pk, state in (("a", "open"), ("b", "open"), ("a", "closed")):
        memory.put_item(**TABLE, Item={"pk": {"S": pk}, "state": {"S": state}, "more": {"S": "x"}})
    memory.delete_item(**TABLE, Key={"pk": {"S": "b"}})
    assert shown() == []
    memory.index_delay.arrive = lambda _: 1
    assert [shown() for _ in range(4)] == [
        [("a", "open")],
        [("a", "open"), ("b", "open")],
        [("a", "closed"), ("b", "open")],
        [("a", "closed")],
    ]
