"""Vector indexes in memory: they are created, described, deleted, and refuse items; nothing searches them."""

from typing import Any

import pytest
from botocore.exceptions import ClientError
from testing.memory_requests import put, refused

from ticketlock.testing import MemoryDynamoDB

INDEX = {
    "IndexName": "by-meaning",
    "VectorAttribute": {"AttributeName": "vector"},
    "SearchSchema": [{"AttributeName": "topic", "SearchSchemaElementType": "HASH"}],
    "Projection": {"ProjectionType": "ALL"},
    "Dimensions": 2,
    "DistanceFunction": "COSINE",
}
TOPIC = {"AttributeName": "topic", "AttributeType": "S"}
ADD: Any = {
    "TableName": "locks",
    "AttributeDefinitions": [TOPIC],
    "VectorIndexUpdates": [{"Create": INDEX}],
}
TWO = [{"N": "1"}, {"N": "2"}]


def described(memory: MemoryDynamoDB) -> Any:
    return memory.describe_table(TableName="locks")["Table"]


def test_a_vector_index_is_added_and_deleted(memory: MemoryDynamoDB) -> None:
    before = described(memory)
    memory.update_table(**ADD)
    assert described(memory)["VectorIndexes"] == [{**INDEX, "IndexStatus": "ACTIVE"}]
    assert TOPIC in described(memory)["AttributeDefinitions"]
    assert "already exists" in refused(memory.update_table, **ADD)
    delete: Any = {"TableName": "locks", "VectorIndexUpdates": [{"Delete": {"IndexName": "by-meaning"}}]}
    memory.update_table(**delete)
    assert described(memory) == before
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        memory.update_table(**delete)


@pytest.mark.parametrize(
    "change", [{"AttributeDefinitions": []}, {"VectorIndexUpdates": [{"Create": {**INDEX, "Dimensions": 4_097}}]}]
)
def test_an_index_that_cannot_be_is_refused(memory: MemoryDynamoDB, change: Any) -> None:
    refused(memory.update_table, **{**ADD, **change})
    assert "VectorIndexes" not in described(memory)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"vector": {"L": TWO[:1]}}, "has 1 dimensions"),
        ({"vector": {"NS": ["1", "2"]}}, "Invalid type for parameter vector"),
        ({"vector": {"L": [{"N": "1"}, {"S": "2"}]}}, "Invalid type for parameter vector"),
        ({"topic": {"N": "1"}}, "Type mismatch for Index Key topic"),
    ],
)
def test_an_item_that_a_vector_index_cannot_take_is_refused(memory: MemoryDynamoDB, more: Any, why: str) -> None:
    memory.update_table(**ADD)
    assert why in refused(put, memory, **more)
    put(memory)
    put(memory, vector={"L": TWO}, topic={"S": "sea"})
