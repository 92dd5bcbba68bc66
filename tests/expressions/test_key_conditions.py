"""What a Query may ask of keys, also of those of a global index, which may have several attributes each."""

from typing import Any

import pytest

from ticketlock._expressions._evaluated import Expressions
from ticketlock._expressions._key_conditions import KeyRange, key_range
from ticketlock._expressions._values import ExpressionInvalid

PARTITION = {"cup": "S", "area": "S"}
SORT = {"round": "N", "bracket": "S", "match": "S", "half": "S"}
BOTH = "cup = :a AND area = :b"
ROUND, BRACKET, MATCH = "#r = :n", "bracket = :b", "#m > :a"


def asked(condition: str) -> KeyRange:
    names = {name: word for name, word in {"#r": "round", "#m": "match"}.items() if name in condition}
    values: dict[str, Any] = {":a": {"S": "a"}, ":b": {"S": "b"}, ":n": {"N": "1"}}
    used = {name: value for name, value in values.items() if name in condition}
    given = {
        "KeyConditionExpression": condition,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": used,
    }
    return key_range(PARTITION, SORT, Expressions({name: each for name, each in given.items() if each}))


@pytest.mark.parametrize(
    "condition",
    [
        BOTH,
        "area = :b AND cup = :a",
        f"({BOTH})",
        f"{BOTH} AND {ROUND}",
        f"{BOTH} AND #r > :n",
        f"{BOTH} AND #r BETWEEN :n AND :n",
        f"{BOTH} AND {ROUND} AND {BRACKET}",
        f"{BOTH} AND {ROUND} AND begins_with(bracket, :b)",
        f"(({BOTH}) AND {ROUND}) AND ({BRACKET} AND {MATCH})",
        f"{BOTH} AND {ROUND} AND {BRACKET} AND #m = :a AND half <= :b",
        f"half <= :b AND {ROUND} AND #m = :a AND {BRACKET} AND {BOTH}",
    ],
)
def test_all_of_the_partition_key_and_the_first_of_the_sort_key_are_asked_for(condition: str) -> None:
    found = asked(condition)
    assert found.partition == ({"S": "a"}, {"S": "b"})
    assert len(found.bounds) == sum(
        f"{name} " in condition or f"({name}," in condition for name in ("#r", "bracket", "#m", "half")
    )


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("cup = :a", "missed key schema element: area"),
        ("area = :b", "missed key schema element: cup"),
        (f"cup = :a AND {ROUND}", "missed key schema element: area"),
        ("cup = :a AND area > :b", "area is in the partition key, which has to be equal to a value"),
        ("cup = :a AND begins_with(area, :b)", "area is in the partition key"),
        (f"{BOTH} AND {BRACKET}", "a condition on bracket needs one on round"),
        (f"{BOTH} AND {ROUND} AND {MATCH}", "a condition on match needs one on bracket"),
        (f"{BOTH} AND #r > :n AND {BRACKET}", "round is in a range, and bracket comes after it"),
        (f"{BOTH} AND #r >= :n AND #r <= :n", "must only contain one condition per key"),
        ("cup = :a AND cup = :b AND area = :b", "must only contain one condition per key"),
        (f"{BOTH} AND #r = :a", "parameter type does not match schema type"),
        ("cup = :n AND area = :b", "parameter type does not match schema type"),
        (f"{BOTH} AND cups = :b", r"cups\] is not in the key"),
        (f"{BOTH} AND contains(bracket, :b)", "Invalid operator"),
    ],
)
def test_anything_else_is_refused_with_its_reason(condition: str, why: str) -> None:
    with pytest.raises(ExpressionInvalid, match=why):
        asked(condition)
