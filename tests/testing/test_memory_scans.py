"""Scans of parts of a table, of the database in memory."""

import pytest
from botocore.exceptions import ClientError

from ticketlock.testing import MemoryDynamoDB

KEYS = [{"pk": {"S": f"order-{number}"}, "sk": {"S": sk}} for number in range(20) for sk in ("a", "b")]


@pytest.fixture
def filled(memory: MemoryDynamoDB) -> MemoryDynamoDB:
    for key in KEYS:
        memory.put_item(TableName="locks", Item=key)
    return memory


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_the_parts_have_every_item_once(filled: MemoryDynamoDB, parts: int) -> None:
    found = []
    for part in range(parts):
        page = filled.scan(TableName="locks", Segment=part, TotalSegments=parts, Limit=3)
        while True:
            found += page["Items"]
            if "LastEvaluatedKey" not in page:
                break
            page = filled.scan(
                TableName="locks",
                Segment=part,
                TotalSegments=parts,
                Limit=3,
                ExclusiveStartKey=page["LastEvaluatedKey"],
            )
    assert sorted(found, key=str) == sorted(KEYS, key=str)


@pytest.mark.parametrize("asked", [{"Segment": 0}, {"TotalSegments": 2}, {"Segment": 2, "TotalSegments": 2}], ids=str)
def test_a_part_that_does_not_exist_is_refused(filled: MemoryDynamoDB, asked: dict[str, int]) -> None:
    with pytest.raises(ClientError, match="Segment"):
        filled.scan(TableName="locks", **asked)
