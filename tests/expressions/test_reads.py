"""What reads ask: conditions on keys, also of global indexes, and projections."""

from typing import Any

import pytest
from expressions.asked import item_of, projected

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
        f"{BOTH} AND {ROUND}",
        f"{BOTH} AND #r BETWEEN :n AND :n",
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
        ("cup = :a AND area > :b", "area is in the partition key, which has to be equal to a value"),
        (f"{BOTH} AND {BRACKET}", "a condition on bracket needs one on round"),
        (f"{BOTH} AND {ROUND} AND {MATCH}", "a condition on match needs one on bracket"),
        (f"{BOTH} AND #r > :n AND {BRACKET}", "round is in a range, and bracket comes after it"),
        (f"{BOTH} AND #r >= :n AND #r <= :n", "must only contain one condition per key"),
        ("cup = :a AND cup = :b AND area = :b", "must only contain one condition per key"),
        (f"{BOTH} AND #r = :a", "parameter type does not match schema type"),
        ("cup = :n AND area = :b", "parameter type does not match schema type"),
        (f"{BOTH} AND cups = :b", "missed key schema element: round"),
        (f"{BOTH} AND contains(bracket, :b)", "Invalid operator"),
    ],
)
def test_anything_else_is_refused_with_its_reason(condition: str, why: str) -> None:
    with pytest.raises(ExpressionInvalid, match=why):
        asked(condition)


ITEM = item_of(n=1, txt="hello", nums=[0, 1, 2, 3], nest={"k": 1, "entries": [{"q": 1, "r": 2}, {"q": 3}]})


@pytest.mark.parametrize(
    ("projection", "shown"),
    [
        ("n, gone, nest.gone, txt.k, nums[4]", {"n": 1}),
        ("nums[3], nums[0]", {"nums": [0, 3]}),
        ("nest.entries[1], nest.entries[0].r, nest.k", {"nest": {"k": 1, "entries": [{"r": 2}, {"q": 3}]}}),
    ],
    ids=["absent ones are left out", "elements in the order of their list", "parts where they are"],
)
def test_a_projection_shows_attributes_and_their_parts(projection: str, shown: dict[str, Any]) -> None:
    assert projected(projection, ITEM) == item_of(**shown)


def test_what_is_handed_out_shares_nothing_with_the_item() -> None:
    projected("nest.entries", ITEM)["nest"]["M"]["entries"]["L"].clear()
    assert projected("nest.entries[0].q", ITEM) == item_of(nest={"entries": [{"q": 1}]})


@pytest.mark.parametrize(
    ("projection", "why"),
    [
        ("n, n", r"paths overlap .*; path one: \[n\], path two: \[n\]"),
        ("nums[1].a, nums[1]", r"paths overlap .*; path one: \[nums, \[1\], a\], path two: \[nums, \[1\]\]"),
        ("nums[1], nums.a", r"paths conflict .*; path one: \[nums, \[1\]\], path two: \[nums, a\]"),
        ("n,", 'Syntax error; token: "<EOF>"'),
        (":n", 'Syntax error; token: ":n"'),
        ("size", "reserved keyword: size"),
    ],
)
def test_a_wrong_projection_is_refused_with_the_reason(projection: str, why: str) -> None:
    with pytest.raises(ExpressionInvalid, match=f"Invalid ProjectionExpression: .*{why}"):
        projected(projection, ITEM)
